//! Counters by the minute, added to in one statement a group of writes.

use std::collections::BTreeMap;

use coolant_core::job::Job;
use coolant_core::names::Queue;
use coolant_core::store::{Counter, StoreResult};
use coolant_core::time::Timestamp;

use crate::conn::{Columns, Conn, Kind};

const MINUTE_MS: i64 = 60_000;

const COLUMNS: Columns<'_> = &[
    ("minute", Kind::Int),
    ("queue", Kind::Text),
    ("name", Kind::Text),
    ("shard", Kind::Int),
    ("value", Kind::Int),
];

/// What a group of writes adds to counters.
#[derive(Debug, Default)]
pub(crate) struct Tally(BTreeMap<(Queue, Counter), i64>);

impl Tally {
    pub(crate) fn add(&mut self, counter: Counter, queue: &Queue, value: i64) {
        *self.0.entry((queue.clone(), counter)).or_default() += value;
    }

    /// A start of a job that its cooldown refused, and what it would have cost.
    pub(crate) fn block(&mut self, job: &Job) {
        self.add(Counter::BlockedStarts, &job.spec.queue, 1);
        self.add(Counter::SavedByCooldowns, &job.spec.queue, job.mean_cost().as_nanos());
    }

    /// Adds it. `shard` is the writer's own, so that writers side by side never wait for a row.
    pub(crate) async fn save(self, conn: &mut Conn, shard: i64, now: Timestamp) -> StoreResult<()> {
        let minute = now.as_millis().div_euclid(MINUTE_MS);
        let rows = self
            .0
            .into_iter()
            .filter(|(_, value)| *value != 0)
            .map(|((queue, counter), value)| {
                vec![
                    minute.into(),
                    queue.as_str().into(),
                    counter.as_str().into(),
                    shard.into(),
                    value.into(),
                ]
            })
            .collect();
        let text = "INSERT INTO counters (minute, queue, name, shard, value) \
                    SELECT minute, queue, name, shard, value FROM {rows} WHERE true \
                    ON CONFLICT (minute, queue, name, shard) \
                    DO UPDATE SET value = counters.value + excluded.value";
        conn.execute_rows(text, &[], COLUMNS, rows).await?;
        Ok(())
    }
}

/// The sum of a counter over whole minutes from that of `since` on.
pub(crate) async fn sum(
    conn: &mut Conn,
    counter: Counter,
    queue: Option<&Queue>,
    since: Timestamp,
) -> StoreResult<i64> {
    let minute = since.as_millis().div_euclid(MINUTE_MS);
    let text = "SELECT CAST(coalesce(sum(value), 0) AS BIGINT) FROM counters \
                WHERE minute >= $1 AND name = $2 AND ($3 = '' OR queue = $3)";
    let queue = queue.map_or("", Queue::as_str);
    let rows = conn.query(text, &[minute.into(), counter.as_str().into(), queue.into()]).await?;
    rows.into_iter().next().map_or(Ok(0), |mut row| row.int())
}
