//! The calls that only look.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Row, State};
use crate::job::{Job, JobId, JobRecord, JobSpec, JobState, Outcome, Status, Step};
use crate::lifecycle::{Event, bars};
use crate::money::Money;
use crate::names::{Queue, Tenant};
use crate::store::{Counter, DlqGroup, JobFilter, Page, Saved, Stats};
use crate::time::Timestamp;
use crate::turns::{jobs_ahead, rank_of};
use crate::upstream::Blockage;
use crate::view::{Phase, without_particulars};

/// Groups of the dead-letter queue that are given at most.
const MAX_GROUPS: usize = 500;

impl State {
    /// The upstreams and the tenant that let a job not start, what has done so for the longest first of each.
    pub(super) fn blockages(&self, job: &Job, now: Timestamp) -> Vec<Blockage> {
        let JobSpec { upstreams, tenant, .. } = &*job.spec;
        if upstreams.is_empty() {
            return Vec::new();
        }
        let desk = &self.upstreams.desk;
        let closed = desk.blocked_upstreams(now);
        let closed =
            closed.into_iter().filter(|(name, _)| upstreams.contains(name)).map(|(_, blockage)| blockage);
        let spent = desk.blocked_tenants(now).remove(tenant);
        closed.min_by_key(|blockage| blockage.since).into_iter().chain(spent).collect()
    }

    fn is_blocked(&self, job: &Job, now: Timestamp) -> bool {
        let is_due = job.status() == Status::Pending && job.visible_at().is_some_and(|at| at <= now);
        let claim = Event::Claim { worker: String::new(), lease: None };
        let held = || self.rows.values().any(|other| bars(other.job(), job, &claim, now).is_some());
        is_due && (!self.blockages(job, now).is_empty() || held())
    }

    pub(super) fn blocked(&self, ids: &[JobId], now: Timestamp) -> BTreeSet<JobId> {
        let known = ids.iter().filter_map(|id| self.rows.get(id)).map(Row::job);
        known.filter(|job| self.is_blocked(job, now)).map(|job| job.id).collect()
    }

    pub(super) fn list(&self, filter: &JobFilter, page: Page, now: Timestamp) -> Vec<JobRecord> {
        let older = |id: &JobId| page.before.is_none_or(|before| *id < before);
        let newest_first = self.rows.iter().rev().filter(|(id, _)| older(id)).map(|(_, row)| row);
        newest_first
            .filter(|row| self.matches(filter, row.job(), now))
            .take(page.limit as usize)
            .map(|row| row.record.clone())
            .collect()
    }

    pub(super) fn steps(&self, job_id: JobId) -> Vec<Step> {
        let Some(row) = self.rows.get(&job_id) else { return Vec::new() };
        let mut steps: Vec<_> =
            row.steps.values().map(|step| Step { output: None, ..step.clone() }).collect();
        steps.sort_by(|a, b| (a.finished_at, &a.name).cmp(&(b.finished_at, &b.name)));
        steps
    }

    pub(super) fn ahead_of(&self, job: &Job, now: Timestamp) -> i64 {
        let place = |job: &Job| match job.state {
            JobState::Pending { .. } => rank_of(job).map(|rank| (rank, job.id)),
            _ => None,
        };
        let Some(own) = place(job) else { return 0 };
        let is_due = |other: &&Job| other.visible_at().is_some_and(|at| at <= now);
        let mut of_others: BTreeMap<&Tenant, i64> = BTreeMap::new();
        let mut own_ahead = 0;
        for other in self.rows.values().map(Row::job).filter(is_due) {
            let Some(theirs) = place(other).filter(|_| other.spec.queue == job.spec.queue) else { continue };
            if other.spec.tenant != job.spec.tenant {
                *of_others.entry(&other.spec.tenant).or_default() += 1;
            } else if theirs < own {
                own_ahead += 1;
            }
        }
        jobs_ahead(own_ahead, of_others.into_values())
    }

