//! What all jobs of a process have at the embedding provider.
//!
//! Always true:
//! - no more inputs are in flight than one batch holds;
//! - a content is in flight once: whoever wants it meanwhile waits for what the other one gets.
//!
//! Elsewhere: contents that another process embeds at the same time. Only the vectors it has kept are known.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use coolant_core::documents::ContentHash;
use coolant_core::names::Tenant;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// Room at the provider, and the contents that are there.
pub(crate) struct InFlight {
    room: Semaphore,
    contents: Mutex<HashSet<Content>>,
    /// Rung when contents have left.
    fewer: Notify,
}

type Content = (Tenant, ContentHash);

/// Contents that are this one's to embed, until it is dropped.
pub(crate) struct Taken<'a> {
    from: &'a InFlight,
    contents: Vec<Content>,
}

impl InFlight {
    /// With room for that many inputs.
    pub(crate) fn new(inputs: usize) -> Self {
        Self {
            room: Semaphore::new(inputs.clamp(1, Semaphore::MAX_PERMITS)),
            contents: Mutex::default(),
            fewer: Notify::new(),
        }
    }

    /// Waits for room.
    pub(crate) async fn room(&self, inputs: usize) -> Result<SemaphorePermit<'_>, tokio::sync::AcquireError> {
        self.room.acquire_many(u32::try_from(inputs).unwrap_or(u32::MAX)).await
    }

    /// Takes those of the contents that nobody embeds at the moment.
    pub(crate) fn take(&self, tenant: &Tenant, hashes: &[ContentHash]) -> Taken<'_> {
        let mut contents = self.contents();
        let wanted = hashes.iter().map(|hash| (tenant.clone(), *hash));
        let taken = wanted.filter(|content| contents.insert(content.clone())).collect();
        Taken { from: self, contents: taken }
    }

    /// Ends when nobody embeds any of the contents.
    pub(crate) async fn gone(&self, tenant: &Tenant, hashes: &[ContentHash]) {
        loop {
            let fewer = self.fewer.notified();
            let is_there = {
                let contents = self.contents();
                hashes.iter().any(|hash| contents.contains(&(tenant.clone(), *hash)))
            };
            if !is_there {
                return;
            }
            fewer.await;
        }
    }

    fn contents(&self) -> MutexGuard<'_, HashSet<Content>> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken<'_> {
    /// The contents.
    pub(crate) fn hashes(&self) -> Vec<ContentHash> {
        self.contents.iter().map(|(_, hash)| *hash).collect()
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut contents = self.from.contents();
        for content in &self.contents {
            contents.remove(content);
        }
        drop(contents);
        self.from.fewer.notify_waiters();
    }
}
