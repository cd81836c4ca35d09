//! Fingerprints: whether two submits of one key mean the same work.
//!
//! JSON is compared by meaning: the order of keys does not matter, and 1, 1.0 and 1e0 are one number.
//! Strings are compared character by character; no Unicode folding, since a payload is data.

use serde_json::Value;

use crate::names::JobType;

/// 32 bytes that are equal exactly when job type and payload mean the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a job's parameters.
    #[must_use]
    pub fn of(job_type: &JobType, payload: &Value) -> Self {
        let mut hasher = blake3::Hasher::new();
        text(&mut hasher, job_type.as_str());
        value(&mut hasher, payload);
        Self(*hasher.finalize().as_bytes())
    }

    /// The fingerprint with those bytes, as a store kept it.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for a store to keep.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

// Every piece is written with a tag and its length, so that no two values share an encoding.
fn value(hasher: &mut blake3::Hasher, json: &Value) {
    match json {
        Value::Null => tag(hasher, b'0'),
        Value::Bool(false) => tag(hasher, b'f'),
        Value::Bool(true) => tag(hasher, b't'),
        Value::Number(number) => {
            tag(hasher, b'n');
            text(hasher, &canonical(number));
        }
        Value::String(string) => {
            tag(hasher, b's');
            text(hasher, string);
        }
        Value::Array(items) => {
            tag(hasher, b'[');
            length(hasher, items.len());
            for item in items {
                value(hasher, item);
            }
        }
        Value::Object(fields) => {
            tag(hasher, b'{');
            length(hasher, fields.len());
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            for (name, field) in sorted {
                text(hasher, name);
                value(hasher, field);
            }
        }
    }
}

/// One spelling for all spellings of a number: the shortest decimal that reads back as the same float,
/// or all digits of a whole number that no float holds.
fn canonical(number: &serde_json::Number) -> String {
    let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    let float = number.as_f64().unwrap_or(f64::NAN);
    #[expect(clippy::cast_possible_truncation, reason = "saturates, and then differs from `whole`")]
    match whole {
        Some(whole) if float as i128 != whole => whole.to_string(),
        // Adding zero turns -0 into 0.
        _ => format!("{:e}", float + 0.0),
    }
}

fn tag(hasher: &mut blake3::Hasher, tag: u8) {
    hasher.update(&[tag]);
}

fn length(hasher: &mut blake3::Hasher, len: usize) {
    hasher.update(&(len as u64).to_le_bytes());
}

fn text(hasher: &mut blake3::Hasher, text: &str) {
    length(hasher, text.len());
    hasher.update(text.as_bytes());
}

/// Whether two JSON values mean the same.
#[must_use]
pub fn same_meaning(a: &Value, b: &Value) -> bool {
    let digest = |json: &Value| {
        let mut hasher = blake3::Hasher::new();
        value(&mut hasher, json);
        hasher.finalize()
    };
    digest(a) == digest(b)
}

/// The fields in which two payloads differ, as `payload.a`, in order, 20 at most; `payload` alone if one
/// of them is no object.
#[must_use]
pub fn differing_fields(a: &Value, b: &Value) -> Vec<String> {
    match (a, b) {
        (Value::Object(left), Value::Object(right)) => {
            let mut names: Vec<&String> = left.keys().chain(right.keys()).collect();
            names.sort_unstable();
            names.dedup();
            names
                .into_iter()
                .filter(|name| match (left.get(*name), right.get(*name)) {
                    (Some(x), Some(y)) => !same_meaning(x, y),
                    _ => true,
                })
                .take(20)
                .map(|name| format!("payload.{name}"))
                .collect()
        }
        _ if same_meaning(a, b) => Vec::new(),
        _ => vec!["payload".into()],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(text: &str) -> Fingerprint {
        Fingerprint::of(&JobType::parse("T").unwrap(), &serde_json::from_str(text).unwrap())
    }

    #[test]
    fn key_order_and_the_spelling_of_numbers_do_not_matter() {
        assert_eq!(of(r#"{"a":1,"b":[2.0,0.5]}"#), of(r#"{"b":[2,5e-1],"a":1.0}"#));
        assert_eq!(of("0"), of("-0.0"));
        assert_eq!(of("100000000000000000000"), of("1e20"));
        assert_eq!(of("10000000000000000"), of("1e16"));
    }

    #[test]
    fn what_differs_in_meaning_differs() {
        let all = [
            "null",
            "false",
            "0",
            "\"\"",
            "[]",
            "{}",
            "\"0\"",
            "[0]",
            "[[],[]]",
            "[[[]]]",
            r#"{"a":null}"#,
            "0.1",
            "9007199254740993",
            "9007199254740992",
            r#"["ab","c"]"#,
            r#"["a","bc"]"#,
        ];
        for (i, a) in all.iter().enumerate() {
            for b in &all[i + 1..] {
                assert_ne!(of(a), of(b), "{a} and {b}");
            }
        }
    }

    #[test]
    fn a_refusal_can_name_the_fields_that_differ() {
        let (a, b) = (json!({"x": 1, "y": {"z": 2}, "w": 1}), json!({"x": 1.0, "y": {"z": 3}}));
        assert_eq!(differing_fields(&a, &b), ["payload.w", "payload.y"]);
        assert_eq!(differing_fields(&json!([1]), &json!([1.0])), Vec::<String>::new());
    }
}
