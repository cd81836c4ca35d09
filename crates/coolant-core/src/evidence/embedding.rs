//! Vectors in the forms of the providers, and the checks that keep a wrong one out of an index.

use serde_json::Value;

/// One vector of an answer, with the place that it claims.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Vector {
    index: Option<u64>,
    /// Its numbers; `None` in place of anything that is not a finite number.
    numbers: Vec<Option<f64>>,
}

/// Why a set of vectors must not be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Bad {
    #[error("{found} vectors for {asked} inputs")]
    Count { found: usize, asked: usize },
    #[error("the indexes are not each of 0 to {last} once")]
    Index { last: usize },
    #[error("vector {at} holds a value that is not a finite number")]
    NotFinite { at: usize },
    #[error("vector {at} has {found} dimensions in place of {asked}")]
    Dimension { at: usize, found: usize, asked: usize, all: bool },
    #[error("vector {at} is all zeros")]
    Zero { at: usize },
}

impl Bad {
    pub(crate) fn rule(&self) -> &'static str {
        match self {
            Self::Count { .. } => "vector_count",
            Self::Index { .. } => "vector_index",
            Self::NotFinite { .. } => "vector_not_finite",
            Self::Dimension { .. } => "vector_dimension",
            Self::Zero { .. } => "vector_zero",
        }
    }

    /// A model with another dimension stays one; the rest may be the luck of one call.
    pub(crate) fn never_heals(&self) -> bool {
        matches!(self, Self::Dimension { all: true, .. })
    }
}

/// The vectors of a body, or `None` if it has none of the known forms.
pub(crate) fn vectors(body: &Value) -> Option<Vec<Vector>> {
    let known = match body {
        // TEI: a list of lists; llama.cpp: a list of objects.
        Value::Array(items) => return of_list(items, !items.is_empty()),
        Value::Object(map) => map,
        _ => return None,
    };
    if let Some(Value::Array(items)) = known.get("data") {
        let is_list = known.get("object").is_some_and(|object| object == "list");
        return of_list(items, is_list && !known.contains_key("choices") || !items.is_empty());
    }
    for key in ["embeddings", "predictions"] {
        match known.get(key) {
            Some(Value::Array(items)) => return of_list(items, true),
            // Cohere: one list for each kind of number.
            Some(Value::Object(kinds)) => {
                return ["float", "int8", "uint8", "base64"]
                    .iter()
                    .find_map(|kind| of_list(kinds.get(*kind)?.as_array()?, true));
            }
            _ => {}
        }
    }
    if let Some(one) = known.get("embedding") {
        return vector(one).map(|vector| vec![vector]);
    }
    vectors(known.get("output").or_else(|| known.get("result")).filter(|inner| inner.is_object())?)
}

fn of_list(items: &[Value], empty_counts: bool) -> Option<Vec<Vector>> {
    if items.is_empty() && !empty_counts {
        return None;
    }
    items.iter().map(vector).collect()
}

fn vector(item: &Value) -> Option<Vector> {
    match item {
        Value::Array(numbers) => {
            // llama.cpp wraps each vector once more.
            if let [inner @ Value::Array(_)] = numbers.as_slice() {
                return vector(inner);
            }
            let plain = numbers.iter().all(|number| number.is_number() || number.is_null());
            let numbers = numbers.iter().map(|number| number.as_f64().filter(|n| n.is_finite())).collect();
            plain.then_some(Vector { index: None, numbers })
        }
        Value::String(text) => Some(Vector { index: None, numbers: packed(text)? }),
        Value::Object(map) => {
            let inner =
                ["embedding", "values", "embeddings", "vector"].iter().find_map(|key| map.get(*key))?;
            // A null in place of the whole vector.
            let mut found =
                if inner.is_null() { Vector { index: None, numbers: vec![None] } } else { vector(inner)? };
            let index = ["index", "text_index"].iter().find_map(|key| map.get(*key)?.as_u64());
            found.index = index.or(found.index);
            Some(found)
        }
        Value::Null => Some(Vector { index: None, numbers: vec![None] }),
        _ => None,
    }
}

/// Base64 of 32-bit floats, least significant byte first, as OpenAI sends them on request.
fn packed(text: &str) -> Option<Vec<Option<f64>>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0);
    for c in text.trim_end_matches('=').bytes() {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xff) as u8);
        }
    }
    let (floats, rest) = bytes.as_chunks::<4>();
    let numbers = floats.iter().map(|b| Some(f64::from(f32::from_le_bytes(*b))).filter(|n| n.is_finite()));
    rest.is_empty().then(|| numbers.collect())
}

/// The first reason not to store these vectors. What the caller does not state is not checked.
pub(crate) fn check(vectors: &[Vector], inputs: Option<usize>, dimensions: Option<usize>) -> Option<Bad> {
    let asked = inputs.unwrap_or(vectors.len().max(1));
    if vectors.len() != asked {
        return Some(Bad::Count { found: vectors.len(), asked });
    }
    if vectors.iter().any(|vector| vector.index.is_some()) {
        // Pairing by position is only safe if the positions are all there.
        let mut seen = vec![false; vectors.len()];
        for vector in vectors {
            let slot = vector.index.and_then(|at| usize::try_from(at).ok()).and_then(|at| seen.get_mut(at));
            match slot {
                Some(slot) if !*slot => *slot = true,
                _ => return Some(Bad::Index { last: vectors.len() - 1 }),
            }
        }
    }
    if let Some(at) = vectors.iter().position(|vector| vector.numbers.iter().any(Option::is_none)) {
        return Some(Bad::NotFinite { at });
    }
    let asked = dimensions.or_else(|| vectors.first().map(|vector| vector.numbers.len()))?;
    let differs = |vector: &Vector| vector.numbers.len() != asked || asked == 0;
    if let Some(at) = vectors.iter().position(differs) {
        let all = dimensions.is_some() && vectors.iter().all(differs) && !vectors[at].numbers.is_empty();
        return Some(Bad::Dimension { at, found: vectors[at].numbers.len(), asked, all });
    }
    let at = vectors.iter().position(|vector| vector.numbers.iter().all(|number| *number == Some(0.0)))?;
    Some(Bad::Zero { at })
}
