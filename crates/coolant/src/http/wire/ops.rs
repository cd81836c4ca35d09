//! Health, numbers, audit.

use coolant_core::money::Money;
use coolant_core::store::{AuditEntry, Saved, Stats};
use serde::Serialize;
use utoipa::ToSchema;

use super::time::Time;

/// Whether the process lives or is ready.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`.
    pub(crate) status: &'static str,
}

/// The metrics.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Stats)]
pub(crate) struct StatsView {
    /// Pending jobs.
    queue_depth: i64,
    /// Seconds from first start to end; null if no job ended within the window.
    job_duration_p95: Option<f64>,
    /// 0 to 1.
    job_failure_rate: f64,
    retry_count: i64,
    dlq_message_count: i64,
    duplicate_request_count: i64,
    /// Submits refused for their key's other parameters.
    conflict_count: i64,
    paid_calls: i64,
    spent_usd: f64,
    /// What was not paid again, as `saved_by` has it, without the estimate.
    saved_usd: f64,
    saved_by: SavedView,
    blocked_calls: i64,
    wasted_usd: f64,
}

impl From<Stats> for StatsView {
    fn from(stats: Stats) -> Self {
        Self {
            queue_depth: stats.queue_depth,
            job_duration_p95: stats.job_duration_p95.map(|duration| duration.as_secs_f64()),
            job_failure_rate: stats.job_failure_rate,
            retry_count: stats.retry_count,
            dlq_message_count: stats.dlq_message_count,
            duplicate_request_count: stats.duplicate_request_count,
            conflict_count: stats.conflict_count,
            paid_calls: stats.paid_calls,
            spent_usd: Money::as_usd(stats.spent),
            saved_usd: stats.saved.total().as_usd(),
            saved_by: stats.saved.into(),
            blocked_calls: stats.blocked_calls,
            wasted_usd: stats.wasted.as_usd(),
        }
    }
}

/// Money that was not spent, by what saved it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Saved)]
pub(crate) struct SavedView {
    /// Submits that found their work done.
    keys_usd: f64,
    /// Steps that later attempts got back.
    steps_usd: f64,
    /// Content that had been embedded before.
    content_usd: f64,
    /// An estimate: starts that a cooldown refused, had each cost as much as the attempts before.
    cooldowns_usd: f64,
}

impl From<Saved> for SavedView {
    fn from(saved: Saved) -> Self {
        Self {
            keys_usd: saved.by_keys.as_usd(),
            steps_usd: saved.by_steps.as_usd(),
            content_usd: saved.by_content.as_usd(),
            cooldowns_usd: saved.by_cooldowns.as_usd(),
        }
    }
}

/// Who did something out of the ordinary.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct AuditView {
    at: Time,
    actor: String,
    action: String,
    target: String,
    reason: String,
}

impl From<AuditEntry> for AuditView {
    fn from(AuditEntry { at, actor, action, target, reason }: AuditEntry) -> Self {
        Self { at: Time(at), actor, action, target, reason }
    }
}