    pub(super) fn stats(&self, queue: Option<&Queue>, window: Duration, now: Timestamp) -> Stats {
        let within = |at: Timestamp| now.since(at) <= window;
        let of_queue = |row: &&Row| queue.is_none_or(|queue| row.job().spec.queue == *queue);
        let counted = |counter| self.counted(counter, queue, window, now);
        let mut stats = Stats {
            duplicate_request_count: counted(Counter::Duplicates),
            conflict_count: counted(Counter::Conflicts),
            blocked_calls: counted(Counter::BlockedStarts),
            saved: Saved {
                by_keys: Money::from_nanos(counted(Counter::SavedByKeys)),
                by_steps: Money::from_nanos(counted(Counter::SavedBySteps)),
                by_content: Money::from_nanos(counted(Counter::SavedByContent)),
                by_cooldowns: Money::from_nanos(counted(Counter::SavedByCooldowns)),
            },
            ..Stats::default()
        };
        let (mut ended, mut failed, mut durations) = (0_u32, 0_u32, Vec::new());
        for row in self.rows.values().filter(of_queue) {
            let job = row.job();
            stats.queue_depth += i64::from(job.status() == Status::Pending);
            stats.dlq_message_count += i64::from(Phase::of(job, now) == Phase::DeadLettered);
            let came_to_nothing = |number: i64| {
                let outcome = row.attempts.get(&number).and_then(|attempt| attempt.outcome);
                matches!(outcome, Some(Outcome::Failed | Outcome::Lost))
            };
            let again =
                row.attempts.values().filter(|a| within(a.started_at) && came_to_nothing(a.number - 1));
            let retries = again.count();
            stats.retry_count += i64::try_from(retries).unwrap_or(i64::MAX);
            for entry in row.ledger.iter().filter(|entry| within(entry.at)) {
                stats.paid_calls += 1;
                stats.spent = stats.spent.plus(entry.usage.cost.unwrap_or_default());
            }
            for attempt in row.attempts.values().filter(|attempt| attempt.ended_at.is_some_and(within)) {
                stats.wasted = stats.wasted.plus(attempt.usage.wasted);
            }
            let Some(end) = job.finished_at.filter(|at| within(*at)) else { continue };
            ended += 1;
            failed += u32::from(job.status() == Status::Failed);
            durations.extend(job.started_at.map(|start| end.since(start)));
        }
        let of_queue = |of: &Queue| queue.is_none_or(|queue| of == queue);
        for (.., entry) in self.loose.iter().filter(|(_, of, entry)| of_queue(of) && within(entry.at)) {
            stats.paid_calls += 1;
            let cost = entry.usage.cost.unwrap_or_default();
            stats.spent = stats.spent.plus(cost);
            stats.wasted = stats.wasted.plus(if entry.wasted { cost } else { Money::default() });
        }
        if ended > 0 {
            stats.job_failure_rate = f64::from(failed) / f64::from(ended);
        }
        stats.job_duration_p95 = nearest_rank_95(durations);
        stats
    }

    fn counted(&self, counter: Counter, queue: Option<&Queue>, window: Duration, now: Timestamp) -> i64 {
        let first = now.as_millis().saturating_sub(crate::time::millis_up(window)).div_euclid(60_000);
        let counts = self.counters.iter().filter(|((minute, name, of), _)| {
            *minute >= first && *name == counter && queue.is_none_or(|queue| of == queue)
        });
        counts.map(|(_, count)| count).sum()
    }

    pub(super) fn dlq_groups(&self, filter: &JobFilter, now: Timestamp) -> Vec<DlqGroup> {
        let mut groups: BTreeMap<(String, String, String), DlqGroup> = BTreeMap::new();
        let dead = |job: &&Job| Phase::of(job, now) == Phase::DeadLettered && self.matches(filter, job, now);
        for job in self.rows.values().map(Row::job).filter(dead) {
            let (Some(error), Some(at)) = (&job.last_error, job.finished_at) else { continue };
            let message = without_particulars(&error.message);
            let job_type = job.spec.job_type.to_string();
            let group =
                groups.entry((job_type.clone(), error.code.clone(), message.clone())).or_insert(DlqGroup {
                    job_type,
                    error_code: error.code.clone(),
                    message,
                    count: 0,
                    first_at: at,
                    last_at: at,
                    sample: job.id,
                    cost: Money::default(),
                });
            group.count += 1;
            group.first_at = group.first_at.min(at);
            group.last_at = group.last_at.max(at);
            group.cost = group.cost.plus(job.usage.cost);
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by_key(|group| Reverse(group.count));
        groups.truncate(MAX_GROUPS);
        groups
    }

    /// Whether everything holds that the filter sets.
    fn matches(&self, filter: &JobFilter, job: &Job, now: Timestamp) -> bool {
        let spec = &job.spec;
        let is = |wanted: &Option<String>, text: &str| wanted.as_ref().is_none_or(|wanted| wanted == text);
        let code = job.last_error.as_ref().map_or("", |failure| &failure.code);
        let key = spec.idempotency_key.as_ref().map_or("", |key| key.as_str());
        filter.status.is_none_or(|status| job.status() == status)
            && filter.phase.is_none_or(|phase| Phase::given(job, self.is_blocked(job, now), now) == phase)
            && is(&filter.job_type, spec.job_type.as_str())
            && is(&filter.queue, spec.queue.as_str())
            && is(&filter.tenant, spec.tenant.as_str())
            && filter.tag.as_ref().is_none_or(|(name, value)| spec.tags.get(name) == Some(value))
            && is(&filter.error_code, code)
            && is(&filter.idempotency_key, key)
            && filter.created_after.is_none_or(|at| job.created_at >= at)
            && filter.created_before.is_none_or(|at| job.created_at < at)
    }
}

/// The value that 95 of 100 do not exceed, by nearest rank.
fn nearest_rank_95(mut durations: Vec<Duration>) -> Option<Duration> {
    durations.sort_unstable();
    let rank = (durations.len() * 95).div_ceil(100);
    rank.checked_sub(1).and_then(|index| durations.get(index)).copied()
}
