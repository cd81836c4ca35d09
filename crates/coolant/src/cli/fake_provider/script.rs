//! Scripts: what the fake provider does when.
//!
//! Of all rules the first one that fits a call says what happens to it; a call that none fits goes well.

use std::path::Path;
use std::time::Duration;

use coolant_core::prices::{PriceText, Prices};
use serde::{Deserialize, Deserializer};

use super::limit::Limit;
use crate::cli::CommandError;

/// Longest delay that a script may ask for.
const LONGEST_DELAY: Duration = Duration::from_secs(3600);

/// A script.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Script {
    /// Changes every answer.
    pub(crate) seed: u64,
    /// How long each answer takes.
    #[serde(deserialize_with = "span")]
    pub(crate) latency: Duration,
    /// Numbers of a vector, unless a call asks for another.
    pub(crate) dimensions: usize,
    /// Words of a chat's answer, unless a call allows fewer.
    pub(crate) words: usize,
    /// Models that are listed; calls may name any.
    pub(crate) models: Vec<String>,
    /// What tokens cost, in dollars per million, for `GET /counts`.
    pub(crate) price: PriceText,
    /// How much all calls together may use.
    pub(crate) limit: Option<Limit>,
    /// What to do when.
    #[serde(rename = "rule")]
    pub(crate) rules: Vec<Rule>,
}

impl Default for Script {
    /// Everything goes well, at the price of a small model.
    fn default() -> Self {
        let price = serde_json::json!({"input": "0.40", "output": "1.60"});
        Self {
            seed: 0,
            latency: Duration::ZERO,
            dimensions: 256,
            words: 24,
            models: vec!["fake-chat".into(), "fake-embedding".into()],
            price: serde_json::from_value(price).unwrap_or_default(),
            limit: None,
            rules: Vec::new(),
        }
    }
}

/// When, and what. Everything that is set has to hold.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Rule {
    /// To these: `chat` or `embeddings`.
    pub(crate) path: Option<Kind>,
    /// Of this model; `*` stands for anything.
    pub(crate) model: Option<String>,
    /// By this key.
    pub(crate) key: Option<String>,
    /// With this text in the input or the messages.
    pub(crate) contains: Option<String>,
    /// Not before this time since the start.
    #[serde(deserialize_with = "maybe_span")]
    pub(crate) from: Option<Duration>,
    /// Before this time since the start.
    #[serde(deserialize_with = "maybe_span")]
    pub(crate) until: Option<Duration>,
    /// From which one of the calls that fit so far, counted from 1.
    pub(crate) first: Option<u64>,
    /// Up to which one of them.
    pub(crate) last: Option<u64>,
    /// Every so many of them.
    pub(crate) every: Option<u64>,
    /// With this chance, 0 to 1, decided by the seed.
    pub(crate) chance: Option<f64>,
    /// What is done.
    #[serde(rename = "do")]
    pub(crate) act: Do,
    /// How long the answer takes, beside the script's own.
    #[serde(deserialize_with = "maybe_span")]
    pub(crate) delay: Option<Duration>,
    /// `Retry-After` of a refusal, in whole seconds.
    #[serde(deserialize_with = "maybe_span")]
    pub(crate) retry_after: Option<Duration>,
    /// Status of a refusal, instead of the usual one.
    pub(crate) status: Option<u16>,
    /// Body of a refusal, instead of the usual one.
    pub(crate) body: Option<String>,
    /// More headers of a refusal.
    pub(crate) headers: std::collections::BTreeMap<String, String>,
}

/// Which calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Chat,
    Embeddings,
}

/// What is done with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Do {
    /// It goes well.
    #[default]
    Ok,
    /// 429, too many requests.
    RateLimit,
    /// 503, too busy.
    Overloaded,
    /// 500.
    ServerError,
    /// 429, no money left.
    Quota,
    /// 401, wrong key.
    Auth,
    /// 400, malformed.
    BadRequest,
    /// 400, too long for the model.
    ContextTooLong,
    /// 404, no such model.
    NotFound,
    /// The connection ends in the middle of a good answer, which is paid.
    Cut,
    /// A chat that ends at its length limit; vectors for all inputs but the last. Paid.
    Truncated,
    /// Text that is no JSON; vectors that are not finite. Paid.
    Wrong,
    /// 200 and nothing in it. Paid.
    Empty,
}

impl Do {
    /// As it is counted.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::RateLimit => "rate_limit",
            Self::Overloaded => "overloaded",
            Self::ServerError => "server_error",
            Self::Quota => "quota",
            Self::Auth => "auth",
            Self::BadRequest => "bad_request",
            Self::ContextTooLong => "context_too_long",
            Self::NotFound => "not_found",
            Self::Cut => "cut",
            Self::Truncated => "truncated",
            Self::Wrong => "wrong",
            Self::Empty => "empty",
        }
    }

    /// Whether the call is paid for.
    pub(crate) const fn is_paid(self) -> bool {
        matches!(self, Self::Ok | Self::Cut | Self::Truncated | Self::Wrong | Self::Empty)
    }
}

