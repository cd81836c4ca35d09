//! Looks for processes with workers that died, and ends their leases. Every process that has the store open for
//! work does it; whichever comes first does it for all.

use coolant_core::process::{Burial, Process, Watch};
use coolant_core::store::{Store, StoreResult};

/// Leases ended in one go.
const LIMIT: u32 = 500;

/// Who looks, and for how long it has.
#[derive(Debug, Default)]
pub(crate) struct Deaths {
    watch: Watch,
}

impl Deaths {
    /// Looks at all processes; to be called at least every second. Gives whether jobs became claimable.
    ///
    /// # Errors
    /// That the store did not answer. Everybody has the time to come back then, before anybody is called dead.
    pub(crate) async fn look(&mut self, store: &dyn Store) -> StoreResult<bool> {
        let looked = self.look_at_all(store).await;
        if looked.is_err() {
            self.watch = Watch::default();
        }
        looked
    }

    async fn look_at_all(&mut self, store: &dyn Store) -> StoreResult<bool> {
        let (now, found) = store.processes().await?;
        let mut freed = 0;
        for process in self.watch.look(&found, now) {
            freed += bury(store, process).await?;
        }
        Ok(freed > 0)
    }
}

async fn bury(store: &dyn Store, process: Process) -> StoreResult<u32> {
    let mut freed = 0;
    loop {
        match store.bury_process(process, LIMIT).await? {
            Burial::Lives => return Ok(freed),
            Burial::Done { ended } => {
                freed += ended;
                tracing::warn!(process.id = %process.id, leases = freed, "a process died; its leases are ended");
                return Ok(freed);
            }
            // Somebody else is at work on the rest: the next look comes to it.
            Burial::Begun { ended: 0 } => return Ok(freed),
            Burial::Begun { ended } => freed += ended,
        }
    }
}
