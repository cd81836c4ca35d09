//! What somebody else's open transaction holds on PostgreSQL holds up whoever wants just that, and nobody else.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use coolant_backends::{Options, SqlStore};
use coolant_core::job::{JobId, LeaseToken, Policy, Status};
use coolant_core::lifecycle::{Answer, Event, Refusal};
use coolant_core::store::{Applied, Claimed, JobChange, NewJob, Store, StoreError, SubmitOutcome};
use support::beside_another;
use support::database::Raw;
use support::jobs::{claim_of, claimed, job, job_with, keyed, submitted, succeed};

/// What a call may take that waits for nobody, on a machine that has other things to do.
const AT_ONCE: Duration = Duration::from_millis(1500);

fn with(case: impl AsyncFnOnce(Arc<SqlStore>, Raw)) {
    beside_another(Options::default(), async |store, raw| {
        // So that no later call is slow for being the first one.
        let first = submitted(&store, job()).await;
        claimed(&store, 1).await;
        store.apply(vec![succeed(first)]).await.unwrap();
        case(store, raw).await;
    });
}

/// What a call that waits for nobody gives, if it does not wait.
async fn at_once<T>(what: &str, call: impl Future<Output = Result<T, StoreError>>) -> T {
    let began = Instant::now();
    let answer = call.await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    let took = began.elapsed();
    assert!(took < AT_ONCE, "{what} took {took:?}");
    answer
}

/// Everything that others may want.
async fn everything_flows(store: &SqlStore, round: usize) {
    let new: Vec<_> = (0..5).map(|n| keyed(&format!("r{round}-{n}"))).collect();
    let ids: Vec<JobId> = new.iter().map(|new| new.id).collect();
    for new in new {
        let submitted = at_once("a submit", store.submit(vec![new])).await;
        assert_eq!(submitted[0].outcome, SubmitOutcome::Created);
    }
    let claimed = at_once("a claim", store.claim(claim_of(5))).await;
    let claimed: Vec<_> = claimed.iter().map(|claimed: &Claimed| claimed.record.job.id).collect();
    assert_eq!(claimed, ids);
    let beats =
        ids.iter().map(|id| JobChange::new(*id, Event::Renew { token: LeaseToken(1), progress: None }));
    at_once("a beat", store.apply(beats.collect())).await;
    at_once("a sweep", store.sweep(100)).await;
    for id in ids {
        let done = at_once("a success", store.apply(vec![succeed(id)])).await;
        assert_eq!(done[0].as_ref().unwrap().answer, Answer::Done);
    }
}

#[test]
fn a_key_that_an_open_transaction_submits_holds_up_nobody_but_its_own_submits() {
    with(async |store, raw| {
        raw.say("BEGIN; SELECT coolant.submit('T', '{}', idempotency_key => 'held')").await;
        let open = Arc::new(AtomicBool::new(true));
        // More of them than there are lanes, and each comes again at once.
        let hammering: Vec<_> = (0..12)
            .map(|_| {
                let (store, open) = (Arc::clone(&store), Arc::clone(&open));
                tokio::spawn(async move {
                    let mut refused = 0;
                    loop {
                        let was_open = open.load(Ordering::SeqCst);
                        match store.submit(vec![keyed("held")]).await {
                            Ok(answers) => return (refused, answers[0].outcome),
                            Err(error) => {
                                assert!(error.is_retryable() && was_open, "{error:?}");
                                refused += 1;
                            }
                        }
                    }
                })
            })
            .collect();
        raw.until_somebody_waits().await;
        let began = Instant::now();
        let mut round = 0;
        while began.elapsed() < Duration::from_secs(6) {
            everything_flows(&store, round).await;
            round += 1;
        }
        open.store(false, Ordering::SeqCst);
        raw.say("COMMIT").await;
        for hammering in hammering {
            let (refused, outcome) = hammering.await.unwrap();
            assert!(refused > 0, "it was told to come again");
            assert_eq!(outcome, SubmitOutcome::Existing);
        }
        assert_eq!(store.claim(claim_of(10)).await.unwrap().len(), 1, "one job of that key");
    });
}

