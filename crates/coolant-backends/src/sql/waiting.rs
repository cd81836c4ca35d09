//! Who has jobs waiting: lines of jobs, and in each of them the tenants whose first job has come due. Jobs that
//! were put in for later are not among them (`delayed`).
//!
//! The index of waiting jobs has the tenant before the instant. So the next tenant of a line is one step down
//! the index, however many jobs the one before it has, and a look at a line costs by its tenants, not by its
//! jobs. Tenants stand in the order of their bytes, in the index as in here.
//!
//! A look reads no further than [`Window::MOST`] tenants of each line. What lies behind is another look.

use std::collections::{BTreeMap, BTreeSet};

use coolant_core::gate::Gate;
use coolant_core::job::{Job, JobSpec};
use coolant_core::names::{JobType, Queue, Tenant};
use coolant_core::store::StoreResult;
use coolant_core::time::Timestamp;
use coolant_core::turns::{Kind as Asked, Turn};

use crate::conn::{Columns, Conn, Kind, Value};
use crate::sql::codec::name;
use crate::sql::floor::Floors;
use crate::sql::last_turns::last_turn;

/// Jobs of one queue, type, gate and priority.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Line {
    pub(crate) queue: String,
    pub(crate) job_type: String,
    pub(crate) gate: Gate,
    pub(crate) priority: i64,
}

/// The columns of [`Line::values`].
pub(crate) const LINE: [(&str, Kind); 4] =
    [("queue", Kind::Text), ("job_type", Kind::Text), ("gate", Kind::Text), ("priority", Kind::Int)];

macro_rules! in_line {
    ($delayed:literal) => {
        concat!(
            "j.status = 'PENDING' AND j.delayed = ",
            $delayed,
            " AND j.queue = r.queue AND j.job_type = r.job_type AND j.gate = r.gate AND j.priority = r.priority"
        )
    };
}

/// That a job `j` waits in the line of the row `r` and was not put in for later.
pub(crate) const IN_LINE: &str = in_line!(0);

/// That it was put in for later (`delayed`).
pub(crate) const DELAYED_IN_LINE: &str = in_line!(1);

impl Line {
    /// The line that a job waits in.
    pub(crate) fn of(job: &Job) -> Self {
        let JobSpec { queue, job_type, upstreams, priority, .. } = &*job.spec;
        Self {
            queue: queue.to_string(),
            job_type: job_type.to_string(),
            gate: Gate::of(upstreams),
            priority: i64::from(*priority),
        }
    }

    pub(crate) fn values(&self) -> [Value; 4] {
        let Self { queue, job_type, gate, priority } = self;
        [queue.as_str().into(), job_type.as_str().into(), gate.as_str().into(), (*priority).into()]
    }
}

/// The lines of these queues and types that have had jobs of late; of any type if none is given.
pub(crate) async fn lines(
    conn: &mut Conn,
    queues: &[Queue],
    job_types: &[JobType],
) -> StoreResult<Vec<Line>> {
    let queues: BTreeSet<&str> = queues.iter().map(Queue::as_str).collect();
    let types: BTreeSet<&str> = job_types.iter().map(JobType::as_str).collect();
    // On PostgreSQL a line that several sessions saw first stands there once for each.
    let text = "SELECT DISTINCT queue, job_type, gate, priority FROM lines";
    let mut lines = Vec::new();
    for mut row in conn.query(text, &[]).await? {
        let line = Line {
            queue: row.text()?,
            job_type: row.text()?,
            gate: Gate::from_stored(row.text()?),
            priority: row.int()?,
        };
        if queues.contains(line.queue.as_str())
            && (types.is_empty() || types.contains(line.job_type.as_str()))
        {
            lines.push(line);
        }
    }
    lines.sort_unstable();
    Ok(lines)
}

/// Behind every name: names have 128 bytes at most, and this character sorts behind all others.
fn behind_all() -> String {
    "\u{10ffff}".repeat(Tenant::MAX / 4 + 1)
}

/// The first text behind a name: no name has a control character.
fn behind(name: &str) -> String {
    format!("{name}\u{1}")
}

/// A piece of the tenants, in the order of their names: from `start` on, up to but without `end`.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) start: String,
    pub(crate) end: String,
}

/// Tenants with jobs that have come due.
pub(crate) type Due = BTreeMap<Tenant, Found>;

/// A tenant's jobs that have come due.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    /// The lines where they wait, by number, and the instant of the first of them in each.
    pub(crate) lines: Vec<(usize, Timestamp)>,
    /// The first instant of those that were put in for later, and of those whose lease ran out.
    pub(crate) apart: Option<Timestamp>,
    /// The tenant's last turn that is kept.
    pub(crate) last: Option<Turn>,
}

impl Found {
    /// The instant of the first of them; `None` if there are none.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        self.lines.iter().map(|(_, since)| *since).chain(self.apart).min()
    }
}

impl Window {
    /// Tenants of a line in one look.
    pub(crate) const MOST: usize = 64;

    /// All tenants.
    pub(crate) fn all() -> Self {
        Self { start: String::new(), end: behind_all() }
    }

    /// All tenants, those behind this one first.
    pub(crate) fn from_behind(tenant: &Tenant) -> [Self; 2] {
        let middle = behind(tenant.as_str());
        [Self { start: middle.clone(), end: behind_all() }, Self { start: String::new(), end: middle }]
    }

    /// Whether no name lies behind it.
    pub(crate) fn is_last(&self) -> bool {
        self.end == behind_all()
    }

