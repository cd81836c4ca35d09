//! Instants on the wire: RFC 3339, UTC, with milliseconds.

use coolant_core::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::{KnownFormat, RefOr};
use utoipa::{PartialSchema, ToSchema};

/// An instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Timestamp);

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Self {
        Self(at)
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Beyond the year 9999 the text has no form; nothing that far off is told apart.
        let at = jiff::Timestamp::from_millisecond(self.0.as_millis()).unwrap_or(jiff::Timestamp::MAX);
        write!(f, "{}", at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ"))
    }
}

impl std::str::FromStr for Time {
    type Err = &'static str;

    /// Any offset is taken; a part of a millisecond counts as a whole one, as everywhere.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "takes a time such as 2026-11-29T12:00:00.000Z";
        // Only RFC 3339, not the wider forms that jiff reads as well.
        let plain = text
            .bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'-' | b'+' | b':' | b'.' | b'T' | b't' | b'Z' | b'z'));
        let at: jiff::Timestamp = if plain { text.parse().map_err(|_| wrong)? } else { return Err(wrong) };
        let (ms, rest) = (at.as_millisecond(), at.subsec_nanosecond() % 1_000_000);
        Ok(Self(Timestamp::from_millis(ms + i64::from(rest > 0))))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl PartialSchema for Time {
    fn schema() -> RefOr<Schema> {
        let format = SchemaFormat::KnownFormat(KnownFormat::DateTime);
        ObjectBuilder::new().schema_type(Type::String).format(Some(format)).into()
    }
}

impl ToSchema for Time {
    fn name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_with_milliseconds_and_read_with_any_offset() {
        let said = |text: &str| text.parse::<Time>().map(|time| time.to_string());
        assert_eq!(said("2026-11-29T12:00:00Z").unwrap(), "2026-11-29T12:00:00.000Z");
        assert_eq!(said("2026-11-29T12:00:00.1234+09:00").unwrap(), "2026-11-29T03:00:00.124Z");
        for wrong in ["", "now", "2026-11-29", "2026-11-29T12:00:00", "1764417600", "2026-13-01T00:00:00Z"] {
            assert!(said(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Time(Timestamp::from_millis(i64::MAX)).to_string(), "9999-12-30T22:00:00.999Z");
    }
}