impl Script {
    /// Reads a file: JSON if its name says so, else TOML.
    pub(crate) fn read(path: &Path) -> Result<Self, CommandError> {
        let what = format!("cannot read the script `{}`", path.display());
        let text = std::fs::read_to_string(path).map_err(CommandError::system(what))?;
        let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        let read: Result<Self, String> = match is_json {
            true => serde_json::from_str(&text).map_err(|error| error.to_string()),
            false => toml::from_str(&text).map_err(|error| error.to_string()),
        };
        let checked = read.and_then(|script: Self| script.check().map(|()| script));
        checked.map_err(|reason| {
            CommandError::Usage(format!("the script `{}` is wrong: {}", path.display(), reason.trim_end()))
        })
    }

    fn check(&self) -> Result<(), String> {
        if !(1..=4096).contains(&self.dimensions) || !(1..=100_000).contains(&self.words) {
            return Err("`dimensions` takes 1 to 4096, `words` 1 to 100000".into());
        }
        self.prices().map_err(|error| error.to_string())?;
        if self.limit.as_ref().is_some_and(|limit| limit.window.is_zero()) {
            return Err("`window` of the limit takes more than nothing".into());
        }
        for (at, rule) in self.rules.iter().enumerate() {
            let wrong = |what: &str| Err(format!("rule {}: {what}", at + 1));
            if rule.chance.is_some_and(|chance| !(0.0..=1.0).contains(&chance)) {
                return wrong("`chance` takes 0 to 1");
            }
            if rule.every == Some(0) {
                return wrong("`every` takes 1 and more");
            }
            if rule.status.is_some_and(|status| !(400..=599).contains(&status)) {
                return wrong("`status` takes 400 to 599");
            }
            let is_refusal_alone = rule.status.is_some()
                || rule.body.is_some()
                || rule.retry_after.is_some()
                || !rule.headers.is_empty();
            if rule.act.is_paid() && is_refusal_alone {
                return wrong("`status`, `body`, `headers` and `retry_after` need a `do` that refuses");
            }
            for (name, value) in &rule.headers {
                if axum::http::HeaderName::try_from(name).is_err()
                    || axum::http::HeaderValue::try_from(value).is_err()
                {
                    return wrong(&format!("`{name}` is no header"));
                }
            }
        }
        Ok(())
    }

    /// What calls cost.
    pub(crate) fn prices(&self) -> Result<Prices, coolant_core::prices::InvalidPrice> {
        Prices::with_own([("fake/*", &self.price)])
    }
}

pub(super) fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    maybe_span(from).map(Option::unwrap_or_default)
}

/// `"250ms"`, `"30s"`, `"5m"`; a bare number is seconds.
fn maybe_span<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Seconds(f64),
        Text(String),
    }
    let read = match Written::deserialize(from)? {
        Written::Seconds(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Written::Text(text) => spoken_span(&text),
    };
    let wrong =
        || serde::de::Error::custom("takes a duration such as \"250ms\", \"30s\" or \"5m\", an hour at most");
    read.filter(|span| *span <= LONGEST_DELAY).map(Some).ok_or_else(wrong)
}

/// A duration as people write it in scripts and flags.
pub(crate) fn spoken_span(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].trim() {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Script, String> {
        let script: Script = toml::from_str(text).map_err(|error| error.to_string())?;
        script.check().map(|()| script)
    }

    #[test]
    fn a_script_says_when_and_what() {
        let script = read(
            "seed = 7\nlatency = '20ms'\n[price]\ninput = 0.02\n[[rule]]\npath = 'embeddings'\nfrom = 10\n\
             until = '1m'\ndo = 'rate_limit'\nretry_after = '30s'\nheaders = { x-a = 'b' }",
        )
        .unwrap();
        assert_eq!((script.seed, script.latency), (7, Duration::from_millis(20)));
        let rule = &script.rules[0];
        assert_eq!((rule.path, rule.act), (Some(Kind::Embeddings), Do::RateLimit));
        assert_eq!((rule.from, rule.until), (Some(Duration::from_secs(10)), Some(Duration::from_secs(60))));
    }

    #[test]
    fn a_slip_of_the_pen_is_refused() {
        for text in [
            "sead = 1",
            "[[rule]]\ndo = 'explode'",
            "[[rule]]\ndo = 'ok'\nstatus = 500",
            "[[rule]]\ndo = 'auth'\nstatus = 200",
            "[[rule]]\nchance = 2.0",
            "[[rule]]\nevery = 0",
            "[[rule]]\ndelay = '5 parsecs'",
            "[[rule]]\ndelay = -1",
            "[[rule]]\ndelay = '2h'",
            "[[rule]]\ndo = 'auth'\nheaders = { 'a b' = 'c' }",
            "dimensions = 0",
            "[price]\ninput = -1",
            "[limit]\ntoken = 5",
            "[limit]\nwindow = 0",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_span_is_read_as_people_write_it() {
        let ms = |text| spoken_span(text).map(|span| span.as_millis());
        assert_eq!(
            (ms("500ms"), ms("30s"), ms("1.5m"), ms("2h")),
            (Some(500), Some(30_000), Some(90_000), Some(7_200_000))
        );
        assert_eq!((ms("3"), ms(""), ms("1d"), ms("s")), (Some(3000), None, None, None));
    }
}
