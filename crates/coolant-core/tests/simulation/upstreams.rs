//! What a bystander sees of upstreams: starts that should not have been, limits that were passed, money that did
//! not come back. It knows what was reported, granted and settled, and asks no rule.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use coolant_core::failure::{Failure, FailureClass};
use coolant_core::lifecycle::{Answer, Event, Refusal};
use coolant_core::money::Money;
use coolant_core::names::Upstream;
use coolant_core::store::{Applied, Claimed, JobChange};
use coolant_core::time::Timestamp;
use coolant_core::upstream::{
    Control, Limits, Permit, PermitId, PermitRequest, PermitSettlement, Room, Starter, UpstreamNow, Verdict,
};

use super::checks::Checks;

/// The least time for which a report closes, by what was reported.
const fn least(class: FailureClass) -> Option<Duration> {
    match class {
        FailureClass::RateLimited | FailureClass::Overloaded => Some(Duration::from_secs(10)),
        FailureClass::QuotaExhausted | FailureClass::Auth | FailureClass::Permission => {
            Some(Duration::from_secs(3600))
        }
        _ => None,
    }
}

/// All upstreams.
#[derive(Debug, Default)]
pub struct Upstreams {
    seen: BTreeMap<Upstream, Seen>,
    permits: BTreeMap<PermitId, Granted>,
}

/// What is known of one.
#[derive(Debug, Default)]
struct Seen {
    limits: Limits,
    closed: Option<Closed>,
    /// When it was opened again, and the claims since.
    ramp: Option<(Timestamp, u32)>,
    /// Attempts one of whose calls was reported as failed: the end of such an attempt may say nothing new.
    reported: BTreeSet<Starter>,
    begun: Vec<Timestamp>,
    spent: BTreeMap<i64, Money>,
    /// What its provider said is left: calls, tokens, and until when that holds.
    left: Vec<(Option<u64>, Option<u64>, Timestamp)>,
}

#[derive(Debug)]
struct Closed {
    until: Timestamp,
    probe: Option<Starter>,
}

/// A permit that was given.
#[derive(Debug)]
struct Granted {
    upstream: Upstream,
    starter: Starter,
    expires_at: Timestamp,
    tokens: u64,
    cost: Money,
    is_settled: bool,
}

/// What is under way at an upstream.
#[derive(Debug, Clone, Copy, Default)]
struct InFlight {
    calls: u32,
    tokens: u64,
    money: Money,
}

impl Seen {
    /// Closed until then at least. A probe that was under way is over.
    fn close(&mut self, until: Timestamp) {
        let until = match &self.closed {
            Some(Closed { until: before, probe: None }) => until.max(*before),
            _ => until,
        };
        self.closed = Some(Closed { until, probe: None });
        self.ramp = None;
    }

    fn open(&mut self, now: Timestamp) {
        self.closed = None;
        self.ramp = Some((now, 0));
    }

    fn is_probe(&self, by: Starter) -> bool {
        self.closed.as_ref().is_some_and(|closed| closed.probe == Some(by))
    }

    /// What the end of a call says is left, and takes off what was said before.
    fn state(&mut self, settlement: &PermitSettlement, now: Timestamp) {
        let PermitSettlement { verdict, usage, .. } = settlement;
        let (room, was_sent) = match verdict {
            Verdict::Ok { room } => (room.clone(), true),
            Verdict::NotSent(_) => (Room::default(), false),
            _ => (Room::default(), true),
        };
        let used = (usage.input_tokens + usage.output_tokens).unsigned_abs();
        for (calls, tokens, _) in &mut self.left {
            let took = u64::from(was_sent && room.requests.is_empty());
            *calls = calls.map(|left| left.saturating_sub(took));
            let took = if room.tokens.is_empty() { used } else { 0 };
            *tokens = tokens.map(|left| left.saturating_sub(took));
        }
        self.left.extend(room.requests.iter().map(|it| (Some(it.amount), None, now.plus(it.reset_in))));
        self.left.extend(room.tokens.iter().map(|it| (None, Some(it.amount), now.plus(it.reset_in))));
    }

    /// What a report surely does.
    fn hear(&mut self, failure: &Failure, by: Starter, ends_attempt: bool, now: Timestamp) {
        let stated = failure.retry_after.map(|wait| wait.min(Duration::from_secs(86_400)));
        let is_probe = self.is_probe(by);
        let is_heard = ends_attempt && self.reported.contains(&by) && !is_probe;
        let at_least = match least(failure.class) {
            Some(unstated) => Some(stated.unwrap_or(unstated)),
            None if is_probe && failure.class.counts_in_a_row() => Some(Duration::from_secs(10)),
            None => None,
        };
        if !ends_attempt {
            self.reported.insert(by);
        }
        match at_least {
            // It says nothing new if its call was the last that failed there. Beside a probe nobody can see that
            // from outside: then nothing is known any more.
            Some(_) if is_heard => self.closed = self.closed.take().filter(|closed| closed.probe.is_none()),
            Some(wait) => self.close(now.plus(wait)),
            None => {}
        }
    }
}

