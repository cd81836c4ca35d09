//! Running: handlers that fail, block, defer or take too long, and the slots they run in.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Does, HeldAt, Rig, TOO_LONG, Told, attempt_ended, failure_code, one_attempt};
use coolant::HandlerError;
use coolant::embedded::ResultError;
use coolant_core::failure::FailureClass;
use coolant_core::job::{JobState, Outcome, Policy, Reopen, Status};
use coolant_core::lifecycle::Event;
use serde_json::{Value, json};

#[tokio::test]
async fn a_panic_is_the_failure_of_that_job_alone() {
    let rig = Rig::new();
    let (held, mut holder) = HeldAt::new();
    let panics = Does("PANIC", async |_, payload: Value| -> Result<Value, HandlerError> {
        panic!("cannot work with {payload}")
    });
    rig.run(rig.worker().handler(held).handler(panics));

    let healthy = rig.coolant.submit("HELD", "a").await.unwrap();
    holder.began().await;
    let broken = rig.coolant.submit("PANIC", &7).policy(one_attempt()).await.unwrap();
    let Err(ResultError::Failed(failure)) = broken.result::<Value>(TOO_LONG).await else {
        panic!("a panic passed for a result");
    };
    assert_eq!(failure.code, "HANDLER_ERROR");
    assert_eq!(failure.class, FailureClass::HandlerError);
    assert_eq!(failure.message, "handler panicked: cannot work with 7");

    holder.go.send_replace(true);
    assert_eq!(healthy.result::<String>(TOO_LONG).await.unwrap(), "a is done");
}

#[tokio::test]
async fn a_cancel_drops_the_work_at_the_next_beat() {
    let rig = Rig::new();
    let (held, mut holder) = HeldAt::new();
    rig.run(rig.worker().handler(held));
    let job = rig.coolant.submit("HELD", "a").await.unwrap();
    holder.began().await;
    rig.store.change(job.id(), Event::Cancel).await;

    assert_eq!(holder.next().await, Told::Dropped("a".into()));
    assert!(matches!(job.result::<Value>(TOO_LONG).await, Err(ResultError::Cancelled)));
    attempt_ended(&rig, &job, Outcome::Cancelled).await;
}

#[tokio::test]
async fn an_attempt_over_its_time_is_dropped_and_reported() {
    let rig = Rig::new();
    let (held, mut holder) = HeldAt::new();
    rig.run(rig.worker().handler(held));
    let policy = Policy { timeout: Duration::from_millis(100), ..one_attempt() };
    let job = rig.coolant.submit("HELD", "a").policy(policy).await.unwrap();
    holder.began().await;
    assert_eq!(holder.next().await, Told::Dropped("a".into()));
    assert_eq!(failure_code(&job).await, "TIMED_OUT");
    assert_eq!(rig.store.calls().count("fail"), 1);
}

#[tokio::test]
async fn a_time_limit_that_the_store_sees_first_needs_no_report() {
    let rig = Rig::new();
    let (held, mut holder) = HeldAt::new();
    rig.run(rig.worker().handler(held));
    let policy = Policy { timeout: Duration::from_secs(600), ..one_attempt() };
    let job = rig.coolant.submit("HELD", "a").policy(policy).await.unwrap();
    holder.began().await;
    rig.store.clock.advance(Duration::from_secs(601));
    assert_eq!(holder.next().await, Told::Dropped("a".into()));
    assert_eq!(failure_code(&job).await, "TIMED_OUT");
    assert_eq!(rig.store.calls().count("fail"), 0);
}

#[tokio::test]
async fn a_job_of_an_unknown_type_is_dead_lettered_and_may_come_back() {
    let rig = Rig::new();
    let (held, _holder) = HeldAt::new();
    rig.run(rig.worker().handler(held).job_types([]));
    let job = rig.coolant.submit("NOBODY_KNOWS", &()).await.unwrap();
    assert_eq!(failure_code(&job).await, "UNKNOWN_JOB_TYPE");
    let state = rig.store.job(job.id()).await.state;
    assert!(matches!(state, JobState::Failed { reopen: Reopen::From(_), .. }), "{state:?}");
}

#[tokio::test]
async fn a_worker_leaves_types_alone_that_it_has_no_handler_for() {
    let rig = Rig::new();
    let (held, holder) = HeldAt::new();
    holder.go.send_replace(true);
    rig.run(rig.worker().handler(held));
    let other = rig.coolant.submit("OTHER", &()).await.unwrap();
    let own = rig.coolant.submit("HELD", "a").await.unwrap();
    own.result::<String>(TOO_LONG).await.unwrap();
    assert_eq!(rig.store.job(other.id()).await.counters.claims, 0);
}

