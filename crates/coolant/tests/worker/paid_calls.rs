//! Paid calls of handlers: permits asked for, ends told, money booked, whatever becomes of the attempt.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use coolant::embedded::{JobHandle, ResultError};
use coolant::{CallError, Context, Evidence, HandlerError, Paid, PaidCall};
use coolant_core::failure::{Failure, FailureClass};
use coolant_core::job::{JobState, Outcome, Policy, Reopen, Wait};
use coolant_core::ledger::LedgerEntry;
use coolant_core::lifecycle::Event;
use coolant_core::money::Money;
use coolant_core::names::Upstream;
use coolant_core::store::{AuditEntry, Store};
use coolant_core::time::Timestamp;
use coolant_core::upstream::{Control, Limits, Per, Rate, UpstreamNow, UpstreamSettings, UpstreamStore};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, mpsc};

use super::common::*;

const UPSTREAM: &str = "openai/gpt-4.1-mini";

fn upstream() -> Upstream {
    Upstream::parse(UPSTREAM).unwrap()
}

fn call() -> PaidCall {
    PaidCall::new("draft", UPSTREAM).tokens(1000, 500)
}

/// A body as the provider sends it, with 800 tokens in and 100 out.
fn body() -> Value {
    json!({"model": "gpt-4.1-mini-2025-04-14", "usage": {"prompt_tokens": 800, "completion_tokens": 100}})
}

fn draft() -> Result<Paid<String>, CallError> {
    Ok(Paid::new("a draft".to_owned()).answer(&body()))
}

/// What 800 tokens in and 100 out cost at list price.
const COST: Money = Money::from_nanos(800 * 400 + 100 * 1600);

