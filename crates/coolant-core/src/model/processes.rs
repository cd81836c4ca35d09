//! Processes over a map, and their locks over a set.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use super::{ModelStore, Row, State};
use crate::job::{JobId, JobState, LeaseToken};
use crate::lifecycle::{Answer, Event};
use crate::process::{Burial, Process, ProcessId, ProcessLock, ProcessStore};
use crate::store::{JobChange, StoreError, StoreResult};
use crate::time::Timestamp;

#[async_trait]
impl ProcessStore for ModelStore {
    async fn renew_process(&self, id: ProcessId) -> StoreResult<()> {
        let (now, mut state) = (self.now(), self.state());
        state.processes.insert(id, now);
        Ok(())
    }

    async fn lock_process(&self, id: ProcessId) -> StoreResult<Box<dyn ProcessLock>> {
        match self.locked.lock().unwrap_or_else(PoisonError::into_inner).insert(id) {
            true => Ok(Box::new(Held { id, locked: Arc::clone(&self.locked) })),
            false => Err(StoreError::Broken(format!("process `{id}` has its lock already"))),
        }
    }

    async fn processes(&self) -> StoreResult<(Timestamp, Vec<Process>)> {
        let (now, state) = (self.now(), self.state());
        let rows = state.processes.iter().map(|(&id, &renewed_at)| Process { id, renewed_at });
        Ok((now, rows.collect()))
    }

    async fn bury_process(&self, process: Process, limit: u32) -> StoreResult<Burial> {
        let (now, mut state) = (self.now(), self.state());
        if self.locked.lock().unwrap_or_else(PoisonError::into_inner).contains(&process.id)
            || state.processes.get(&process.id).is_some_and(|renewed_at| *renewed_at != process.renewed_at)
        {
            return Ok(Burial::Lives);
        }
        let mut ended = 0;
        for (job_id, token) in state.leases_of(process.id, now) {
            if ended == limit {
                return Ok(Burial::Begun { ended });
            }
            let change = JobChange::new(job_id, Event::HolderDied { token });
            let died = state.apply(change, now);
            ended += u32::from(died.is_ok_and(|applied| applied.answer == Answer::Done));
        }
        state.processes.remove(&process.id);
        Ok(Burial::Done { ended })
    }

    async fn forget_process(&self, id: ProcessId) -> StoreResult<()> {
        self.state().processes.remove(&id);
        Ok(())
    }
}

impl State {
    /// The leases of a process that still run.
    fn leases_of(&self, process: ProcessId, now: Timestamp) -> Vec<(JobId, LeaseToken)> {
        let lease = |row: &Row| match &row.job().state {
            JobState::Running { lease, .. } if lease.until > now => Some((row.job().id, lease.token)),
            _ => None,
        };
        let of_process =
            |row: &Row| lease(row).filter(|(_, token)| row.claimed_by.get(&token.0) == Some(&process));
        self.rows.values().filter_map(of_process).collect()
    }
}

struct Held {
    id: ProcessId,
    locked: Arc<Mutex<BTreeSet<ProcessId>>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

#[async_trait]
impl ProcessLock for Held {
    async fn free(self: Box<Self>) {}
}
