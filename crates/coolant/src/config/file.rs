//! The configuration file, as it is written. A key that is not here is an error.

use std::collections::BTreeMap;
use std::path::PathBuf;

use coolant_core::prices::PriceText;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) store: Option<String>,
    pub(super) listen: Option<String>,
    pub(super) log: Option<String>,
    pub(super) concurrency: Option<usize>,
    pub(super) drain_seconds: Option<u64>,
    pub(super) locks: Option<String>,
    pub(super) locks_prefix: Option<String>,
    pub(super) embedding: Embedding,
    pub(super) parser: Parser,
    pub(super) retention: Kept,
    /// By `provider/model`, in dollars per million tokens.
    pub(super) prices: BTreeMap<String, PriceText>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Embedding {
    pub(super) base_url: Option<String>,
    pub(super) api_key: Option<String>,
    pub(super) model: Option<String>,
    pub(super) dimensions: Option<u32>,
    pub(super) batch_items: Option<usize>,
}

impl std::fmt::Debug for Embedding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key stays out of every log.
        f.debug_struct("Embedding").field("model", &self.model).finish_non_exhaustive()
    }
}

/// How long what is over is kept: days, or `"forever"`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Kept {
    pub(super) finished_days: Option<Days>,
    pub(super) dead_letter_days: Option<Days>,
    pub(super) ledger_days: Option<Days>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Days {
    Number(u32),
    Text(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Parser {
    pub(super) seconds: Option<u64>,
    pub(super) memory_mib: Option<u64>,
    /// A program that turns PDFs into text, asked where the built-in reader finds little.
    pub(super) pdftotext: Option<PathBuf>,
}
