//! The program put together: store, pipeline, engine, worker, from the settings.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use coolant_ai::index::DocumentIndex;
use coolant_ai::pipeline::{self, Pipeline, Text, TextPage};
use coolant_ai::search::{By, Search, SearchFault};
use coolant_backends::{Options, SqlStore};
use coolant_core::documents::DocumentStore;
use coolant_core::failure::{Failure, FailureClass};
use coolant_core::lock::LockStore;
use coolant_core::names::Upstream;
use coolant_core::store::{Store, StoreError};
use coolant_parse::{Hints, ParseError, Parser};

use crate::bell::Bell;
use crate::config::{LockSettings, Settings};
use crate::engine::documents::{Hit, SearchError, SearchMode, SearchQuery, Searcher};
use crate::engine::payloads::PayloadChecks;
use crate::engine::{self, Engine};
use crate::worker::{LooseCalls, Worker, WorkerBuilder};

/// The argument that makes this program read one document and end.
pub const PARSE_ARGUMENT: &str = "__parse";

/// Why the program could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store does not open.
    #[error("cannot open the store")]
    Store(#[from] StoreError),
    /// The locks cannot be where the settings say.
    #[error("cannot use the locks")]
    Locks(#[source] StoreError),
    /// The embedder cannot be what the settings say.
    #[error("the embedding settings are wrong")]
    Embedding(#[from] coolant_ai::embed::InvalidSettings),
    /// This program does not find itself.
    #[error("cannot find this program's own file, which it needs to read documents")]
    Program(#[source] std::io::Error),
}

/// Everything a command needs.
pub struct App {
    /// What it was made from.
    pub settings: Settings,
    /// The store as itself, for what only it can tell.
    pub store: Arc<SqlStore>,
    /// What users ask.
    pub engine: Engine,
    pipeline: Arc<Pipeline>,
    bell: Bell,
}

impl App {
    /// Opens the store and builds the rest. A SQLite store is brought up to date on the way; PostgreSQL is
    /// left to `coolant migrate`, since other versions may be running on it.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn open(settings: Settings) -> Result<Self, StartError> {
        let migrate = matches!(settings.store, coolant_backends::Address::Sqlite(_));
        let store = SqlStore::open(&settings.store, Options { migrate, ..Options::default() }).await?;
        let embedder = coolant_ai::embed::build(&settings.embedding)?;
        let program = std::env::current_exe().map_err(StartError::Program)?;
        let prices = settings.prices.clone();
        let pipeline = Pipeline::new(Arc::new(reader(program, &settings)), embedder, prices.clone());
        let documents: Arc<dyn DocumentStore> = Arc::clone(&store) as _;
        let bell = Bell::default();
        let engine = Engine::new(engine::Parts {
            store: Arc::clone(&store) as Arc<dyn Store>,
            documents: Arc::clone(&documents),
            searcher: Arc::new(IndexSearcher(Search::new(
                documents,
                Arc::new(LooseCalls::new(Arc::clone(&store) as _, prices.clone())),
                Arc::clone(&pipeline),
            ))),
            bell: bell.clone(),
            payload_checks: PayloadChecks::built_in(),
            prices: prices.clone(),
            pipeline: engine::Pipeline {
                version: pipeline.version(),
                upstreams: pipeline
                    .upstream()
                    .and_then(|name| Upstream::parse(name).ok())
                    .into_iter()
                    .collect(),
            },
        });
        let engine = match &settings.locks {
            Some(locks) => engine.with_locks(redis_locks(locks)?),
            None => engine,
        };
        Ok(Self { settings, store, engine, pipeline, bell })
    }

    /// Leaky locks alone: in Redis if the settings say so, else in the store.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn open_locks(settings: &Settings) -> Result<Arc<dyn LockStore>, StartError> {
        if let Some(locks) = &settings.locks {
            return redis_locks(locks);
        }
        let migrate = matches!(settings.store, coolant_backends::Address::Sqlite(_));
        Ok(SqlStore::open(&settings.store, Options { migrate, ..Options::default() }).await?)
    }

    /// Wakes this process's workers and waiting calls for what other processes do. Without it they find it by
    /// polling, which is enough for a command that ends at once.
    pub fn listen_to_others(&self) {
        self.bell.ring_for_others(&self.store);
    }

    /// A worker with the built-in handlers.
    pub fn worker(&self) -> WorkerBuilder {
        let documents: Arc<dyn DocumentStore> = Arc::clone(&self.store) as _;
        Worker::builder(Arc::clone(&self.store) as Arc<dyn Store>)
            .bell(self.bell.clone())
            .concurrency(self.settings.concurrency)
            .drain(self.settings.drain)
            .prices(self.settings.prices.clone())
            .handler(DocumentIndex::new(documents, Arc::clone(&self.store) as _, Arc::clone(&self.pipeline)))
    }

    /// What makes vectors, for people: `local/lexical-1`.
    #[must_use]
    pub fn embedder_name(&self) -> String {
        let id = self.pipeline.embedder().id();
        format!("{}/{}", id.provider, id.model)
    }

    /// Whether embeddings cost money.
    #[must_use]
    pub fn pays_for_embeddings(&self) -> bool {
        self.pipeline.upstream().is_some()
    }
}

#[cfg(feature = "redis")]
fn redis_locks(locks: &LockSettings) -> Result<Arc<dyn LockStore>, StartError> {
    let opened = coolant_backends::RedisLocks::open(locks.url.expose(), &locks.prefix);
    Ok(Arc::new(opened.map_err(StartError::Locks)?))
}

#[cfg(not(feature = "redis"))]
fn redis_locks(_: &LockSettings) -> Result<Arc<dyn LockStore>, StartError> {
    Err(StartError::Locks(StoreError::Broken("this program was built without the feature `redis`".into())))
}

fn reader(program: PathBuf, settings: &Settings) -> ChildReader {
    let mut parser = Parser::new(program, vec![PARSE_ARGUMENT.into()]);
    parser.limits = settings.parser;
    parser.pdftotext = settings.pdftotext.clone();
    ChildReader(parser)
}

/// Reads documents in a child process.
struct ChildReader(Parser);

#[async_trait]
impl pipeline::Reader for ChildReader {
    fn version(&self) -> String {
        self.0.version()
    }

    async fn read(
        &self,
        bytes: Vec<u8>,
        filename: Option<String>,
        content_type: Option<String>,
    ) -> Result<Text, Failure> {
        let document =
            self.0.parse(&bytes, &Hints { filename, content_type }).await.map_err(|error| failure(&error))?;
        let pages = document.pages.into_iter().map(|page| TextPage { number: page.number, text: page.text });
        Ok(Text {
            markdown: document.format.is_markdown(),
            format: format!("{:?}", document.format).to_lowercase(),
            pages: pages.collect(),
            characters: document.characters,
        })
    }
}

/// A document that is at fault fails its job for good; a reader that could not run fails the attempt.
fn failure(error: &ParseError) -> Failure {
    let class = if error.is_retryable() { FailureClass::HandlerError } else { FailureClass::InvalidDocument };
    let message = match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    };
    Failure::new(class, error.code(), message)
}

/// Search as the engine asks for it.
struct IndexSearcher(Search);

#[async_trait]
impl Searcher for IndexSearcher {
    async fn search(&self, query: SearchQuery) -> Result<Vec<Hit>, SearchError> {
        let by = match query.mode {
            SearchMode::Hybrid => By::Both,
            SearchMode::Vector => By::Vector,
            SearchMode::Text => By::Text,
        };
        let question = coolant_parse::clean::line(&query.q);
        let found = self.0.search(&query.tenant, &question, query.k, query.document_id, by).await;
        let ranked = found.map_err(|fault| match fault {
            SearchFault::Store(error) => SearchError::Store(error),
            SearchFault::Embedding(failure) => {
                SearchError::Unavailable { reason: failure.message, retry_after: failure.retry_after }
            }
        })?;
        let hits = ranked.into_iter().map(|ranked| Hit {
            document_id: ranked.chunk.at.document_id,
            version: ranked.chunk.version,
            chunk: ranked.chunk.at.chunk,
            score: ranked.score,
            text: ranked.chunk.text,
            heading: ranked.chunk.heading,
            page: ranked.chunk.page,
        });
        Ok(hits.collect())
    }
}
