//! Leases: renewed together, lost only when the store says so, and what is paid for outlives an outage.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Does, HeldAt, Rig, TOO_LONG, Told};
use coolant::HandlerError;
use coolant_core::job::{Outcome, Policy, Status};
use coolant_core::lifecycle::{Event, Refusal};
use coolant_core::store::Store;
use serde_json::json;

#[tokio::test]
async fn a_handler_that_blocks_the_only_thread_stops_no_heartbeat() {
    let rig = Rig::new();
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(std::sync::Mutex::new(blocked));
    let blocks = Does("BLOCK", move |_, _| {
        let blocked = Arc::clone(&blocked);
        async move {
            let _ = blocked.lock().unwrap().recv();
            Ok(json!("unblocked"))
        }
    });
    let (held, holder) = HeldAt::new();
    rig.run(rig.worker().handler(blocks).handler(held).handler_threads(1));

    let blocking = rig.coolant.submit("BLOCK", &()).await.unwrap();
    let waiting = rig.coolant.submit("HELD", "a").await.unwrap();
    // Both leases are renewed, that of the job which waits for the thread too.
    rig.store.until(|calls| calls.applied.iter().filter(|kinds| kinds.len() == 2).count() >= 3).await;
    assert_eq!(rig.store.job(waiting.id()).await.status(), Status::Running);

    unblock.send(()).unwrap();
    holder.go.send_replace(true);
    assert_eq!(blocking.result::<String>(TOO_LONG).await.unwrap(), "unblocked");
    assert_eq!(waiting.result::<String>(TOO_LONG).await.unwrap(), "a is done");
}

#[tokio::test]
async fn a_lost_lease_drops_the_work_and_reports_nothing() {
    let rig = Rig::new();
    let (held, mut holder) = HeldAt::new();
    rig.run(rig.worker().handler(held));
    let job = rig.coolant.submit("HELD", "a").await.unwrap();
    holder.began().await;

    // The worker's beats do not get through until somebody else has the job.
    rig.store.fail("renew", usize::MAX);
    rig.store.clock.advance(Duration::from_secs(1));
    let stolen = rig.store.steal().await;
    rig.store.mend();

    assert_eq!(holder.next().await, Told::Dropped("a".into()));
    let calls = rig.store.calls();
    assert!(calls.applied.iter().flatten().all(|kind| *kind == "renew"), "{calls:?}");
    let succeed = Event::Succeed { token: stolen.lease.token, result: json!("theirs"), usage: vec![] };
    rig.store.change(job.id(), succeed).await;
    assert_eq!(job.result::<String>(TOO_LONG).await.unwrap(), "theirs");
    let attempts = rig.store.attempts(job.id()).await.unwrap();
    let outcomes: Vec<_> = attempts.iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Lost), Some(Outcome::Succeeded)]);
}

#[tokio::test]
async fn a_worker_does_not_take_its_own_jobs_from_itself_after_an_outage() {
    let rig = Rig::new();
    let (held, mut holder) = HeldAt::new();
    rig.run(rig.worker().handler(held));
    let job = rig.coolant.submit("HELD", "a").await.unwrap();
    holder.began().await;

    // Beats fail for longer than two thirds of the lease, whatever the waits between them happen to be.
    rig.store.fail("renew", usize::MAX);
    rig.store.until(|calls| calls.failed >= 5).await;
    rig.store.clock.advance(Duration::from_secs(60));
    rig.bell.ring();
    tokio::task::yield_now().await;
    rig.store.mend();

    // The lease is past its end, and as long as nobody else has the job the store renews it.
    rig.store.until(|calls| calls.count("renew") >= 1).await;
    assert_eq!(rig.store.job(job.id()).await.counters.claims, 1);
    holder.go.send_replace(true);
    assert_eq!(job.result::<String>(TOO_LONG).await.unwrap(), "a is done");
}

#[tokio::test]
async fn a_job_that_a_worker_took_from_itself_runs_once_at_a_time() {
    let rig = Rig::new();
    let (held, mut holder) = HeldAt::new();
    rig.run(rig.worker().handler(held));
    let job = rig.coolant.submit("HELD", "a").await.unwrap();
    holder.began().await;

    // No beat is late by the worker's clock: the machine slept, and only the store's clock went on.
    rig.store.fail("renew", 2);
    rig.store.clock.advance(Duration::from_secs(60));
    rig.bell.ring();
    let mut told = [holder.next().await, holder.next().await];
    told.sort_by_key(|told| matches!(told, Told::Dropped(_)));
    assert_eq!(told, [Told::Began("a".into()), Told::Dropped("a".into())]);
    holder.go.send_replace(true);
    assert_eq!(job.result::<String>(TOO_LONG).await.unwrap(), "a is done");
    assert_eq!(rig.store.calls().count("succeed"), 1);
}

