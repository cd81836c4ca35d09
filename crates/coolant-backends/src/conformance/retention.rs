//! Retention: what is over is forgotten when its time has come, and nothing else.

use coolant_core::failure::FailureClass;
use coolant_core::job::JobId;
use coolant_core::lifecycle::Event;
use coolant_core::retention::Retention;
use coolant_core::store::SubmitOutcome;

use super::Subject;
use super::kit::*;

const DAY: u64 = 86_400;

/// Which of these jobs are there.
async fn there(s: &Subject, numbers: std::ops::RangeInclusive<u32>) -> Vec<u32> {
    let ids: Vec<JobId> = numbers.clone().map(id).collect();
    let found = s.store.jobs(&ids).await.unwrap();
    numbers.zip(found).filter_map(|(n, found)| found.map(|_| n)).collect()
}

pub(super) async fn what_is_finished_is_forgotten_when_its_time_has_come(s: Subject) {
    s.submit_all(vec![keyed(1, "a"), job(2), job(3), job(4), job(5), job(6)]).await;
    s.claim(5).await;
    s.apply(id(1), step(1, "x", serde_json::json!(1))).await.unwrap();
    s.done(id(1), succeed(1)).await;
    s.apply(id(2), Event::Cancel).await.unwrap();
    s.apply(id(2), renew(1)).await.unwrap();
    let permanent = FailureClass::InvalidRequest;
    s.done(id(3), fail(1, permanent)).await;
    s.done(id(4), fail(1, permanent)).await;
    s.done(id(4), Event::Discard).await;
    let keep = Retention::default();
    s.advance(30 * DAY - 1);
    s.done(id(5), succeed(1)).await;
    assert_eq!(s.twin.forget(&keep, 100).await.unwrap(), 0);
    s.advance(1);
    assert_eq!(s.twin.forget(&keep, 100).await.unwrap(), 3);
    // The dead letter, what ended a second ago, and what still waits.
    assert_eq!(there(&s, 1..=6).await, [3, 5, 6]);
    assert!(s.store.attempts(id(1)).await.unwrap().is_empty());
    assert!(s.store.steps(id(1)).await.unwrap().is_empty());
    assert_eq!(s.store.ledger(id(1)).await.unwrap().len(), 1, "what was paid is still known");
    let again = s.submit(keyed(7, "a")).await;
    assert_eq!((again.outcome, again.record.job.id), (SubmitOutcome::Created, id(7)), "its key is free");
    assert_eq!(s.store.forget(&keep, 100).await.unwrap(), 0);
}

pub(super) async fn each_kind_is_kept_as_long_as_it_is_said(s: Subject) {
    s.submit_all(vec![job(1), job(2)]).await;
    s.claim(2).await;
    s.apply(id(1), step(1, "x", serde_json::json!(1))).await.unwrap();
    s.done(id(1), succeed(1)).await;
    s.done(id(2), fail(1, FailureClass::InvalidRequest)).await;
    s.advance(365 * DAY);
    let keep = Retention { finished: None, dead_letters: None, ledger: None };
    assert_eq!(s.store.forget(&keep, 100).await.unwrap(), 0, "for ever");
    assert_eq!(s.store.forget(&Retention { dead_letters: Some(secs(60)), ..keep }, 100).await.unwrap(), 1);
    assert_eq!(there(&s, 1..=2).await, [1]);
    assert_eq!(s.store.forget(&Retention { ledger: Some(secs(60)), ..keep }, 100).await.unwrap(), 1);
    assert_eq!(there(&s, 1..=2).await, [1]);
    assert!(s.store.ledger(id(1)).await.unwrap().is_empty());
}

pub(super) async fn the_oldest_are_forgotten_first_and_no_more_than_asked(s: Subject) {
    s.submit_all((1..=5).map(job).collect()).await;
    s.claim(5).await;
    for n in [3, 1, 5, 2, 4] {
        s.done(id(n), succeed(1)).await;
        s.advance(1);
    }
    s.advance(30 * DAY);
    assert_eq!(s.store.forget(&Retention::default(), 2).await.unwrap(), 2);
    assert_eq!(there(&s, 1..=5).await, [2, 4, 5]);
    assert_eq!(s.store.forget(&Retention::default(), 2).await.unwrap(), 2);
    assert_eq!(s.store.forget(&Retention::default(), 2).await.unwrap(), 1);
    assert_eq!(s.store.forget(&Retention::default(), 2).await.unwrap(), 0);
}

pub(super) async fn a_key_that_is_forgotten_at_that_moment_gives_the_old_job_or_a_new_one(s: Subject) {
    const KEYS: u32 = 20;
    let key = |n: u32| format!("k{n}");
    s.submit_all((1..=KEYS).map(|n| keyed(n, &key(n))).collect()).await;
    s.claim(KEYS).await;
    for n in 1..=KEYS {
        s.done(id(n), succeed(1)).await;
    }
    s.advance(30 * DAY);
    let keep = Retention::default();
    let forgetting = async {
        for _ in 0..KEYS {
            assert_eq!(s.twin.forget(&keep, 1).await.unwrap(), 1);
        }
    };
    let submits = (1..=KEYS).map(|n| s.submit(keyed(100 + n, &key(n))));
    let (answers, ()) = futures::future::join(futures::future::join_all(submits), forgetting).await;
    for (n, answer) in (1..=KEYS).zip(answers) {
        match answer.outcome {
            SubmitOutcome::Existing => assert_eq!(answer.record.job.id, id(n)),
            SubmitOutcome::Created => assert_eq!(there(&s, 100 + n..=100 + n).await, [100 + n]),
            other => panic!("{other:?}"),
        }
    }
    assert!(there(&s, 1..=KEYS).await.is_empty());
}

pub(super) async fn work_comes_back_to_a_queue_that_rested_for_long(s: Subject) {
    let keep = Retention { finished: None, ..Retention::default() };
    let rest = async || {
        // The first look finds that nothing is left to do there, the second that it is so for long.
        for _ in 0..2 {
            s.twin.forget(&keep, 100).await.unwrap();
            s.advance(8 * DAY);
        }
        s.twin.forget(&keep, 100).await.unwrap();
    };
    s.running(job(1)).await;
    s.done(id(1), fail(1, FailureClass::InvalidRequest)).await;
    rest().await;
    s.submit(job(2)).await;
    assert_eq!(claimed_ids(&s.claim(5).await), [id(2)]);
    s.done(id(2), succeed(1)).await;
    rest().await;
    s.done(id(1), Event::Reopen { force: true }).await;
    assert_eq!(claimed_ids(&s.claim(5).await), [id(1)], "a dead letter that is put back");
    s.done(id(1), fail(2, FailureClass::Network)).await;
    rest().await;
    assert_eq!(claimed_ids(&s.claim(5).await), [id(1)], "what waits keeps its place");
}
