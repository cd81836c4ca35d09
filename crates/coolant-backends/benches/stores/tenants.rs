//! How long a claim takes, by how many tenants have jobs waiting, and whether those are due.

use std::time::Duration;

use coolant_backends::SqlStore;
use coolant_core::names::Tenant;
use coolant_core::store::Store;

use crate::measure::{self, MOST, latencies, timed};
use crate::place::Place;
use crate::stage::{both, claim_and_settle};
use crate::table::Table;
use crate::{Settings, work};

/// When jobs are due that are scheduled for later.
const LATER: Duration = Duration::from_secs(10 * 86_400);
/// Jobs of each tenant that has some for later.
const FEW: usize = 3;

/// Tenants with jobs that are due, and tenants whose jobs are all for later.
struct State {
    name: &'static str,
    due: usize,
    later: usize,
    /// Whether more is due than one claim takes.
    backlog: bool,
}

const STATES: [State; 6] = [
    State { name: "1 tenant", due: 1, later: 0, backlog: true },
    State { name: "100 tenants", due: 100, later: 0, backlog: true },
    State { name: "5 000 tenants", due: 5000, later: 0, backlog: true },
    State { name: "5 000 with later jobs alone", due: 0, later: 5000, backlog: false },
    State { name: "1 behind 5 000 with later jobs, no backlog", due: 1, later: 5000, backlog: false },
    State { name: "1 behind 5 000 with later jobs, a backlog", due: 1, later: 5000, backlog: true },
];

/// Measures all states, each in a store of its own, and prints the table.
pub(crate) async fn compare(name: &str, place: &mut Place, settings: &Settings) {
    let mut table = Table::new(&format!("### Coolant on {name}, by tenants with jobs that wait"));
    for state in &STATES {
        table.column(state.name);
        let (store, _) = place.store().await;
        work::submit_of_each(&store, &named("a-later", state.later), FEW, LATER).await;
        for max in [1, 10] {
            if state.backlog {
                let jobs = (max * MOST).div_ceil(state.due);
                work::submit_of_each(&store, &named("due", state.due), jobs, Duration::ZERO).await;
            }
            let times = latencies(settings.span(), || claim(&store, max, state)).await;
            table.put(&format!("claim of {max}: p50 / p99"), both(&times));
        }
        table.put("load of the machine, 1 min", measure::load_of_a_minute());
    }
    println!("{table}");
}

fn named(prefix: &str, count: usize) -> Vec<Tenant> {
    (0..count).map(|n| Tenant::parse(format!("{prefix}-{n:05}")).unwrap()).collect()
}

/// Gives how long the claim took.
async fn claim(store: &SqlStore, max: usize, state: &State) -> Duration {
    if state.due > 0 {
        if !state.backlog {
            work::submit_of_each(store, &named("due", state.due), max, Duration::ZERO).await;
        }
        return claim_and_settle(store, max).await;
    }
    let (claimed, took) = timed(store.claim(work::request(max))).await;
    assert!(claimed.unwrap().is_empty(), "nothing is due");
    took
}
