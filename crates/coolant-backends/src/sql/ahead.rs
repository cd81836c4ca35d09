//! How many jobs go before one: for people who ask why it waits.

use coolant_core::job::{Job, Status};
use coolant_core::names::Tenant;
use coolant_core::store::StoreResult;
use coolant_core::time::Timestamp;
use coolant_core::turns::{MOST_AHEAD, jobs_ahead, rank};

use crate::conn::{Conn, Kind};
use crate::sql::codec::broken;
use crate::sql::delayed;
use crate::sql::floor::Floors;
use crate::sql::waiting::{DELAYED_IN_LINE, IN_LINE, LINE, Line, Window, lines};

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
    let rows: Vec<_> = rows.collect();
    let params = [now.as_millis().into(), job.id.to_string().into()];
    let mut own = 0_i64;
    for in_line in [IN_LINE, DELAYED_IN_LINE] {
        let text = format!(
            "SELECT count(*) FROM (SELECT 1 FROM jobs j WHERE {in_line} AND j.tenant {{bytewise}} = r.tenant \
             AND j.due_at <= $1 AND (j.due_at < r.before OR (j.due_at = r.before AND j.id < $2)) \
             LIMIT {MOST_AHEAD}) AS own"
        );
        own = own.saturating_add(sum(conn.query_for_each(&text, &params, &columns, rows.clone()).await?)?);
    }
    let others = of_others(conn, &lines, tenant, own, now).await?;
    Ok(jobs_ahead(own, others))
}

/// How many jobs of each other tenant have come due, none counted further than it has turns before the one
/// with `own` jobs before it.
async fn of_others(
    conn: &mut Conn,
    lines: &[Line],
    tenant: &Tenant,
    own: i64,
    now: Timestamp,
) -> StoreResult<Vec<i64>> {
    let text = format!(
        "SELECT r.number, (SELECT count(*) FROM (SELECT 1 FROM jobs j WHERE {IN_LINE} \
         AND j.tenant {{bytewise}} = r.tenant AND j.due_at <= $1 LIMIT $2) AS due)"
    );
    let columns = [LINE[0], LINE[1], LINE[2], LINE[3], ("tenant", Kind::Text), ("number", Kind::Int)];
    let mut counts = delayed::counts(conn, lines, MOST_AHEAD as usize, now).await?;
    counts.remove(tenant);
    let mut rest = Some(Window::all());
    while let Some(window) = rest.filter(|_| counts.values().sum::<i64>() < MOST_AHEAD) {
        let (mut due, seen) = window.look(conn, lines, None, now, &mut Floors::none()).await?;
        due.remove(tenant);
        let tenants: Vec<_> = due.into_iter().collect();
        let mut rows = Vec::new();
        for (number, (tenant, found)) in (0_i64..).zip(&tenants) {
            for (place, _) in &found.places {
                let mut row = Vec::from(lines[place.line].values());
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
    Ok(counts.into_values().collect())
}

fn sum(rows: Vec<crate::conn::Row>) -> StoreResult<i64> {
    rows.into_iter().try_fold(0, |sum, mut row| Ok(row.int()?.saturating_add(sum)))
}
