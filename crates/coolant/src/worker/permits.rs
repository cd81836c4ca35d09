//! Permits for paid calls: asked for, waited for, settled.
//!
//! Always true:
//! - a job that waits for long gives its slot to others: it is put back with its steps, at no attempt;
//! - those that come back too early come back less and less often, and not as one;
//! - a call that has begun is settled until the store has taken it, whatever becomes of its job.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use coolant_core::failure::{Failure, FailureClass};
use coolant_core::handler::{HandlerError, Lifeline, PaidCall, Payer, Settling};
use coolant_core::job::{JobId, LeaseToken};
use coolant_core::names::Upstream;
use coolant_core::prices::Prices;
use coolant_core::store::{Store, StoreError, StoreResult};
use coolant_core::upstream::{Denied, NoPermit, Permit, PermitId, PermitRequest, PermitSettlement};
use tokio::runtime::Handle;
use tokio::sync::watch;
use uuid::Uuid;

use super::leases::{Line, today};
use super::patience::{Closing, Courier, LONGEST_CALL, within};

/// Longest that a call waits for its permit in its slot.
const PATIENCE: Duration = Duration::from_secs(3);
/// A job that is put back again and again stays away for a second, two, four, and so on up to this, where its
/// upstream does not say for longer.
const LONGEST_TURN: Duration = Duration::from_secs(15);

#[async_trait]
impl Payer for Line {
    async fn permit(&self, upstream: Upstream, call: &PaidCall) -> Result<PermitId, HandlerError> {
        let job = Some((self.held.job_id, self.held.token));
        let request = request(upstream, call, job, &self.prices);
        let end = Instant::now() + PATIENCE;
        loop {
            let denied = match ask(&self.courier, &self.control, request.clone()).await {
                Ok(Ok(permit)) => return Ok(permit.id),
                Ok(Err(NoPermit::Denied(denied))) => denied,
                Ok(Err(NoPermit::Refused(refusal))) => return Err(HandlerError::Gone(refusal)),
                Err(error) if error.is_retryable() && !self.is_stopped() => {
                    self.pause().await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let Some(wait) = denied.retry_after else { return Err(never(&denied)) };
            // A job that has to stop waits for nothing any more, and would ask again and again.
            if self.is_stopped() || Instant::now() + wait > end {
                return Err(self.put_back(&denied, wait));
            }
            let _ = tokio::time::timeout(scattered(wait), self.held.stopped()).await;
        }
    }

    fn settle_call(&self, mut settlement: PermitSettlement) -> Settling {
        self.prices.price(&mut settlement.usage, today());
        // The end of the attempt waits for it, if it has not come yet.
        let saving = Arc::clone(&self.held.saving).try_read_owned().ok();
        settle(&self.courier, &self.control, settlement, saving)
    }

    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

impl Line {
    fn put_back(&self, denied: &Denied, wait: Duration) -> HandlerError {
        let turn = Duration::from_secs(1).saturating_mul(1 << self.deferrals.min(10)).min(LONGEST_TURN);
        HandlerError::Defer { wait: scattered(wait.max(turn)), reason: denied.to_string() }
    }
}

/// Pays for calls of no job: they wait for nothing.
pub struct LooseCalls {
    courier: Arc<Courier>,
    prices: Prices,
    control: Handle,
    /// Its end ends the tries to settle.
    _open: watch::Sender<bool>,
}

impl LooseCalls {
    /// Over that store, at these prices.
    ///
    /// # Panics
    /// Outside a tokio runtime, on which it calls the store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, prices: Prices) -> Self {
        let (open, closed) = watch::channel(false);
        let courier = Arc::new(Courier::new(store, Closing(closed)));
        Self { courier, prices, control: Handle::current(), _open: open }
    }
}

#[async_trait]
impl Payer for LooseCalls {
    async fn permit(&self, upstream: Upstream, call: &PaidCall) -> Result<PermitId, HandlerError> {
        let name = upstream.to_string();
        let request = request(upstream, call, None, &self.prices);
        match ask(&self.courier, &self.control, request).await? {
            Ok(permit) => Ok(permit.id),
            Err(NoPermit::Refused(refusal)) => Err(HandlerError::Gone(refusal)),
            Err(NoPermit::Denied(Denied { retry_after: None, denial, reason })) => {
                Err(HandlerError::failed(FailureClass::InvalidRequest, denial.as_str(), reason))
            }
            Err(NoPermit::Denied(denied)) => {
                let (code, message) = (denied.denial.as_str(), denied.to_string());
                let mut failure = Failure::new(FailureClass::RateLimited, code, message);
                failure.upstream = Some(name);
                Err(failure.with_retry_after(denied.retry_after).into())
            }
        }
    }

    fn settle_call(&self, mut settlement: PermitSettlement) -> Settling {
        self.prices.price(&mut settlement.usage, today());
        settle(&self.courier, &self.control, settlement, ())
    }

    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

fn request(
    upstream: Upstream,
    call: &PaidCall,
    job: Option<(JobId, LeaseToken)>,
    prices: &Prices,
) -> PermitRequest {
    let (input, output) = call.estimated_tokens();
    let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    let listed = || prices.estimate(call.upstream(), count(input), count(output), today());
    PermitRequest {
        id: PermitId(Uuid::now_v7()),
        upstream,
        job,
        tenant: call.own_tenant().clone(),
        step: Some(call.step().to_owned()),
        tokens: input.saturating_add(output),
        cost: call.estimated_cost().or_else(listed).unwrap_or_default(),
    }
}

async fn ask(
    courier: &Courier,
    control: &Handle,
    request: PermitRequest,
) -> StoreResult<Result<Permit, NoPermit>> {
    let store = Arc::clone(&courier.store);
    let asked = async move { within(LONGEST_CALL, store.acquire_permits(vec![request])).await };
    let answer = control.spawn(asked).await.map_err(|ended| StoreError::Unavailable(Arc::new(ended)))?;
    let unanswered = || StoreError::Broken("a request for a permit was left without an answer".into());
    answer?.pop().ok_or_else(unanswered)
}

/// Settles in the background, where `meanwhile` is kept until it is done.
fn settle(
    courier: &Arc<Courier>,
    control: &Handle,
    settlement: PermitSettlement,
    meanwhile: impl Send + 'static,
) -> Settling {
    let courier = Arc::clone(courier);
    let settled = control.spawn(async move {
        let id = settlement.id;
        if let Err(error) = courier.settle_permit(settlement).await {
            tracing::error!(permit.id = %id, %error, "the end of a paid call could not be stored");
        }
        drop(meanwhile);
    });
    // It ends in a panic or with the process; neither is the caller's affair.
    Box::pin(async move { drop(settled.await) })
}

fn scattered(wait: Duration) -> Duration {
    wait.mul_f64(1.0 + rand::random::<f64>() / 4.0)
}

/// No waiting helps: the estimate is above a limit, or the job has made all the calls that it may make.
fn never(denied: &Denied) -> HandlerError {
    let code = denied.denial.as_str();
    HandlerError::Failed(super::final_failure(FailureClass::InvalidRequest, code, &denied.reason))
}
