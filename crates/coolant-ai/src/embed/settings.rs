//! What an embedder is made from. Who reads files and environment fills this in.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;

use super::{BatchLimits, Embedder, Lexical1, OpenAiEmbedder, provider_limits};
use crate::Secret;

/// Which embedder to use, and how. `Debug` shows of the URL only what cannot be a key.
#[derive(Clone, Default)]
pub struct EmbeddingSettings {
    /// Base URL of an OpenAI-compatible server, with its `/v1`; `None`: the local [`Lexical1`].
    pub base_url: Option<String>,
    /// Sent as a bearer token, if there is one.
    pub api_key: Option<Secret>,
    /// Short name of the provider in upstreams; `None`: known by the host, else the host itself.
    pub provider: Option<String>,
    /// The model to ask for. Needed if there is a base URL.
    pub model: Option<String>,
    /// Asked for and checked. Many models have one dimension only and refuse to be asked.
    pub dimensions: Option<u32>,
    /// Checked and not asked for: the dimension of the vectors that are stored already. Without both,
    /// an answer's vectors need only agree with each other.
    pub pinned_dimension: Option<u32>,
    /// Texts a call, at least 1; `None`: 64, or fewer if the provider takes fewer.
    pub batch_items: Option<usize>,
    /// Estimated tokens a call, at least 1; `None`: what the provider takes.
    pub batch_tokens: Option<u64>,
    /// How long to wait for what.
    pub timeouts: Timeouts,
}

/// The timers of one call. All run at once; the first to end ends the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection stands, TLS included.
    pub connect: Duration,
    /// From the start until the first byte of the answer's body.
    pub first_byte: Duration,
    /// Between two parts of the body.
    pub idle: Duration,
    /// The whole call.
    pub total: Duration,
}

impl Default for Timeouts {
    /// 10 s, 60 s, 30 s and 600 s.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(60),
            idle: Duration::from_secs(30),
            total: Duration::from_secs(600),
        }
    }
}

/// Settings that make no embedder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSettings {
    /// Not `http(s)://host/path`. The URL itself is not repeated: it may hold a key.
    #[error("the base URL of the embedding provider is not usable: {reason}")]
    BaseUrl {
        /// Why.
        reason: String,
    },
    /// A base URL and no model.
    #[error("an embedding provider needs a model")]
    NoModel,
    /// A key that no HTTP header can hold.
    #[error("the API key holds characters that cannot be sent")]
    ApiKey,
    /// A count of zero.
    #[error("`{field}` must be at least 1")]
    Zero {
        /// Which one.
        field: &'static str,
    },
    /// The HTTP client could not start, for example because the system has no certificates.
    #[error("the HTTP client could not start: {reason}")]
    Client {
        /// What it said.
        reason: String,
    },
}

impl std::fmt::Debug for EmbeddingSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |url: &String| match Url::parse(url) {
            Ok(url) => format!("{}://{}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path()),
            Err(_) => "(not a URL)".to_owned(),
        };
        f.debug_struct("EmbeddingSettings")
            .field("base_url", &self.base_url.as_ref().map(shown))
            .field("api_key", &self.api_key)
            .field("provider", &self.provider)
            .field("model", &self.model)
            .field("dimensions", &self.dimensions)
            .field("pinned_dimension", &self.pinned_dimension)
            .field("batch_items", &self.batch_items)
            .field("batch_tokens", &self.batch_tokens)
            .field("timeouts", &self.timeouts)
            .finish()
    }
}