#[test]
fn a_submit_whose_key_becomes_free_soon_is_answered_and_not_sent_away() {
    with(async |store, raw| {
        raw.say("BEGIN; SELECT coolant.submit('T', '{}', idempotency_key => 'held')").await;
        let submitting = Arc::clone(&store);
        let submit = tokio::spawn(async move { submitting.submit(vec![keyed("held")]).await });
        raw.until_somebody_waits().await;
        everything_flows(&store, 0).await;
        raw.say("ROLLBACK").await;
        assert_eq!(submit.await.unwrap().unwrap()[0].outcome, SubmitOutcome::Created);
    });
}

#[test]
fn an_idle_transaction_that_holds_rows_holds_up_no_claim_and_no_other_job() {
    with(async |store, raw| {
        let policy = Policy { max_attempts: 1, lease: Duration::from_millis(500), ..Policy::default() };
        let once = || job_with(|spec| spec.policy = policy.clone());
        let (held, lost) = (once(), once());
        let ids = [held.id, lost.id];
        store.submit(vec![held, lost]).await.unwrap();
        assert_eq!(store.claim(claim_of(10)).await.unwrap().len(), 2);
        raw.say(&format!("BEGIN; SELECT 1 FROM jobs WHERE id = '{}' FOR UPDATE", ids[0])).await;
        raw.say("SELECT 1 FROM claimers FOR UPDATE").await;
        let settling = Arc::clone(&store);
        let settle = tokio::spawn(async move { settling.apply(vec![succeed(ids[0])]).await });
        raw.until_somebody_waits().await;
        everything_flows(&store, 0).await;
        // The sweep ends what is lost, and passes over what is held.
        let status = async |id| store.jobs(&[id]).await.unwrap()[0].as_ref().unwrap().job.status();
        let deadline = Instant::now() + Duration::from_secs(20);
        while status(ids[1]).await != Status::Failed {
            assert!(Instant::now() < deadline);
            at_once("a sweep", store.sweep(100)).await;
        }
        everything_flows(&store, 1).await;
        assert_eq!(status(ids[0]).await, Status::Running);
        raw.say("ROLLBACK").await;
        let settled = settle.await.unwrap();
        if settled.is_err() {
            assert_eq!(
                store.apply(vec![succeed(ids[0])]).await.unwrap()[0].as_ref().unwrap().answer,
                Answer::Done
            );
        }
        assert_eq!(status(ids[0]).await, Status::Succeeded);
    });
}

#[test]
fn a_job_that_somebody_holds_costs_no_other_lease_its_beat() {
    with(async |store, raw| {
        let jobs: Vec<_> = (0..10).map(|_| job()).collect();
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        store.submit(jobs).await.unwrap();
        assert_eq!(claimed(&store, 10).await.len(), 10);
        let missing = job().id;
        let beat = async || {
            let ids = ids.iter().chain([&missing]);
            let beats =
                ids.map(|id| JobChange::new(*id, Event::Renew { token: LeaseToken(1), progress: None }));
            let mut answers = at_once("a beat", store.apply(beats.collect())).await;
            assert_eq!(answers.pop(), Some(Err(Refusal::NotFound)));
            let held = |answer: &Result<Applied, Refusal>| {
                matches!(answer, Ok(Applied { answer: Answer::Held { .. }, .. }))
            };
            assert!(
                answers.iter().all(|answer| held(answer) || *answer == Err(Refusal::Busy)),
                "{answers:?}"
            );
            answers.iter().map(held).collect::<Vec<_>>()
        };
        let all_but_one: Vec<bool> = (0..10).map(|n| n != 4).collect();
        raw.say(&format!("BEGIN; SELECT 1 FROM jobs WHERE id = '{}' FOR UPDATE", ids[4])).await;
        assert_eq!(beat().await, all_but_one);
        // The same while its end waits for the job, in a lane and in that of the patient.
        let settling = Arc::clone(&store);
        let held = ids[4];
        let settle = tokio::spawn(async move { settling.apply(vec![succeed(held)]).await });
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(4) {
            assert_eq!(beat().await, all_but_one);
        }
        assert!(settle.await.unwrap().unwrap_err().is_retryable(), "it was told to come again");
        raw.say("ROLLBACK").await;
        assert_eq!(beat().await, [true; 10]);
        let done = store.apply(vec![succeed(held)]).await.unwrap();
        assert_eq!(done[0].as_ref().unwrap().answer, Answer::Done);
    });
}

