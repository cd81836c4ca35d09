//! Requests that wait for somebody else's open transaction, apart from those that do not.
//!
//! A caller of `coolant.submit` holds the key it submits until its own transaction ends, and an operator's
//! session may hold any row. Whoever wants the same waits; nobody else has to. So a lane waits a moment only,
//! finds out which request it is, and hands it to a lane with more patience. As long as that one is at it, further
//! requests for the same key or job go to it as well.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use coolant_core::job::JobId;
use coolant_core::lifecycle::Event;
use coolant_core::names::{IdempotencyKey, Tenant};
use coolant_core::store::JobChange;

use crate::batch::Request;

/// What a request may find held by others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Wanted {
    Key(Tenant, IdempotencyKey),
    Job(JobId),
}

/// What is held by others at the moment, as far as anybody has noticed: with how many wait for it.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<HashMap<Wanted, usize>>);

impl Held {
    /// Whether a request wants anything of it.
    pub(crate) fn concerns(&self, request: &Request) -> bool {
        let held = self.held();
        !held.is_empty() && wanted(request).any(|wanted| held.contains_key(&wanted))
    }

    /// A request waits from now on.
    pub(crate) fn add(&self, request: &Request) {
        let mut held = self.held();
        wanted(request).for_each(|wanted| *held.entry(wanted).or_default() += 1);
    }

    /// It waits no more.
    pub(crate) fn remove(&self, request: &Request) {
        let mut held = self.held();
        for wanted in wanted(request) {
            if let Some(waiting) = held.get_mut(&wanted) {
                *waiting -= 1;
                if *waiting == 0 {
                    held.remove(&wanted);
                }
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Wanted, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wanted(request: &Request) -> impl Iterator<Item = Wanted> {
    let keys = request.submits().into_iter().flatten().filter_map(|new| {
        let key = new.spec.idempotency_key.clone()?;
        Some(Wanted::Key(new.spec.tenant.clone(), key))
    });
    // A beat waits for nobody.
    let waits = |change: &&JobChange| !matches!(change.event, Event::Renew { .. });
    let changes = request.changes().into_iter().flatten().filter(waits);
    keys.chain(changes.map(|change| Wanted::Job(change.job_id)))
}
