//! Paid calls from handlers: step, permit, call, reading, settle and ledger in one piece.
//!
//! Always true:
//! - a call whose output was kept is not made again;
//! - no call begins without a permit, so closures, rates, concurrency and budgets of all processes hold;
//! - a call that has begun is settled and booked, however it ends: also one whose handler is dropped in its
//!   middle, whose output is refused because the lease is lost, or whose answer is of no use.
//!
//! Elsewhere: how a permit is waited for (the worker), who may begin (`upstream`), what evidence means
//! (`evidence`).

use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Context, HandlerError, with_causes};
use crate::evidence::{self, Evidence, Operation};
use crate::failure::{Failure, FailureClass};
use crate::money::{Money, Usage};
use crate::names::{Tenant, Upstream};
use crate::upstream::{PermitId, PermitSettlement, Verdict};

/// Who asks for permits and settles them: a worker for the attempt that it runs, a program for calls of its own.
#[async_trait]
pub trait Payer: Send + Sync + 'static {
    /// Leave to make a paid call to that upstream. May wait for it, but not for long.
    async fn permit(&self, upstream: Upstream, call: &PaidCall) -> Result<PermitId, HandlerError>;

    /// Settles a paid call. Begins at once, and goes on until the store has taken it.
    fn settle_call(&self, settlement: PermitSettlement) -> Settling;

    /// The time, for what answers say about it.
    fn now(&self) -> SystemTime;
}

/// A settle under way, which goes on also if nobody awaits it.
pub type Settling = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A paid call that a handler wants to make.
#[derive(Debug, Clone, PartialEq)]
pub struct PaidCall {
    step: String,
    upstream: String,
    operation: Operation,
    input_tokens: u64,
    output_tokens: u64,
    cost: Option<Money>,
    tenant: Tenant,
}

impl PaidCall {
    /// A call to that upstream, `{provider}/{model}`, whose output is kept as that step.
    #[must_use]
    pub fn new(step: impl Into<String>, upstream: impl Into<String>) -> Self {
        Self {
            step: step.into(),
            upstream: upstream.into(),
            operation: Operation::Chat,
            input_tokens: 0,
            output_tokens: 0,
            cost: None,
            tenant: Tenant::default(),
        }
    }

    /// On whose behalf, for a call of no job; a job's are its tenant's.
    #[must_use]
    pub fn tenant(self, tenant: Tenant) -> Self {
        Self { tenant, ..self }
    }

    /// It asks for vectors: what goes wrong is read and named so (`EMBEDDING_RATE_LIMIT`).
    #[must_use]
    pub fn embeddings(self) -> Self {
        Self { operation: Operation::Embeddings, ..self }
    }

    /// Tokens in and out, at most: what the limits of tokens are asked for, and what is booked where nobody says
    /// what the call used. Without an estimate a limit of tokens only hears of the call when it is over.
    #[must_use]
    pub fn tokens(self, input: u64, output: u64) -> Self {
        Self { input_tokens: input, output_tokens: output, ..self }
    }

    /// What it may cost: what budgets reserve. If never set, what its tokens cost at list price.
    #[must_use]
    pub fn cost(self, at_most: Money) -> Self {
        Self { cost: Some(at_most), ..self }
    }

    /// The step that keeps its output.
    #[must_use]
    pub fn step(&self) -> &str {
        &self.step
    }

    /// Whom it is made to.
    #[must_use]
    pub fn upstream(&self) -> &str {
        &self.upstream
    }

    /// Tokens in and out that are estimated.
    #[must_use]
    pub const fn estimated_tokens(&self) -> (u64, u64) {
        (self.input_tokens, self.output_tokens)
    }

    /// What it may cost, if the handler said so.
    #[must_use]
    pub const fn estimated_cost(&self) -> Option<Money> {
        self.cost
    }

    /// On whose behalf, where no job says so.
    #[must_use]
    pub const fn own_tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Asks for leave to make it, outside of a job's handler; in one, see [`Context::paid_call`].
    ///
    /// # Errors
    /// Why it may not be made now.
    pub async fn begin(self, payer: Arc<dyn Payer>) -> Result<OpenCall, HandlerError> {
        let name = Upstream::parse(self.upstream.as_str());
        let name = name
            .map_err(|error| HandlerError::failed(FailureClass::InvalidRequest, "INVALID_UPSTREAM", error))?;
        let id = payer.permit(name, &self).await?;
        let cut = Usage { failed: Some(FailureClass::HandlerError), ..self.estimate() };
        Ok(OpenCall { payer, id, call: self, end: Some((Verdict::CutShort, cut)) })
    }

