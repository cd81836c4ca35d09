//! Candidates: jobs that a claim may give out, in the order of their tenant's jobs, and how their rows are locked.

use std::collections::{BTreeMap, VecDeque};

use coolant_core::gate::Gate;
use coolant_core::job::JobId;
use coolant_core::names::Tenant;
use coolant_core::store::StoreResult;
use coolant_core::time::Timestamp;
use coolant_core::turns::rank;

use crate::conn::{Columns, Conn, Kind, Row, Value};
use crate::sql::codec::{broken, job_id, name};
use crate::sql::delayed::Come;
use crate::sql::waiting::{IN_LINE, LINE, Line};

/// A job whose instant has come, in the order of its tenant's jobs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    rank: i64,
    pub(crate) id: JobId,
    /// The instant since when its tenant waits for it, or for one of the same kind.
    pub(crate) since: Timestamp,
    pub(crate) tenant: Tenant,
    pub(crate) lock_key: Option<String>,
    pub(crate) gate: Gate,
    pub(crate) standing: Standing,
}

/// Where a candidate was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// It waits in its line.
    Waiting,
    /// It was put in for later.
    Delayed,
    /// Its lease ran out; its row is not locked yet.
    Lost,
}

/// Candidates by tenant, each tenant's in their order.
pub(crate) type ByTenant = BTreeMap<Tenant, VecDeque<Candidate>>;

pub(crate) fn by_tenant(candidates: impl IntoIterator<Item = Candidate>) -> ByTenant {
    let mut of_tenants = ByTenant::new();
    for candidate in candidates {
        of_tenants.entry(candidate.tenant.clone()).or_default().push_back(candidate);
    }
    of_tenants.values_mut().for_each(|of_one| of_one.make_contiguous().sort_unstable());
    of_tenants
}

impl Candidate {
    /// A delayed job of a line, before its row was read.
    pub(crate) fn delayed(line: &Line, Come { id, tenant, due_at }: Come) -> StoreResult<Self> {
        let rank = rank(due_at, i8::try_from(line.priority).map_err(broken)?);
        let (gate, standing) = (line.gate.clone(), Standing::Delayed);
        Ok(Self { rank, id, since: due_at, tenant, lock_key: None, gate, standing })
    }
}

/// No other job holds the lock key of job `j` at the instant `$1`.
pub(crate) const NOT_HELD: &str = "(j.lock_key IS NULL OR NOT EXISTS (SELECT 1 FROM jobs h WHERE h.tenant = j.tenant \
                        AND h.lock_key = j.lock_key AND h.lock_until > $1 AND h.id <> j.id))";

const WANTED: Columns<'_> =
    &[LINE[0], LINE[1], LINE[2], LINE[3], ("tenant", Kind::Text), ("floor", Kind::Int), ("want", Kind::Int)];

/// Pending jobs of a tenant in a line whose instant has come, the first ones, their rows locked.
pub(crate) async fn pending(
    conn: &mut Conn,
    rows: Vec<Vec<Value>>,
    now: Timestamp,
) -> StoreResult<Vec<Candidate>> {
    let text = format!(
        "SELECT j.id, j.due_at, j.priority, j.tenant, j.lock_key, j.gate, r.floor FROM jobs j WHERE {IN_LINE} \
         AND j.tenant {{bytewise}} = r.tenant AND j.due_at >= r.floor AND j.due_at <= $1 AND {NOT_HELD} \
         ORDER BY j.due_at, j.id LIMIT r.want {{skip}}"
    );
    candidates(conn.query_for_each(&text, &[now.as_millis().into()], WANTED, rows).await?, Standing::Waiting)
}

/// Those of these delayed jobs that may start and that nobody else has in hand, their rows locked.
pub(crate) async fn delayed(
    conn: &mut Conn,
    rows: Vec<Vec<Value>>,
    now: Timestamp,
) -> StoreResult<Vec<Candidate>> {
    let text = format!(
        "SELECT j.id, j.due_at, j.priority, j.tenant, j.lock_key, j.gate, r.since FROM jobs j WHERE j.id = r.id \
         AND j.status = 'PENDING' AND j.due_at <= $1 AND {NOT_HELD} {{skip}}"
    );
    let columns: Columns<'_> = &[("id", Kind::Text), ("since", Kind::Int)];
    candidates(conn.query_for_each(&text, &[now.as_millis().into()], columns, rows).await?, Standing::Delayed)
}

pub(crate) fn candidates(rows: Vec<Row>, standing: Standing) -> StoreResult<Vec<Candidate>> {
    rows.into_iter()
        .map(|mut row| {
            let id = job_id(&row.text()?)?;
            let instant = Timestamp::from_millis(row.int()?);
            let priority = i8::try_from(row.int()?).map_err(broken)?;
            Ok(Candidate {
                rank: rank(instant, priority),
                id,
                tenant: name(Tenant::parse(row.text()?))?,
                lock_key: row.maybe_text()?,
                gate: Gate::from_stored(row.text()?),
                since: Timestamp::from_millis(row.int()?),
                standing,
            })
        })
        .collect()
}
