//! Processes with workers: whose death ends leases, and whose does not.

use coolant_core::job::{JobId, JobState, Outcome, Status};
use coolant_core::lifecycle::{Answer, Event, Refusal};
use coolant_core::process::{Burial, Process, ProcessId, ProcessLock};
use coolant_core::store::{ClaimRequest, Claimed};
use uuid::Uuid;

use super::Subject;
use super::kit::*;

const fn process(n: u128) -> ProcessId {
    ProcessId(Uuid::from_u128(n))
}

impl Subject {
    /// A process begins to live.
    async fn enter(&self, id: ProcessId) -> Box<dyn ProcessLock> {
        self.store.renew_process(id).await.unwrap();
        self.store.lock_process(id).await.unwrap()
    }

    async fn claim_as(&self, id: ProcessId, max: u32) -> Vec<Claimed> {
        self.claim_with(ClaimRequest { process: Some(id), ..request(max) }).await
    }

    /// Its row, as another process sees it.
    async fn row(&self, id: ProcessId) -> Option<Process> {
        let (now, rows) = self.twin.processes().await.unwrap();
        assert_eq!(now, self.now());
        rows.into_iter().find(|process| process.id == id)
    }

    /// Another process believes that it is dead.
    async fn bury(&self, id: ProcessId, limit: u32) -> Burial {
        let row = self.row(id).await.expect("a row");
        self.twin.bury_process(row, limit).await.unwrap()
    }

    async fn lease_left(&self, id: JobId) -> u64 {
        match self.record(id).await.job.state {
            JobState::Running { lease, .. } => lease.until.since(self.now()).as_secs(),
            other => panic!("{other:?}"),
        }
    }
}

pub(super) async fn a_process_is_as_fresh_as_its_last_renewal(s: Subject) {
    assert_eq!(s.row(process(1)).await, None);
    s.store.renew_process(process(1)).await.unwrap();
    s.advance(2);
    s.store.renew_process(process(2)).await.unwrap();
    let row = |process: Option<Process>| process.unwrap().renewed_at.since(s.now());
    assert_eq!(s.now().since(s.row(process(1)).await.unwrap().renewed_at), secs(2));
    assert_eq!(row(s.row(process(2)).await), secs(0));
    s.store.renew_process(process(1)).await.unwrap();
    assert_eq!(s.now(), s.row(process(1)).await.unwrap().renewed_at);
    s.store.forget_process(process(1)).await.unwrap();
    assert_eq!(s.row(process(1)).await, None);
    assert!(s.row(process(2)).await.is_some(), "another one stays");
}

pub(super) async fn the_leases_of_a_dead_process_end_at_once(s: Subject) {
    let lock = s.enter(process(1)).await;
    s.submit_all(vec![job(1), job(2)]).await;
    assert_eq!(s.claim_as(process(1), 10).await.len(), 2);
    s.advance(4);
    lock.free().await;
    assert_eq!(s.bury(process(1), 100).await, Burial::Done { ended: 2 });
    assert_eq!(s.row(process(1)).await, None, "it is forgotten");
    let again = s.claim(10).await;
    assert_eq!(claimed_ids(&again), [id(1), id(2)], "no further wait");
    for claimed in again {
        let job = claimed.record.job;
        assert_eq!((job.counters.lost, job.counters.executions), (1, 2), "counted as lost");
        assert_eq!(job.last_error.unwrap().code, "WORKER_LOST");
        let attempts = s.store.attempts(job.id).await.unwrap();
        assert_eq!((attempts[0].outcome, attempts[0].ended_at), (Some(Outcome::Lost), Some(s.now())));
    }
}

pub(super) async fn a_stopped_process_keeps_its_leases_for_their_time(s: Subject) {
    let lock = s.enter(process(1)).await;
    s.running(job(1)).await;
    s.submit(job(2)).await;
    assert_eq!(s.claim_as(process(1), 10).await.len(), 1);
    s.advance(20);
    let before = s.record(id(2)).await;
    assert_eq!(s.bury(process(1), 100).await, Burial::Lives, "it holds its lock");
    assert_eq!(s.record(id(2)).await, before);
    assert!(s.row(process(1)).await.is_some());
    assert!(s.claim(10).await.is_empty());
    s.advance(10);
    assert_eq!(claimed_ids(&s.claim(10).await), [id(1), id(2)], "its leases have run out");
    s.refused(id(2), succeed(1), &Refusal::LeaseLost).await;
    lock.free().await;
    // What others claimed since is not its any more.
    assert_eq!(s.bury(process(1), 100).await, Burial::Done { ended: 0 });
    assert_eq!(s.lease_left(id(2)).await, 30);
}

