//! Bills: paid calls as workers report them, checked and priced.

use coolant_core::failure::FailureClass;
use coolant_core::money::{MAX_REPORTED, Money, Usage};
use coolant_core::time::Timestamp;
use serde_json::Value;

use super::submit::{text, whole};
use super::{Engine, EngineError, EngineResult};

/// A paid call as a worker reports it. What is left out is unknown; `reported` may say it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UsageReport {
    /// Whom it was paid to.
    pub upstream: Option<String>,
    /// Who provides that upstream, if its name does not begin with it.
    pub provider: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// The model that was asked, if the upstream's name does not say it.
    pub asked_model: Option<String>,
    /// Tokens in, all of them.
    pub input_tokens: Option<i64>,
    /// Of them: read from a cache.
    pub cached_tokens: Option<i64>,
    /// Of them: written to a cache.
    pub cache_write_tokens: Option<i64>,
    /// Tokens out, all of them.
    pub output_tokens: Option<i64>,
    /// Of them: reasoning.
    pub reasoning_tokens: Option<i64>,
    /// What it cost, where known. Goes before any price list.
    pub cost_usd: Option<f64>,
    /// Whether the tokens are a guess.
    pub estimated: bool,
    /// `ok`, or the failure class of an answer that was of no use.
    pub outcome: Option<String>,
    /// The name of the key that paid, never the key.
    pub credential: Option<String>,
    /// The provider's own words: the `usage` of its answer. Counts that are left out are read from it.
    pub reported: Option<Value>,
}

/// Most tokens that a call is believed to have used.
const MAX_TOKENS: i64 = 1_000_000_000_000;
/// Most dollars that a call is believed to have cost.
const MAX_USD: f64 = 1e6;

impl Engine {
    /// The paid call of a report as the ledger takes it.
    pub(super) fn paid(&self, report: Option<UsageReport>, now: Timestamp) -> EngineResult<Vec<Usage>> {
        let Some(report) = report else { return Ok(Vec::new()) };
        let mut usage = checked(report)?;
        self.parts.prices.price(&mut usage, now);
        Ok(vec![usage])
    }
}

fn checked(report: UsageReport) -> EngineResult<Usage> {
    let UsageReport { upstream, provider, model, asked_model, credential, .. } = report;
    let names = [
        ("usage.upstream", &upstream),
        ("usage.provider", &provider),
        ("usage.model", &model),
        ("usage.asked_model", &asked_model),
        ("usage.credential", &credential),
    ];
    for (field, name) in names {
        if let Some(name) = name {
            text(field, name, 1..=128)?;
        }
    }
    let mut usage = Usage { upstream, provider, model, asked_model, credential, ..Usage::default() };
    if let Some(reported) = report.reported {
        if !reported.is_object() || reported.to_string().len() > MAX_REPORTED {
            let takes = format!("takes the usage object of an answer, {MAX_REPORTED} bytes at most");
            return Err(EngineError::field("usage.reported", takes));
        }
        usage.take_report(reported);
    }
    let counts = [
        ("usage.input_tokens", report.input_tokens, &mut usage.input_tokens),
        ("usage.cached_tokens", report.cached_tokens, &mut usage.cached_tokens),
        ("usage.cache_write_tokens", report.cache_write_tokens, &mut usage.cache_write_tokens),
        ("usage.output_tokens", report.output_tokens, &mut usage.output_tokens),
        ("usage.reasoning_tokens", report.reasoning_tokens, &mut usage.reasoning_tokens),
    ];
    for (field, told, count) in counts {
        *count = whole::<i64>(field, told, 0..=MAX_TOKENS)?.unwrap_or((*count).min(MAX_TOKENS));
    }
    if usage.cached_tokens.saturating_add(usage.cache_write_tokens) > usage.input_tokens {
        return Err(EngineError::field("usage.input_tokens", "counts cached tokens too, and they are more"));
    }
    if usage.reasoning_tokens > usage.output_tokens {
        return Err(EngineError::field("usage.output_tokens", "counts reasoning too, and that is more"));
    }
    usage.cost = report.cost_usd.map(cost).transpose()?;
    usage.estimated = report.estimated;
    usage.failed = report.outcome.filter(|outcome| outcome != "ok").map(|name| class(&name)).transpose()?;
    Ok(usage)
}

fn cost(usd: f64) -> EngineResult<Money> {
    Money::from_usd(usd)
        .filter(|_| usd <= MAX_USD)
        .ok_or_else(|| EngineError::field("usage.cost_usd", "takes 0 to 1000000 dollars"))
}

fn class(name: &str) -> EngineResult<FailureClass> {
    FailureClass::parse(name).ok_or_else(|| {
        EngineError::field("usage.outcome", "takes `ok` or a failure class, such as `timeout`")
    })
}
