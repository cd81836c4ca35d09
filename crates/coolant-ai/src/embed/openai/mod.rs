//! Embeddings from an OpenAI-compatible server: OpenAI itself and most others, Ollama, vLLM, llama.cpp.
//!
//! One call is one request: no retry, no redirect, no proxy to a server on this machine. Other proxies
//! are those of the usual environment variables (`HTTPS_PROXY`, `NO_PROXY`).

mod answer;
mod exchange;

use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Url, redirect};
use serde::Serialize;

use self::exchange::Exchange;
use super::settings::{EmbeddingSettings, InvalidSettings, Timeouts};
use super::{BatchLimits, EmbedError, Embedder, EmbedderClass, Embeddings, ModelId};
use crate::Secret;

/// An embedding model behind `POST {base_url}/embeddings`. `Debug` shows neither URL nor key.
pub struct OpenAiEmbedder {
    id: ModelId,
    upstream: String,
    asked_dimensions: Option<u32>,
    limits: BatchLimits,
    client: Client,
    endpoint: Url,
    key: Option<Secret>,
    timeouts: Timeouts,
}

impl std::fmt::Debug for OpenAiEmbedder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenAiEmbedder").field("id", &self.id).field("limits", &self.limits).finish()
    }
}

impl OpenAiEmbedder {
    /// The embedder of these settings, which must have a base URL and a model. Sends nothing.
    ///
    /// # Errors
    ///
    /// If the settings cannot work, or, for `https`, if the system's certificates cannot be read.
    pub fn new(settings: &EmbeddingSettings) -> Result<Self, InvalidSettings> {
        let endpoint = settings.endpoint(settings.base_url.as_deref().unwrap_or_default())?;
        let model = settings.model.clone().filter(|model| !model.trim().is_empty());
        let model = model.ok_or(InvalidSettings::NoModel)?;
        let provider = settings.provider_of(&endpoint);
        Ok(Self {
            limits: settings.limits(&provider)?,
            client: client(settings, &endpoint)?,
            upstream: format!("{provider}/{model}"),
            id: ModelId { provider, model, dimension: settings.dimensions.or(settings.pinned_dimension) },
            asked_dimensions: settings.dimensions,
            endpoint,
            key: settings.api_key.clone(),
            timeouts: settings.timeouts,
        })
    }
}

#[async_trait]
impl Embedder for OpenAiEmbedder {
    fn id(&self) -> &ModelId {
        &self.id
    }

    fn class(&self) -> EmbedderClass {
        EmbedderClass::Semantic
    }

    fn upstream(&self) -> Option<&str> {
        Some(&self.upstream)
    }

    fn batch_limits(&self) -> BatchLimits {
        self.limits
    }

    async fn embed(&self, inputs: &[String]) -> Result<Embeddings, EmbedError> {
        if let Some(index) = inputs.iter().position(|input| input.trim().is_empty()) {
            return Err(EmbedError::BlankInput { index });
        }
        if inputs.is_empty() {
            return Ok(Embeddings::default());
        }
        let request = self.client.post(self.endpoint.clone()).json(&Request {
            model: &self.id.model,
            input: inputs,
            encoding_format: "float",
            dimensions: self.asked_dimensions,
        });
        let most_bytes = answer::most_bytes(inputs.len(), self.id.dimension);
        let exchange = Exchange { key: self.key.as_ref(), timeouts: self.timeouts, most_bytes };
        let answer = exchange.run(request).await?;
        answer::read(answer, inputs, self.id.dimension)
    }
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    input: &'a [String],
    encoding_format: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<u32>,
}

fn client(settings: &EmbeddingSettings, endpoint: &Url) -> Result<Client, InvalidSettings> {
    install_tls_provider();
    let mut headers = HeaderMap::new();
    if let Some(key) = &settings.api_key {
        let value = HeaderValue::from_str(&format!("Bearer {}", key.expose()));
        let mut value = value.map_err(|_| InvalidSettings::ApiKey)?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let mut builder = Client::builder()
        .user_agent(concat!("coolant/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .connect_timeout(settings.timeouts.connect)
        // The documents and the key are meant for this host. A redirect is an answer like any other.
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        // A connection that idled for long is often dead, and then a paid call seems to have failed.
        .pool_idle_timeout(std::time::Duration::from_secs(5));
    if is_this_machine(endpoint) {
        builder = builder.no_proxy();
    }
    if endpoint.scheme() == "http" {
        // Not even asked for the system's certificates, which a slim container does not have.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| InvalidSettings::Client { reason: exchange::chain(&error.without_url()) })
}

fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// Makes `ring` the process's TLS provider unless it has one. A binary calls this at the start of `main`
/// if it uses rustls elsewhere; [`OpenAiEmbedder::new`] calls it too.
///
/// `ring` and not `aws-lc-rs`, because it takes half a minute of CPU less to build for release.
pub fn install_tls_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Refused only if another thread was faster: then there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}
