//! Failed embedding calls as failures of a job: evidence read once, where it came in.

use std::time::SystemTime;

use coolant_core::evidence::{self, Context, Evidence, Operation};
use coolant_core::failure::{Failure, FailureClass};

use crate::embed::{EmbedError, TransportFault};

/// What a failed call means for the job that made it.
#[must_use]
pub(crate) fn embedding_failure(error: &EmbedError, upstream: Option<&str>) -> Failure {
    let mut failure = match error {
        EmbedError::BlankInput { .. } => failure(FailureClass::InvalidRequest, &error.to_string()),
        EmbedError::InvalidOutput { .. } => failure(FailureClass::InvalidOutput, &error.to_string()),
        EmbedError::Transport { fault, .. } => {
            let class = match fault {
                TransportFault::Timeout { .. } => FailureClass::Timeout,
                TransportFault::UntrustedTls | TransportFault::Network => FailureClass::Network,
            };
            let mut failure = failure(class, &error.to_string());
            failure.final_ = matches!(fault, TransportFault::UntrustedTls);
            failure
        }
        EmbedError::Refused { evidence } => refused(evidence, upstream),
    };
    failure.upstream = upstream.map(str::to_owned);
    failure
}

fn refused(evidence: &Evidence, upstream: Option<&str>) -> Failure {
    let context = Context {
        provider: upstream.and_then(|name| name.split('/').next()).map(str::to_owned),
        operation: Some(Operation::Embeddings),
        now: Some(SystemTime::now()),
        ..Context::default()
    };
    // A refusal that reads as a success is an answer without vectors.
    evidence::read(evidence, &context)
        .failure(PREFIX)
        .unwrap_or_else(|| failure(FailureClass::InvalidOutput, "the answer holds no vectors"))
}

/// What the codes of failed embedding calls begin with.
const PREFIX: &str = "EMBEDDING";

fn failure(class: FailureClass, message: &str) -> Failure {
    Failure::new(class, format!("{PREFIX}_{}", class.code_suffix()), message)
}