pub(super) async fn a_process_whose_connection_broke_lives_by_its_renewals(s: Subject) {
    let lock = s.enter(process(1)).await;
    s.submit(job(1)).await;
    s.claim_as(process(1), 1).await;
    lock.free().await;
    s.advance(4);
    let stale = s.row(process(1)).await.unwrap();
    s.store.renew_process(process(1)).await.unwrap();
    assert_eq!(s.twin.bury_process(stale, 100).await.unwrap(), Burial::Lives);
    assert_eq!(s.lease_left(id(1)).await, 26);
    // Back with its lock, it is as before.
    let lock = s.store.lock_process(process(1)).await.unwrap();
    assert_eq!(s.bury(process(1), 100).await, Burial::Lives);
    drop(lock);
}

pub(super) async fn only_the_leases_of_the_dead_end(s: Subject) {
    let (one, two) = (s.enter(process(1)).await, s.enter(process(2)).await);
    s.submit(job(1)).await;
    s.claim_as(process(1), 1).await;
    s.submit(job(2)).await;
    s.claim_as(process(2), 1).await;
    s.running(job(3)).await;
    s.submit(job(4)).await;
    s.claim_as(process(1), 1).await;
    s.done(id(4), succeed(1)).await;
    s.submit(job(5)).await;
    s.claim_as(process(1), 1).await;
    s.done(id(5), release(1)).await;
    s.claim_as(process(2), 1).await;
    s.advance(5);
    one.free().await;
    assert_eq!(s.bury(process(1), 100).await, Burial::Done { ended: 1 });
    assert_eq!(s.lease_left(id(1)).await, 0);
    for n in [2, 3, 5] {
        assert_eq!(s.lease_left(id(n)).await, 25);
    }
    assert_eq!(s.record(id(4)).await.job.status(), Status::Succeeded);
    assert!(s.row(process(2)).await.is_some());
    two.free().await;
}

pub(super) async fn a_burial_keeps_to_its_limit(s: Subject) {
    let lock = s.enter(process(1)).await;
    s.submit_all((1..=10).map(job).collect()).await;
    assert_eq!(s.claim_as(process(1), 100).await.len(), 10);
    s.advance(4);
    lock.free().await;
    assert_eq!(s.bury(process(1), 4).await, Burial::Begun { ended: 4 });
    assert_eq!(s.claim(100).await.len(), 4);
    assert_eq!(s.bury(process(1), 4).await, Burial::Begun { ended: 4 });
    assert_eq!(s.bury(process(1), 4).await, Burial::Done { ended: 2 });
    assert_eq!(s.claim(100).await.len(), 6);
}

pub(super) async fn of_two_who_bury_a_process_each_lease_ends_once(s: Subject) {
    let lock = s.enter(process(1)).await;
    s.submit_all((1..=10).map(job).collect()).await;
    s.claim_as(process(1), 100).await;
    s.advance(4);
    lock.free().await;
    let row = s.row(process(1)).await.unwrap();
    let (one, two) = futures::join!(s.store.bury_process(row, 100), s.twin.bury_process(row, 100));
    let ended = |burial| match burial {
        Burial::Lives => 0,
        Burial::Begun { ended } | Burial::Done { ended } => ended,
    };
    assert_eq!(ended(one.unwrap()) + ended(two.unwrap()), 10);
    assert_eq!(s.claim(100).await.len(), 10);
}

pub(super) async fn who_is_buried_alive_loses_nothing_until_somebody_claims(s: Subject) {
    let lock = s.enter(process(1)).await;
    s.submit_all(vec![job(1), job(2), job(3)]).await;
    s.claim_as(process(1), 3).await;
    lock.free().await;
    assert_eq!(s.bury(process(1), 100).await, Burial::Done { ended: 3 });
    let beat = s.apply(id(1), renew(1)).await.unwrap();
    assert_eq!(beat.answer, Answer::Held { until: s.now().plus(secs(30)) });
    s.done(id(2), succeed(1)).await;
    assert_eq!(claimed_ids(&s.claim(10).await), [id(3)]);
    s.refused(id(3), succeed(1), &Refusal::LeaseLost).await;
    // It enters again, and what it holds on to is protected as before.
    s.store.renew_process(process(1)).await.unwrap();
    assert_eq!(s.bury(process(1), 100).await, Burial::Done { ended: 1 });
    assert_eq!(claimed_ids(&s.claim(10).await), [id(1)]);
}

pub(super) async fn what_the_death_of_its_worker_ends_is_ended_by_the_sweep(s: Subject) {
    let lock = s.enter(process(1)).await;
    s.submit(job_with(1, |spec| spec.policy.max_attempts = 1)).await;
    s.submit_all(vec![locked(2, "k"), locked(3, "k"), job(4)]).await;
    s.claim_as(process(1), 10).await;
    s.done(id(4), Event::Cancel).await;
    lock.free().await;
    s.bury(process(1), 100).await;
    assert_eq!(s.store.sweep(100).await.unwrap(), 2);
    let lost = s.record(id(1)).await.job;
    assert_eq!((lost.status(), lost.last_error.unwrap().code.as_str()), (Status::Failed, "WORKER_LOST"));
    assert_eq!(s.record(id(4)).await.job.status(), Status::Cancelled);
    assert_eq!(s.claim(10).await.len(), 1, "its lock key is free with it");
}
