//! Output: text and vectors that depend on seed and input alone.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// Deepest nesting that a schema is followed to.
const DEEPEST: usize = 8;

const WORDS: [&str; 32] = [
    "a", "the", "job", "lease", "retry", "later", "waits", "until", "closed", "opens", "again", "cool",
    "down", "paid", "once", "never", "twice", "queue", "worker", "claims", "settles", "document", "chunk",
    "vector", "answer", "found", "kept", "safe", "and", "with", "for", "it",
];

/// Numbers that look random and are the same each time.
pub(super) struct Dice(blake3::OutputReader);

impl Dice {
    pub(super) fn new(seed: u64, what: &str, input: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes()).update(what.as_bytes()).update(&[0]).update(input.as_bytes());
        Self(hasher.finalize_xof())
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes) % bound.max(1)
    }

    /// 0 to 1.
    pub(super) fn chance(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let part = self.below(1 << 53) as f64;
        #[expect(clippy::cast_precision_loss, reason = "a power of two")]
        let whole = (1_u64 << 53) as f64;
        part / whole
    }
}

/// So many words.
pub(super) fn prose(seed: u64, input: &str, words: usize) -> String {
    let mut dice = Dice::new(seed, "prose", input);
    let mut text = String::new();
    for at in 0..words {
        let word = WORDS[usize::try_from(dice.below(WORDS.len() as u64)).unwrap_or(0)];
        // Writing to a string cannot fail.
        let _ = write!(text, "{}{word}", if at == 0 { "" } else { " " });
    }
    text
}

/// JSON that fits a schema as far as the common words of schemas go.
pub(super) fn json_for(seed: u64, input: &str, schema: Option<&Value>) -> Value {
    let mut dice = Dice::new(seed, "json", input);
    match schema {
        Some(schema) => fitting(&mut dice, schema, schema, DEEPEST),
        None => json!({"answer": prose(seed, input, 5)}),
    }
}

fn fitting(dice: &mut Dice, root: &Value, schema: &Value, depth: usize) -> Value {
    if depth == 0 {
        return Value::Null;
    }
    if let Some(name) = schema["$ref"].as_str() {
        let found = name.strip_prefix('#').and_then(|path| root.pointer(path));
        return found.map_or(Value::Null, |found| fitting(dice, root, found, depth - 1));
    }
    if let Some(fixed) = schema.get("const") {
        return fixed.clone();
    }
    for any in ["enum", "anyOf", "oneOf"] {
        if let Some(members) = schema[any].as_array().filter(|members| !members.is_empty()) {
            let at = usize::try_from(dice.below(members.len() as u64)).unwrap_or(0);
            return if any == "enum" {
                members[at].clone()
            } else {
                fitting(dice, root, &members[at], depth - 1)
            };
        }
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    match kind {
        Some("string") => json!(WORDS[usize::try_from(dice.below(WORDS.len() as u64)).unwrap_or(0)]),
        Some("integer") => json!(schema["minimum"].as_i64().unwrap_or(0).saturating_add(1)),
        Some("number") => json!(schema["minimum"].as_f64().unwrap_or(0.0) + 0.5),
        Some("boolean") => json!(dice.below(2) == 1),
        Some("null") => Value::Null,
        Some("array") => {
            let items = schema["minItems"].as_u64().unwrap_or(1).min(100);
            (0..items).map(|_| fitting(dice, root, &schema["items"], depth - 1)).collect()
        }
        _ => {
            let none = Map::new();
            let members = schema["properties"].as_object().unwrap_or(&none);
            members.iter().map(|(name, of)| (name.clone(), fitting(dice, root, of, depth - 1))).collect()
        }
    }
}

/// Counts words by what they are, so that texts with the same words are near each other; of length 1.
pub(super) fn vector(seed: u64, text: &str, dimensions: usize) -> Vec<f32> {
    let mut vector = vec![0.01_f32; dimensions];
    for word in text.split_whitespace() {
        let mut dice = Dice::new(seed, "word", word);
        let at = usize::try_from(dice.below(dimensions as u64)).unwrap_or(0);
        vector[at] += 1.0;
    }
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    vector.iter_mut().for_each(|number| *number /= length);
    vector
}
