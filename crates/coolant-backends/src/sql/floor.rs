//! Where a claim begins to look in a tenant's jobs of a line.
//!
//! PostgreSQL's index keeps the entry of a claimed job until a vacuum clears it, and those entries lie before
//! all jobs of the tenant that still wait: a claim that began at the first of them would walk over every job
//! claimed since. So a lane remembers for each tenant of a line the earliest instant of any pending job, and
//! begins there. Tenants it does not know are looked for between those it knows.
//!
//! Always true:
//! - at the time it was looked up, no pending job of the tenant in the line, locked or not, lay below its floor;
//! - a floor lies `MARGIN` in the past, so a job that is committed later can lie below it only if its
//!   transaction took longer than that. Such a job is found when the floor is looked up again;
//! - a floor lies above no delayed job of the line, so one that is put among the waiting jobs is not below it.
//!
//! SQLite removes entries at once and has no floors.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use coolant_core::time::{Timestamp, millis_up};

use crate::conn::Dialect;
use crate::sql::waiting::{Line, Piece, Window};

/// How long a transaction may take from its first look at the clock to its commit.
const MARGIN: Duration = Duration::from_secs(10);
/// How long a floor is kept without being looked up from the first entry on.
const KEPT: Duration = Duration::from_secs(5);
/// How long a tenant without a waiting job is remembered: until a vacuum has been there.
const EMPTY_FOR: Duration = Duration::from_secs(600);
/// Floors that are remembered; with more, all are forgotten.
const MOST: usize = 20_000;
/// Lines whose delayed jobs are remembered; with more, all are forgotten.
const MOST_LINES: usize = 10_000;

/// Whether that much time has not passed since. A clock that was set back makes worthless what was seen before.
fn within(since: Timestamp, span: Duration, now: Timestamp) -> bool {
    (since..since.plus(span)).contains(&now)
}

/// The highest that a floor may be.
fn highest_floor(now: Timestamp) -> i64 {
    now.as_millis().saturating_sub(millis_up(MARGIN))
}

#[derive(Debug)]
struct Floor {
    due_at: i64,
    looked_up: Timestamp,
    /// When a job was last seen waiting.
    seen: Timestamp,
}

/// Where the delayed jobs of a line begin (`delayed`), with the same margin.
#[derive(Debug)]
struct DelayedFloor {
    due_at: i64,
    /// When they were last read from the first entry on.
    looked_up: Timestamp,
}

/// The floors that a lane knows.
#[derive(Debug)]
pub(crate) struct Floors {
    /// Whether the database needs them.
    are_kept: bool,
    of: HashMap<Line, BTreeMap<String, Floor>>,
    count: usize,
    delayed: HashMap<Line, DelayedFloor>,
}

impl Floors {
    /// None known yet.
    pub(crate) fn of_a_lane(dialect: Dialect) -> Self {
        let are_kept = dialect == Dialect::Postgres;
        Self { are_kept, of: HashMap::new(), count: 0, delayed: HashMap::new() }
    }

    /// None at all: every look begins at the first entry.
    pub(crate) fn none() -> Self {
        Self::of_a_lane(Dialect::Sqlite)
    }

    /// A look at a window of a line in pieces: each tenant that is known, from its floor on, and the unknown
    /// ones behind it. No more tenants than a look takes.
    pub(crate) fn pieces(&mut self, line: &Line, window: &Window, now: Timestamp) -> Vec<Piece> {
        let first = Piece { known: None, start: window.start.clone(), until: window.end.clone() };
        let mut pieces = vec![first];
        let Some(known) = self.of.get_mut(line) else { return pieces };
        known.retain(|_, floor| within(floor.seen, EMPTY_FOR, now));
        for (tenant, floor) in known.range(window.start.clone()..window.end.clone()) {
            if let Some(before) = pieces.last_mut() {
                before.until.clone_from(tenant);
            }
            if pieces.len() > Window::MOST {
                break;
            }
            let from = if within(floor.looked_up, KEPT, now) { floor.due_at } else { i64::MIN };
            let start = format!("{tenant}\u{1}");
            pieces.push(Piece { known: Some((tenant.clone(), from)), start, until: window.end.clone() });
        }
        pieces
    }

    /// From which instant on the delayed jobs of these lines are read; from the first if `None`.
    pub(crate) fn of_delayed(&mut self, lines: &[Line], now: Timestamp) -> Vec<Option<i64>> {
        if self.delayed.len() > MOST_LINES {
            self.forget();
        }
        let known = |line| self.delayed.get(line).filter(|floor| within(floor.looked_up, KEPT, now));
        lines.iter().map(|line| known(line).map(|floor| floor.due_at)).collect()
    }

    /// What was found of the delayed jobs of a line that were read from that instant on: the first instant.
    pub(crate) fn learn_delayed(
        &mut self,
        line: &Line,
        start: Option<i64>,
        first: Option<i64>,
        now: Timestamp,
    ) {
        if !self.are_kept {
            return;
        }
        let due_at = first.unwrap_or(i64::MAX).min(highest_floor(now));
        let floor = self.delayed.entry(line.clone()).or_insert(DelayedFloor { due_at, looked_up: now });
        floor.due_at = due_at;
        if start.is_none() {
            floor.looked_up = now;
        }
    }

    /// What a look has found: the first instant of a tenant's jobs in a line.
    pub(crate) fn learn(
        &mut self,
        line: &Line,
        piece: &Piece,
        tenant: &str,
        due_at: Option<i64>,
        now: Timestamp,
    ) {
        if !self.are_kept {
            return;
        }
        let highest = self.delayed.get(line).map_or(i64::MAX, |floor| floor.due_at).min(highest_floor(now));
        let due_at_least = due_at.map_or(highest, |due_at| due_at.min(highest));
        let of_line = self.of.entry(line.clone()).or_default();
        let asked_from = piece.known.as_ref().filter(|(known, _)| known == tenant).map(|(_, from)| *from);
        match (of_line.get_mut(tenant), asked_from) {
            (Some(floor), Some(from)) => {
                floor.due_at = due_at_least;
                if from == i64::MIN {
                    floor.looked_up = now;
                }
                if due_at.is_some() {
                    floor.seen = now;
                }
            }
            _ => {
                of_line.insert(tenant.to_owned(), Floor { due_at: due_at_least, looked_up: now, seen: now });
                self.count += 1;
            }
        }
        if self.count > MOST {
            self.forget();
        }
    }

    /// Forgets them all: after a rollback, jobs that this lane had claimed are pending again.
    pub(crate) fn forget(&mut self) {
        self.of.clear();
        self.delayed.clear();
        self.count = 0;
    }
}
