//! Reading an answer: vectors that can be used, or the reason why not.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::super::error::{EmbedError, InvalidOutput};
use super::super::{Embeddings, Usage};
use super::exchange::Answer;
use crate::chunk::estimate_tokens;

/// The largest dimension that is expected of a model nobody has described.
const LARGEST_DIMENSION: usize = 8192;

/// A number printed with all its digits, on a line of its own and indented, fits well into this.
const BYTES_PER_NUMBER: usize = 64;

/// The longest body that so many vectors can need.
pub(super) fn most_bytes(inputs: usize, dimension: Option<u32>) -> usize {
    let dimension = dimension.map_or(LARGEST_DIMENSION, |dimension| dimension as usize);
    64 * 1024 + inputs.saturating_mul(dimension).saturating_mul(BYTES_PER_NUMBER)
}

#[derive(Deserialize)]
struct Body {
    data: Vec<Item>,
    model: Option<String>,
    usage: Option<Value>,
}

#[derive(Deserialize)]
struct Item {
    /// Servers that make their JSON from protocol buffers leave out a zero. A list without any index is
    /// still refused, as 0 may come only once.
    #[serde(default)]
    index: u64,
    /// Doubles, as the JSON reader has its own opinion about what is too large for a single.
    embedding: Vec<Option<f64>>,
}

/// What tells a wrong list of vectors from an answer that is none.
#[derive(Deserialize)]
struct Outline {
    #[allow(dead_code, reason = "only its presence counts")]
    data: Vec<IgnoredAny>,
    usage: Option<Value>,
}

/// The vectors of an answer, in the order of the inputs.
///
/// # Errors
///
/// [`EmbedError::InvalidOutput`] if any vector is missing or wrong; [`EmbedError::Refused`] if the body is
/// not a list of vectors at all: an error object, a proxy's page, nothing.
pub(super) fn read(
    answer: Answer,
    inputs: &[String],
    dimension: Option<u32>,
) -> Result<Embeddings, EmbedError> {
    let body: Body = match serde_json::from_slice(&answer.body) {
        Ok(body) => body,
        Err(error) => return Err(unreadable(answer, inputs, &error)),
    };
    let usage = usage(body.usage, inputs);
    match vectors(body.data, inputs.len(), dimension.map(|dimension| dimension as usize)) {
        Ok(vectors) => Ok(Embeddings { vectors, usage, model: body.model, headers: answer.headers }),
        Err(reason) => {
            let rest = json!({"model": body.model, "usage": usage.reported});
            Err(EmbedError::InvalidOutput { reason, usage, evidence: answer.evidence(rest) })
        }
    }
}

fn unreadable(answer: Answer, inputs: &[String], error: &serde_json::Error) -> EmbedError {
    let start = answer.start_of_body();
    let usage = match serde_json::from_slice::<Outline>(&answer.body) {
        Ok(outline) => usage(outline.usage, inputs),
        Err(_) if answer.body.trim_ascii_start().starts_with(b"[") => usage(None, inputs),
        Err(_) => return EmbedError::Refused { evidence: answer.evidence(start) },
    };
    let reason = InvalidOutput::Malformed { detail: error.to_string() };
    EmbedError::InvalidOutput { reason, usage, evidence: answer.evidence(start) }
}

fn usage(reported: Option<Value>, inputs: &[String]) -> Usage {
    let count = |name: &str| reported.as_ref().and_then(|usage| usage.get(name)?.as_u64());
    match count("prompt_tokens").or_else(|| count("input_tokens")).or_else(|| count("total_tokens")) {
        Some(input_tokens) => Usage { input_tokens, estimated: false, reported },
        None => {
            let input_tokens = inputs.iter().map(|input| u64::from(estimate_tokens(input))).sum();
            Usage { input_tokens, estimated: true, reported }
        }
    }
}

fn vectors(data: Vec<Item>, inputs: usize, dimension: Option<usize>) -> Result<Vec<Vec<f32>>, InvalidOutput> {
    if data.len() != inputs {
        return Err(InvalidOutput::WrongCount { expected: inputs, found: data.len() });
    }
    let mut slots: Vec<Option<Vec<Option<f64>>>> = vec![None; inputs];
    for item in data {
        let slot = usize::try_from(item.index).ok().and_then(|index| slots.get_mut(index));
        match slot {
            Some(slot @ None) => *slot = Some(item.embedding),
            _ => return Err(InvalidOutput::WrongIndex { index: item.index }),
        }
    }
    // As many items as slots and no slot filled twice: all are filled.
    let mut vectors = Vec::with_capacity(inputs);
    let mut expected = dimension;
    for (index, numbers) in slots.into_iter().flatten().enumerate() {
        let expected = *expected.get_or_insert(numbers.len());
        vectors.push(vector(index, &numbers, expected)?);
    }
    Ok(vectors)
}

fn vector(index: usize, numbers: &[Option<f64>], expected: usize) -> Result<Vec<f32>, InvalidOutput> {
    if numbers.len() != expected {
        return Err(InvalidOutput::WrongDimension { index, expected, found: numbers.len() });
    }
    let single =
        |number: &Option<f64>| number.map(|number| number as f32).filter(|number| number.is_finite());
    let vector: Option<Vec<f32>> = numbers.iter().map(single).collect();
    let vector = vector.ok_or(InvalidOutput::NotFinite { index })?;
    if vector.iter().all(|&number| number == 0.0) {
        return Err(InvalidOutput::AllZero { index });
    }
    Ok(vector)
}