impl Checks {
    pub fn limited(&mut self, name: &Upstream, limits: Limits) {
        self.upstreams.seen.entry(name.clone()).or_default().limits = limits;
    }

    pub fn controlled(&mut self, name: &Upstream, control: &Control, now: Timestamp) {
        let seen = self.upstreams.seen.entry(name.clone()).or_default();
        match control {
            Control::Close { wait, .. } => seen.close(now.plus(*wait)),
            Control::Open if seen.closed.is_some() => seen.open(now),
            // Who opens what opens already lets everything pass.
            Control::Open => seen.ramp = None,
        }
    }

    pub(super) fn claimed_at_upstreams(&mut self, answer: &Claimed, now: Timestamp) {
        let job = &answer.record.job;
        let by = Starter::Job { id: job.id, token: answer.lease.token };
        for name in &job.spec.upstreams {
            self.starts(name, by, now);
            let latest = self.latest();
            let Some(seen) = self.upstreams.seen.get_mut(name) else { continue };
            let Some((since, claims)) = &mut seen.ramp else { continue };
            *claims += 1;
            let seconds = u32::try_from(latest.since(*since).as_secs()).unwrap_or(u32::MAX);
            let (claims, most) = (*claims, 2_u32.saturating_pow(seconds.saturating_add(1)) - 1);
            let is_over = seconds >= 10;
            self.hold(is_over || claims <= most, || {
                format!("{name} opened {seconds} s ago, and {claims} jobs have started since")
            });
        }
    }

    /// Somebody begins something there.
    fn starts(&mut self, name: &Upstream, by: Starter, now: Timestamp) {
        let lives = |probe: Starter| self.certainly_lives(probe);
        let Some(closed) = self.upstreams.seen.get(name).and_then(|seen| seen.closed.as_ref()) else {
            return;
        };
        let (until, probe) = (closed.until, closed.probe);
        if probe == Some(by) {
            return;
        }
        let beside = probe.filter(|probe| lives(*probe));
        self.hold(until <= now, || {
            format!("{by:?} started at {now:?}, and {name} is closed until {until:?}")
        });
        self.hold(beside.is_none(), || {
            format!("{by:?} started at {now:?} beside the probe of {name}, {beside:?}")
        });
        if let Some(closed) = self.upstreams.seen.get_mut(name).and_then(|seen| seen.closed.as_mut()) {
            // From here on only the probe counts, also if the clock is set back.
            *closed = Closed { until: Timestamp::default(), probe: Some(by) };
        }
    }

    fn certainly_lives(&self, starter: Starter) -> bool {
        match starter {
            Starter::Job { id, token } => self.attempt_lives(id, token.0).0,
            Starter::Permit(id) => {
                let granted = self.upstreams.permits.get(&id);
                granted.is_some_and(|granted| !granted.is_settled && granted.expires_at > self.latest())
            }
        }
    }

    fn may_live(&self, starter: Starter) -> bool {
        match starter {
            Starter::Job { id, token } => self.attempt_lives(id, token.0).1,
            Starter::Permit(_) => self.certainly_lives(starter),
        }
    }

    /// Permits at an upstream whose starter passes, and what they may use.
    fn in_flight(&self, name: &Upstream, passes: impl Fn(Starter) -> bool) -> InFlight {
        let held = self.upstreams.permits.values().filter(|it| it.upstream == *name && !it.is_settled);
        let held = held.filter(|granted| passes(granted.starter));
        held.fold(InFlight::default(), |InFlight { calls, tokens, money }, granted| InFlight {
            calls: calls + 1,
            tokens: tokens + granted.tokens,
            money: money.plus(granted.cost),
        })
    }