#[tokio::test]
async fn no_more_jobs_run_than_there_are_slots_and_all_slots_are_used() {
    const SLOTS: usize = 3;
    let rig = Rig::new();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let together = Arc::new(tokio::sync::Barrier::new(SLOTS));
    let (counted, highest) = (Arc::clone(&running), Arc::clone(&most));
    let counts = Does("COUNT", move |_, _| {
        let now = counted.fetch_add(1, Ordering::SeqCst) + 1;
        highest.fetch_max(now, Ordering::SeqCst);
        let (counted, together) = (Arc::clone(&counted), Arc::clone(&together));
        async move {
            together.wait().await;
            counted.fetch_sub(1, Ordering::SeqCst);
            Ok(Value::Null)
        }
    });
    let mut jobs = Vec::new();
    for _ in 0..SLOTS * 10 {
        jobs.push(rig.coolant.submit("COUNT", &()).await.unwrap());
    }
    rig.run(rig.worker().handler(counts).concurrency(SLOTS));
    for job in jobs {
        job.result::<Value>(TOO_LONG).await.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), SLOTS);
}

#[tokio::test]
async fn a_blocking_handler_keeps_its_slot_after_a_cancel_and_its_result_is_discarded() {
    let rig = Rig::new();
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(std::sync::Mutex::new(blocked));
    let saw_stop = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&saw_stop);
    let blocks = Does("BLOCK", move |ctx: coolant::Context, _| {
        let (blocked, seen) = (Arc::clone(&blocked), Arc::clone(&seen));
        async move {
            let _ = blocked.lock().unwrap().recv();
            seen.fetch_add(usize::from(ctx.is_stopped()), Ordering::SeqCst);
            Ok(json!("too late"))
        }
    });
    let (held, holder) = HeldAt::new();
    holder.go.send_replace(true);
    rig.run(rig.worker().handler(blocks).handler(held).concurrency(1).handler_threads(2));
    let blocking = rig.coolant.submit("BLOCK", &()).await.unwrap();
    rig.store.until(|calls| calls.count("renew") >= 1).await;
    let next = rig.coolant.submit("HELD", "next").await.unwrap();
    rig.store.change(blocking.id(), Event::Cancel).await;
    assert!(matches!(blocking.result::<Value>(TOO_LONG).await, Err(ResultError::Cancelled)));

    // Longer than the worker waits for the handler to leave its thread.
    let early = next.result::<Value>(Duration::from_millis(1500)).await;
    assert!(matches!(early, Err(ResultError::NotYet)), "{early:?}");
    unblock.send(()).unwrap();
    assert_eq!(next.result::<String>(TOO_LONG).await.unwrap(), "next is done");
    assert_eq!(saw_stop.load(Ordering::SeqCst), 1);
    assert_eq!(rig.store.job(blocking.id()).await.status(), Status::Cancelled);
}

#[tokio::test]
async fn a_handler_may_defer_and_a_payload_may_be_unreadable() {
    let rig = Rig::new();
    let (held, _holder) = HeldAt::new();
    let defers = Does("DEFER", async |_, _| {
        Err(HandlerError::Defer { wait: Duration::from_secs(9), reason: "not yet".into() })
    });
    rig.run(rig.worker().handler(held).handler(defers));
    let unreadable = rig.coolant.submit("HELD", &17).await.unwrap();
    assert_eq!(failure_code(&unreadable).await, "INVALID_PAYLOAD");
    let deferred = rig.coolant.submit("DEFER", &()).await.unwrap();
    rig.store.until(|calls| calls.count("defer") == 1).await;
    let job = rig.store.job(deferred.id()).await;
    assert_eq!(job.visible_at(), Some(rig.store.clock.now().plus(Duration::from_secs(9))));
    assert_eq!((job.counters.tries, job.counters.deferrals), (0, 1));
}

#[tokio::test]
async fn what_is_too_large_to_keep_fails_for_good() {
    let rig = Rig::new();
    let large = "x".repeat(1024 * 1024);
    let (as_result, as_step) = (large.clone(), large);
    let result = Does("RESULT", move |_, _| {
        let large = as_result.clone();
        async move { Ok(json!(large)) }
    });
    let step = Does("STEP", move |ctx: coolant::Context, _| {
        let large = as_step.clone();
        async move { Ok(json!(ctx.step("s", async || Ok(large)).await?.len())) }
    });
    rig.run(rig.worker().handler(result).handler(step));
    let job = rig.coolant.submit("RESULT", &()).await.unwrap();
    assert_eq!(failure_code(&job).await, "RESULT_TOO_LARGE");
    let job = rig.coolant.submit("STEP", &()).await.unwrap();
    assert_eq!(failure_code(&job).await, "STEP_TOO_LARGE");
}

#[tokio::test]
async fn the_end_of_a_job_rings_the_bell() {
    let rig = Rig::new();
    let (held, mut holder) = HeldAt::new();
    rig.run(rig.worker().handler(held));
    let job = rig.coolant.submit("HELD", "a").await.unwrap();
    holder.began().await;
    let mut bell = rig.bell.listen();
    holder.go.send_replace(true);
    let rung = tokio::time::timeout(TOO_LONG, bell.rung(TOO_LONG * 2)).await;
    assert!(rung.is_ok(), "nothing rang");
    assert_eq!(rig.store.job(job.id()).await.status(), Status::Succeeded);
}
