//! Jobs whose lease has run out, as a claim finds them.
//!
//! What a heartbeat changes is in no index, so a look for such jobs reads every running job of a queue and
//! type. So where these are more than `MANY`, a lane looks only when it has to: it remembers the earliest end
//! of a lease, and believes that for `BELIEVED`. No lease that begins or is renewed meanwhile ends within that
//! time; one that somebody ends before its time, because its process died, is found that much later at most.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use coolant_core::job::JobId;
use coolant_core::store::StoreResult;
use coolant_core::time::{Timestamp, millis_up};
use coolant_core::turns::PRIORITY_STEP;

use crate::conn::{Columns, Conn, Kind, Value};
use crate::sql::candidates::{Candidate, NOT_HELD, Standing, candidates};
use crate::sql::codec::{broken, job_id};
use crate::sql::waiting::{LINE, Line};

/// Shorter than the shortest lease.
const BELIEVED: Duration = Duration::from_millis(250);
/// Reading fewer running jobs costs next to nothing.
const MANY: i64 = 100;
/// Queues, types and gates that are remembered; with more, all are forgotten.
const MOST: usize = 10_000;

/// Jobs of one queue, type and gate.
type Kinds = (String, String, String);

/// When no lease of these jobs runs out: from when it was looked up to the earliest end.
#[derive(Debug, Default)]
pub(crate) struct Quiet(BTreeMap<Kinds, (Timestamp, Timestamp)>);

impl Quiet {
    /// Running jobs whose lease has run out, `max` of each tenant in each of the lines' queues, types and
    /// gates.
    pub(crate) async fn expired(
        &mut self,
        conn: &mut Conn,
        lines: &[Line],
        max: u32,
        now: Timestamp,
    ) -> StoreResult<Vec<Candidate>> {
        let all: BTreeSet<Kinds> = lines
            .iter()
            .map(|line| (line.queue.clone(), line.job_type.clone(), line.gate.as_str().to_owned()))
            .collect();
        let unsure: Vec<Kinds> = all.into_iter().filter(|kinds| !self.is_quiet(kinds, now)).collect();
        let text = "SELECT r.place, min(j.lease_until), count(*) FROM jobs j WHERE j.status = 'RUNNING' \
                    AND j.queue = r.queue AND j.job_type = r.job_type AND j.gate = r.gate";
        let columns: Columns<'_> = &[LINE[0], LINE[1], LINE[2], ("place", Kind::Int)];
        let rows = (0_i64..).zip(&unsure).map(|(place, kinds)| {
            let mut row = values(kinds);
            row.push(place.into());
            row
        });
        let mut loud = Vec::new();
        for mut row in conn.query_for_each(text, &[], columns, rows.collect()).await? {
            let kinds = &unsure[usize::try_from(row.int()?).map_err(broken)?];
            let earliest = row.maybe_int()?.map_or(now.plus(BELIEVED), Timestamp::from_millis);
            if earliest <= now {
                loud.push(values(kinds));
            } else if row.int()? > MANY {
                self.0.insert(kinds.clone(), (now, earliest.min(now.plus(BELIEVED))));
            }
        }
        if self.0.len() > MOST {
            self.0.clear();
        }
        first_of_each_tenant(conn, loud, max, now).await
    }

    /// A clock that was set back makes it worthless.
    fn is_quiet(&self, kinds: &Kinds, now: Timestamp) -> bool {
        self.0.get(kinds).is_some_and(|(since, until)| (*since..*until).contains(&now))
    }
}

fn values((queue, job_type, gate): &Kinds) -> Vec<Value> {
    vec![queue.as_str().into(), job_type.as_str().into(), gate.as_str().into()]
}

async fn first_of_each_tenant(
    conn: &mut Conn,
    rows: Vec<Vec<Value>>,
    max: u32,
    now: Timestamp,
) -> StoreResult<Vec<Candidate>> {
    let text = format!(
        "SELECT id, lease_until, priority, tenant, lock_key, gate, since FROM (SELECT j.id, j.lease_until, \
         j.priority, j.tenant, j.lock_key, j.gate, min(j.lease_until) OVER (PARTITION BY j.tenant) AS since, \
         row_number() OVER (PARTITION BY j.tenant ORDER BY j.lease_until - j.priority * {}, j.id) AS place \
         FROM jobs j WHERE j.status = 'RUNNING' \
         AND j.queue = r.queue AND j.job_type = r.job_type AND j.gate = r.gate AND j.lease_until <= $1 \
         AND {NOT_HELD}) AS lost WHERE place <= $2",
        millis_up(PRIORITY_STEP)
    );
    let params = [now.as_millis().into(), i64::from(max).into()];
    candidates(conn.query_for_each(&text, &params, &LINE[..3], rows).await?, Standing::Lost)
}

/// Locks the rows of those whose lease ran out, and leaves out what another claim has or had in hand.
pub(crate) async fn lock_expired(
    conn: &mut Conn,
    chosen: Vec<Candidate>,
    now: Timestamp,
) -> StoreResult<Vec<Candidate>> {
    let rows = chosen
        .iter()
        .filter(|candidate| candidate.standing == Standing::Lost)
        .map(|c| vec![c.id.to_string().into()]);
    let text =
        "SELECT j.id FROM jobs j WHERE j.id = r.id AND j.status = 'RUNNING' AND j.lease_until <= $1 {skip}";
    let id: Columns<'_> = &[("id", Kind::Text)];
    let rows = conn.query_for_each(text, &[now.as_millis().into()], id, rows.collect()).await?;
    let locked: StoreResult<BTreeSet<JobId>> = rows.into_iter().map(|mut row| job_id(&row.text()?)).collect();
    let locked = locked?;
    Ok(chosen
        .into_iter()
        .filter(|candidate| candidate.standing != Standing::Lost || locked.contains(&candidate.id))
        .collect())
}