    fn prefix(&self) -> &'static str {
        match self.operation {
            Operation::Chat => "LLM",
            Operation::Embeddings => "EMBEDDING",
        }
    }

    /// What is booked where nobody says what it used.
    fn estimate(&self) -> Usage {
        let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        Usage {
            upstream: Some(self.upstream.clone()),
            input_tokens: count(self.input_tokens),
            output_tokens: count(self.output_tokens),
            cost: self.cost,
            estimated: true,
            ..Usage::default()
        }
    }

    /// What is known of its use, completed.
    fn used(&self, usage: Option<Usage>) -> Usage {
        let is_known = |usage: &Usage| {
            usage.reported.is_some()
                || usage.cost.is_some()
                || usage.input_tokens > 0
                || usage.output_tokens > 0
        };
        match usage {
            Some(usage) if is_known(&usage) => Usage { upstream: Some(self.upstream.clone()), ..usage },
            Some(usage) => {
                let Usage { provider, asked_model, model, credential, .. } = usage;
                Usage { provider, asked_model, model, credential, ..self.estimate() }
            }
            None => self.estimate(),
        }
    }

    fn read(&self, evidence: &Evidence, now: SystemTime) -> Failure {
        let context = evidence::Context {
            provider: Some(self.upstream.clone()),
            operation: Some(self.operation),
            now: Some(now),
            ..evidence::Context::default()
        };
        let read = evidence::read(evidence, &context).failure(self.prefix());
        // What reads as a success was of no use to the handler all the same.
        read.unwrap_or_else(|| {
            let code = format!("{}_{}", self.prefix(), FailureClass::InvalidOutput.code_suffix());
            Failure::new(FailureClass::InvalidOutput, code, "the answer was of no use")
        })
    }
}

/// What a paid call gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Paid<T> {
    output: T,
    usage: Option<Usage>,
    headers: Vec<(String, String)>,
}

impl<T> Paid<T> {
    /// An output. Unless [`Self::answer`] or [`Self::usage`] say what it used, its estimate is booked.
    #[must_use]
    pub const fn new(output: T) -> Self {
        Self { output, usage: None, headers: Vec::new() }
    }

    /// What it used, as the provider's answer reports it: the whole body, of any provider.
    #[must_use]
    pub fn answer(self, body: &Value) -> Self {
        let mut usage =
            Usage { model: body.get("model").and_then(Value::as_str).map(str::to_owned), ..Usage::default() };
        if let Some(reported) = crate::usage::find(body) {
            usage.take_report(reported.clone());
        }
        self.usage(usage)
    }

    /// What it used.
    #[must_use]
    pub fn usage(self, usage: Usage) -> Self {
        Self { usage: Some(usage), ..self }
    }

    /// The answer's headers: as long as what they say is left of a limit is not enough for them, calls wait.
    #[must_use]
    pub fn headers(self, headers: Vec<(String, String)>) -> Self {
        Self { headers, ..self }
    }
}

/// A paid call that gave nothing of use.
///
/// `?` makes one of [`Evidence`] (a provider's refusal), of a [`Failure`] that is read already, and of any error,
/// which counts as a call without an answer.
#[derive(Debug)]
pub struct CallError {
    cause: Cause,
    charge: Charge,
}

/// What a call that gave nothing of use costs all the same.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Charge {
    /// Nobody says: its estimate, where the class of its failure may be billed.
    #[default]
    Unknown,
    /// Nothing: the provider cannot have had it.
    NotSent,
    /// That much.
    Used(Box<Usage>),
}

impl Charge {
    /// That much.
    #[must_use]
    pub fn used(usage: Usage) -> Self {
        Self::Used(Box::new(usage))
    }
}

#[derive(Debug)]
enum Cause {
    Evidence(Box<Evidence>),
    Failure(Box<Failure>),
}

impl CallError {
    /// An answer came, and it cannot be used: it is booked with the usage that it reports.
    #[must_use]
    pub fn unusable(failure: Failure, body: &Value) -> Self {
        let used = Paid::new(()).answer(body).usage;
        Self::from(failure).charge(used.map_or(Charge::Unknown, Charge::used))
    }

    /// What the call costs all the same.
    #[must_use]
    pub fn charge(self, charge: Charge) -> Self {
        Self { charge, ..self }
    }
}

impl From<Evidence> for CallError {
    fn from(evidence: Evidence) -> Self {
        Self { cause: Cause::Evidence(Box::new(evidence)), charge: Charge::Unknown }
    }
}

impl From<Failure> for CallError {
    fn from(failure: Failure) -> Self {
        Self { cause: Cause::Failure(Box::new(failure)), charge: Charge::Unknown }
    }
}

impl<E: std::error::Error> From<E> for CallError {
    fn from(error: E) -> Self {
        Evidence { status: None, headers: Vec::new(), body: with_causes(&error).into() }.into()
    }
}

