//! The engine: everything a user can ask of Coolant, once, for HTTP, the commands and the library.
//!
//! It checks what comes in, decides nothing about states (that is `coolant_core::lifecycle`), keeps nothing
//! (that is the store), and knows no wire format (that is `http`).
//!
//! Always true:
//! - no call answers "accepted" before the store has committed;
//! - every wait has an end;
//! - a job of another tenant does not exist for a caller who is bound to one.

pub mod bill;
pub mod classify;
pub mod control;
pub(crate) mod counts;
pub mod dlq;
pub mod documents;
pub mod error;
pub mod explain;
pub mod housekeeping;
pub mod ledger;
pub mod locks;
pub mod payloads;
pub mod read;
pub mod redrive;
pub mod schedule;
pub mod submit;
pub mod upstreams;
pub mod work;

use std::sync::Arc;

use coolant_core::documents::DocumentStore;
use coolant_core::job::{JobId, JobRecord};
use coolant_core::lock::LockStore;
use coolant_core::names::{Tenant, Upstream};
use coolant_core::prices::Prices;
use coolant_core::store::Store;
use coolant_core::time::Timestamp;
use coolant_core::view::Phase;
use uuid::Uuid;

use crate::bell::Bell;
pub use error::{Code, EngineError, EngineResult};
use payloads::PayloadChecks;

/// Everything a user can ask for. Cheap to clone; all clones are one engine.
#[derive(Clone)]
pub struct Engine {
    parts: Arc<Parts>,
    locks: Arc<dyn LockStore>,
}

/// What an engine is made of.
pub struct Parts {
    /// The truth about jobs.
    pub store: Arc<dyn Store>,
    /// Documents and their index.
    pub documents: Arc<dyn DocumentStore>,
    /// Finds chunks for a query.
    pub searcher: Arc<dyn documents::Searcher>,
    /// Rung after every change; workers in this process share it.
    pub bell: Bell,
    /// What paid calls cost whose cost nobody states.
    pub prices: Prices,
    /// What is checked in payloads at the submit, by job type.
    pub payload_checks: PayloadChecks,
    /// How documents are indexed.
    pub pipeline: Pipeline,
}

/// Names what changes the result of an indexing: a new version is new work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pipeline {
    /// Parser, chunker, its settings and the embedding model as one short text, 96 bytes at most.
    pub version: String,
    /// The paid services that an indexing uses.
    pub upstreams: Vec<Upstream>,
}

/// On whose behalf a call is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name for the audit trail: a key's name, or `local`.
    pub actor: String,
    /// The only tenant it may see, if it is bound to one.
    pub tenant: Option<Tenant>,
}

impl Caller {
    /// Whoever uses a server without keys, a command or the library: bound to nothing.
    #[must_use]
    pub fn local() -> Self {
        Self { actor: "local".into(), tenant: None }
    }

    /// Whether it may see what belongs to that tenant.
    #[must_use]
    pub fn sees(&self, tenant: &Tenant) -> bool {
        self.tenant.as_ref().is_none_or(|own| own == tenant)
    }

    /// The tenant of its documents: its own, else the default.
    #[must_use]
    pub fn own_tenant(&self) -> Tenant {
        self.tenant.clone().unwrap_or_default()
    }
}

/// A job as it was at an instant; phase and remaining seconds depend on it.
#[derive(Debug, Clone, PartialEq)]
pub struct JobAt {
    /// The job.
    pub record: JobRecord,
    /// The store's time.
    pub now: Timestamp,
    /// Whether something outside it keeps it from starting although its instant has come: `Store::blocked`.
    pub blocked: bool,
}

impl JobAt {
    /// Where it stands, for people.
    #[must_use]
    pub fn phase(&self) -> Phase {
        Phase::given(&self.record.job, self.blocked, self.now)
    }

    /// Whether [`Self::blocked`] is worth asking for.
    fn may_be_blocked(&self) -> bool {
        let spec = &self.record.job.spec;
        let depends = !spec.upstreams.is_empty() || spec.lock_key.is_some();
        depends && Phase::of(&self.record.job, self.now) == Phase::Waiting
    }
}

impl Engine {
    /// An engine over these parts.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let locks = Arc::clone(&parts.store) as Arc<dyn LockStore>;
        Self { parts: Arc::new(parts), locks }
    }

    /// The same with leaky locks that are kept elsewhere than in its store.
    #[must_use]
    pub fn with_locks(self, locks: Arc<dyn LockStore>) -> Self {
        Self { locks, ..self }
    }

    /// The store behind it.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.parts.store
    }

    /// The bell that it rings after every change.
    #[must_use]
    pub fn bell(&self) -> &Bell {
        &self.parts.bell
    }

    /// A job that this caller may see.
    async fn visible(&self, caller: &Caller, id: JobId) -> EngineResult<JobRecord> {
        let found = self.parts.store.jobs(&[id]).await?.pop().flatten();
        found.filter(|record| caller.sees(&record.job.spec.tenant)).ok_or(EngineError::JobNotFound { id })
    }

    async fn at_now(&self, record: JobRecord) -> EngineResult<JobAt> {
        let mut at = JobAt { record, now: self.parts.store.now().await?, blocked: false };
        self.mark_blocked([&mut at]).await?;
        Ok(at)
    }

    /// Finds out which of these jobs something outside them keeps from starting.
    async fn mark_blocked(&self, jobs: impl IntoIterator<Item = &mut JobAt>) -> EngineResult<()> {
        let waiting: Vec<&mut JobAt> = jobs.into_iter().filter(|at| at.may_be_blocked()).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let ids: Vec<JobId> = waiting.iter().map(|at| at.record.job.id).collect();
        let blocked = self.parts.store.blocked(&ids).await?;
        for at in waiting {
            at.blocked = blocked.contains(&at.record.job.id);
        }
        Ok(())
    }
}

/// A name for something new; newer ones sort later.
fn new_id() -> JobId {
    JobId(Uuid::now_v7())
}
