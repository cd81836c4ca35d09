//! Prices: what a paid call costs, exact to a billionth of a dollar.
//!
//! The rule: tokens times price for each kind of token, added up exactly, and rounded **once** for the call,
//! to the nearest nano-dollar, a half upwards. Prices are whole nano-dollars per million tokens; there is no
//! floating-point number between a price list and the ledger.
//!
//! Always true:
//! - a cost that the caller stated is left as it is;
//! - a model without a price, or a call bought in a way the table does not know, has no cost, never 0;
//! - a price of the user's own goes before the table; of several that fit, the one that names more of the
//!   model; of those, the newest that was valid at the time of the call.
//!
//! The table (`data/prices.json`) is of public list prices, each with the day it is good from.
//! Elsewhere: what was used (`usage`), what is kept (`money`).

mod rate;

use std::sync::{Arc, LazyLock};

use serde::Deserialize;

use rate::Rates;
pub use rate::{InvalidPrice, PriceText, pattern_fits};

use crate::money::{Money, Usage};
use crate::time::{Timestamp, day_of};
use crate::usage::{Reading, Tier};

const TABLE: &str = include_str!("../data/prices.json");

/// The price of the models that a pattern names.
#[derive(Debug, Clone, PartialEq)]
struct Price {
    provider: String,
    model: String,
    /// Days since 1970.
    valid_from: i64,
    /// What the ledger keeps beside the cost.
    version: String,
    rates: Rates,
    /// From so many tokens in on, these.
    long: Option<(i64, Rates)>,
    /// Billionths of the price that a batch costs.
    batch: Option<i64>,
}

/// What models cost.
#[derive(Debug, Clone)]
pub struct Prices {
    own: Arc<[Price]>,
    table: Arc<[Price]>,
}

impl Default for Prices {
    fn default() -> Self {
        Self::built_in()
    }
}

impl Prices {
    /// The table of list prices.
    #[must_use]
    pub fn built_in() -> Self {
        static PRICES: LazyLock<Arc<[Price]>> = LazyLock::new(|| table().unwrap_or_default().into());
        Self { own: Arc::default(), table: Arc::clone(&PRICES) }
    }

    /// The table, and before it the user's own prices: `openai/gpt-*` and what that costs.
    ///
    /// # Errors
    /// The first price that is none, by its name.
    pub fn with_own<'a>(
        own: impl IntoIterator<Item = (&'a str, &'a PriceText)>,
    ) -> Result<Self, InvalidPrice> {
        let own = own.into_iter().map(|(name, text)| {
            let (provider, model) = name.split_once('/').ok_or_else(|| {
                InvalidPrice::new(name, "must be named `provider/model`; `*` may stand in it")
            })?;
            let version = format!("own {name} {}", text.shown());
            price(name, provider, model, (i64::MIN, version), text)
        });
        Ok(Self { own: own.collect::<Result<Vec<_>, _>>()?.into(), table: Self::built_in().table })
    }

    /// Gives a call its cost and the prices it comes from, unless its cost is stated or nobody knows it.
    pub fn price(&self, usage: &mut Usage, at: Timestamp) {
        if usage.cost.is_some() {
            return;
        }
        let Some(price) = self.find(usage, at) else { return };
        if let Some(cost) = price.cost(&usage.reading()) {
            usage.cost = Some(cost);
            usage.price = Some(price.version.clone());
        }
    }

    /// What so many tokens would cost in and out, at list price; `None` if nobody knows.
    #[must_use]
    pub fn estimate(&self, upstream: &str, input: i64, output: i64, at: Timestamp) -> Option<Money> {
        let usage = Usage {
            upstream: Some(upstream.to_owned()),
            input_tokens: input,
            output_tokens: output,
            ..Usage::default()
        };
        self.find(&usage, at)?.cost(&usage.reading())
    }

    fn find(&self, usage: &Usage, at: Timestamp) -> Option<&Price> {
        let provider = usage.provider_name()?;
        usage.model_names().find_map(|model| {
            let fits = |price: &&Price| {
                price.valid_from <= at.day()
                    && pattern_fits(&price.provider, provider)
                    && pattern_fits(&price.model, model)
            };
            let best = |prices: &'_ [Price]| {
                let rank = |price: &Price| (price.named(), price.valid_from);
                let fitting = prices.iter().enumerate().filter(|(_, price)| fits(price));
                fitting.max_by_key(|(_, price)| rank(price)).map(|(at, _)| at)
            };
            best(&self.own).map(|at| &self.own[at]).or_else(|| best(&self.table).map(|at| &self.table[at]))
        })
    }
}

impl Price {
    /// How much of provider and model it names.
    fn named(&self) -> usize {
        let letters = |text: &str| text.chars().filter(|c| *c != '*').count();
        letters(&self.provider) + letters(&self.model)
    }

    fn cost(&self, reading: &Reading) -> Option<Money> {
        let rates = match &self.long {
            Some((from, rates)) if reading.input > *from => rates,
            _ => &self.rates,
        };
        let factor = match reading.tier {
            Tier::Standard => rate::WHOLE,
            Tier::Batch => self.batch?,
            Tier::Other => return None,
        };
        rates.cost(reading, factor)
    }
}

#[derive(Deserialize)]
struct Table {
    version: String,
    prices: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    provider: String,
    /// Models at the same price.
    models: Vec<String>,
    valid_from: String,
    #[serde(flatten)]
    text: PriceText,
}

/// The table as it is written; a test holds that it can be read.
fn table() -> Result<Vec<Price>, InvalidPrice> {
    let wrong = |reason: String| InvalidPrice::new("prices.json", reason);
    let table: Table = serde_json::from_str(TABLE).map_err(|error| wrong(error.to_string()))?;
    let mut prices = Vec::new();
    for Entry { provider, models, valid_from, text } in &table.prices {
        let day = day_of(valid_from).ok_or_else(|| wrong(format!("`{valid_from}` is no date")))?;
        for model in models {
            let name = format!("{provider}/{model}");
            let version = format!("list {} {name} from {valid_from}", table.version);
            prices.push(price(&name, provider, model, (day, version), text)?);
        }
    }
    Ok(prices)
}

fn price(
    name: &str,
    provider: &str,
    model: &str,
    (valid_from, version): (i64, String),
    text: &PriceText,
) -> Result<Price, InvalidPrice> {
    let rates = text.rates(name)?;
    let long = match &text.above {
        None => None,
        Some(above) => Some((above.input_tokens, above.rates(name)?)),
    };
    Ok(Price {
        provider: provider.to_owned(),
        model: model.to_owned(),
        valid_from,
        version,
        rates,
        long,
        batch: text.batch_factor(name)?,
    })
}

#[cfg(test)]
mod tests;
