//! What is measured of a store as it is at that moment: empty, with a backlog, with a history.

use std::sync::Arc;
use std::time::Duration;

use coolant_backends::SqlStore;
use coolant_core::job::Status;
use coolant_core::lifecycle::Event;
use coolant_core::store::{JobChange, JobFilter, Page, Store};

use crate::Settings;
use crate::measure::{self, Latencies, MOST, latencies, rate, timed};
use crate::table::{Table, ms, per_second};
use crate::work;

/// Jobs that are pending before each measurement of claims, if that is not more than the backlog.
const READY: usize = 20_000;

pub(crate) async fn measure(store: &Arc<SqlStore>, settings: &Settings, table: &mut Table) {
    let span = settings.span();
    for max in [1, 10] {
        work::queue_up_to(store, max * MOST).await;
        let times = latencies(span, || claim_and_settle(store, max)).await;
        table.put(&format!("claim of {max}: p50 / p99"), both(&times));
    }
    submits(store, span, table).await;
    for (workers, max) in [(1, 1), (1, 10), (1, 100), (8, 1), (8, 10), (8, 100)] {
        work::queue_up_to(store, READY.min(settings.queued)).await;
        let of = Arc::clone(store);
        let settled = rate(span, workers, move || {
            let store = Arc::clone(&of);
            async move {
                let claimed = store.claim(work::request(max)).await.unwrap();
                work::apply(&store, claimed.iter().map(work::success).collect()).await
            }
        })
        .await;
        let row = format!("claim and settle {max} at a time, {}", counted(workers, "worker"));
        table.put(&row, per_second(settled));
    }
    heartbeats(store, span, table).await;
    reads(store, span, table).await;
    table.put("load of the machine, 1 min", measure::load_of_a_minute());
}

/// Gives how long the claim took, of so many jobs that are there.
pub(crate) async fn claim_and_settle(store: &SqlStore, max: usize) -> Duration {
    let (claimed, took) = timed(store.claim(work::request(max))).await;
    let claimed = claimed.unwrap();
    assert_eq!(claimed.len(), max, "enough jobs are pending");
    work::apply(store, claimed.iter().map(work::success).collect()).await;
    took
}

async fn submits(store: &Arc<SqlStore>, span: Duration, table: &mut Table) {
    for (callers, size) in [(1, 1), (16, 1), (64, 1), (1, 100), (1, 1000)] {
        let of = Arc::clone(store);
        let submitted = rate(span, callers, move || {
            let store = Arc::clone(&of);
            async move { store.submit(work::jobs(size)).await.unwrap().len() }
        })
        .await;
        table.put(&format!("submit {size} a call, {}", counted(callers, "caller")), per_second(submitted));
    }
}

async fn heartbeats(store: &Arc<SqlStore>, span: Duration, table: &mut Table) {
    work::queue_up_to(store, 1000).await;
    let claimed = store.claim(work::request(1000)).await.unwrap();
    let beat = || {
        let changes = claimed.iter().map(|claimed| {
            let event = Event::Renew { token: claimed.lease.token, progress: None };
            JobChange::new(claimed.record.job.id, event)
        });
        let changes = changes.collect();
        async { timed(work::apply(store, changes)).await.1 }
    };
    let times = latencies(span, beat).await;
    table.put(&format!("{} heartbeats in a call: p50 / p99", claimed.len()), both(&times));
    work::apply(store, claimed.iter().map(work::success).collect()).await;
}

async fn reads(store: &Arc<SqlStore>, span: Duration, table: &mut Table) {
    let span = span / 2;
    let times = latencies(span, || async { timed(work::stats(store)).await.1 }).await;
    table.put("metrics of the last hour: p50 / p99", both(&times));
    let failed = JobFilter { status: Some(Status::Failed), ..work::any() };
    let page = Page { limit: 50, before: None };
    for (name, filter) in [("all", work::any()), ("the failed", failed)] {
        let list = || async { timed(store.list(&filter, page)).await.1 };
        let times = latencies(span, list).await;
        table.put(&format!("a page of 50 of {name}: p50 / p99"), both(&times));
    }
    let groups = || async { timed(store.dlq_groups(&work::any())).await.1 };
    let times = latencies(span, groups).await;
    table.put("groups of the dead-letter queue: p50 / p99", both(&times));
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

pub(crate) fn both(times: &Latencies) -> String {
    format!("{} / {}", ms(times.p50()), ms(times.p99()))
}