    pub(crate) fn holds(&self, tenant: &Tenant) -> bool {
        (self.start.as_str()..self.end.as_str()).contains(&tenant.as_str())
    }

    /// What is left of it behind a first piece, if anything.
    pub(crate) fn less(&self, seen: &Self) -> Option<Self> {
        (seen.end < self.end).then(|| Self { start: seen.end.clone(), end: self.end.clone() })
    }

    /// Tenants with jobs that have come due, with their last turns if somebody asks for jobs, and how far the
    /// look has come.
    pub(crate) async fn look(
        &self,
        conn: &mut Conn,
        lines: &[Line],
        asked: Option<Asked>,
        now: Timestamp,
        floors: &mut Floors,
    ) -> StoreResult<(Due, Self)> {
        let mut pieces = Vec::new();
        for (number, line) in lines.iter().enumerate() {
            pieces.extend(floors.pieces(line, self, now).into_iter().map(|p| (number, p)));
        }
        let rows = pieces.iter().enumerate().map(|(place, (number, piece))| {
            let mut row = vec![(place as i64).into()];
            row.extend(lines[*number].values());
            row.extend(piece.values());
            row
        });
        let params = [(Self::MOST as i64 - 1).into(), asked.map(Asked::number).into()];
        let found = conn.query_for_each(&next_tenants(), &params, LOOK, rows.collect()).await?;
        let mut seen = Self { start: self.start.clone(), end: self.end.clone() };
        let mut heads = Vec::new();
        let mut unknown: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for mut row in found {
            let place = usize::try_from(row.int()?).unwrap_or_default();
            let (is_known, tenant, due_at) = (row.int()? == 1, row.text()?, row.maybe_int()?);
            let last = row.maybe_int()?.map(Turn::from_number);
            if !is_known {
                unknown.entry(place).or_default().push(tenant.clone());
            }
            heads.push((place, tenant, due_at, last));
        }
        for (place, (number, piece)) in pieces.iter().enumerate() {
            let cut = unknown.get(&place).filter(|tenants| tenants.len() == Self::MOST);
            let end = cut.and_then(|tenants| tenants.iter().max()).map(|last| behind(last));
            let is_last = pieces.get(place + 1).is_none_or(|(next, _)| next != number);
            for end in end.into_iter().chain(is_last.then(|| piece.until.clone())) {
                seen.end = seen.end.min(end);
            }
        }
        let mut due = Due::new();
        for (place, tenant, due_at, last) in heads {
            let (number, piece) = &pieces[place];
            floors.learn(&lines[*number], piece, &tenant, due_at, now);
            let since = due_at.map(Timestamp::from_millis).filter(|since| *since <= now && tenant < seen.end);
            if let Some(since) = since {
                let tenant = name(Tenant::parse(tenant))?;
                let found = due.entry(tenant).or_default();
                found.lines.push((*number, since));
                found.last = last;
            }
        }
        Ok((due, seen))
    }
}

/// A part of one look at one line: a tenant known to be in it, and then the unknown ones up to the next.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// The known tenant, and the instant from which its jobs are looked for.
    pub(crate) known: Option<(String, i64)>,
    /// Unknown tenants from here on.
    pub(crate) start: String,
    /// And before this.
    pub(crate) until: String,
}

impl Piece {
    fn values(&self) -> [Value; 5] {
        let (tenant, floor) = self.known.as_ref().map_or(("", 0), |(tenant, floor)| (tenant, *floor));
        [
            i64::from(self.known.is_some()).into(),
            tenant.into(),
            floor.into(),
            self.start.as_str().into(),
            self.until.as_str().into(),
        ]
    }
}

const LOOK: Columns<'_> = &[
    ("place", Kind::Int),
    LINE[0],
    LINE[1],
    LINE[2],
    LINE[3],
    ("known", Kind::Int),
    ("tenant", Kind::Text),
    ("floor", Kind::Int),
    ("start", Kind::Text),
    ("until", Kind::Text),
];

/// From tenant to tenant, each found by one step down the index, with the first instant of its jobs and its last
/// turn.
fn next_tenants() -> String {
    let next = |from: &str| {
        format!(
            "(SELECT j.tenant FROM jobs j WHERE {IN_LINE} AND j.tenant {{bytewise}} {from} \
             AND j.tenant {{bytewise}} < r.until ORDER BY j.tenant {{bytewise}} LIMIT 1)"
        )
    };
    let first = |tenant: &str, floor: &str| {
        format!(
            "(SELECT j.due_at FROM jobs j WHERE {IN_LINE} AND j.tenant {{bytewise}} = {tenant} {floor} \
             ORDER BY j.due_at LIMIT 1)"
        )
    };
    format!(
        "WITH RECURSIVE hop(n, tenant) AS (SELECT CAST(0 AS BIGINT), {} UNION ALL \
         SELECT n + 1, {} FROM hop WHERE tenant IS NOT NULL AND n < $1) \
         SELECT r.place AS place, 0 AS known, tenant, {} AS due_at, {} AS turn FROM hop WHERE tenant IS NOT NULL \
         UNION ALL SELECT r.place, 1, r.tenant, {}, {} WHERE r.known = 1",
        next(">= r.start"),
        next("> hop.tenant"),
        first("hop.tenant", ""),
        last_turn("$2", "hop.tenant"),
        first("r.tenant", "AND j.due_at >= r.floor"),
        last_turn("$2", "r.tenant")
    )
}