impl EmbeddingSettings {
    /// Checks the URL and appends the endpoint.
    pub(super) fn endpoint(&self, base_url: &str) -> Result<Url, InvalidSettings> {
        let bad = |reason: &str| InvalidSettings::BaseUrl { reason: reason.to_owned() };
        let mut url = Url::parse(base_url.trim()).map_err(|error| bad(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad("it must start with http:// or https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("it must not hold a user or password; there is a setting for the key"));
        }
        url.set_fragment(None);
        url.path_segments_mut().map_err(|()| bad("it has no path"))?.pop_if_empty().push("embeddings");
        Ok(url)
    }

    pub(super) fn provider_of(&self, url: &Url) -> String {
        if let Some(provider) = &self.provider {
            return provider.clone();
        }
        let host = url.host_str().unwrap_or_default();
        let known = KNOWN_HOSTS.iter().find(|(known, _)| {
            host.strip_suffix(known).is_some_and(|front| front.is_empty() || front.ends_with('.'))
        });
        match (known, url.port()) {
            (Some((_, provider)), _) => (*provider).to_owned(),
            (None, Some(port)) => format!("{host}:{port}"),
            (None, None) => host.to_owned(),
        }
    }

    pub(super) fn limits(&self, provider: &str) -> Result<BatchLimits, InvalidSettings> {
        let most = provider_limits(provider);
        let items = self.batch_items.unwrap_or(most.items.min(BatchLimits::DEFAULT_ITEMS));
        let tokens = self.batch_tokens.unwrap_or(most.tokens);
        if items == 0 {
            return Err(InvalidSettings::Zero { field: "batch_items" });
        }
        if tokens == 0 {
            return Err(InvalidSettings::Zero { field: "batch_tokens" });
        }
        if self.dimensions == Some(0) {
            return Err(InvalidSettings::Zero { field: "dimensions" });
        }
        if self.pinned_dimension == Some(0) {
            return Err(InvalidSettings::Zero { field: "pinned_dimension" });
        }
        Ok(BatchLimits { items, tokens })
    }
}

const KNOWN_HOSTS: [(&str, &str); 10] = [
    ("api.openai.com", "openai"),
    ("openai.azure.com", "azure"),
    ("generativelanguage.googleapis.com", "gemini"),
    ("aiplatform.googleapis.com", "vertex"),
    ("api.mistral.ai", "mistral"),
    ("api.voyageai.com", "voyage"),
    ("api.jina.ai", "jina"),
    ("api.cohere.ai", "cohere"),
    ("api.cohere.com", "cohere"),
    ("aliyuncs.com", "dashscope"),
];

/// Makes the embedder: the server at the base URL, or [`Lexical1`] without one.
///
/// # Errors
///
/// If the settings contradict themselves, or the HTTP client cannot start. Nothing is sent.
pub fn build(settings: &EmbeddingSettings) -> Result<Arc<dyn Embedder>, InvalidSettings> {
    match &settings.base_url {
        None => Ok(Arc::new(Lexical1::new())),
        Some(_) => Ok(Arc::new(OpenAiEmbedder::new(settings)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(base_url: &str) -> EmbeddingSettings {
        EmbeddingSettings { base_url: Some(base_url.into()), model: Some("m".into()), ..Default::default() }
    }

    #[test]
    fn an_upstream_is_named_by_provider_and_model() {
        for (base_url, upstream) in [
            ("https://api.openai.com/v1", "openai/m"),
            ("https://x.openai.azure.com/openai/v1/", "azure/m"),
            ("http://127.0.0.1:11434/v1", "127.0.0.1:11434/m"),
            ("https://notapi.openai.com.evil.example/v1", "notapi.openai.com.evil.example/m"),
        ] {
            assert_eq!(build(&settings(base_url)).unwrap().upstream(), Some(upstream), "{base_url}");
        }
        let named = EmbeddingSettings { provider: Some("mine".into()), ..settings("http://localhost/v1") };
        assert_eq!(build(&named).unwrap().upstream(), Some("mine/m"));
    }

    #[test]
    fn without_a_base_url_it_is_local_and_free() {
        let local = build(&EmbeddingSettings::default()).unwrap();
        assert_eq!((local.upstream(), local.id().fingerprint()), (None, "embed=local/lexical-1@512".into()));
    }

    #[test]
    fn the_endpoint_is_below_the_base_url() {
        for (base_url, endpoint) in [
            ("https://h/v1", "https://h/v1/embeddings"),
            ("https://h/v1/", "https://h/v1/embeddings"),
            ("https://h/v1?api-version=1", "https://h/v1/embeddings?api-version=1"),
        ] {
            assert_eq!(settings(base_url).endpoint(base_url).unwrap().as_str(), endpoint);
        }
    }

    #[test]
    fn settings_that_contradict_themselves_are_refused() {
        for bad in ["", "h/v1", "ftp://h/v1", "https://user:secret@h/v1", "data:x"] {
            let error = build(&settings(bad)).unwrap_err();
            assert!(matches!(error, InvalidSettings::BaseUrl { .. }), "{bad}");
            assert!(!format!("{error} {error:?} {:?}", settings(bad)).contains("secret"));
        }
        let base = settings("http://h/v1");
        let no_model = EmbeddingSettings { model: None, ..base.clone() };
        assert_eq!(build(&no_model).unwrap_err(), InvalidSettings::NoModel);
        let no_items = EmbeddingSettings { batch_items: Some(0), ..base.clone() };
        assert_eq!(build(&no_items).unwrap_err(), InvalidSettings::Zero { field: "batch_items" });
        let key = EmbeddingSettings { api_key: Some(Secret::new("a\nb")), ..base };
        assert_eq!(build(&key).unwrap_err(), InvalidSettings::ApiKey);
    }

    #[test]
    fn batches_are_64_texts_or_what_the_provider_takes() {
        let base = settings("http://h/v1");
        for (provider, items) in [("openai", 64), ("dashscope", 10), ("tei", 32), ("?", 64)] {
            assert_eq!(base.limits(provider).unwrap().items, items, "{provider}");
        }
        let more = EmbeddingSettings { batch_items: Some(2000), batch_tokens: Some(9), ..base };
        assert_eq!(more.limits("openai").unwrap(), BatchLimits { items: 2000, tokens: 9 });
    }
}
