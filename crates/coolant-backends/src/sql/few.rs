//! All jobs that have come due, where those are few.
//!
//! Stepping from tenant to tenant (`waiting`) costs by the tenants, also by those whose jobs are all for later. So
//! a claim first reads the due jobs of its lines, first due first. If that comes to an end soon, it knows every
//! tenant that has any. A line with more of them is stepped through, and not read again for a while.
//!
//! Where the pending jobs of a line begin is remembered on PostgreSQL, for the reason and with the margin that
//! tenants have floors for (`floor`).

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use coolant_core::names::Tenant;
use coolant_core::store::StoreResult;
use coolant_core::time::Timestamp;

use crate::conn::{Columns, Conn, Dialect, Kind};
use crate::sql::codec::{broken, name};
use crate::sql::floor::{KEPT, highest_floor};
use crate::sql::waiting::{Due, LINE, Line};

/// Due jobs of a line that are few.
const FEW: usize = 100;
/// How long a line with more counts as one that has more.
const CROWDED_FOR: Duration = Duration::from_secs(1);
/// Lines that are remembered; with more, all are forgotten.
const MOST: usize = 10_000;

/// What a lane remembers of a line.
#[derive(Debug)]
struct Seen {
    floor: i64,
    /// When its jobs were last read from the first entry on.
    looked_up: Timestamp,
    /// When it was found to have more than a few.
    crowded: Option<Timestamp>,
}

/// What a lane remembers of the lines that it reads.
#[derive(Debug)]
pub(crate) struct FewDue {
    /// Whether the database needs floors.
    has_floors: bool,
    of: HashMap<Line, Seen>,
}

/// A clock that was set back makes worthless what was seen before.
fn within(since: Timestamp, span: Duration, now: Timestamp) -> bool {
    (since..since.plus(span)).contains(&now)
}

impl FewDue {
    /// Nothing known yet.
    pub(crate) fn of_a_lane(dialect: Dialect) -> Self {
        Self { has_floors: dialect == Dialect::Postgres, of: HashMap::new() }
    }

    /// All tenants with jobs that have come due, if these are few in each of the lines.
    pub(crate) async fn look(
        &mut self,
        conn: &mut Conn,
        lines: &[Line],
        now: Timestamp,
    ) -> StoreResult<Option<Due>> {
        if lines.iter().any(|line| self.is_crowded(line, now)) {
            return Ok(None);
        }
        let starts: Vec<Option<i64>> = lines.iter().map(|line| self.start(line, now)).collect();
        let rows = lines.iter().zip(&starts).zip(0_i64..).map(|((line, start), place)| {
            let mut row = vec![place.into()];
            row.extend(line.values());
            row.push(start.unwrap_or(i64::MIN).into());
            row
        });
        let text = format!(
            "SELECT r.place, j.tenant, j.due_at FROM jobs j WHERE {WAITS_IN_LINE} AND j.due_at >= r.start \
             AND j.due_at <= $1 ORDER BY j.due_at LIMIT $2"
        );
        let params = [now.as_millis().into(), (FEW as i64 + 1).into()];
        let mut counts = vec![0; lines.len()];
        let mut heads: BTreeMap<(Tenant, usize), i64> = BTreeMap::new();
        for mut row in conn.query_for_each(&text, &params, READ, rows.collect()).await? {
            let place = usize::try_from(row.int()?).map_err(broken)?;
            let (tenant, due_at) = (name(Tenant::parse(row.text()?))?, row.int()?);
            counts[place] += 1;
            heads.entry((tenant, place)).and_modify(|head| *head = (*head).min(due_at)).or_insert(due_at);
        }
        for (place, line) in lines.iter().enumerate() {
            let of_line = heads.iter().filter(|((_, at), _)| *at == place);
            let first = of_line.map(|(_, due_at)| *due_at).min();
            self.learn(line, starts[place], first, counts[place] > FEW, now);
        }
        Ok(counts.iter().all(|count| *count <= FEW).then(|| {
            let mut due = Due::new();
            for ((tenant, place), due_at) in heads {
                due.entry(tenant).or_default().lines.push((place, Timestamp::from_millis(due_at)));
            }
            due
        }))
    }

    fn is_crowded(&self, line: &Line, now: Timestamp) -> bool {
        let crowded = self.of.get(line).and_then(|seen| seen.crowded);
        crowded.is_some_and(|since| within(since, CROWDED_FOR, now))
    }

    /// From which instant on the jobs of a line are read; from the first if `None`.
    fn start(&self, line: &Line, now: Timestamp) -> Option<i64> {
        let seen = self.of.get(line).filter(|seen| self.has_floors && within(seen.looked_up, KEPT, now));
        seen.map(|seen| seen.floor)
    }

    /// What was found of a line that was read from that instant on.
    fn learn(
        &mut self,
        line: &Line,
        start: Option<i64>,
        first: Option<i64>,
        is_crowded: bool,
        now: Timestamp,
    ) {
        if self.of.len() >= MOST {
            self.of.clear();
        }
        let floor = first.map_or(i64::MAX, |due_at| due_at).min(highest_floor(now));
        let seen = self.of.entry(line.clone()).or_insert(Seen { floor, looked_up: now, crowded: None });
        seen.floor = floor;
        if start.is_none() {
            seen.looked_up = now;
        }
        seen.crowded = is_crowded.then_some(now);
    }

    /// Forgets them all: after a rollback, jobs that this lane had claimed are pending again.
    pub(crate) fn forget(&mut self) {
        self.of.clear();
    }
}

/// That a job `j` waits in the line of the row `r`, in the words of the index by instants and of no other: a plan
/// that is made while there are few jobs can take one index for the other, and then reads all of a line.
const WAITS_IN_LINE: &str = "j.wait IS NOT NULL AND j.queue = r.queue AND j.job_type = r.job_type \
                             AND j.gate = r.gate AND j.priority = r.priority";

const READ: Columns<'_> = &[("place", Kind::Int), LINE[0], LINE[1], LINE[2], LINE[3], ("start", Kind::Int)];
