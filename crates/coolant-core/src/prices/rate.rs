//! Rates: dollars per million tokens as people write them, and the arithmetic with them.

use serde::Deserialize;

use crate::money::Money;
use crate::usage::Reading;

/// Tokens that a price is for.
const MILLION: i128 = 1_000_000;
/// A factor of one, in billionths.
pub(super) const WHOLE: i64 = 1_000_000_000;
/// Dearest price, in dollars per million tokens: beyond it is a slip of the pen.
const DEAREST: i64 = 1_000_000;

/// A price that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the price of `{name}` is wrong: {reason}")]
pub struct InvalidPrice {
    /// Which.
    pub name: String,
    /// What it should be.
    pub reason: String,
}

impl InvalidPrice {
    pub(super) fn new(name: &str, reason: impl Into<String>) -> Self {
        Self { name: name.to_owned(), reason: reason.into() }
    }
}

/// A number as it is written: text, or a number whose shortest text is meant.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Written {
    /// `"0.40"`.
    Text(String),
    /// `2`.
    Whole(i64),
    /// `0.4`: its shortest text that reads back the same is what was typed.
    Number(f64),
}

impl Written {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.trim().to_owned(),
            Self::Whole(whole) => whole.to_string(),
            Self::Number(number) => number.to_string(),
        }
    }
}

/// A price as people write it: dollars per million tokens.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriceText {
    /// Of tokens in.
    pub input: Option<Written>,
    /// Of tokens in that come from the cache; as `input` if left out.
    pub cached: Option<Written>,
    /// Of tokens in that are written to the cache; as `input` if left out.
    pub cache_write: Option<Written>,
    /// The same where they are kept for an hour; as `cache_write` if left out.
    pub cache_write_1h: Option<Written>,
    /// Of tokens out, reasoning included. Left out, a call that gives any has no price.
    pub output: Option<Written>,
    /// The part of the price that a batch costs, such as `0.5`; left out, a batch has no price.
    pub batch: Option<Written>,
    /// What holds instead for calls of more tokens in.
    pub above: Option<Box<Above>>,
}

/// The price of calls above a size.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Above {
    /// More tokens in than these.
    pub input_tokens: i64,
    /// Of tokens in.
    pub input: Option<Written>,
    /// Of cached ones.
    pub cached: Option<Written>,
    /// Of those written to the cache.
    pub cache_write: Option<Written>,
    /// The same for an hour.
    pub cache_write_1h: Option<Written>,
    /// Of tokens out.
    pub output: Option<Written>,
}

/// Nano-dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rates {
    input: i64,
    cached: i64,
    cache_write: i64,
    cache_write_1h: i64,
    output: Option<i64>,
}

impl PriceText {
    pub(super) fn rates(&self, name: &str) -> Result<Rates, InvalidPrice> {
        let Self { input, cached, cache_write, cache_write_1h, output, .. } = self;
        Rates::of(name, input, [cached, cache_write, cache_write_1h], output)
    }

    pub(super) fn batch_factor(&self, name: &str) -> Result<Option<i64>, InvalidPrice> {
        let Some(batch) = &self.batch else { return Ok(None) };
        match billionths(&batch.text()) {
            Some(factor @ 0..=WHOLE) => Ok(Some(factor)),
            _ => Err(InvalidPrice::new(name, "`batch` is a part of the price, 0 to 1")),
        }
    }

    /// The numbers, for the ledger: `in 0.4 cached 0.1 out 1.6`.
    pub(super) fn shown(&self) -> String {
        let parts = [
            ("in", &self.input),
            ("cached", &self.cached),
            ("cache write", &self.cache_write),
            ("1 h", &self.cache_write_1h),
            ("out", &self.output),
            ("batch", &self.batch),
        ];
        let shown =
            parts.iter().filter_map(|(word, price)| Some(format!("{word} {}", price.as_ref()?.text())));
        let above = self.above.as_ref().map(|above| format!("above {}", above.input_tokens));
        shown.chain(above).collect::<Vec<_>>().join(" ")
    }
}

