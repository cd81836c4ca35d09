//! How many jobs go before one: for people who ask why it waits.

use std::collections::HashMap;

use coolant_core::job::{Job, Status};
use coolant_core::names::Tenant;
use coolant_core::store::StoreResult;
use coolant_core::time::Timestamp;
use coolant_core::turns::{MOST_AHEAD, jobs_ahead, rank};

use crate::conn::{Conn, Kind};
use crate::sql::codec::broken;
use crate::sql::delayed::{self, Come};
use crate::sql::floor::Floors;
use crate::sql::waiting::{IN_LINE, LINE, Line, Window, lines};

/// How many pending jobs of its queue that have come due go before this one at most, as tenants take turns.
pub(crate) async fn ahead_of(conn: &mut Conn, job: &Job, now: Timestamp) -> StoreResult<i64> {
    let Some(visible_at) = job.visible_at().filter(|_| job.status() == Status::Pending) else { return Ok(0) };
    let tenant = &job.spec.tenant;
    let lines = lines(conn, std::slice::from_ref(&job.spec.queue), &[]).await?;
    let own_rank = rank(visible_at, job.spec.priority);
    let rows = lines.iter().map(|line| {
        // The instant that has the same rank in the line's priority.
        let step = rank(Timestamp::from_millis(0), i8::try_from(line.priority).unwrap_or_default());
        let mut row = Vec::from(line.values());
        row.extend([tenant.as_str().into(), own_rank.saturating_sub(step).into()]);
        row
    });
    let columns = [LINE[0], LINE[1], LINE[2], LINE[3], ("tenant", Kind::Text), ("before", Kind::Int)];
    let text = format!(
        "SELECT count(*) FROM (SELECT 1 FROM jobs j WHERE {IN_LINE} AND j.tenant {{bytewise}} = r.tenant \
         AND j.due_at <= $1 AND (j.due_at < r.before OR (j.due_at = r.before AND j.id < $2)) LIMIT {MOST_AHEAD}) AS own"
    );
    let params = [now.as_millis().into(), job.id.to_string().into()];
    let mut own = sum(conn.query_for_each(&text, &params, &columns, rows.collect()).await?)?;
    // Of delayed ones the first of each line, as many as are counted at all.
    let mut others = HashMap::new();
    let delayed = delayed::first(conn, &lines, MOST_AHEAD as usize, now).await?;
    for (line, come) in lines.iter().zip(delayed) {
        for Come { id, tenant: of, due_at } in come {
            let place = (rank(due_at, i8::try_from(line.priority).unwrap_or_default()), id);
            if of != *tenant {
                *others.entry(of).or_default() += 1;
            } else if place < (own_rank, job.id) {
                own += 1;
            }
        }
    }
    count_others(conn, &lines, (tenant, own), &mut others, now).await?;
    Ok(jobs_ahead(own, others.into_values()))
}

/// Counts the waiting jobs of each other tenant that have come due, none further than it has turns before the one
/// with `own` jobs before it.
async fn count_others(
    conn: &mut Conn,
    lines: &[Line],
    (tenant, own): (&Tenant, i64),
    counts: &mut HashMap<Tenant, i64>,
    now: Timestamp,
) -> StoreResult<()> {
    let text = format!(
        "SELECT r.number, (SELECT count(*) FROM (SELECT 1 FROM jobs j WHERE {IN_LINE} \
         AND j.tenant {{bytewise}} = r.tenant AND j.due_at <= $1 LIMIT $2) AS due)"
    );
    let columns = [LINE[0], LINE[1], LINE[2], LINE[3], ("tenant", Kind::Text), ("number", Kind::Int)];
    let mut rest = Some(Window::all());
    while let Some(window) = rest.filter(|_| counts.values().sum::<i64>() < MOST_AHEAD) {
        let (mut due, seen) = window.look(conn, lines, None, now, &mut Floors::none()).await?;
        due.remove(tenant);
        let tenants: Vec<_> = due.into_iter().collect();
        let mut rows = Vec::new();
        for (number, (tenant, found)) in (0_i64..).zip(&tenants) {
            for (line, _) in &found.lines {
                let mut row = Vec::from(lines[*line].values());
                row.extend([tenant.as_str().into(), number.into()]);
                rows.push(row);
            }
        }
        let params = [now.as_millis().into(), own.saturating_add(1).into()];
        for mut row in conn.query_for_each(&text, &params, &columns, rows).await? {
            let number = usize::try_from(row.int()?).map_err(broken)?;
            let (tenant, _) = &tenants[number];
            *counts.entry(tenant.clone()).or_default() += row.int()?;
        }
        rest = window.less(&seen);
    }
    Ok(())
}

fn sum(rows: Vec<crate::conn::Row>) -> StoreResult<i64> {
    rows.into_iter().try_fold(0, |sum, mut row| Ok(row.int()?.saturating_add(sum)))
}