impl Context {
    /// Makes a paid call unless an earlier attempt made it, and keeps its output as the call's step.
    ///
    /// It asks for a permit first, and waits a few seconds for one; where that is too short, the job is put back
    /// with its steps until there may be one, which uses up no attempt. The upstream hears how the call ended,
    /// and the ledger what it cost, whatever becomes of this attempt.
    ///
    /// ```
    /// # use coolant_core::evidence::Evidence;
    /// # use coolant_core::handler::{CallError, Context, HandlerError, Paid, PaidCall};
    /// # use serde_json::Value;
    /// # struct Answer { status: u16, headers: Vec<(String, String)>, body: Value }
    /// # async fn ask(_: &str) -> Result<Answer, std::io::Error> { Err(std::io::ErrorKind::NotConnected.into()) }
    /// async fn summary(ctx: &Context, text: &str) -> Result<String, HandlerError> {
    ///     let call = PaidCall::new("summary", "openai/gpt-4.1-mini").tokens(2_000, 300);
    ///     ctx.paid_call(call, async || {
    ///         let Answer { status, headers, body } = ask(text).await?;
    ///         match body["choices"][0]["message"]["content"].as_str() {
    ///             Some(text) if status == 200 => Ok(Paid::new(text.to_owned()).answer(&body).headers(headers)),
    ///             _ => Err(Evidence { status: Some(status), headers, body }.into()),
    ///         }
    ///     })
    ///     .await
    /// }
    /// ```
    ///
    /// # Errors
    /// The call's failure, with its class; that the job has to wait for its upstream; that the lease is lost.
    pub async fn paid_call<T, F>(&self, call: PaidCall, make: F) -> Result<T, HandlerError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce() -> Result<Paid<T>, CallError>,
    {
        if let Some(output) = self.finished(&call.step) {
            return Ok(output);
        }
        let mut open = self.begin_call(call).await?;
        match make().await {
            Ok(Paid { output, usage, headers }) => {
                let usage = open.answered(usage, headers);
                let kept = serde_json::to_value(&output)?;
                self.lifeline.save_step(&open.call.step, &kept, vec![usage]).await?;
                open.kept();
                Ok(output)
            }
            Err(CallError { cause, charge }) => {
                let failure = match cause {
                    Cause::Evidence(evidence) => open.call.read(&evidence, self.lifeline.now()),
                    Cause::Failure(failure) => *failure,
                };
                Err(open.failed(failure, charge).await.into())
            }
        }
    }

    /// Leave to make a paid call, for handlers that keep its output elsewhere than in a step of their own. Most are
    /// better served by [`Self::paid_call`].
    ///
    /// # Errors
    /// That the job has to wait for the upstream, may make no more calls, or that the lease is lost.
    pub async fn begin_call(&self, call: PaidCall) -> Result<OpenCall, HandlerError> {
        call.begin(Arc::clone(&self.lifeline) as Arc<dyn Payer>).await
    }
}

/// A paid call under way. Dropped before its end is told, it is settled as one that was cut short.
#[must_use = "a call that is dropped counts as cut short"]
pub struct OpenCall {
    payer: Arc<dyn Payer>,
    id: PermitId,
    call: PaidCall,
    /// How it ends if nothing more is told; `None` once it is settled.
    end: Option<(Verdict, Usage)>,
}

impl OpenCall {
    /// A usable answer came. Gives what is booked for it: to be kept with the output, in one change of the job,
    /// which settles the call. After that, [`Self::kept`].
    #[must_use = "the usage goes with the change that keeps the output"]
    pub fn answered(&mut self, usage: Option<Usage>, headers: Vec<(String, String)>) -> Usage {
        let evidence = Evidence { status: Some(200), headers, body: Value::Null };
        let room = evidence::room(&evidence, Some(self.payer.now()));
        let usage = Usage { room: room.clone(), permit: Some(self.id), ..self.call.used(usage) };
        self.end = Some((Verdict::Ok { room }, usage.clone()));
        usage
    }

    /// The output is kept, and the call settled with it.
    pub fn kept(mut self) {
        self.end = None;
    }

    /// A usable answer came, whose output nobody has to keep with the call: settles it.
    pub async fn done(mut self, usage: Option<Usage>, headers: Vec<(String, String)>) {
        let _ = self.answered(usage, headers);
        self.told().await;
    }

    /// No usable answer came: settles the call, and gives the failure with its upstream.
    pub async fn failed(mut self, mut failure: Failure, charge: Charge) -> Failure {
        failure.upstream = Some(self.call.upstream.clone());
        let told = failure.clone();
        let (verdict, usage) = match charge {
            Charge::NotSent => (Verdict::NotSent(told), Usage::default()),
            Charge::Unknown if !failure.class.may_be_billed() => (Verdict::Failed(told), Usage::default()),
            Charge::Unknown => (Verdict::Failed(told), self.call.used(None)),
            Charge::Used(usage) => (Verdict::Failed(told), self.call.used(Some(*usage))),
        };
        self.end = Some((verdict, Usage { failed: Some(failure.class), ..usage }));
        self.told().await;
        failure
    }

    async fn told(&mut self) {
        if let Some(settling) = self.settle() {
            settling.await;
        }
    }

    fn settle(&mut self) -> Option<Settling> {
        let (verdict, usage) = self.end.take()?;
        let usage = usage.booked();
        Some(self.payer.settle_call(PermitSettlement { id: self.id, verdict, usage }))
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        // It goes on by itself.
        drop(self.settle());
    }
}
