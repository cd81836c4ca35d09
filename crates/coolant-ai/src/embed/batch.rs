//! How much goes into one call.

use std::ops::Range;

/// What one call takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Texts a call, at least 1.
    pub items: usize,
    /// Estimated tokens a call, at least 1. A single text above it still makes a call of its own.
    pub tokens: u64,
}

impl BatchLimits {
    /// Texts a call unless configured. Below what most providers take: a call that dies is paid for and
    /// lost, and 64 chunks of 512 tokens are 32,768 tokens.
    pub const DEFAULT_ITEMS: usize = 64;
}

impl Default for BatchLimits {
    /// For a server nobody has described.
    fn default() -> Self {
        Self { items: Self::DEFAULT_ITEMS, tokens: 100_000 }
    }
}

/// The most that a provider takes in one call, as far as it has told the world.
///
/// Tokens are four fifths of the documented limit, as the estimate may run a fifth below the provider's
/// count. Models differ within a provider: a refused batch is split by the caller all the same.
#[must_use]
pub fn provider_limits(provider: &str) -> BatchLimits {
    let (items, documented_tokens) = match provider {
        "openai" | "azure" => (2048, 300_000),
        "cohere" => (96, 125_000),
        "gemini" => (100, 125_000),
        "vertex" => (250, 20_000),
        "mistral" => (2048, 16_384),
        "voyage" => (1000, 120_000),
        "jina" => (512, 125_000),
        "dashscope" => (10, 125_000),
        "tei" => (32, 125_000),
        _ => (2048, 125_000),
    };
    BatchLimits { items, tokens: documented_tokens / 5 * 4 }
}

/// Cuts inputs of `tokens` estimated tokens each into batches, in order and without gaps.
///
/// Each batch takes as much as the limits allow; an input above the token limit is alone in its batch.
/// The same inputs give the same batches, so a resumed job finds its steps again.
#[must_use]
pub fn batches(tokens: &[u32], limits: BatchLimits) -> Vec<Range<usize>> {
    let mut batches = Vec::new();
    let (mut start, mut sum) = (0, 0);
    for (index, &count) in tokens.iter().enumerate() {
        let count = u64::from(count);
        let full = index - start >= limits.items.max(1) || sum + count > limits.tokens;
        if full && index > start {
            batches.push(start..index);
            (start, sum) = (index, 0);
        }
        sum += count;
    }
    if start < tokens.len() {
        batches.push(start..tokens.len());
    }
    batches
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_batch_ends_at_either_limit() {
        let limits = BatchLimits { items: 3, tokens: 100 };
        assert_eq!(batches(&[10, 10, 10, 10], limits), [0..3, 3..4]);
        assert_eq!(batches(&[60, 40, 1], limits), [0..2, 2..3]);
        assert_eq!(batches(&[10, 500, 10, 20], limits), [0..1, 1..2, 2..4]);
        assert!(batches(&[], limits).is_empty());
    }

    proptest! {
        #[test]
        fn batches_cover_the_inputs_within_the_limits(
            tokens in prop::collection::vec(0_u32..300, 0..200),
            items in 0_usize..20,
            limit in 0_u64..1000,
        ) {
            let mut end = 0;
            for batch in batches(&tokens, BatchLimits { items, tokens: limit }) {
                prop_assert_eq!(batch.start, end);
                prop_assert!(!batch.is_empty() && batch.len() <= items.max(1));
                let sum: u64 = tokens[batch.clone()].iter().map(|&count| u64::from(count)).sum();
                prop_assert!(sum <= limit || batch.len() == 1);
                end = batch.end;
            }
            prop_assert_eq!(end, tokens.len());
        }
    }
}