#[test]
fn an_old_snapshot_holds_up_nothing() {
    with(async |store, raw| {
        raw.say("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobs").await;
        for round in 0..40 {
            everything_flows(&store, round).await;
        }
        raw.say("ROLLBACK").await;
    });
}

#[test]
fn killed_backends_cost_a_repetition_and_nothing_else() {
    with(async |store, raw| {
        // Again and again, each time some calls have been answered.
        let (answered, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let kill = async {
            let mut kills = 0;
            while !over.load(Ordering::SeqCst) {
                if answered.load(Ordering::SeqCst) >= 5 * kills {
                    kills += usize::from(raw.number(KILL).await > 0);
                }
                tokio::task::yield_now().await;
            }
            kills
        };
        let work = async {
            let ids: Vec<_> = (0..100).map(|n| keyed(&format!("k{n}"))).collect();
            for new in &ids {
                // Its own id makes a repeated submit the same one.
                again(Call::Submit(&store, new), &answered).await;
            }
            let mut done = 0;
            loop {
                let Given::Claimed(claimed) = again(Call::Claim(&store), &answered).await else {
                    unreachable!()
                };
                for claimed in &claimed {
                    assert_eq!(claimed.lease.token, LeaseToken(1), "nobody's lease ran out");
                    again(Call::Settle(&store, claimed.record.job.id), &answered).await;
                    done += 1;
                }
                let jobs: Vec<JobId> = ids.iter().map(|new| new.id).collect();
                let Given::Jobs(left) = again(Call::Look(&store, &jobs), &answered).await else {
                    unreachable!()
                };
                let count = |status| left.iter().filter(|is| **is == status).count();
                assert_eq!(left.len(), 100, "no submit is lost");
                assert_eq!(count(Status::Succeeded), done, "no success is lost");
                if count(Status::Pending) == 0 {
                    // A claim whose answer was lost with its connection runs out by itself.
                    assert_eq!(count(Status::Running) + done, 100);
                    break;
                }
            }
            over.store(true, Ordering::SeqCst);
        };
        let (kills, ()) = tokio::join!(kill, work);
        assert!(kills > 10, "{kills} kills");
    });
}

/// Ends one session of the store's that is at work, in a transaction or between two statements of one.
const KILL: &str = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity \
                    WHERE application_name = 'coolant' AND datname = current_database() \
                    AND state <> 'idle' LIMIT 1) AS victim";

enum Call<'a> {
    Submit(&'a SqlStore, &'a NewJob),
    Claim(&'a SqlStore),
    Settle(&'a SqlStore, JobId),
    Look(&'a SqlStore, &'a [JobId]),
}

enum Given {
    Done,
    Claimed(Vec<Claimed>),
    Jobs(Vec<Status>),
}

impl Call<'_> {
    async fn make(&self) -> Result<Given, StoreError> {
        match self {
            Self::Submit(store, new) => store.submit(vec![(*new).clone()]).await.map(|answers| {
                assert_eq!(answers[0].outcome, SubmitOutcome::Created);
                Given::Done
            }),
            Self::Claim(store) => store.claim(claim_of(7)).await.map(Given::Claimed),
            Self::Settle(store, id) => store.apply(vec![succeed(*id)]).await.map(|settled| {
                let answer = &settled[0].as_ref().unwrap().answer;
                assert!(matches!(answer, Answer::Done | Answer::Already));
                Given::Done
            }),
            Self::Look(store, ids) => {
                let found = store.jobs(ids).await?;
                Ok(Given::Jobs(found.into_iter().flatten().map(|record| record.job.status()).collect()))
            }
        }
    }
}

/// Makes a call until it is answered.
async fn again(call: Call<'_>, answered: &AtomicUsize) -> Given {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match call.make().await {
            Ok(given) => {
                answered.fetch_add(1, Ordering::SeqCst);
                return given;
            }
            Err(error) => assert!(error.is_retryable() && Instant::now() < deadline, "{error:?}"),
        }
    }
}