impl Rig {
    /// Runs jobs by that function, which makes paid calls.
    fn pays<R>(&self, run: impl Fn(Context) -> R + Send + Sync + 'static)
    where
        R: Future<Output = Result<Value, HandlerError>> + Send + 'static,
    {
        let run = Arc::new(run);
        self.run(self.worker().handler(Does("PAYS", move |ctx, _| run(ctx))));
    }

    async fn job(&self, policy: Policy) -> JobHandle {
        let submit = self.coolant.submit("PAYS", &json!({})).policy(policy);
        submit.upstream(UPSTREAM).await.unwrap()
    }

    async fn ledger(&self, job: &JobHandle) -> Vec<LedgerEntry> {
        self.store.ledger(job.id()).await.unwrap()
    }

    /// The job's first row, once there is one: what is settled in the background comes when it comes.
    async fn booked(&self, job: &JobHandle) -> LedgerEntry {
        let look = async {
            loop {
                if let Some(entry) = self.ledger(job).await.into_iter().next() {
                    return entry;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TOO_LONG, look).await.expect("nothing was booked")
    }

    async fn upstream(&self) -> UpstreamNow {
        self.store.model.upstreams(Some(&[upstream()])).await.unwrap().pop().unwrap()
    }

    async fn limit(&self, limits: Limits) {
        let settings = UpstreamSettings { limits, ..UpstreamSettings::default() };
        self.store.model.set_upstream(&upstream(), settings).await.unwrap();
    }

    /// Closes an upstream for so long.
    async fn close(&self, name: &str, wait: Duration) {
        let audit = AuditEntry {
            at: Timestamp::default(),
            actor: "test".into(),
            action: "upstream.closed".into(),
            target: name.into(),
            reason: String::new(),
        };
        let control = Control::Close { wait, reason: "maintenance".into() };
        self.store.model.control_upstream(&Upstream::parse(name).unwrap(), control, audit).await.unwrap();
    }

    /// Waits until the job was put back, and says why.
    async fn put_back(&self, job: &JobHandle) -> String {
        self.store.until(|calls| calls.count("defer") + calls.count("fail") > 0).await;
        match self.store.job(job.id()).await.state {
            JobState::Pending { wait: Wait::Deferred { reason }, .. } => reason,
            state => panic!("not put back: {state:?}"),
        }
    }
}

#[tokio::test]
async fn a_call_is_made_once_and_kept_with_its_bill() {
    let rig = Rig::new();
    let (calls, attempts) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let made = Arc::clone(&calls);
    rig.pays(move |ctx| {
        let (made, is_first) = (Arc::clone(&made), attempts.fetch_add(1, Ordering::SeqCst) == 0);
        async move {
            let draft: String = ctx
                .paid_call(call(), async || {
                    made.fetch_add(1, Ordering::SeqCst);
                    draft()
                })
                .await?;
            match is_first {
                true => Err(HandlerError::failed(FailureClass::HandlerError, "LATER", "after the call")),
                false => Ok(json!(draft)),
            }
        }
    });
    let job = rig.job(Policy { retry_delays: vec![Duration::ZERO], ..Policy::default() }).await;
    assert_eq!(job.result::<String>(TOO_LONG).await.unwrap(), "a draft");
    assert_eq!(calls.load(Ordering::SeqCst), 1);

    let [entry] = &rig.ledger(&job).await[..] else { panic!("not one row") };
    assert_eq!((entry.step.as_deref(), entry.attempt, entry.wasted), (Some("draft"), 1, false));
    assert_eq!((entry.usage.input_tokens, entry.usage.cost), (800, Some(COST)));
    assert_eq!(entry.usage.model.as_deref(), Some("gpt-4.1-mini-2025-04-14"));
    assert_eq!((entry.usage.permit, entry.usage.estimated), (None, false));
    let upstream = rig.upstream().await;
    assert_eq!((upstream.live.permits, upstream.meter.spent_today(upstream.now)), (0, COST));
}

#[tokio::test]
async fn a_closed_upstream_puts_the_job_back_before_it_pays() {
    let rig = Rig::new();
    // The job's own upstream is open: only the call meets the closed one.
    rig.pays(|ctx| async move {
        let call = PaidCall::new("draft", "other/model");
        Ok(json!(ctx.paid_call(call, async || -> Result<Paid<String>, CallError> { panic!("paid") }).await?))
    });
    let wait = Duration::from_secs(600);
    rig.close("other/model", wait).await;
    let job = rig.job(Policy::default()).await;
    assert_eq!(rig.put_back(&job).await, "UPSTREAM_CLOSED: maintenance");
    attempt_ended(&rig, &job, Outcome::Deferred).await;
    let job = rig.store.job(job.id()).await;
    let waits = job.visible_at().unwrap().since(rig.store.model.now().await.unwrap());
    assert!((wait..wait * 2).contains(&waits), "{waits:?}");
    assert_eq!((job.counters.tries, job.counters.deferrals), (0, 1));
}

#[tokio::test]
async fn a_call_that_waits_for_its_permit_asks_no_more_once_its_job_has_to_stop() {
    let rig = Rig::new();
    // The store's time stands still, so it is closed for as long whenever somebody asks.
    rig.close("other/model", Duration::from_secs(2)).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let waits = Does("PAYS", move |ctx: Context, _| {
        let (tell, runtime) = (tell.clone(), Handle::current());
        // On a thread of its own, where nobody can drop it: it goes on until it gives up.
        let waits = tokio::task::spawn_blocking(move || {
            let call = PaidCall::new("draft", "other/model");
            let paid = runtime.block_on(ctx.paid_call(call, async || draft()));
            let _ = tell.send(paid.is_err());
        });
        async move { Ok(json!(waits.await?)) }
    });
    let running = rig.run(rig.worker().handler(waits).drain(Duration::ZERO));
    rig.job(Policy::default()).await;
    let asked = async || rig.store.model.stats(None, TOO_LONG).await.unwrap().blocked_calls;
    let first = async {
        while asked().await == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TOO_LONG, first).await.expect("it never asked");
    // The lease is the job's as long as the store does not hear that it is given back.
    rig.store.fail("release", usize::MAX);
    rig.shutdown.drain();
    let gave_up = tokio::time::timeout(TOO_LONG, told.recv()).await.expect("it still waits");
    assert_eq!(gave_up, Some(true));
    let asked = asked().await;
    assert!(asked <= 2, "it asked {asked} times");
    rig.store.mend();
    assert_eq!(running.await.unwrap().unwrap().released, 1);
}

#[tokio::test]
async fn a_refusal_closes_the_upstream_and_costs_neither_a_try_nor_money() {
    let rig = Rig::new();
    rig.pays(|ctx| async move {
        ctx.paid_call(call(), async || {
            let headers = vec![("retry-after".to_owned(), "40".to_owned())];
            let body = json!({"error": {"code": "rate_limit_exceeded", "message": "slow down"}});
            Err::<Paid<Value>, _>(Evidence { status: Some(429), headers, body }.into())
        })
        .await
    });
    let job = rig.job(Policy::default()).await;
    assert!(rig.put_back(&job).await.contains("LLM_RATE_LIMIT"));
    assert_eq!(rig.ledger(&job).await, []);
    let upstream = rig.upstream().await;
    let closure = upstream.breaker.closure().expect("it is closed");
    assert_eq!(closure.until.since(upstream.now), Duration::from_secs(40));
    assert_eq!(rig.store.job(job.id()).await.counters.tries, 0);
}

#[tokio::test]
async fn an_answer_of_no_use_is_paid_and_counts_as_wasted() {
    let rig = Rig::new();
    rig.pays(|ctx| async move {
        ctx.paid_call(call(), async || {
            let failure = Failure::new(FailureClass::InvalidOutput, "LLM_INVALID_OUTPUT", "no JSON");
            Err::<Paid<Value>, _>(CallError::unusable(failure, &body()))
        })
        .await
    });
    let job = rig.job(one_attempt()).await;
    assert_eq!(failure_code(&job).await, "LLM_INVALID_OUTPUT");
    let [entry] = &rig.ledger(&job).await[..] else { panic!("not one row") };
    assert_eq!((entry.usage.cost, entry.wasted), (Some(COST), true));
    assert_eq!(entry.usage.failed, Some(FailureClass::InvalidOutput));
}

#[tokio::test]
async fn an_error_without_an_answer_is_read_and_may_be_on_the_bill() {
    let rig = Rig::new();
    rig.pays(|ctx| async move {
        ctx.paid_call(call(), async || -> Result<Paid<Value>, CallError> {
            Err(std::io::Error::new(std::io::ErrorKind::ConnectionReset, "connection reset by peer"))?
        })
        .await
    });
    let job = rig.job(one_attempt()).await;
    assert_eq!(failure_code(&job).await, "LLM_NETWORK");
    let [entry] = &rig.ledger(&job).await[..] else { panic!("not one row") };
    assert_eq!(
        (entry.usage.input_tokens, entry.usage.output_tokens, entry.usage.estimated),
        (1000, 500, true)
    );
    assert!(entry.wasted);
}

#[tokio::test]
async fn a_call_cut_by_a_cancel_is_booked_by_its_estimate_and_gives_its_room_back() {
    let rig = Rig::new();
    let (began, never) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let (begins, waits) = (Arc::clone(&began), Arc::clone(&never));
    rig.pays(move |ctx| {
        let (begins, waits) = (Arc::clone(&begins), Arc::clone(&waits));
        async move {
            ctx.paid_call(call(), async || {
                begins.notify_one();
                let _ = waits.acquire().await?;
                Ok(Paid::new(json!("too late")))
            })
            .await
        }
    });
    let job = rig.job(Policy::default()).await;
    tokio::time::timeout(TOO_LONG, began.notified()).await.expect("the call began");
    assert_eq!(rig.upstream().await.live.permits, 1);
    rig.store.change(job.id(), Event::Cancel).await;
    assert!(matches!(job.result::<Value>(TOO_LONG).await, Err(ResultError::Cancelled)));

    let entry = rig.booked(&job).await;
    assert_eq!((entry.usage.input_tokens, entry.usage.estimated, entry.wasted), (1000, true, true));
    let upstream = rig.upstream().await;
    assert_eq!(upstream.live.permits, 0);
    assert!(upstream.breaker.closure().is_none(), "a cancel is not the upstream's fault");
}

#[tokio::test]
async fn a_call_whose_lease_was_lost_is_booked_with_what_it_used() {
    let rig = Rig::new();
    let (began, go) = (Arc::new(Notify::new()), Arc::new(Barrier::new(2)));
    let (begins, goes) = (Arc::clone(&began), Arc::clone(&go));
    rig.pays(move |ctx| {
        let (begins, goes) = (Arc::clone(&begins), Arc::clone(&goes));
        async move {
            ctx.paid_call(call(), async || {
                begins.notify_one();
                // Blocks its thread, so that the loss of the lease does not drop it before the answer.
                goes.wait();
                Ok(Paid::new(json!("late")).answer(&body()))
            })
            .await
        }
    });
    let job = rig.job(Policy::default()).await;
    tokio::time::timeout(TOO_LONG, began.notified()).await.expect("the call began");
    rig.store.open_claims(false);
    rig.store.clock.advance(Duration::from_secs(60));
    let stolen = rig.store.steal().await;
    assert_eq!(stolen.record.job.id, job.id());
    tokio::task::spawn_blocking(move || go.wait()).await.unwrap();

    let entry = rig.booked(&job).await;
    assert_eq!((entry.usage.cost, entry.attempt, entry.wasted), (Some(COST), 1, true));
}

#[tokio::test]
async fn a_rate_that_is_used_up_puts_the_job_back() {
    let rig = Rig::new();
    rig.limit(Limits { requests: Some(Rate { amount: 1, per: Per::Minute }), ..Limits::default() }).await;
    rig.pays(|ctx| async move {
        ctx.paid_call(call(), async || draft()).await?;
        let second = PaidCall::new("second", UPSTREAM);
        Ok(json!(ctx.paid_call(second, async || draft()).await?))
    });
    let job = rig.job(Policy::default()).await;
    assert!(rig.put_back(&job).await.starts_with("RATE_LIMITED: "));
    assert_eq!(rig.ledger(&job).await.len(), 1);

    // Its time has come: only the second call is made.
    rig.store.clock.advance(Duration::from_secs(90));
    rig.bell.ring();
    assert_eq!(job.result::<String>(TOO_LONG).await.unwrap(), "a draft");
    assert_eq!(rig.ledger(&job).await.len(), 2);
}

#[tokio::test]
async fn what_no_waiting_helps_ends_the_job() {
    let rig = Rig::new();
    rig.pays(|ctx| async move {
        ctx.paid_call(call(), async || draft()).await?;
        Ok(json!(ctx.paid_call(PaidCall::new("second", UPSTREAM), async || draft()).await?))
    });
    let job = rig.job(Policy { max_paid_calls: Some(1), ..Policy::default() }).await;
    assert_eq!(failure_code(&job).await, "PAID_CALL_LIMIT");
    let state = rig.store.job(job.id()).await.state;
    assert!(matches!(state, JobState::Failed { reopen: Reopen::OnlyForced, .. }), "{state:?}");
}

#[tokio::test]
async fn an_answer_that_says_nothing_is_left_rests_the_upstream() {
    let rig = Rig::new();
    rig.pays(|ctx| async move {
        let headers = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "50s")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Ok(json!(ctx.paid_call(call(), async || Ok(draft()?.headers(headers))).await?))
    });
    let first = rig.job(Policy::default()).await;
    first.result::<String>(TOO_LONG).await.unwrap();
    let second = rig.job(Policy::default()).await;
    assert!(rig.put_back(&second).await.starts_with("RATE_LIMITED: "));
    rig.store.clock.advance(Duration::from_secs(90));
    rig.bell.ring();
    second.result::<String>(TOO_LONG).await.unwrap();
}

#[tokio::test]
async fn a_call_waits_where_less_is_left_than_it_may_need() {
    let rig = Rig::new();
    rig.pays(|ctx| async move {
        let headers = [("x-ratelimit-remaining-tokens", "1499"), ("x-ratelimit-reset-tokens", "50s")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Ok(json!(ctx.paid_call(call(), async || Ok(draft()?.headers(headers))).await?))
    });
    rig.job(Policy::default()).await.result::<String>(TOO_LONG).await.unwrap();
    // It may need 1500.
    let second = rig.job(Policy::default()).await;
    let reason = rig.put_back(&second).await;
    assert!(reason.ends_with("tokens left: 1499, in flight: 0, needed: 1500"), "{reason}");
    rig.store.clock.advance(Duration::from_secs(90));
    rig.bell.ring();
    second.result::<String>(TOO_LONG).await.unwrap();
}
