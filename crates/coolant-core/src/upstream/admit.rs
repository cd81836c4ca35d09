//! Admission: whether a paid call may begin, and what its end means for its upstream.

use std::time::Duration;

use super::breaker::{Allowance, Breaker, BreakerState, Report, Starter};
use super::limits::Limits;
use super::meter::{Meter, end_of_day};
use super::permit::{ClosedWhat, PermitSettlement, Spending, Verdict};
use super::room::Need;
use crate::job::Job;
use crate::money::Money;
use crate::time::Timestamp;

/// When to ask again where nobody knows: some call has to end first.
const SOON: Duration = Duration::from_secs(1);

/// Why a paid call may not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Denial {
    /// Its upstream, or the credential, is closed.
    UpstreamClosed,
    /// Too many calls or tokens for now.
    RateLimited,
    /// Too many calls in flight.
    ConcurrencyLimited,
    /// Today's money is spent or reserved.
    BudgetExhausted,
    /// The job has made all the calls that it may make.
    PaidCallLimit,
    /// The estimate is larger than a limit ever lets through.
    AboveLimit,
}

impl Denial {
    /// `UPSTREAM_CLOSED` and so on: the code that callers get. A worker that puts its job back for it names it
    /// first in its reason, and `explain` says so.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UpstreamClosed => "UPSTREAM_CLOSED",
            Self::RateLimited => "RATE_LIMITED",
            Self::ConcurrencyLimited => "CONCURRENCY_LIMITED",
            Self::BudgetExhausted => "BUDGET_EXHAUSTED",
            Self::PaidCallLimit => "PAID_CALL_LIMIT",
            Self::AboveLimit => "ESTIMATE_ABOVE_LIMIT",
        }
    }

    /// The denial that a job was put back for, if its reason names one first.
    #[must_use]
    pub fn named_in(reason: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|denial| reason.starts_with(denial.as_str()))
    }

    /// Every denial.
    pub const ALL: [Self; 6] = [
        Self::UpstreamClosed,
        Self::RateLimited,
        Self::ConcurrencyLimited,
        Self::BudgetExhausted,
        Self::PaidCallLimit,
        Self::AboveLimit,
    ];
}

/// A paid call that may not begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", .denial.as_str())]
pub struct Denied {
    /// Why.
    pub denial: Denial,
    /// When to ask again; `None` where waiting does not help.
    pub retry_after: Option<Duration>,
    /// For people.
    pub reason: String,
}

impl Denied {
    /// Set if the job has made, or has in flight, all the calls that it may make.
    #[must_use]
    pub fn paid_call_limit(job: &Job, calls: i64) -> Option<Self> {
        let max = job.spec.policy.max_paid_calls.filter(|max| calls >= i64::from(*max))?;
        let reason = format!("the job may make {max} paid calls");
        Some(Self::new(Denial::PaidCallLimit, None, reason))
    }

    fn new(denial: Denial, retry_after: Option<Duration>, reason: impl Into<String>) -> Self {
        Self { denial, retry_after, reason: reason.into() }
    }
}

/// What is in flight at an upstream or for a tenant, counted from its permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Live {
    /// Permits that hold.
    pub permits: u32,
    /// The tokens in and out that they may use, as estimated.
    pub tokens: u64,
    /// The money they reserve.
    pub reserved: Money,
}

impl Live {
    /// One more.
    #[must_use]
    pub const fn with(self, tokens: u64, cost: Money) -> Self {
        Self {
            permits: self.permits.saturating_add(1),
            tokens: self.tokens.saturating_add(tokens),
            reserved: self.reserved.plus(cost),
        }
    }
}

/// Somebody whose limits a call has to keep to: an upstream, or a tenant.
#[derive(Debug)]
pub struct Party<'a> {
    /// For people: "upstream `x`".
    pub name: String,
    /// The limits.
    pub limits: &'a Limits,
    /// What is used of them.
    pub meter: &'a mut Meter,
    /// What is in flight.
    pub live: Live,
}

