//! Bills: what a call of the embedder is booked as, also one that failed after it may have been paid.

use std::time::SystemTime;

use coolant_core::failure::Failure;
use coolant_core::handler::{Charge, OpenCall};
use coolant_core::money::{Money, Usage};
use coolant_core::time::Timestamp;

use crate::chunk::estimate_tokens;
use crate::embed::{self, EmbedError, Phase, TransportFault};
use crate::failure::embedding_failure;
use crate::pipeline::Pipeline;

impl Pipeline {
    /// A paid call; `None` where calls cost nothing.
    pub(crate) fn bill(&self, used: &embed::Usage, model: Option<String>) -> Option<Usage> {
        let upstream = self.upstream()?;
        let id = self.embedder.id();
        let mut usage = Usage {
            upstream: Some(upstream.to_owned()),
            provider: Some(id.provider.clone()),
            asked_model: Some(id.model.clone()),
            model,
            ..Usage::default()
        };
        if let Some(reported) = &used.reported {
            usage.take_report(reported.clone());
        }
        usage.input_tokens = i64::try_from(used.input_tokens).unwrap_or(i64::MAX);
        usage.estimated = used.estimated;
        self.prices.price(&mut usage, today());
        Some(usage)
    }

    /// What the end of a call means that gave nothing, once its upstream and the ledger know of it.
    pub(crate) async fn failed(
        &self,
        call: Option<OpenCall>,
        error: &EmbedError,
        inputs: &[String],
    ) -> Failure {
        let failure = embedding_failure(error, self.upstream());
        match call {
            Some(call) => call.failed(failure, self.charge(error, inputs)).await,
            None => failure,
        }
    }

    /// What a call that gave nothing costs all the same: its answer was of no use, or the connection broke after
    /// the provider had it. What a cut call cost nobody says, so its tokens are an estimate.
    fn charge(&self, error: &EmbedError, inputs: &[String]) -> Charge {
        let cut = embed::Usage { input_tokens: estimate(inputs), estimated: true, reported: None };
        let used = match error {
            EmbedError::InvalidOutput { usage, .. } => usage,
            EmbedError::Transport { fault: TransportFault::UntrustedTls, .. }
            | EmbedError::Transport { phase: Phase::NotSent, .. }
            | EmbedError::BlankInput { .. } => return Charge::NotSent,
            EmbedError::Transport { .. } => &cut,
            EmbedError::Refused { .. } => return Charge::Unknown,
        };
        self.bill(used, None).map_or(Charge::Unknown, Charge::used)
    }

    /// What embedding so many tokens would cost, at the price of today; `None` if nobody knows.
    pub(crate) fn worth(&self, tokens: u64) -> Option<Money> {
        let tokens = i64::try_from(tokens).unwrap_or(i64::MAX);
        self.prices.estimate(self.upstream()?, tokens, 0, today())
    }
}

fn estimate(inputs: &[String]) -> u64 {
    inputs.iter().map(|input| u64::from(estimate_tokens(input))).fold(0, u64::saturating_add)
}

/// The day whose prices hold; to the day, the machine's clock is good enough.
fn today() -> Timestamp {
    SystemTime::now().into()
}