impl Above {
    pub(super) fn rates(&self, name: &str) -> Result<Rates, InvalidPrice> {
        let Self { input, cached, cache_write, cache_write_1h, output, .. } = self;
        Rates::of(name, input, [cached, cache_write, cache_write_1h], output)
    }
}

impl Rates {
    fn of(
        name: &str,
        input: &Option<Written>,
        [cached, write, hour]: [&Option<Written>; 3],
        output: &Option<Written>,
    ) -> Result<Self, InvalidPrice> {
        let rate = |word: &str, written: &Option<Written>| match written {
            None => Ok(None),
            Some(written) => billionths(&written.text())
                .filter(|rate| *rate <= DEAREST * WHOLE)
                .map(Some)
                .ok_or_else(|| {
                    let reason = format!("`{word}` takes dollars per million tokens, such as \"0.40\"");
                    InvalidPrice::new(name, reason)
                }),
        };
        let input =
            rate("input", input)?.ok_or_else(|| InvalidPrice::new(name, "it needs at least `input`"))?;
        let cache_write = rate("cache_write", write)?.unwrap_or(input);
        Ok(Self {
            input,
            cached: rate("cached", cached)?.unwrap_or(input),
            cache_write,
            cache_write_1h: rate("cache_write_1h", hour)?.unwrap_or(cache_write),
            output: rate("output", output)?,
        })
    }

    /// The cost of a call, `factor` billionths of the price; `None` if tokens came out and have no price.
    pub(super) fn cost(&self, reading: &Reading, factor: i64) -> Option<Money> {
        let output_rate = match self.output {
            Some(rate) => rate,
            None if reading.output == 0 => 0,
            None => return None,
        };
        let plain = reading.input - reading.cached - reading.cache_write;
        let short_write = reading.cache_write - reading.cache_write_1h;
        let sum: i128 = [
            (plain, self.input),
            (reading.cached, self.cached),
            (short_write, self.cache_write),
            (reading.cache_write_1h, self.cache_write_1h),
            (reading.output, output_rate),
        ]
        .iter()
        // Each is at most 2^63 tokens at 10^15: five of them fit into 127 bits.
        .map(|(tokens, rate)| i128::from((*tokens).max(0)) * i128::from(*rate))
        .sum();
        // Rounded once, and first brought to a size that the factor fits to: no price list has more than
        // nine digits behind the point, so that nothing is lost where it matters.
        let nanos = if factor == WHOLE {
            rounded(sum, MILLION)
        } else {
            rounded(sum.checked_mul(i128::from(factor))?, MILLION * i128::from(WHOLE))
        };
        Some(Money::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX)))
    }
}

/// The nearest whole number, a half upwards. Both are not negative.
fn rounded(sum: i128, unit: i128) -> i128 {
    (sum + unit / 2) / unit
}

/// A decimal number such as `0.0375` in billionths; `None` if it is negative, too long or none.
fn billionths(text: &str) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(part) || part.len() > 9 {
        return None;
    }
    let part: i64 = format!("{part:0<9}").parse().ok()?;
    whole.parse::<i64>().ok()?.checked_mul(WHOLE)?.checked_add(part)
}

/// Whether a pattern names something. `*` stands for anything; a pattern without one also names dated
/// versions of its model: `gpt-4.1` is `gpt-4.1-2025-04-14`, and not `gpt-4.1-mini`.
#[must_use]
pub fn pattern_fits(pattern: &str, name: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else {
        return name == pattern || name.strip_prefix(pattern).is_some_and(is_version);
    };
    let Some(mut rest) = name.strip_prefix(head) else { return false };
    let mut parts = tail.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

/// `-2025-04-14`, `-20250414`, `@20250414`, `-latest`, `:latest`.
fn is_version(suffix: &str) -> bool {
    if matches!(suffix, "-latest" | ":latest") {
        return true;
    }
    let Some(version) = suffix.strip_prefix(['-', '@']) else { return false };
    let digits = version.bytes().filter(u8::is_ascii_digit).count();
    digits == 8 && version.len() == 8 || crate::time::day_of(version).is_some()
}
