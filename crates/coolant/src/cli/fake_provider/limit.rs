//! A limit of calls and tokens in a window of time, and the headers that state what is left of it.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use coolant_core::time::millis_up;
use serde::Deserialize;

use super::answer::Used;
use super::script::span;

/// What all calls together may use within a window. A window begins with the first call after the last one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limit {
    /// Calls.
    pub(crate) requests: Option<u64>,
    /// Tokens in and out together.
    pub(crate) tokens: Option<u64>,
    /// How long a window is.
    #[serde(deserialize_with = "span")]
    pub(crate) window: Duration,
    /// Whether answers state what is left.
    pub(crate) headers: bool,
}

impl Default for Limit {
    fn default() -> Self {
        Self { requests: None, tokens: None, window: Duration::from_secs(60), headers: true }
    }
}

/// The window that runs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Window {
    end: Duration,
    requests: u64,
    tokens: u64,
}

/// How a limit answers a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Admission {
    /// Whether it takes the call; else that has to wait for the next window.
    pub(super) fits: bool,
    /// What it states.
    pub(super) headers: HeaderMap,
}

impl Window {
    /// Takes a call if it fits. `age` is the provider's time.
    pub(super) fn admit(&mut self, limit: &Limit, used: Used, age: Duration) -> Admission {
        if age >= self.end {
            *self = Self { end: age + limit.window, requests: 0, tokens: 0 };
        }
        let tokens = u64::try_from(used.input_tokens.saturating_add(used.output_tokens)).unwrap_or(0);
        let with_it = Self {
            requests: self.requests.saturating_add(1),
            tokens: self.tokens.saturating_add(tokens),
            ..*self
        };
        let fits = limit.requests.is_none_or(|most| with_it.requests <= most)
            && limit.tokens.is_none_or(|most| with_it.tokens <= most);
        if fits {
            *self = with_it;
        }
        let mut headers = HeaderMap::new();
        if limit.headers {
            self.state(limit, age, &mut headers);
        }
        if !fits {
            let wait = self.end.saturating_sub(age).as_secs_f64().ceil();
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait as u64));
        }
        Admission { fits, headers }
    }

    fn state(&self, limit: &Limit, age: Duration, headers: &mut HeaderMap) {
        let reset = format!("{}ms", millis_up(self.end.saturating_sub(age)));
        for (unit, most, used) in
            [("requests", limit.requests, self.requests), ("tokens", limit.tokens, self.tokens)]
        {
            let Some(most) = most else { continue };
            let left = most.saturating_sub(used);
            for (part, value) in
                [("limit", most.to_string()), ("remaining", left.to_string()), ("reset", reset.clone())]
            {
                let name = HeaderName::try_from(format!("x-ratelimit-{part}-{unit}"));
                if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
                    headers.insert(name, value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn used(tokens: i64) -> Used {
        Used { input_tokens: tokens, output_tokens: 0 }
    }

    fn stated(admission: &Admission, name: &str) -> Option<String> {
        admission.headers.get(name).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_window_takes_what_fits_and_says_what_is_left_of_it() {
        let limit = Limit { tokens: Some(100), window: MINUTE, ..Limit::default() };
        let mut window = Window::default();
        let first = window.admit(&limit, used(70), at(5000));
        assert!(first.fits);
        assert_eq!(stated(&first, "x-ratelimit-remaining-tokens").unwrap(), "30");
        assert_eq!(stated(&first, "x-ratelimit-reset-tokens").unwrap(), "60000ms");
        assert_eq!(stated(&first, "x-ratelimit-remaining-requests"), None);
        let refused = window.admit(&limit, used(31), at(5500));
        assert!(!refused.fits);
        assert_eq!(stated(&refused, "retry-after").unwrap(), "60");
        assert_eq!(stated(&refused, "x-ratelimit-remaining-tokens").unwrap(), "30", "it takes nothing");
        assert!(window.admit(&limit, used(30), at(64_999)).fits);
        assert!(window.admit(&limit, used(100), at(65_000)).fits);
    }

    #[test]
    fn calls_are_counted_and_nothing_is_said_that_nobody_wants_said() {
        let limit = Limit { requests: Some(1), headers: false, ..Limit::default() };
        let mut window = Window::default();
        let first = window.admit(&limit, used(1), at(0));
        assert_eq!(first, Admission { fits: true, headers: HeaderMap::new() });
        let refused = window.admit(&limit, used(1), at(0));
        assert_eq!((refused.fits, refused.headers.len()), (false, 1));
    }
}