    pub fn granted(&mut self, request: &PermitRequest, permit: &Permit, now: Timestamp) {
        let name = &request.upstream;
        let starter = match request.job {
            Some((id, token)) => Starter::Job { id, token },
            None => Starter::Permit(permit.id),
        };
        self.starts(name, starter, now);
        let granted = Granted {
            upstream: name.clone(),
            starter,
            expires_at: permit.expires_at,
            tokens: request.tokens,
            cost: request.cost,
            is_settled: false,
        };
        self.upstreams.permits.insert(permit.id, granted);
        let in_flight = self.in_flight(name, |starter| self.certainly_lives(starter));
        let InFlight { calls, tokens, money: reserved } = in_flight;
        let latest = self.latest();
        let seen = self.upstreams.seen.entry(name.clone()).or_default();
        seen.begun.push(now);
        let limits = seen.limits.clone();
        let spent = seen.spent.get(&now.day()).copied().unwrap_or_default();
        let too_many = limits.max_concurrent.filter(|most| calls > *most);
        let passed = seen.left.iter().copied().find(|(calls_left, tokens_left, until)| {
            let is_passed = calls_left.is_some_and(|left| u64::from(calls) > left)
                || tokens_left.is_some_and(|left| tokens > left);
            is_passed && *until > latest
        });
        let crowded = limits.requests.and_then(|rate| {
            let crowd = |(place, from): (usize, &Timestamp)| {
                let begun = (seen.begun.len() - place) as u64;
                let span = i64::try_from(latest.since(*from).as_millis()).unwrap_or(i64::MAX);
                let most = rate.burst() + (span * i64::from(rate.amount) / rate.per.millis()).unsigned_abs();
                (begun > most).then_some((begun, span))
            };
            seen.begun.iter().enumerate().find_map(crowd)
        });
        self.hold(too_many.is_none(), || {
            format!("{name}: {calls} calls in flight, allowed are {too_many:?}")
        });
        self.hold(passed.is_none(), || {
            format!("{name}: {in_flight:?} are begun, and no more was left than {passed:?}")
        });
        self.hold(crowded.is_none(), || format!("{name}: {crowded:?} calls begun within so many ms"));
        let all = spent.plus(reserved);
        self.hold(limits.budget_per_day.is_none_or(|budget| all <= budget), || {
            format!("{name}: {spent} spent and {reserved} reserved of {:?}", limits.budget_per_day)
        });
    }

    /// A call is over; what is told of it counts once.
    pub fn settled(&mut self, settlement: &PermitSettlement, now: Timestamp) {
        let Some(granted) = self.upstreams.permits.get_mut(&settlement.id) else { return };
        if std::mem::replace(&mut granted.is_settled, true) {
            return;
        }
        let (by, cost) = (granted.starter, settlement.usage.cost.unwrap_or(granted.cost));
        let name = granted.upstream.clone();
        let seen = self.upstreams.seen.entry(name).or_default();
        if settlement.is_paid() {
            let spent = seen.spent.entry(now.day()).or_default();
            *spent = spent.plus(cost);
        }
        seen.state(settlement, now);
        match &settlement.verdict {
            Verdict::Ok { .. } if seen.is_probe(by) => seen.open(now),
            Verdict::Ok { .. } => {
                seen.reported.clear();
            }
            Verdict::CutShort => {}
            Verdict::Failed(failure) | Verdict::NotSent(failure) => seen.hear(failure, by, false, now),
        }
    }

    /// What the end of an attempt tells upstreams, and the permits that a change settles, made or not.
    pub(super) fn told_upstreams(
        &mut self,
        change: &JobChange,
        answer: &Result<Applied, Refusal>,
        now: Timestamp,
    ) {
        for call in change.event.usage() {
            if let Some(id) = call.permit {
                let verdict = Verdict::Ok { room: call.room.clone() };
                self.settled(&PermitSettlement { id, verdict, usage: call.clone() }, now);
            }
        }
        let Ok(Applied { job, answer }) = answer else { return };
        if *answer == Answer::Already {
            return;
        }
        match &change.event {
            Event::Fail { token, failure, .. } => {
                let by = Starter::Job { id: job.id, token: *token };
                let name = failure.upstream.as_deref().and_then(|name| Upstream::parse(name).ok());
                let Some(name) = name else { return };
                self.upstreams.seen.entry(name).or_default().hear(failure, by, true, now);
            }
            Event::Succeed { token, .. } => {
                let by = Starter::Job { id: job.id, token: *token };
                for name in &job.spec.upstreams {
                    let seen = self.upstreams.seen.entry(name.clone()).or_default();
                    if seen.is_probe(by) {
                        seen.open(now);
                    }
                }
            }
            _ => {}
        }
    }

    /// What the store says is in flight is what was granted and can still end by itself.
    pub fn looked(&mut self, upstreams: &[UpstreamNow]) {
        for UpstreamNow { name, live, now, .. } in upstreams {
            // A clock that stands back shows leases that were over.
            if *now < self.latest() {
                continue;
            }
            let least = self.in_flight(name, |starter| self.certainly_lives(starter));
            let most = self.in_flight(name, |starter| self.may_live(starter));
            let is_most =
                live.permits <= most.calls && live.tokens <= most.tokens && live.reserved <= most.money;
            self.hold(is_most, || format!("{name}: {live:?} of {most:?}: a reservation did not come back"));
            let is_least =
                live.permits >= least.calls && live.tokens >= least.tokens && live.reserved >= least.money;
            self.hold(is_least, || format!("{name}: {live:?}, and {least:?} are in flight"));
        }
    }
}
