//! Shutdowns: what runs may finish, what is left is given back as it was.

use std::sync::Arc;
use std::time::Duration;

use coolant_core::store::Store;
use serde_json::json;

use crate::common::{Does, HeldAt, Rig, TOO_LONG, Told};
use coolant_core::job::Status;

#[tokio::test]
async fn a_shutdown_lets_running_jobs_finish_and_begins_none() {
    let rig = Rig::new();
    let (held, mut holder) = HeldAt::new();
    let running = rig.run(rig.worker().handler(held).concurrency(1));
    let first = rig.coolant.submit("HELD", "first").await.unwrap();
    holder.began().await;
    let second = rig.coolant.submit("HELD", "second").await.unwrap();
    rig.shutdown.signal();
    holder.go.send_replace(true);

    let drained = running.await.unwrap().unwrap();
    assert_eq!((drained.finished, drained.released, drained.left), (1, 0, 0));
    assert_eq!(first.result::<String>(TOO_LONG).await.unwrap(), "first is done");
    assert_eq!(rig.store.job(second.id()).await.status(), Status::Pending);
    assert_eq!(rig.store.job(second.id()).await.counters.claims, 0);
}

#[tokio::test]
async fn what_is_left_after_the_drain_is_given_back_as_it_was() {
    let rig = Rig::new();
    let (held, mut holder) = HeldAt::new();
    let running = rig.run(rig.worker().handler(held).drain(Duration::from_millis(10)));
    let mut jobs = Vec::new();
    for name in ["a", "b", "c"] {
        jobs.push(rig.coolant.submit("HELD", name).await.unwrap());
        holder.began().await;
    }
    rig.shutdown.drain();

    let drained = running.await.unwrap().unwrap();
    assert_eq!((drained.finished, drained.released, drained.left), (0, 3, 0));
    for job in &jobs {
        let job = rig.store.job(job.id()).await;
        assert_eq!(job.status(), Status::Pending);
        assert_eq!(job.visible_at(), Some(rig.store.clock.now()));
        assert_eq!((job.counters.executions, job.counters.tries, job.counters.releases), (0, 0, 1));
        assert_eq!(job.last_error, None);
    }
}

#[tokio::test]
async fn a_second_signal_gives_back_at_once() {
    let rig = Rig::new();
    let (held, mut holder) = HeldAt::new();
    let running = rig.run(rig.worker().handler(held).drain(Duration::from_secs(3600)));
    rig.coolant.submit("HELD", "a").await.unwrap();
    holder.began().await;
    rig.shutdown.signal();
    rig.shutdown.signal();
    let drained = tokio::time::timeout(TOO_LONG, running).await.unwrap().unwrap().unwrap();
    assert_eq!((drained.finished, drained.released), (0, 1));
    assert_eq!(holder.next().await, Told::Dropped("a".into()));
}

#[tokio::test]
async fn a_claim_under_way_at_the_shutdown_is_given_back_unbegun() {
    // So many that one of them would be begun if only the speed of its end kept it from that.
    const JOBS: usize = 200;
    let rig = Rig::new();
    let (held, mut holder) = HeldAt::new();
    rig.store.open_claims(false);
    let mut jobs = Vec::new();
    for _ in 0..JOBS {
        jobs.push(rig.coolant.submit("HELD", "a").await.unwrap());
    }
    let running = rig.run(rig.worker().handler(held).concurrency(JOBS));
    rig.store.until(|calls| calls.claims == 1).await;
    rig.shutdown.drain();
    rig.store.open_claims(true);

    let drained = running.await.unwrap().unwrap();
    assert_eq!((drained.finished, drained.released, drained.left), (0, JOBS, 0));
    assert_eq!(rig.store.job(jobs[0].id()).await.counters.releases, 1);
    assert!(holder.told.recv().await.is_none(), "a handler ran");
}

#[tokio::test]
async fn a_step_that_is_being_kept_at_the_shutdown_is_kept_before_the_job_is_given_back() {
    let rig = Rig::new();
    let step =
        Does("STEP", async |ctx: coolant::Context, _| Ok(json!(ctx.step("paid", async || Ok(1)).await?)));
    rig.store.fail("save_step", 3);
    let running = rig.run(rig.worker().handler(step));
    let job = rig.coolant.submit("STEP", &()).await.unwrap();
    rig.store.until(|calls| calls.failed == 1).await;
    rig.shutdown.now();

    let drained = running.await.unwrap().unwrap();
    assert_eq!((drained.finished, drained.released, drained.left), (0, 1, 0));
    let steps = rig.store.steps(job.id()).await.unwrap();
    assert_eq!(steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>(), ["paid"]);
}

#[tokio::test]
async fn neither_a_store_that_is_away_nor_a_blocked_thread_holds_up_the_end_for_long() {
    let rig = Rig::new();
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(std::sync::Mutex::new(blocked));
    let blocks = Does("BLOCK", move |_, _| {
        let blocked = Arc::clone(&blocked);
        async move {
            let _ = blocked.lock().unwrap().recv();
            Ok(json!("too late"))
        }
    });
    let running = rig.run(rig.worker().handler(blocks));
    let job = rig.coolant.submit("BLOCK", &()).await.unwrap();
    rig.store.until(|calls| calls.count("renew") >= 1).await;
    rig.store.fail("release", usize::MAX);
    rig.shutdown.now();

    let drained = tokio::time::timeout(TOO_LONG, running).await.unwrap().unwrap().unwrap();
    assert_eq!((drained.finished, drained.released, drained.left), (0, 0, 1));
    assert_eq!(rig.store.job(job.id()).await.status(), Status::Running);
    unblock.send(()).unwrap();
}
