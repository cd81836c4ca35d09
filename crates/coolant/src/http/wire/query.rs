//! Query parameters and filters.

use coolant_core::job::JobId;
use coolant_core::names::InvalidName;
use coolant_core::store::JobFilter;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::named::{PhaseName, SearchModeName, StatusName};
use super::time::Time;
use crate::engine;
use crate::http::problem::{Code, Problem};

/// Which jobs, and which page of them.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobsQuery {
    status: Option<StatusName>,
    phase: Option<PhaseName>,
    job_type: Option<String>,
    queue: Option<String>,
    tenant: Option<String>,
    /// `name:value`.
    tag: Option<String>,
    /// Of the last error.
    error_code: Option<String>,
    idempotency_key: Option<String>,
    /// At or after.
    created_after: Option<Time>,
    /// Before.
    created_before: Option<Time>,
    /// 1 to 500; 50 if left out.
    #[param(minimum = 1, maximum = 500)]
    pub(crate) limit: Option<i64>,
    /// The `next_cursor` of the page before.
    pub(crate) cursor: Option<String>,
}

impl JobsQuery {
    pub(crate) fn filter(self) -> Result<JobFilter, Problem> {
        Ok(JobFilter {
            status: self.status.map(|name| name.0),
            phase: self.phase.map(|name| name.0),
            job_type: self.job_type,
            queue: self.queue,
            tenant: self.tenant,
            tag: self.tag.as_deref().map(tag).transpose()?,
            error_code: self.error_code,
            idempotency_key: self.idempotency_key,
            created_after: self.created_after.map(|at| at.0),
            created_before: self.created_before.map(|at| at.0),
        })
    }
}

/// Which dead-lettered jobs. Everything that is set has to hold.
#[derive(Debug, Default, Deserialize, IntoParams, ToSchema)]
#[schema(as = DlqFilter)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilterBody {
    job_type: Option<String>,
    queue: Option<String>,
    tenant: Option<String>,
    /// `name:value`.
    tag: Option<String>,
    /// Of the last error.
    error_code: Option<String>,
    idempotency_key: Option<String>,
    /// At or after.
    created_after: Option<Time>,
    /// Before.
    created_before: Option<Time>,
}

impl FilterBody {
    pub(crate) fn filter(self) -> Result<JobFilter, Problem> {
        let Self { job_type, queue, tenant, tag, error_code, idempotency_key, created_after, created_before } =
            self;
        JobsQuery {
            job_type,
            queue,
            tenant,
            tag,
            error_code,
            idempotency_key,
            created_after,
            created_before,
            ..JobsQuery::default()
        }
        .filter()
    }
}

fn tag(text: &str) -> Result<(String, String), Problem> {
    let pair = text.split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
    pair.ok_or_else(|| {
        Problem::new(Code::Engine(engine::Code::InvalidField), "`tag` takes `name:value`").of_field("tag")
    })
}

/// How long to wait for the end of a job.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitQuery {
    /// Seconds to hold the answer until the job has ended, 60 at most.
    #[param(minimum = 0, maximum = 60)]
    pub(crate) wait: Option<f64>,
}

/// Which page of a list by name.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamesQuery {
    /// 1 to 500; 50 if left out.
    #[param(minimum = 1, maximum = 500)]
    pub(crate) limit: Option<i64>,
    /// The `next_cursor` of the page before.
    pub(crate) cursor: Option<String>,
}

/// What to search for.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchParams {
    /// The question.
    pub(crate) q: String,
    /// Hits at most, 1 to 100; 10 if left out.
    #[param(minimum = 1, maximum = 100)]
    pub(crate) k: Option<i64>,
    /// In this document alone.
    pub(crate) document_id: Option<String>,
    pub(crate) tenant: Option<String>,
    /// `hybrid` if left out.
    pub(crate) mode: Option<SearchModeName>,
}

/// Which numbers.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatsQuery {
    pub(crate) queue: Option<String>,
    /// 1 to 2 678 400; 3600 if left out.
    pub(crate) window_seconds: Option<f64>,
}

/// How much of the audit trail.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    /// 1 to 500; 50 if left out.
    #[param(minimum = 1, maximum = 500)]
    pub(crate) limit: Option<i64>,
}

/// No parameters at all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoQuery {}

pub(crate) fn bad_cursor() -> Problem {
    Problem::new(Code::InvalidCursor, "`cursor` is no cursor of this list").of_field("cursor")
}

/// The cursor of the page after that job.
pub(crate) fn job_cursor(id: JobId) -> String {
    id.0.simple().to_string()
}

/// The job after which a page begins.
pub(crate) fn read_job_cursor(cursor: Option<&str>) -> Result<Option<JobId>, Problem> {
    let read = |text: &str| {
        Uuid::try_parse(text).ok().filter(|_| text.len() == 32).map(JobId).ok_or_else(bad_cursor)
    };
    cursor.map(read).transpose()
}

/// The cursor of the page after that name.
pub(crate) fn name_cursor(name: &str) -> String {
    use std::fmt::Write as _;
    name.bytes().fold(String::new(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The name after which a page begins.
pub(crate) fn read_name_cursor<T>(
    cursor: Option<&str>,
    parse: impl Fn(String) -> Result<T, InvalidName>,
) -> Result<Option<T>, Problem> {
    let read = |text: &str| {
        let digits: Option<Vec<u8>> =
            text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
        let digits = digits.filter(|digits| digits.len() % 2 == 0).ok_or_else(bad_cursor)?;
        let bytes = digits.chunks_exact(2).map(|pair| pair[0] * 16 + pair[1]).collect();
        let name = String::from_utf8(bytes).map_err(|_| bad_cursor())?;
        parse(name).map_err(|_| bad_cursor())
    };
    cursor.map(read).transpose()
}
