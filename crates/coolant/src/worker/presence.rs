//! This process among all that work on the store: a row that it renews each second, and a lock that its death
//! frees. Others end its leases once it has neither.
//!
//! Elsewhere: when a process counts as dead (`coolant_core::process`), who looks for the dead
//! (`crate::deaths`).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use coolant_core::process::{ProcessId, ProcessLock, RENEW_EVERY};
use coolant_core::store::{Store, StoreResult};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use uuid::Uuid;

use super::patience::{Outage, within};

/// How long one renewal, and one try to take the lock, may take.
const LONGEST_TRY: Duration = Duration::from_secs(3);
/// How long a process that leaves tries to say so. If it cannot, it is found dead.
const LONGEST_GOODBYE: Duration = Duration::from_secs(3);

/// Keeps this process known as long as it lives. Dropped, it leaves as a crash does.
pub(super) struct Presence {
    store: Arc<dyn Store>,
    id: ProcessId,
    leave: oneshot::Sender<()>,
    keeping: JoinSet<Option<Box<dyn ProcessLock>>>,
}

impl Presence {
    /// Makes the process known, and says in `known` under which name as soon as its death could be seen. If
    /// that does not work now, it is tried on and on; until then leases end by time alone.
    pub(super) async fn enter(store: &Arc<dyn Store>, known: Arc<OnceLock<ProcessId>>) -> Self {
        let id = ProcessId(Uuid::now_v7());
        let mut keeper =
            Keeper { store: Arc::clone(store), id, known, lock: None, outage: Outage::new("process") };
        keeper.say_and_note().await;
        let (leave, left) = oneshot::channel();
        let mut keeping = JoinSet::new();
        keeping.spawn(keeper.keep(left));
        Self { store: Arc::clone(store), id, leave, keeping }
    }

    /// Leaves as one whose leases are all given back.
    pub(super) async fn leave(mut self) {
        let _ = self.leave.send(());
        let goodbye = async {
            // The lock first: a row without a lock is forgotten by others, a lock without a row by nobody.
            if let Some(Ok(Some(lock))) = self.keeping.join_next().await {
                lock.free().await;
            }
            self.store.forget_process(self.id).await
        };
        if let Ok(Err(error)) = timeout(LONGEST_GOODBYE, goodbye).await {
            tracing::debug!(%error, "the store was not told that this process leaves; it will find out");
        }
    }
}

struct Keeper {
    store: Arc<dyn Store>,
    id: ProcessId,
    known: Arc<OnceLock<ProcessId>>,
    lock: Option<Box<dyn ProcessLock>>,
    outage: Outage,
}

impl Keeper {
    /// Renews the row until it is asked to leave; gives the lock then.
    async fn keep(mut self, mut leave: oneshot::Receiver<()>) -> Option<Box<dyn ProcessLock>> {
        let mut beats = interval(RENEW_EVERY);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        beats.tick().await;
        loop {
            tokio::select! {
                _ = &mut leave => return self.lock,
                _ = beats.tick() => self.say_and_note().await,
            }
        }
    }

    async fn say_and_note(&mut self) {
        match self.say().await {
            Ok(()) => self.outage.is_over(),
            Err(error) => self.outage.goes_on(&error),
        }
    }

    /// That it lives: in its row, and once by its lock, which is then held by itself. In this order: what has
    /// a lock has a row, so that nothing of a dead process is left behind.
    async fn say(&mut self) -> StoreResult<()> {
        within(LONGEST_TRY, self.store.renew_process(self.id)).await?;
        if self.lock.is_none() {
            self.lock = Some(within(LONGEST_TRY, self.store.lock_process(self.id)).await?);
            let _ = self.known.set(self.id);
        }
        Ok(())
    }
}