#[tokio::test]
async fn a_step_is_not_paid_again_after_a_crash() {
    let rig = Rig::new();
    let paid = Arc::new(AtomicUsize::new(0));
    // The worker that crashes never gets past its first step; the other one does.
    let steps = |permits| {
        let (paid, gate) = (Arc::clone(&paid), Arc::new(tokio::sync::Semaphore::new(permits)));
        Does("STEPS", move |ctx: coolant::Context, _| {
            let (paid, gate) = (Arc::clone(&paid), Arc::clone(&gate));
            async move {
                let pay = async || Ok(paid.fetch_add(1, Ordering::SeqCst) + 1);
                let first: usize = ctx.step("first", pay).await?;
                let _ = gate.acquire().await?;
                let second: usize = ctx.step("second", pay).await?;
                Ok(json!([first, second]))
            }
        })
    };
    let crashing = rig.run(rig.worker().handler(steps(0)));
    let job = rig.coolant.submit("STEPS", &()).await.unwrap();
    rig.store.until(|calls| calls.count("save_step") == 1).await;
    crashing.abort();
    assert!(crashing.await.unwrap_err().is_cancelled());

    rig.store.clock.advance(Duration::from_secs(1));
    rig.run(rig.worker().handler(steps(1)));
    assert_eq!(job.result::<[usize; 2]>(TOO_LONG).await.unwrap(), [1, 2]);
    let counters = rig.store.job(job.id()).await.counters;
    assert_eq!((counters.executions, counters.lost), (2, 1));
}

#[tokio::test]
async fn an_end_is_reported_through_an_outage() {
    let rig = Rig::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let once = Does("ONCE", move |ctx: coolant::Context, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { Ok(json!(ctx.step("paid", async || Ok(1)).await?)) }
    });
    rig.store.fail("ready", 1);
    rig.store.fail("claim", 2);
    rig.store.fail("save_step", 3);
    rig.store.fail("succeed", 3);
    rig.store.lose_answer("succeed", 1);
    rig.run(rig.worker().handler(once));
    let job = rig.coolant.submit("ONCE", &()).await.unwrap();
    assert_eq!(job.result::<u32>(TOO_LONG).await.unwrap(), 1);
    rig.store.until(|calls| calls.count("succeed") == 2).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert!(rig.store.calls().claims < 10, "the claim loop did not wait: {:?}", rig.store.calls());
}

#[tokio::test]
async fn the_heartbeats_of_all_jobs_are_one_call_and_carry_progress() {
    let rig = Rig::new();
    let (held, mut holder) = HeldAt::new();
    rig.run(rig.worker().handler(held));
    let mut jobs = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        jobs.push(rig.coolant.submit("HELD", name).await.unwrap());
        holder.began().await;
    }
    let before = rig.store.calls().applied.len();
    rig.store.until(|calls| calls.applied.len() >= before + 2).await;
    assert_eq!(rig.store.calls().applied.last().unwrap(), &["renew"; 5]);
    for job in jobs {
        let progress = rig.store.job(job.id()).await.progress.unwrap();
        assert_eq!((progress.done, progress.total), (1, Some(2)));
    }
}

#[tokio::test]
async fn a_step_under_a_lost_lease_is_refused_and_ends_the_work() {
    let rig = Rig::new();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let (opened, (tell, mut told)) = (Arc::clone(&gate), tokio::sync::mpsc::unbounded_channel());
    let steps = Does("STEPS", move |ctx: coolant::Context, _| {
        let (gate, tell) = (Arc::clone(&opened), tell.clone());
        async move {
            let _ = gate.acquire().await?;
            let kept = ctx.step("late", async || Ok(1)).await;
            let _ = tell.send(matches!(kept, Err(HandlerError::Gone(Refusal::LeaseLost))));
            kept.map(|n| json!(n))
        }
    });
    // A lease so long that no beat comes in between.
    let long = Some(Duration::from_secs(3000));
    rig.run(rig.worker().handler(steps).lease(long));
    let policy = Policy { timeout: Duration::from_secs(9000), ..Policy::default() };
    let job = rig.coolant.submit("STEPS", &()).policy(policy).await.unwrap();
    loop {
        if rig.store.job(job.id()).await.status() == Status::Running {
            break;
        }
        tokio::task::yield_now().await;
    }
    rig.store.clock.advance(Duration::from_secs(3001));
    rig.store.steal().await;
    gate.add_permits(1);
    assert!(tokio::time::timeout(TOO_LONG, told.recv()).await.unwrap().unwrap());
    assert_eq!(rig.store.steps(job.id()).await.unwrap(), []);
}

#[tokio::test]
async fn an_outage_is_waited_out_and_not_hammered() {
    let rig = Rig::new();
    let (held, holder) = HeldAt::new();
    holder.go.send_replace(true);
    rig.store.fail("claim", usize::MAX);
    let began = std::time::Instant::now();
    rig.run(rig.worker().handler(held));
    // Rings in the middle of it change nothing.
    let job = rig.coolant.submit("HELD", "a").await.unwrap();
    rig.store.until(|calls| calls.claims == 4).await;
    // 100 ms, 200 ms and 400 ms, each at least by half.
    assert!(began.elapsed() >= Duration::from_millis(350), "{:?}", began.elapsed());
    rig.store.mend();
    assert_eq!(job.result::<String>(TOO_LONG).await.unwrap(), "a is done");
}
