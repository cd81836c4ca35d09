//! What keeps jobs from starting although their instant has come: upstreams that are closed or out of money,
//! tenants that are, lock keys that others hold. For people who ask, and for the sweep, which gives up jobs that
//! have waited too long for money or an upstream.
//!
//! Nothing is written to a job when something closes: what is closed is read first, and the jobs behind it are
//! found from there.

use std::collections::{BTreeMap, BTreeSet};

use coolant_core::gate::Gate;
use coolant_core::job::JobId;
use coolant_core::lifecycle::on;
use coolant_core::names::{Tenant, Upstream};
use coolant_core::store::StoreResult;
use coolant_core::time::Timestamp;
use coolant_core::upstream::Blockage;

use crate::conn::{Columns, Conn, Kind, Value};
use crate::sql::candidates::NOT_HELD;
use crate::sql::codec::{broken, job_id};
use crate::sql::effects::Effects;
use crate::sql::jobs;
use crate::sql::upstreams::that_need_care;

/// What lets no job start.
#[derive(Default)]
pub(crate) struct Closed {
    /// Gates behind which some upstream does not, each with what has done so for the longest.
    gates: Vec<(Gate, Blockage)>,
    /// Tenants whose jobs may make no paid call.
    tenants: Vec<(Tenant, Blockage)>,
}

impl Closed {
    pub(crate) async fn read(conn: &mut Conn, now: Timestamp) -> StoreResult<Self> {
        let desk = that_need_care(conn).await?;
        let upstreams = desk.blocked_upstreams(now);
        let gates = if upstreams.is_empty() { Vec::new() } else { gates(conn).await? };
        let gates = gates.into_iter().filter_map(|gate| {
            let names = gate.upstreams().filter_map(|name| Upstream::parse(name).ok());
            let closed = names.filter_map(|name| upstreams.get(&name));
            let longest = closed.min_by_key(|blockage| blockage.since)?.clone();
            Some((gate, longest))
        });
        let tenants = desk.blocked_tenants(now).into_iter();
        let tenants = tenants.map(|(tenant, blockage)| (tenant.clone(), blockage));
        Ok(Self { gates: gates.collect(), tenants: tenants.collect() })
    }

    /// That a pending job `j` is due and cannot start, as a condition; its parameters are added to those there are.
    pub(crate) fn condition(&self, now: Timestamp, params: &mut Vec<Value>) -> String {
        let mut add = |value: Value| {
            params.push(value);
            format!("${}", params.len())
        };
        let now = add(now.as_millis().into());
        let mut ways = vec![format!("NOT {}", NOT_HELD.replace("$1", &now))];
        if !self.gates.is_empty() {
            let gates: Vec<_> = self.gates.iter().map(|(gate, _)| add(gate.as_str().into())).collect();
            ways.push(format!("j.gate IN ({})", gates.join(", ")));
        }
        if !self.tenants.is_empty() {
            let tenants: Vec<_> =
                self.tenants.iter().map(|(tenant, _)| add(tenant.as_str().into())).collect();
            ways.push(format!("(j.gate <> '' AND j.tenant IN ({}))", tenants.join(", ")));
        }
        format!("(j.due_at <= {now} AND ({}))", ways.join(" OR "))
    }
}

/// The gates that jobs ever stood behind.
async fn gates(conn: &mut Conn) -> StoreResult<Vec<Gate>> {
    let rows = conn.query("SELECT DISTINCT gate FROM lines WHERE gate <> '' ORDER BY gate", &[]).await?;
    rows.into_iter().map(|mut row| Ok(Gate::from_stored(row.text()?))).collect()
}

/// Those of these jobs that are due and cannot start.
pub(crate) async fn of(conn: &mut Conn, ids: &[JobId], now: Timestamp) -> StoreResult<BTreeSet<JobId>> {
    let mut params = Vec::new();
    let blocked = Closed::read(conn, now).await?.condition(now, &mut params);
    let text = format!(
        "SELECT j.id FROM {{rows}} JOIN jobs j ON j.id = r.id WHERE j.status = 'PENDING' AND {blocked}"
    );
    let rows = ids.iter().map(|id| vec![id.to_string().into()]).collect();
    let rows = conn.query_rows(&text, &params, &[("id", Kind::Text)], rows).await?;
    rows.into_iter().map(|mut row| job_id(&row.text()?)).collect()
}