/// A call that wants to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Whose it is.
    pub starter: Starter,
    /// When the attempt began, if its job names the upstream: its claim was counted at the breaker.
    pub claimed_at: Option<Timestamp>,
    /// Tokens in and out, at most.
    pub tokens: u64,
    /// What it may cost.
    pub cost: Money,
}

/// A breaker and whether its probe is alive.
pub type BreakerNow<'a> = (&'a mut Breaker, bool);

/// Lets a call begin, or says why not; then nothing is taken.
///
/// # Errors
/// [`Denied`], for the first of: an estimate that never fits, a closure, money, rate, concurrency.
pub fn admit(
    breakers: &mut [BreakerNow<'_>],
    parties: &mut [Party<'_>],
    ask: &Ask,
    now: Timestamp,
) -> Result<(), Denied> {
    parties.iter().try_for_each(|party| fits_at_all(party, ask))?;
    breakers.iter().try_for_each(|(breaker, prober_lives)| passes(breaker, *prober_lives, ask, now))?;
    parties.iter().try_for_each(|party| has_money(party, ask, now))?;
    parties.iter().try_for_each(|party| has_room(party, ask, now))?;
    for (breaker, _) in breakers.iter_mut() {
        if !is_counted(breaker, ask) {
            breaker.start(ask.starter, now);
        }
    }
    for party in parties {
        party.meter.begin(party.limits, ask.tokens, now);
    }
    Ok(())
}

fn fits_at_all(party: &Party<'_>, ask: &Ask) -> Result<(), Denied> {
    let limits = party.limits;
    let never = |what: &str| {
        Err(Denied::new(Denial::AboveLimit, None, format!("{} never allows {what}", party.name)))
    };
    if limits.budget_per_day.is_some_and(|budget| ask.cost > budget) {
        return never("that much money a day");
    }
    if limits.tokens.is_some_and(|rate| ask.tokens > u64::from(rate.amount)) {
        return never("that many tokens at a time");
    }
    if limits.max_concurrent == Some(0) {
        return never("a call: its `max_concurrent` is 0");
    }
    Ok(())
}

/// The probe's own calls pass; those of an attempt that the breaker let through since it opened are counted.
fn is_counted(breaker: &Breaker, ask: &Ask) -> bool {
    match breaker.state {
        BreakerState::Ramp { since, .. } => ask.claimed_at.is_some_and(|at| at >= since),
        _ => breaker.is_probe(ask.starter),
    }
}

fn passes(breaker: &Breaker, prober_lives: bool, ask: &Ask, now: Timestamp) -> Result<(), Denied> {
    if is_counted(breaker, ask) {
        return Ok(());
    }
    let until = match breaker.allowance(prober_lives, now) {
        Allowance::Any => return Ok(()),
        Allowance::AtMost(n) if n > 0 => return Ok(()),
        Allowance::AtMost(_) => None,
        Allowance::Nothing(until) => until,
    };
    let reason = match &breaker.state {
        BreakerState::Ramp { .. } => "it has just opened again, for a few calls at first".to_owned(),
        BreakerState::Probing { closure, .. } => {
            format!("a probe is under way; it was closed by {}", closure.code)
        }
        _ => breaker.closure().map_or_else(String::new, |closure| closure.reason.clone()),
    };
    let wait = until.map_or(SOON, |until| until.since(now)).max(Duration::from_millis(1));
    Err(Denied::new(Denial::UpstreamClosed, Some(wait), reason))
}

fn has_money(party: &Party<'_>, ask: &Ask, now: Timestamp) -> Result<(), Denied> {
    let Some(budget) = party.limits.budget_per_day else { return Ok(()) };
    let spent = party.meter.spent_today(now);
    let with_this = spent.plus(ask.cost);
    let all = with_this.plus(party.live.reserved);
    // A call that costs nothing by its estimate needs something to be left.
    let has = |money: Money| money < budget || (money == budget && ask.cost > Money::default());
    if has(all) {
        return Ok(());
    }
    // What calls in flight have reserved may come back; what is spent does not before tomorrow.
    let wait = if has(with_this) { SOON } else { end_of_day(now).since(now) };
    let reason = format!(
        "{} has {} USD a day: {} spent, {} reserved by calls in flight",
        party.name,
        budget.as_usd(),
        spent.as_usd(),
        party.live.reserved.as_usd()
    );
    Err(Denied::new(Denial::BudgetExhausted, Some(wait), reason))
}

fn has_room(party: &Party<'_>, ask: &Ask, now: Timestamp) -> Result<(), Denied> {
    let wait = party.meter.wait(party.limits, ask.tokens, now);
    if let Some(lack) = party.meter.lack(ask.tokens, party.live, now).filter(|lack| lack.wait >= wait) {
        return Err(Denied::new(Denial::RateLimited, Some(lack.wait), lack.reason(&party.name)));
    }
    if !wait.is_zero() {
        let reason = format!("{} has used up its rate for now", party.name);
        return Err(Denied::new(Denial::RateLimited, Some(wait), reason));
    }
    if party.limits.max_concurrent.is_some_and(|max| party.live.permits >= max) {
        let reason = format!("{} has {} calls in flight", party.name, party.live.permits);
        return Err(Denied::new(Denial::ConcurrencyLimited, Some(SOON), reason));
    }
    Ok(())
}

/// What the end of a call means for its upstream, the credential (if it has one) and the tenant. Gives what
/// it closed, and until when.
pub fn settle(
    spending: &Spending,
    settlement: &PermitSettlement,
    upstream: &mut Breaker,
    credential: Option<&mut Breaker>,
    parties: &mut [Party<'_>],
    now: Timestamp,
) -> Option<(ClosedWhat, Timestamp)> {
    let usage = &settlement.usage;
    let used = u64::try_from(usage.input_tokens.saturating_add(usage.output_tokens)).unwrap_or(0);
    let cost = match settlement.is_paid() {
        // Unknown is not nothing: what was reserved counts as spent.
        true => usage.cost.unwrap_or(spending.cost),
        false => Money::default(),
    };
    for party in parties.iter_mut() {
        party.meter.end(party.limits, (spending.tokens, used), cost, now);
    }
    if let Some(paid_to) = parties.first_mut() {
        paid_to.meter.hear(settlement.room(), taken(spending, settlement, used), now);
    }
    match &settlement.verdict {
        Verdict::Ok { .. } => {
            let starter = spending.starter();
            upstream.succeed(starter, now);
            if let Some(credential) = credential {
                credential.succeed(starter, now);
            }
            None
        }
        Verdict::CutShort => None,
        Verdict::Failed(failure) | Verdict::NotSent(failure) => {
            close(upstream, credential, &Report::of_call(failure, spending.starter()), now)
        }
    }
}

/// What a call may have taken of its provider's limits.
fn taken(call: &Spending, settlement: &PermitSettlement, used: u64) -> Need {
    let is_sent = !matches!(settlement.verdict, Verdict::NotSent(_));
    // Unknown is not nothing here either.
    let tokens = if used == 0 && settlement.is_paid() { call.tokens } else { used };
    Need { requests: u64::from(is_sent), tokens }
}

/// Tells a failure to the breaker that it concerns: the credential's where a person has to act, else the
/// upstream's. Gives what it closed, and until when.
///
/// The other breaker's probe, if this was that too, has neither failed nor succeeded; another one goes.
pub fn close(
    upstream: &mut Breaker,
    credential: Option<&mut Breaker>,
    report: &Report,
    now: Timestamp,
) -> Option<(ClosedWhat, Timestamp)> {
    let (breaker, what) = match credential {
        Some(credential) if report.class.needs_operator() => (credential, ClosedWhat::Credential),
        _ => (upstream, ClosedWhat::Upstream),
    };
    breaker.report(report, now);
    breaker.closure().map(|closure| (what, closure.shown_until()))
}
