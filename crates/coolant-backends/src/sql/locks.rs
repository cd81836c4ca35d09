//! Leaky locks: read and locked, changed as `coolant_core::lock` says, saved.

use coolant_core::lock::{Lock, LockAnswer, LockAt, LockEvent, LockState, LockToken, REMEMBERED};
use coolant_core::names::LockName;
use coolant_core::store::{StoreError, StoreResult};
use coolant_core::time::Timestamp;

use crate::conn::{Columns, Conn, Kind, Row, Value};

pub(crate) async fn change(
    conn: &mut Conn,
    key: &LockName,
    event: &LockEvent,
    now: Timestamp,
) -> StoreResult<LockAnswer> {
    let kept = match locked(conn, key).await? {
        None if matches!(event, LockEvent::Acquire { .. }) => {
            take_row(conn, key, now).await?;
            locked(conn, key).await?.ok_or_else(|| StoreError::Broken("a lock's row is gone".into()))?
        }
        kept => kept.unwrap_or_default(),
    };
    match kept.on(event, now) {
        Ok(lock) => {
            if lock != kept {
                save(conn, key, &lock, now).await?;
            }
            Ok(Ok(lock.seen(now)))
        }
        Err(refusal) => Ok(Err(refusal)),
    }
}

/// Makes a row, and locks it also where somebody else has just made it.
async fn take_row(conn: &mut Conn, key: &LockName, now: Timestamp) -> StoreResult<()> {
    let text = "INSERT INTO locks (name, token, state, forget_at) VALUES ($1, 0, 'free', $2) \
                ON CONFLICT (name) DO UPDATE SET name = excluded.name";
    let forget_at = now.plus(REMEMBERED).as_millis();
    conn.execute(text, &[key.as_str().into(), forget_at.into()]).await?;
    Ok(())
}

/// The lock, its row locked. The floor is read by the statement that has the row: whoever forgot an older
/// row of that name has committed by then.
async fn locked(conn: &mut Conn, key: &LockName) -> StoreResult<Option<Lock>> {
    let text = "SELECT token, (SELECT token FROM lock_floor), state, holder, reason, until_at FROM locks \
                WHERE name = $1 {lock}";
    let row = conn.query(text, &[key.as_str().into()]).await?.pop();
    row.map(read).transpose()
}

/// How a lock stands.
pub(crate) async fn one(conn: &mut Conn, key: &LockName, now: Timestamp) -> StoreResult<LockAt> {
    let text = "SELECT token, 0, state, holder, reason, until_at FROM locks WHERE name = $1";
    let row = conn.query(text, &[key.as_str().into()]).await?.pop();
    Ok(row.map(read).transpose()?.unwrap_or_default().seen(now))
}

fn read(mut row: Row) -> StoreResult<Lock> {
    let (token, floor) = (row.int()?, row.int()?);
    let (state, holder, reason) = (row.text()?, row.maybe_text()?, row.maybe_text()?);
    let until = row.maybe_int()?.map(Timestamp::from_millis);
    let left = match (state.as_str(), until) {
        ("free", None) => LockState::Free,
        ("held", until @ Some(_)) => LockState::Held { holder, until },
        ("cooling", Some(until)) => LockState::Cooling { holder, reason, until },
        ("closed", None) => LockState::Closed { holder, reason },
        _ => return Err(StoreError::Broken(format!("a lock cannot be `{state}` until {until:?}"))),
    };
    Ok(Lock { token: LockToken(token.max(floor)), left })
}

async fn save(conn: &mut Conn, key: &LockName, lock: &Lock, now: Timestamp) -> StoreResult<()> {
    let text = "UPDATE locks SET token = $2, state = $3, holder = $4, reason = $5, until_at = $6, \
                forget_at = $7 WHERE name = $1";
    let forget_at = match &lock.left {
        LockState::Closed { .. } => None,
        left => Some(left.until().unwrap_or(now).plus(REMEMBERED).as_millis()),
    };
    let params: [Value; 7] = [
        key.as_str().into(),
        lock.token.0.into(),
        lock.left.as_str().into(),
        lock.left.holder().into(),
        lock.left.reason().into(),
        lock.left.until().map(Timestamp::as_millis).into(),
        forget_at.into(),
    ];
    conn.execute(text, &params).await?;
    Ok(())
}

const NAME: Columns<'_> = &[("name", Kind::Text)];

/// Removes rows that nobody needs any more; the floor remembers how far tokens were.
pub(crate) async fn forget(conn: &mut Conn, limit: u32, now: Timestamp) -> StoreResult<u32> {
    let text = "SELECT name, token FROM locks WHERE forget_at <= $1 ORDER BY forget_at, name LIMIT $2 {skip}";
    let rows = conn.query(text, &[now.as_millis().into(), i64::from(limit).into()]).await?;
    let mut names = Vec::with_capacity(rows.len());
    let mut newest = 0;
    for mut row in rows {
        names.push(vec![Value::from(row.text()?)]);
        newest = newest.max(row.int()?);
    }
    if names.is_empty() {
        return Ok(0);
    }
    conn.execute("UPDATE lock_floor SET token = $1 WHERE token < $1", &[newest.into()]).await?;
    let text = "DELETE FROM locks WHERE name IN (SELECT name FROM {rows})";
    let gone = conn.execute_rows(text, &[], NAME, names).await?;
    Ok(u32::try_from(gone).unwrap_or(u32::MAX))
}
