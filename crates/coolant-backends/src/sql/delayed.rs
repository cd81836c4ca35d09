//! Jobs that were put in for later, once their instant has come.
//!
//! A job that has to wait for its instant when it is written stands in an index of such jobs, by that instant
//! (`delayed` is 1), and not among those that can start at once. So jobs for later cost those for now nothing: no
//! submit of these goes into the midst of them, and no claim steps over a tenant that has nothing else.
//!
//! A claim reads of each line the first delayed jobs that have come due, and gives them out from there. Where
//! they are more than `FEW`, it puts some of the others among the waiting jobs, first due first.
//!
//! Where the delayed jobs of a line begin is remembered on PostgreSQL, for the reason and with the margin that
//! tenants have floors for (`floor`).

use coolant_core::job::JobId;
use coolant_core::names::Tenant;
use coolant_core::store::StoreResult;
use coolant_core::time::Timestamp;

use crate::conn::{Columns, Conn, Kind, Row};
use crate::sql::codec::{broken, job_id, name};
use crate::sql::floor::Floors;
use crate::sql::waiting::{DELAYED_IN_LINE, LINE, Line};

/// Jobs of a line that a claim gives out without putting them among the waiting ones first.
const FEW: usize = 100;
/// Jobs that a claim puts among the waiting ones at most, of all its lines together: 10 000 jobs of one instant keep
/// those that come due behind them waiting for ten claims.
const MOVED: usize = 1000;

/// A delayed job whose instant has come.
#[derive(Debug, Clone)]
pub(crate) struct Come {
    pub(crate) id: JobId,
    pub(crate) tenant: Tenant,
    pub(crate) due_at: Timestamp,
}

/// The first delayed jobs of each of these lines that have come due. Where there are more, some of them are put
/// among the waiting jobs. No floor of a tenant that is learned afterwards lies above one that is left.
pub(crate) async fn look(
    conn: &mut Conn,
    lines: &[Line],
    now: Timestamp,
    floors: &mut Floors,
) -> StoreResult<Vec<Vec<Come>>> {
    let starts = floors.of_delayed(lines, now);
    let mut come = read(conn, lines, &starts, FEW + 1, now).await?;
    for ((line, start), come) in lines.iter().zip(&starts).zip(&come) {
        floors.learn_delayed(line, *start, come.first().map(|first| first.due_at.as_millis()), now);
    }
    thin_out(conn, lines, &mut come, now).await?;
    Ok(come)
}

/// The first delayed jobs of each of these lines that have come due, so many of a line at most.
pub(crate) async fn first(
    conn: &mut Conn,
    lines: &[Line],
    limit: usize,
    now: Timestamp,
) -> StoreResult<Vec<Vec<Come>>> {
    read(conn, lines, &vec![None; lines.len()], limit, now).await
}

const READ: Columns<'_> = &[("place", Kind::Int), LINE[0], LINE[1], LINE[2], LINE[3], ("start", Kind::Int)];

fn first_of_line() -> String {
    format!(
        "SELECT r.place, j.id, j.tenant, j.due_at FROM jobs j WHERE {DELAYED_IN_LINE} AND j.due_at >= r.start \
         AND j.due_at <= $1 ORDER BY j.due_at LIMIT $2"
    )
}

/// Those of each line that have come due, first due first, so many of a line at most.
async fn read(
    conn: &mut Conn,
    lines: &[Line],
    starts: &[Option<i64>],
    limit: usize,
    now: Timestamp,
) -> StoreResult<Vec<Vec<Come>>> {
    let rows = lines.iter().zip(starts).zip(0_i64..).map(|((line, start), place)| {
        let mut row = vec![place.into()];
        row.extend(line.values());
        row.push(start.unwrap_or(i64::MIN).into());
        row
    });
    let params = [now.as_millis().into(), (limit as i64).into()];
    let mut come: Vec<Vec<Come>> = lines.iter().map(|_| Vec::new()).collect();
    for mut row in conn.query_for_each(&first_of_line(), &params, READ, rows.collect()).await? {
        let place = usize::try_from(row.int()?).map_err(broken)?;
        let (id, tenant) = (job_id(&row.text()?)?, name(Tenant::parse(row.text()?))?);
        come[place].push(Come { id, tenant, due_at: Timestamp::from_millis(row.int()?) });
    }
    // The rows of different lines come in no order.
    come.iter_mut().for_each(|of_line| of_line.sort_by_key(|come| (come.due_at, come.id)));
    Ok(come)
}

/// Leaves the first few of each line. Of lines that have more, those behind them go among the waiting jobs, as many as
/// one claim may move.
async fn thin_out(
    conn: &mut Conn,
    lines: &[Line],
    come: &mut [Vec<Come>],
    now: Timestamp,
) -> StoreResult<()> {
    let crowded: Vec<usize> = (0..lines.len()).filter(|line| come[*line].len() > FEW).collect();
    if crowded.is_empty() {
        return Ok(());
    }
    let each = FEW + (MOVED / crowded.len()).max(1);
    let starts: Vec<_> = crowded.iter().map(|line| Some(come[*line][0].due_at.as_millis())).collect();
    let those: Vec<_> = crowded.iter().map(|line| lines[*line].clone()).collect();
    let mut many = Vec::new();
    for (line, mut all) in crowded.into_iter().zip(read(conn, &those, &starts, each, now).await?) {
        many.extend(all.split_off(FEW.min(all.len())));
        come[line] = all;
    }
    put_among_waiting(conn, many).await
}

/// Leaves out those that somebody else has in hand.
async fn put_among_waiting(conn: &mut Conn, many: Vec<Come>) -> StoreResult<()> {
    let id: Columns<'_> = &[("id", Kind::Text)];
    let rows = many.into_iter().map(|come| vec![come.id.to_string().into()]).collect();
    let free = "SELECT j.id FROM jobs j WHERE j.id = r.id AND j.status = 'PENDING' AND j.delayed = 1 {skip}";
    let free = conn.query_for_each(free, &[], id, rows).await?;
    let rows: StoreResult<Vec<_>> =
        free.into_iter().map(|mut row: Row| Ok(vec![row.text()?.into()])).collect();
    conn.execute_rows("UPDATE jobs SET delayed = 0 {from_rows} WHERE jobs.id = r.id", &[], id, rows?).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{READ, first_of_line};
    use crate::sql::plan;

    #[test]
    fn delayed_jobs_are_read_from_their_own_index_in_its_order() {
        let plan = plan::of(&first_of_line(), 2, READ);
        let by = "jobs_delayed (queue=? AND job_type=? AND gate=? AND priority=? AND due_at>? AND due_at<?)";
        assert!(plan.contains(by) && !plan.contains("TEMP B-TREE"), "{plan}");
    }
}
