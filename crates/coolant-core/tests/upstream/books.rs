//! One upstream with its limits, and calls of it.

use std::time::Duration;

use coolant_core::money::{Money, Usage};
use coolant_core::names::{Tenant, Upstream};
use coolant_core::time::Timestamp;
use coolant_core::upstream::{
    Ask, Breaker, Denial, Denied, Limits, Live, Meter, Party, Per, PermitId, PermitSettlement, Rate, Room,
    Spending, Verdict, admit, settle,
};

use super::attempt;

pub(crate) const fn rate(amount: u32, per: Per) -> Option<Rate> {
    Some(Rate { amount, per })
}

pub(crate) struct Books {
    pub(crate) breaker: Breaker,
    pub(crate) limits: Limits,
    pub(crate) meter: Meter,
    pub(crate) live: Live,
}

impl Books {
    pub(crate) fn of(limits: Limits) -> Self {
        Self { breaker: Breaker::default(), limits, meter: Meter::default(), live: Live::default() }
    }

    pub(crate) fn ask(&mut self, ask: &Ask, now: Timestamp) -> Result<(), (Denial, Option<Duration>)> {
        self.try_ask(ask, now).map_err(|denied| (denied.denial, denied.retry_after))
    }

    pub(crate) fn try_ask(&mut self, ask: &Ask, now: Timestamp) -> Result<(), Denied> {
        let Self { breaker, limits, meter, live } = self;
        let party = Party { name: "upstream `u`".into(), limits, meter, live: *live };
        admit(&mut [(breaker, true)], &mut [party], ask, now)?;
        *live = live.with(ask.tokens, ask.cost);
        Ok(())
    }

    /// A call that reserved so much went well.
    pub(crate) fn settle(&mut self, reserved: Money, usage: Usage, now: Timestamp) {
        let asked = Ask { cost: reserved, ..ask(0, 0.0) };
        self.end(&asked, Verdict::Ok { room: Room::default() }, usage, now);
    }

    /// A call that was asked for like that has ended.
    pub(crate) fn end(&mut self, asked: &Ask, verdict: Verdict, usage: Usage, now: Timestamp) {
        let permit = PermitId(uuid::Uuid::from_u128(1));
        let spending = Spending {
            id: permit,
            upstream: Upstream::parse("u").unwrap(),
            tenant: Tenant::default(),
            job: None,
            step: None,
            tokens: asked.tokens,
            cost: asked.cost,
        };
        let settlement = PermitSettlement { id: permit, verdict, usage };
        let Self { breaker, limits, meter, live } = self;
        live.permits -= 1;
        live.tokens -= asked.tokens;
        live.reserved = Money::from_nanos(live.reserved.as_nanos() - asked.cost.as_nanos());
        let party = Party { name: "upstream `u`".into(), limits, meter, live: *live };
        settle(&spending, &settlement, breaker, None, &mut [party], now);
    }
}

pub(crate) fn ask(tokens: u64, usd: f64) -> Ask {
    let cost = Money::from_usd(usd).unwrap();
    Ask { starter: attempt(1), claimed_at: None, tokens, cost }
}

pub(crate) fn cost(usd: f64) -> Usage {
    Usage { cost: Money::from_usd(usd), ..Usage::default() }
}
