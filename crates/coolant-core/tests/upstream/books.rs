//! One upstream with its limits, and calls of it.

use std::time::Duration;

use coolant_core::money::{Money, Usage};
use coolant_core::names::{Tenant, Upstream};
use coolant_core::time::Timestamp;
use coolant_core::upstream::{
    Ask, Breaker, Denial, Limits, Live, Meter, Party, Per, PermitId, PermitSettlement, Rate, Spending,
    Verdict, admit, settle,
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
        let Self { breaker, limits, meter, live } = self;
        let party = Party { name: "u".into(), limits, meter, live: *live };
        admit(&mut [(breaker, true)], &mut [party], ask, now)
            .map(|()| *live = live.with(ask.cost))
            .map_err(|denied| (denied.denial, denied.retry_after))
    }

    pub(crate) fn settle(&mut self, reserved: Money, usage: Usage, now: Timestamp) {
        let permit = PermitId(uuid::Uuid::from_u128(1));
        let spending = Spending {
            id: permit,
            upstream: Upstream::parse("u").unwrap(),
            tenant: Tenant::default(),
            job: None,
            step: None,
            tokens: 0,
            cost: reserved,
        };
        let settlement = PermitSettlement { id: permit, verdict: Verdict::Ok { rest: None }, usage };
        let Self { breaker, limits, meter, live } = self;
        live.permits -= 1;
        live.reserved = Money::from_nanos(live.reserved.as_nanos() - reserved.as_nanos());
        let party = Party { name: "u".into(), limits, meter, live: *live };
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
