//! A seeded simulation: many workers and clients over one store, first with faults, then without.
//!
//! `COOLANT_SEED=n` replays one seed, `COOLANT_SEEDS=n` runs that many (500 by default).
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test: nobody uses it, and it ends where it goes wrong"
)]

mod calls;
mod checks;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/forward.rs"]
mod forward;
mod mutants;
mod upstreams;
mod world;

use std::sync::Arc;

use common::at;
use coolant_core::model::{ManualClock, ModelStore};
use coolant_core::store::Store;
use mutants::{Bug, Mutant};
use world::World;

const MOVES: u32 = 800;

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Runs one seed. What was wrong, if anything, and how many claims and successes there were.
fn simulate(seed: u64, store: impl FnOnce(&Arc<ManualClock>) -> Arc<dyn Store>) -> (Vec<String>, u64, u64) {
    let clock = ManualClock::at(at(1_000_000));
    let mut world = World::new(seed, Arc::clone(&clock), store(&clock));
    world.run(MOVES);
    (world.checks.violations, world.checks.claims, world.checks.successes)
}

fn model(clock: &Arc<ManualClock>) -> Arc<dyn Store> {
    Arc::new(ModelStore::new(clock.reader()))
}

#[test]
fn whatever_fails_the_promises_hold_and_everything_ends() {
    let seeds = match number("COOLANT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("COOLANT_SEEDS").unwrap_or(500),
    };
    let (mut claims, mut successes) = (0, 0);
    for seed in seeds.clone() {
        let run = std::panic::AssertUnwindSafe(|| simulate(seed, model));
        let Ok((violations, claimed, succeeded)) = std::panic::catch_unwind(run) else {
            panic!("seed {seed} panicked; COOLANT_SEED={seed} replays it");
        };
        assert!(violations.is_empty(), "COOLANT_SEED={seed} replays this: {violations:#?}");
        claims += claimed;
        successes += succeeded;
    }
    let runs = seeds.end - seeds.start;
    assert!(
        claims > 20 * runs && successes > 5 * runs,
        "{claims} claims and {successes} successes are too few"
    );
}

#[test]
fn the_same_seed_is_the_same_story() {
    assert_eq!(simulate(7, model), simulate(7, model));
}

/// The checkers are worth something only if they can fail.
fn is_caught(bug: Bug, says: &str) {
    let mut seen = Vec::new();
    for seed in 0..60 {
        let (violations, ..) = simulate(seed, |clock| Arc::new(Mutant::new(bug, clock)));
        if violations.iter().any(|violation| violation.contains(says)) {
            return;
        }
        seen.extend(violations.into_iter().take(1));
    }
    panic!("60 seeds did not notice {bug:?} as `{says}`, but saw {seen:#?}");
}

macro_rules! caught {
    ($($name:ident: $bug:ident, $says:literal;)*) => {
        $(#[test] fn $name() { is_caught(Bug::$bug, $says); })*
    };
}

caught! {
    a_job_handed_out_twice_is_caught: HandOutTwice, "token";
    a_stale_token_that_is_accepted_is_caught: AcceptStaleTokens, "the newest is";
    a_claim_under_a_current_lease_is_caught: ClaimEarly, "under a current lease";
    a_forgotten_step_is_caught: ForgetSteps, "forgotten";
    a_lost_submit_is_caught: LoseSubmits, "is gone";
    a_key_with_two_jobs_is_caught: IgnoreKeys, "two jobs";
    a_lock_key_held_twice_is_caught: IgnoreLockKeys, "its lock key is held";
    an_attempt_too_many_is_caught: OneAttemptMore, "try";
    a_job_that_nobody_takes_up_again_is_caught: ForgetLostJobs, "stuck";
    a_cooldown_that_is_passed_over_is_caught: IgnoreCooldowns, "was reopened";
    a_step_booked_twice_is_caught: BookStepsTwice, "booked twice";
    a_success_that_is_undone_is_caught: UndoSuccess, "its success";
    a_start_at_a_closed_upstream_is_caught: IgnoreClosures, "is closed until";
    a_second_probe_is_caught: ManyProbes, "beside the probe";
    a_limit_that_is_passed_is_caught: IgnoreLimits, "calls in flight";
    a_reservation_that_outlives_its_attempt_is_caught: KeepReservations, "did not come back";
    a_providers_word_that_is_not_heeded_is_caught: IgnoreRoom, "no more was left";
    a_call_that_is_thought_too_small_is_caught: IgnoreEstimates, "no more was left";
    a_wasted_call_that_is_not_called_so_is_caught: WasteNothing, "is wasted";
}
