//! The claim loop: as many jobs as there are free slots, in one call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use coolant_core::store::{ClaimRequest, Claimed, StoreResult};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

use super::leases::Stop;
use super::patience::{Backoff, LONGEST_CALL, Outage, within};
use super::shutdown::Shutdown;
use super::{Inner, log_fault};
use crate::bell::Listener;
use crate::engine::counts::{Resumed, count_resumed};

/// Most jobs of one claim.
const MOST: usize = 1000;

/// The shortest time between two claims of which the first found too little: a bell that rings all the time
/// for jobs of other workers must not become a busy loop.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);

impl Inner {
    /// Claims and starts jobs until the shutdown is asked for.
    pub(super) async fn claim_until_asked(self: &Arc<Self>, shutdown: &Shutdown, jobs: &mut JoinSet<()>) {
        let outage = Outage::new("claim");
        let mut bell = self.bell.listen();
        let mut idle = Backoff::new(self.settings.poll.0, self.settings.poll.1);
        let mut trouble = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        while let Some(slots) = self.free_slots(shutdown).await {
            while let Some(ended) = jobs.try_join_next() {
                log_fault(ended);
            }
            let asked = slots.num_permits();
            let asked_at = Instant::now();
            // Not raced with the shutdown: what a claim took must be known, to be given back.
            let pause = match self.claim(asked).await {
                Ok(claimed) => {
                    outage.is_over();
                    trouble.reset();
                    let found = claimed.len();
                    self.count_resumed(&claimed);
                    self.start(claimed, slots, asked_at, shutdown, jobs);
                    if found > 0 {
                        idle.reset();
                    }
                    if found == asked { None } else { Some(idle.next()) }
                }
                Err(error) => {
                    outage.goes_on(&error);
                    // The bell of this process says nothing about a store that is away.
                    let _ = tokio::time::timeout(trouble.next(), shutdown.asked()).await;
                    None
                }
            };
            if let Some(longest) = pause {
                rest(&mut bell, longest, shutdown).await;
            }
        }
    }

    /// All slots that are free, once there is one; `None` when the shutdown is asked for.
    async fn free_slots(&self, shutdown: &Shutdown) -> Option<OwnedSemaphorePermit> {
        let mut slots = tokio::select! {
            biased;
            () = shutdown.asked() => return None,
            slot = Arc::clone(&self.slots).acquire_owned() => slot.ok()?,
        };
        let more = self.slots.available_permits().min(MOST - 1);
        if let Ok(more) = Arc::clone(&self.slots).try_acquire_many_owned(u32::try_from(more).unwrap_or(0)) {
            slots.merge(more);
        }
        tokio::select! {
            biased;
            () = shutdown.asked() => None,
            () = self.leases.none_late() => Some(slots),
        }
    }

    async fn claim(&self, slots: usize) -> StoreResult<Vec<Claimed>> {
        let request = ClaimRequest {
            worker: self.settings.name.clone(),
            queues: self.settings.queues.clone(),
            job_types: self.settings.job_types.clone(),
            max: u32::try_from(slots).unwrap_or(u32::MAX),
            lease: self.settings.lease,
            process: self.process.get().copied(),
        };
        within(LONGEST_CALL, self.store.claim(request)).await
    }

    /// Counts what finished steps save these jobs, beside the jobs themselves.
    fn count_resumed(&self, claimed: &[Claimed]) {
        let resumed = Resumed::among(claimed);
        if !resumed.is_empty() {
            let store = Arc::clone(&self.store);
            tokio::spawn(async move { count_resumed(store.as_ref(), resumed).await });
        }
    }

    fn start(
        self: &Arc<Self>,
        claimed: Vec<Claimed>,
        mut slots: OwnedSemaphorePermit,
        asked_at: Instant,
        shutdown: &Shutdown,
        jobs: &mut JoinSet<()>,
    ) {
        for claimed in claimed {
            let Some(slot) = slots.split(1) else {
                tracing::error!("the store gave more jobs than were asked for; their leases run out");
                return;
            };
            // Listed before anything else: renewed from its first instant, and seen by a shutdown.
            let hold = self.leases.hold(&claimed, asked_at);
            if shutdown.is_asked() {
                // The shutdown came while the claim was under way: given back unbegun.
                hold.held.stop(Stop::Shutdown);
            }
            jobs.spawn(Arc::clone(self).run_once(claimed, hold, slot));
        }
    }
}

/// Waits for a ring, a while, or the shutdown.
async fn rest(bell: &mut Listener, longest: Duration, shutdown: &Shutdown) {
    tokio::select! {
        ((), ()) = async { tokio::join!(bell.rung(longest), tokio::time::sleep(SHORTEST_PAUSE)) } => {}
        () = shutdown.asked() => {}
    }
}
