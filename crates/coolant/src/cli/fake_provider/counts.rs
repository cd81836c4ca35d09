//! Counts: what was called and what it would have cost.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use coolant_core::money::{Money, Usage};
use serde::Serialize;

use super::script::Do;

/// Most keys and models that are told apart; the rest are one.
const NAMES: usize = 1000;
/// Most different inputs that are remembered, by their hashes.
const INPUTS: usize = 1_000_000;
/// Most seconds of which the calls are counted one by one.
const SECONDS: usize = 24 * 3600;
/// What the names beyond [`NAMES`] are counted under.
const OTHERS: &str = "(others)";

/// What was called so far.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Counts {
    pub(crate) calls: u64,
    pub(crate) paid_calls: u64,
    pub(crate) refused_calls: u64,
    pub(crate) input_tokens: i64,
    pub(crate) output_tokens: i64,
    /// Exact, in dollars.
    #[serde(rename = "cost_usd", serialize_with = "as_usd")]
    pub(crate) cost: Money,
    /// Texts to embed and chats that were paid.
    pub(crate) inputs: u64,
    /// Different ones among them; a million at most are told apart.
    pub(crate) distinct_inputs: u64,
    /// Most calls, paid or refused, that had the same first input.
    pub(crate) most_calls_of_an_input: u32,
    pub(crate) by_outcome: BTreeMap<&'static str, u64>,
    pub(crate) by_model: BTreeMap<String, Part>,
    /// Keys are shown by their ends.
    pub(crate) by_key: BTreeMap<String, Part>,
    /// Calls of each second since the start, up to now or a day.
    pub(crate) calls_by_second: Vec<u32>,
    #[serde(skip)]
    seen: HashSet<u64>,
    #[serde(skip)]
    calls_by_input: HashMap<u64, u32>,
}

/// What one key or model was used for.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Part {
    pub(crate) calls: u64,
    pub(crate) paid_calls: u64,
    #[serde(rename = "cost_usd", serialize_with = "as_usd")]
    pub(crate) cost: Money,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn as_usd<S: serde::Serializer>(money: &Money, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(money.as_usd())
}

impl Counts {
    /// Adds a call that was answered so.
    pub(crate) fn add(&mut self, at: Duration, key: Option<&str>, model: &str, act: Do, usage: &Usage) {
        let cost = usage.cost.unwrap_or_default();
        let paid = u64::from(act.is_paid());
        self.calls += 1;
        self.paid_calls += paid;
        self.refused_calls += 1 - paid;
        self.input_tokens = self.input_tokens.saturating_add(usage.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(usage.output_tokens);
        self.cost = self.cost.plus(cost);
        *self.by_outcome.entry(act.as_str()).or_default() += 1;
        for (parts, name) in [(&mut self.by_model, model.to_owned()), (&mut self.by_key, shown(key))] {
            let name =
                if parts.len() < NAMES || parts.contains_key(&name) { name } else { OTHERS.to_owned() };
            let part = parts.entry(name).or_default();
            part.calls += 1;
            part.paid_calls += paid;
            part.cost = part.cost.plus(cost);
        }
        let second = usize::try_from(at.as_secs()).unwrap_or(usize::MAX);
        if second < SECONDS {
            if self.calls_by_second.len() <= second {
                self.calls_by_second.resize(second + 1, 0);
            }
            self.calls_by_second[second] += 1;
        }
    }

    /// Adds inputs that were paid.
    pub(crate) fn add_inputs<'a>(&mut self, inputs: impl Iterator<Item = &'a str>) {
        for input in inputs {
            self.inputs += 1;
            if self.seen.len() < INPUTS && self.seen.insert(hash(input)) {
                self.distinct_inputs += 1;
            }
        }
    }
}

impl Counts {
    /// Adds a call with that first input.
    pub(crate) fn add_call_of(&mut self, input: &str) {
        let hash = hash(input);
        if self.calls_by_input.len() < INPUTS || self.calls_by_input.contains_key(&hash) {
            let calls = self.calls_by_input.entry(hash).or_default();
            *calls += 1;
            self.most_calls_of_an_input = self.most_calls_of_an_input.max(*calls);
        }
    }
}

fn hash(input: &str) -> u64 {
    let hash = blake3::hash(input.as_bytes());
    hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// A key by its ends: somebody may have sent a real one.
fn shown(key: Option<&str>) -> String {
    let Some(key) = key else { return "(none)".to_owned() };
    let letters: Vec<char> = key.chars().collect();
    match letters.len() {
        0..=12 => key.to_owned(),
        long => {
            let (start, end): (String, String) =
                (letters[..3].iter().collect(), letters[long - 4..].iter().collect());
            format!("{start}…{end}")
        }
    }
}
