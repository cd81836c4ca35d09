//! Behaviour that real systems got wrong, shown on the real program: `coolant serve` as a process of its own,
//! spoken to over HTTP, on SQLite, on PostgreSQL, and on a fleet: two processes for each server, which share a
//! PostgreSQL and are asked in turn, so that each step meets another process than the step before.
//!
//! A scenario is written once and stands in the one list below, which runs it everywhere. Those that need a
//! PostgreSQL of their own are in `outage`, `faults` and `soak`.
//!
//! Always true:
//! - a test waits for what the API says, with a deadline, never for a time;
//! - a lease that has to run out is short, and its end is seen by the next claim.

#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]
#![allow(clippy::print_stdout, reason = "a test says what it skips")]

mod api;
mod blocked;
#[path = "../support/client.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared; each test uses a part of it")]
mod client;
#[path = "../../../coolant-backends/tests/support/database.rs"]
mod database;
mod doors;
mod fairness;
mod faults;
mod fleet;
mod keys;
mod leases;
mod locks;
mod outage;
mod own_postgres;
#[path = "../indexing/provider.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared; each test uses a part of it")]
mod provider;
mod redrive;
mod restarts;
mod schedules;
mod soak;
mod steps;
mod upstreams;
mod way;
mod world;

/// Every scenario: those that run everywhere, and those that run on every store but on no fleet.
macro_rules! scenarios {
    (
        everywhere: { $($file:ident: $($name:ident),+;)+ }
        not_on_a_fleet: { $($of:ident: $($alone:ident),+;)+ }
    ) => {
        mod sqlite {
            $($(#[test] fn $name() {
                crate::world::on_sqlite(async |world| crate::$file::$name(world).await);
            })+)+
            $($(#[test] fn $alone() {
                crate::world::on_sqlite(async |world| crate::$of::$alone(world).await);
            })+)+
        }
        mod postgres {
            $($(#[test] fn $name() {
                crate::world::on_postgres(async |world| crate::$file::$name(world).await);
            })+)+
            $($(#[test] fn $alone() {
                crate::world::on_postgres(async |world| crate::$of::$alone(world).await);
            })+)+
        }
        mod of_a_fleet {
            $($(#[test] fn $name() {
                crate::world::on_a_fleet(async |world| crate::$file::$name(world).await);
            })+)+
        }
    };
}

scenarios! {
    everywhere: {
        leases:
            s01_a_zombie_cannot_overwrite_the_newer_result,
            s02_a_dead_workers_job_comes_back_although_its_name_lives_on,
            s03_a_job_of_ten_leases_runs_once_beside_an_idle_worker,
            s04_a_job_that_kills_every_worker_ends_after_three_claims,
            s05_jobs_given_back_at_a_shutdown_are_as_before,
            s05_a_job_given_back_fifty_times_is_a_dead_letter;
        keys:
            s06_a_storm_of_retries_starts_one_execution,
            s07_a_permanent_failure_waits_for_a_new_key_or_an_operator,
            s09_a_key_is_the_same_work_for_one_tenant,
            s10_a_hundred_submits_at_once_on_two_servers_make_one_job,
            s10_a_hundred_equal_submits_in_one_batch_make_one_job,
            s11_a_submit_whose_answer_was_lost_is_found_again;
        doors:
            every_door_of_a_failed_job_says_the_same_seconds,
            every_door_of_a_job_between_two_tries_says_the_same_seconds,
            an_operator_passes_the_cooldown_on_record;
        fairness:
            s14_ten_jobs_of_a_tenant_start_within_twenty_claims_beside_ten_thousand,
            s14_a_job_without_a_tenant_is_a_tenant_of_its_own,
            s14_the_exhausted_rate_of_a_tenant_delays_no_other,
            s14_a_job_without_a_tenant_spends_nobodys_budget,
            the_jobs_that_go_first_are_counted_as_tenants_take_turns;
        upstreams:
            s08_a_closed_upstream_holds_its_jobs_and_no_others,
            s15_no_second_holds_more_starts_than_the_rate_and_its_burst,
            s16_a_budget_is_not_overspent_and_a_dead_workers_part_comes_back;
        blocked:
            a_job_that_nobody_may_claim_waits_no_longer_than_it_said,
            the_phase_that_a_job_shows_is_the_phase_that_finds_it;
        redrive:
            s12_a_redrive_moves_the_newest_twin_and_the_free_ones_once,
            s12_a_redrive_goes_on_after_a_crash;
        restarts:
            s13_a_killed_server_loses_no_accepted_job;
        schedules:
            each_tick_of_a_schedule_is_one_job_on_two_servers;
        locks:
            a_server_and_a_command_share_a_lock;
        steps:
            s17_a_second_worker_goes_on_at_chunk_61;
    }
    // Commands that speak to the store themselves: no server is asked, or only what they left behind; and a server
    // that works.
    not_on_a_fleet: {
        doors:
            twenty_presses_of_retry_make_one_paid_call;
        schedules:
            an_operator_keeps_schedules_by_command;
        locks:
            a_command_that_succeeds_frees_its_lock_and_one_that_fails_leaves_it_cooling,
            a_command_under_a_lock_ends_with_its_own_status,
            of_commands_that_race_for_a_lock_one_runs,
            signals_reach_the_command_and_count_as_its_failure,
            a_killed_lock_run_leaks_its_lock_until_its_ttl,
            a_lock_is_renewed_while_its_command_runs,
            a_command_that_lost_its_lock_is_stopped,
            a_command_speaks_the_language_of_its_locale,
            locks_that_are_away_run_nothing;
    }
}
