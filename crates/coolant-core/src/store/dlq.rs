//! The dead-letter queue: what failed alike, and jobs that are put back at a pace.

use serde::{Deserialize, Serialize};

use super::JobFilter;
use crate::job::JobId;
use crate::money::Money;
use crate::time::Timestamp;

/// Dead-lettered jobs that failed alike.
#[derive(Debug, Clone, PartialEq)]
pub struct DlqGroup {
    /// Of this type.
    pub job_type: String,
    /// With this code.
    pub error_code: String,
    /// With this message, its numbers and ids taken out.
    pub message: String,
    /// How many.
    pub count: i64,
    /// The first of them.
    pub first_at: Timestamp,
    /// The last of them.
    pub last_at: Timestamp,
    /// One of them.
    pub sample: JobId,
    /// What they cost so far.
    pub cost: Money,
}

/// A paced redrive, as the store keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Redrive {
    /// Its name.
    pub id: JobId,
    /// Which jobs.
    pub filter: JobFilter,
    /// This many at most.
    pub limit: u32,
    /// At this rate, jobs a second.
    pub per_second: f64,
    /// Past cooldowns and permanent failures.
    pub force: bool,
    /// Why, as the operator said.
    pub reason: String,
    /// Who.
    pub actor: String,
    /// Where it stands.
    pub state: RedriveState,
    /// Jobs that matched at the start.
    pub matched: u32,
    /// Jobs still to be looked at, the next one first.
    pub left: Vec<JobId>,
    /// Jobs put back.
    pub redriven: u32,
    /// Jobs left alone, and why.
    pub skipped: Vec<Skipped>,
    /// When it began.
    pub created_at: Timestamp,
    /// Grows with every save.
    pub version: i64,
}

/// A job that a redrive left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Which.
    pub job_id: JobId,
    /// Why.
    pub reason: String,
}

/// Where a redrive stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RedriveState {
    /// Some are left.
    Running,
    /// None is left.
    Done,
    /// Somebody stopped it.
    Stopped,
}