/// Gives up jobs that have waited too long for what is closed: this many at most. Gives how many that were.
pub(crate) async fn sweep(conn: &mut Conn, limit: u32, now: Timestamp) -> StoreResult<u32> {
    let Closed { gates, tenants } = Closed::read(conn, now).await?;
    let by_gate = gates.iter().map(|(gate, blockage)| (gate.as_str(), blockage)).collect();
    let by_tenant = tenants.iter().map(|(tenant, blockage)| (tenant.as_str(), blockage)).collect();
    let mut found: BTreeMap<JobId, Vec<&Blockage>> = BTreeMap::new();
    for (column, closed) in [("gate", by_gate), ("tenant", by_tenant)] {
        let waiting = Waiting { column, closed };
        for (id, blockage) in waiting.too_long(conn, limit, now).await? {
            if found.len() < limit as usize || found.contains_key(&id) {
                found.entry(id).or_default().push(blockage);
            }
        }
    }
    let mut effects = Effects::default();
    let mut ended = 0;
    for (id, job) in jobs::load_locked(conn, &found.keys().copied().collect()).await? {
        for event in found[&id].iter().map(|blockage| blockage.event()) {
            if let Ok(transition) = on(&job, &event, now)
                && transition.job.version != job.version
            {
                effects.add(&job, &event, &transition, now)?;
                ended += 1;
                break;
            }
        }
    }
    effects.save(conn).await?;
    Ok(ended)
}

/// Jobs that wait behind closed gates, or for money of their tenants.
struct Waiting<'a> {
    /// By which column they are found.
    column: &'static str,
    closed: Vec<(&'a str, &'a Blockage)>,
}

const CLOSED: Columns<'_> = &[("place", Kind::Int), ("name", Kind::Text), ("passed", Kind::Int)];
const PATIENCE: Columns<'_> =
    &[("place", Kind::Int), ("name", Kind::Text), ("wait", Kind::Int), ("before", Kind::Int)];

impl<'a> Waiting<'a> {
    /// Those that have waited for their `max_wait`, the first `limit` of each; their rows are locked.
    ///
    /// Jobs of one longest wait stand together in the index, in the order of their instants. So those that have
    /// waited too long come first among them, and the others are not read.
    async fn too_long(
        &self,
        conn: &mut Conn,
        limit: u32,
        now: Timestamp,
    ) -> StoreResult<Vec<(JobId, &'a Blockage)>> {
        let closed = &self.closed;
        let rows = self.patience(conn, now).await?.into_iter().map(|(place, wait)| {
            let before = now.as_millis().saturating_sub(wait);
            vec![(place as i64).into(), closed[place].0.into(), wait.into(), before.into()]
        });
        let limit = [i64::from(limit).into()];
        let rows = conn.query_for_each(&self.overdue(), &limit, PATIENCE, rows.collect()).await?;
        rows.into_iter()
            .map(|mut row| {
                let place = usize::try_from(row.int()?).map_err(broken)?;
                Ok((job_id(&row.text()?)?, closed[place].1))
            })
            .collect()
    }

    /// The longest waits that jobs have, where something has been closed for that long: by one step down the
    /// index each.
    async fn patience(&self, conn: &mut Conn, now: Timestamp) -> StoreResult<Vec<(usize, i64)>> {
        let rows = self.closed.iter().enumerate().map(|(place, (name, blockage))| {
            let passed = now.as_millis().saturating_sub(blockage.since.as_millis());
            vec![(place as i64).into(), (*name).into(), passed.into()]
        });
        let rows = conn.query_for_each(&self.waits(), &[], CLOSED, rows.collect()).await?;
        rows.into_iter()
            .map(|mut row| Ok((usize::try_from(row.int()?).map_err(broken)?, row.int()?)))
            .collect()
    }

    /// The first jobs of a longest wait that are due for so long.
    fn overdue(&self) -> String {
        format!(
            "SELECT r.place, j.id FROM jobs j WHERE {} AND j.max_wait_ms = r.wait AND j.due_at <= r.before \
             ORDER BY j.due_at LIMIT $1 {{skip}}",
            self.is_here()
        )
    }

    /// From one longest wait to the next longer one.
    fn waits(&self) -> String {
        let next = |more: &str| {
            let here = self.is_here();
            format!("(SELECT j.max_wait_ms FROM jobs j WHERE {here} {more} ORDER BY j.max_wait_ms LIMIT 1)")
        };
        format!(
            "WITH RECURSIVE hop(wait) AS (SELECT {} UNION ALL SELECT {} FROM hop WHERE wait <= r.passed) \
             SELECT r.place, wait FROM hop WHERE wait <= r.passed",
            next(""),
            next("AND j.max_wait_ms > hop.wait")
        )
    }

    /// That a job `j` waits there.
    fn is_here(&self) -> String {
        format!("j.status = 'PENDING' AND j.gate <> '' AND j.{} = r.name", self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::plan;

    #[test]
    fn sqlite_reads_no_job_that_may_wait_on() {
        for (column, index) in [("gate", "jobs_waiting_for_upstream"), ("tenant", "jobs_waiting_for_budget")]
        {
            let waiting = Waiting { column, closed: Vec::new() };
            let overdue = plan::of(&waiting.overdue(), 1, PATIENCE);
            let exact = format!("{index} ({column}=? AND max_wait_ms=? AND due_at<?)");
            assert!(overdue.contains(&exact), "{overdue}");
            let waits = plan::of(&waiting.waits(), 0, CLOSED);
            let steps = waits.matches(&format!("{index} ({column}=?")).count();
            assert_eq!(steps, 2, "{waits}");
            assert!(!waits.contains("SCAN j") && !waits.contains("TEMP B-TREE"), "{waits}");
        }
    }
}
