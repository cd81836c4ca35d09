//! How an embedding call fails.

use std::time::Duration;

use coolant_core::evidence::Evidence;
use serde_json::Value;

use super::Usage;

/// Why a call gave no vectors.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// An input is empty or all space. Nothing was sent: providers answer such a text with an error or
    /// with NaN, and take money for it.
    #[error("input `{index}` is blank")]
    BlankInput {
        /// Its place among the inputs.
        index: usize,
    },
    /// The provider answered, and not with vectors: an error status, a redirect (never followed), or a
    /// 200 that holds no list of vectors. The evidence has a status.
    #[error("the provider answered with status `{}`", .evidence.status.unwrap_or_default())]
    Refused {
        /// What it said, without the key.
        evidence: Box<Evidence>,
    },
    /// No whole answer came.
    #[error("no answer from the provider: {fault}")]
    Transport {
        /// How far the call got.
        phase: Phase,
        /// What happened.
        fault: TransportFault,
        /// No status, as no answer can be read; the error's text for a body; headers if they came.
        evidence: Box<Evidence>,
    },
    /// Vectors came, and they cannot be used. The call is paid for.
    #[error("the provider's vectors cannot be used: {reason}")]
    InvalidOutput {
        /// What is wrong with them.
        reason: InvalidOutput,
        /// What the answer says it cost.
        usage: Usage,
        /// Status and headers; of the body what is not vectors, or its start if it cannot be read.
        evidence: Box<Evidence>,
    },
}

/// How far a call got before its connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The provider cannot have seen it: nothing to pay.
    NotSent,
    /// It may have been received, processed and billed.
    Sent,
    /// The answer had begun, so the call was processed.
    AnswerBegun,
}

/// What happened to the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransportFault {
    /// One of our own timers ran out.
    #[error("{timer} timed out after {after:?}")]
    Timeout {
        /// Which one.
        timer: Timer,
        /// Its setting.
        after: Duration,
    },
    /// The certificate is not trusted: no retry will change that.
    #[error("certificate not trusted")]
    UntrustedTls,
    /// The connection was refused, cut or reset, or the name is not known.
    #[error("network error")]
    Network,
}

/// The timers of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// Until the connection stands, TLS included.
    Connect,
    /// From the start until the first byte of the answer's body.
    FirstByte,
    /// Between two parts of the body.
    Idle,
    /// The whole call.
    Total,
}

impl std::fmt::Display for Timer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::FirstByte => "first byte",
            Self::Idle => "idle",
            Self::Total => "total",
        })
    }
}

/// What is wrong with an answer's vectors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOutput {
    /// Fewer or more vectors than inputs.
    #[error("`{found}` vectors for `{expected}` inputs")]
    WrongCount {
        /// Inputs.
        expected: usize,
        /// Vectors.
        found: usize,
    },
    /// An index twice, or one beyond the inputs: nobody knows which vector belongs to which text.
    #[error("index `{index}` comes twice or has no input")]
    WrongIndex {
        /// That index.
        index: u64,
    },
    /// Not the dimension configured, or not that of the other vectors. This never heals.
    #[error("vector `{index}` has dimension `{found}`, not `{expected}`")]
    WrongDimension {
        /// The input's place.
        index: usize,
        /// Configured, or that of input 0.
        expected: usize,
        /// What came.
        found: usize,
    },
    /// NaN (in JSON: `null`) or infinite.
    #[error("vector `{index}` holds a number that is not finite")]
    NotFinite {
        /// The input's place.
        index: usize,
    },
    /// All numbers are zero.
    #[error("vector `{index}` is all zero")]
    AllZero {
        /// The input's place.
        index: usize,
    },
    /// There is a list of data, but not of the form documented.
    #[error("malformed answer: {detail}")]
    Malformed {
        /// What the JSON reader says.
        detail: String,
    },
    /// More bytes than so many vectors can need.
    #[error("more than `{limit}` bytes")]
    TooLong {
        /// Where reading stopped.
        limit: usize,
    },
}

impl EmbedError {
    /// What the provider or the connection left behind; `None` if nothing was tried.
    #[must_use]
    pub fn evidence(&self) -> Option<&Evidence> {
        match self {
            Self::BlankInput { .. } => None,
            Self::Refused { evidence }
            | Self::Transport { evidence, .. }
            | Self::InvalidOutput { evidence, .. } => Some(evidence),
        }
    }

    /// What the failed call cost all the same, if the answer says so.
    #[must_use]
    pub fn usage(&self) -> Option<&Usage> {
        match self {
            Self::InvalidOutput { usage, .. } => Some(usage),
            _ => None,
        }
    }

    /// Whether the provider refused the call for its size, so that the halves may pass where the same
    /// call never will. For a call of one input there is nothing to halve.
    #[must_use]
    pub fn is_batch_too_large(&self) -> bool {
        match self {
            Self::Refused { evidence } => match evidence.status {
                Some(413) => true,
                Some(400 | 422) => says_batch_too_large(&evidence.body),
                _ => false,
            },
            _ => false,
        }
    }
}

/// Reads the size errors of OpenAI, Gemini, Vertex, Mistral, Cohere, Jina, Voyage, DashScope and TEI.
fn says_batch_too_large(body: &Value) -> bool {
    const SIGNS: [&str; 16] = [
        "max_tokens_per_request",
        "tokens per request",
        "array too long",
        "batch too large",
        "batch size",
        "in one batch",
        "split into more batches",
        "submitted batch",
        "maximum number of inputs",
        "maximum allowed number of inputs",
        "too many inputs",
        "too many tokens",
        "number of texts must be",
        "instance(s) is allowed",
        "input list can contain at most",
        "payload too large",
    ];
    let text = body.to_string().to_lowercase();
    SIGNS.iter().any(|sign| text.contains(sign))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(status: u16, body: Value) -> EmbedError {
        EmbedError::Refused { evidence: Box::new(Evidence { status: Some(status), headers: vec![], body }) }
    }

    #[test]
    fn size_errors_are_told_from_the_rest() {
        let large = [
            (413, json!(null)),
            (400, json!({"error": {"message": "Requested 319487 tokens, max 300000 tokens per request"}})),
            (
                400,
                json!({"error": {"message": "Invalid 'input': array too long. Expected an array with maximum length 2048"}}),
            ),
            (
                400,
                json!({"error": {"message": "* BatchEmbedContentsRequest.requests: at most 100 requests can be in one batch"}}),
            ),
            (400, json!("5 instance(s) is allowed per prediction. Actual: 6")),
            (400, json!({"message": "Too many tokens overall, split into more batches."})),
            (400, json!("Each input list can contain at most 512 items.")),
            (400, json!({"error": {"message": "batch size is invalid, it should not be larger than 10."}})),
            (422, json!({"error": "batch size 33 > maximum allowed batch size 32"})),
            (400, json!({"message": "invalid request: total number of texts must be at most 96"})),
        ];
        for (status, body) in large {
            assert!(refused(status, body.clone()).is_batch_too_large(), "{status} {body}");
        }
        let other = [
            (
                400,
                json!({"error": {"message": "This model's maximum context length is 8192 tokens, however you requested 8610 tokens"}}),
            ),
            (
                422,
                json!({"error": "Input validation error: `inputs` must have less than 512 tokens. Given: 600"}),
            ),
            (400, json!({"error": "`inputs` cannot be empty"})),
            (429, json!({"message": "Too many tokens, please wait before trying again."})),
            (500, json!("batch size")),
        ];
        for (status, body) in other {
            assert!(!refused(status, body.clone()).is_batch_too_large(), "{status} {body}");
        }
    }
}
