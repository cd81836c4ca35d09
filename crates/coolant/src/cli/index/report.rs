//! What an indexing came to.

use coolant_core::money::Money;
use serde::Serialize;
use serde_json::Value;

use super::super::out::{Output, counted};
use crate::app::App;

/// Chunks of one document.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Indexed {
    pub(super) embedded: u64,
    pub(super) reused: u64,
}

/// The totals, as `--json` writes them.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    documents: Documents,
    chunks: Chunks,
    /// Calls that cost money, in this run.
    paid_calls: i64,
    cost_usd: f64,
    #[serde(skip)]
    cost_nanos: i64,
}

#[derive(Debug, Default, Serialize)]
struct Documents {
    /// Indexed now, for the first time.
    new: u64,
    /// Indexed now, after a change or a failure before.
    updated: u64,
    /// In the index already.
    unchanged: u64,
    failed: Vec<Failed>,
}

#[derive(Debug, Default, Serialize)]
struct Chunks {
    embedded: u64,
    reused: u64,
}

#[derive(Debug, Serialize)]
struct Failed {
    document_id: String,
    error_code: String,
    reason: String,
}

impl Report {
    pub(super) fn unchanged(&mut self) {
        self.documents.unchanged += 1;
    }

    pub(super) fn indexed(&mut self, is_new: bool, result: Option<&Value>) -> Indexed {
        let number = |name: &str| result.and_then(|result| result.get(name)).and_then(Value::as_u64);
        let indexed = Indexed {
            embedded: number("embedded").unwrap_or_default(),
            reused: number("reused").unwrap_or_default(),
        };
        if is_new {
            self.documents.new += 1;
        } else {
            self.documents.updated += 1;
        }
        self.chunks.embedded += indexed.embedded;
        self.chunks.reused += indexed.reused;
        indexed
    }

    pub(super) fn failed(&mut self, name: String, code: &str, reason: String) {
        self.documents.failed.push(Failed { document_id: name, error_code: code.into(), reason });
    }

    pub(super) fn paid(&mut self, calls: i64, cost_nanos: i64) {
        self.paid_calls += calls;
        self.cost_nanos += cost_nanos;
        self.cost_usd = Money::from_nanos(self.cost_nanos).as_usd();
    }

    pub(super) fn has_failures(&self) -> bool {
        !self.documents.failed.is_empty()
    }

    pub(super) fn write(&self, app: &App, output: &Output) {
        if output.is_json() {
            return output.json(self);
        }
        let Documents { new, updated, unchanged, failed } = &self.documents;
        // The totals come last: that is where somebody looks after a long list.
        for Failed { document_id, error_code, reason } in failed {
            output.entry(&format!("failed {document_id}:"), &format!("{error_code}: {reason}"));
        }
        output.sentence(&format!(
            "documents: {new} new, {updated} updated, {unchanged} unchanged, {} failed",
            failed.len()
        ));
        let Chunks { embedded, reused } = &self.chunks;
        output.sentence(&format!("chunks: {embedded} embedded, {reused} reused"));
        let by = app.embedder_name();
        output.sentence(&if app.pays_for_embeddings() {
            let cost = if self.cost_nanos > 0 { format!(", {} USD", self.cost_usd) } else { String::new() };
            format!("paid: {}{cost} ({by})", counted(self.paid_calls.unsigned_abs(), "call"))
        } else {
            format!("paid: nothing ({by} runs here, and knows spelling, not meaning)")
        });
    }
}
