//! The conformance suite: what every store has to answer, written once and run on each.
//!
//! A backend's test file hands over a fresh store for every case:
//!
//! ```ignore
//! fn run(case: &'static coolant_backends::conformance::Case) {
//!     let clock = coolant_backends::conformance::clock();
//!     runtime().block_on(async {
//!         let (store, twin) = open_two_handles_on_a_fresh_store(clock.reader()).await;
//!         (case.run)(Subject { store, twin, clock }).await;
//!     });
//! }
//! coolant_backends::conformance_tests!(run);
//! ```
//!
//! Time is a value that a case moves, so a store under test takes its time from the given clock. No case
//! sleeps, looks at a wall clock, or expects its store to be alone on a server: only to be empty.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a case ends where it goes wrong")]

mod blocked;
mod calls;
mod change;
mod claim;
mod history;
mod kit;
pub mod leaky;
mod ledger;
mod lock;
mod odd;
mod permits;
mod processes;
mod read;
mod retention;
mod room;
mod schedules;
mod stats;
mod steps;
mod submit;
mod sweep;
mod turns;
mod upstreams;
mod various;

use std::sync::Arc;

use coolant_core::model::ManualClock;
use coolant_core::store::Store;
use coolant_core::time::Timestamp;
use futures::future::BoxFuture;

/// A fresh, empty store under test.
pub struct Subject {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Another handle on the same data, as another process would have: its own connections, where there are
    /// any. May be the same handle where a store lives in one process only.
    pub twin: Arc<dyn Store>,
    /// What both take their time from.
    pub clock: Arc<ManualClock>,
}

/// A rule that every store holds to.
pub struct Case {
    /// The rule.
    pub name: &'static str,
    /// Panics if the store breaks it.
    pub run: fn(Subject) -> BoxFuture<'static, ()>,
}

/// The clock that a case starts with.
#[must_use]
pub fn clock() -> Arc<ManualClock> {
    ManualClock::at(Timestamp::from_millis(1_800_000_000_000))
}

/// The case of that name.
#[must_use]
pub fn case(name: &str) -> &'static Case {
    CASES.iter().find(|case| case.name == name).expect("the list of cases names it")
}

/// Makes the list of cases, and a macro that registers a test for each of them. `$d` is a dollar sign: a
/// macro that makes a macro cannot write one.
macro_rules! cases {
    ($d:tt $($module:ident: $($name:ident),* $(,)?;)*) => {
        /// Every case.
        pub const CASES: &[Case] = &[
            $($(Case { name: stringify!($name), run: |subject| Box::pin($module::$name(subject)) },)*)*
        ];

        /// Registers one `#[test]` for each case; `$d run` is a `fn(&'static Case)`.
        #[macro_export]
        macro_rules! conformance_tests {
            ($d run:path) => {
                $($(
                    #[test]
                    fn $name() {
                        $d run($d crate::conformance::case(stringify!($name)));
                    }
                )*)*
            };
        }
    };
}

cases! { $
    submit:
        a_new_job_waits_for_its_turn,
        one_key_is_one_job_whatever_its_status,
        a_hundred_simultaneous_submits_of_a_key_make_one_job,
        twins_in_one_call_are_one_job,
        other_parameters_are_refused_and_change_nothing,
        parameters_are_compared_by_meaning,
        tenants_share_no_keys,
        jobs_without_a_key_are_never_one,
        a_submit_that_comes_again_is_answered_as_the_first_time,
        a_failed_key_is_reopened_once_and_only_after_its_cooldown,
        a_submit_reopens_no_permanent_failure_and_no_cancelled_job,
        a_start_may_lie_ahead;
    claim:
        of_one_tenant_the_lower_rank_goes_first_then_the_smaller_id,
        a_claim_gives_what_was_asked_for_and_no_more,
        an_asker_without_queues_gets_nothing,
        nothing_is_claimed_before_its_instant,
        simultaneous_claims_share_no_job,
        the_lease_is_the_claims_or_the_jobs,
        a_lease_that_ran_out_is_claimed_again_in_its_turn,
        a_worker_killer_is_dead_lettered_by_the_claim,
        a_claim_brings_the_record_and_the_finished_steps,
        what_was_asked_for_is_remembered;
    turns:
        a_minute_of_waiting_is_worth_a_step_of_priority,
        a_low_priority_does_not_starve,
        tenants_take_turns_whatever_their_backlogs_and_priorities,
        ten_jobs_wait_for_no_more_than_twenty_claims_of_two_processes,
        the_turns_of_one_process_are_known_to_the_others,
        a_large_claim_is_shared_and_what_one_does_not_need_the_others_get,
        a_tenant_whose_jobs_cannot_start_passes_its_turn_on,
        a_lost_job_comes_back_in_its_tenants_turn,
        every_one_of_many_tenants_gets_its_turn,
        jobs_for_later_go_among_the_others_by_their_instants,
        jobs_for_later_keep_to_lock_keys_and_gates,
        ten_thousand_jobs_of_one_instant_delay_ten_of_another_tenant_by_twenty_claims,
        jobs_of_one_instant_in_several_lines_are_each_given_out_once,
        the_jobs_ahead_are_those_that_turns_put_there,
        jobs_of_several_upstreams_go_in_their_tenants_order;
    lock:
        one_job_of_a_lock_key_runs_at_a_time,
        simultaneous_claims_give_out_a_lock_key_once,
        a_lock_key_shares_the_cooldown,
        what_frees_a_lock_key_frees_it_at_once,
        tenants_share_no_lock_keys,
        a_late_beat_does_not_bring_a_taken_lock_key_back,
        of_late_beats_in_one_call_one_gets_the_lock_key,
        live_lock_keys_are_those_of_pending_and_running_jobs;
    change:
        a_beat_moves_the_lease_and_carries_the_progress,
        every_change_is_answered_in_its_place,
        changes_of_one_job_are_made_in_the_order_given,
        a_stale_token_is_refused_and_changes_nothing,
        a_repeated_settle_is_answered_alike_and_booked_once,
        of_simultaneous_settles_one_is_done,
        a_success_is_final_and_keeps_its_result,
        a_late_success_raises_a_buried_job,
        a_failure_is_kept_with_its_wait,
        a_deferral_and_a_release_use_up_no_attempt,
        a_cancel_ends_a_pending_job_and_tells_the_worker_of_a_running_one,
        a_success_after_a_cancel_keeps_its_cost,
        a_dead_letter_is_reopened_or_discarded,
        the_audit_is_written_with_the_change_or_not_at_all;
    steps:
        a_step_is_kept_and_comes_back,
        a_step_needs_the_newest_token,
        a_step_saved_twice_by_one_attempt_is_booked_once,
        a_later_attempt_may_replace_a_step,
        a_step_begins_the_wait_of_a_job_anew,
        steps_survive_a_reopening,
        every_paid_call_has_a_ledger_row,
        attempts_are_the_history_of_a_job;
    ledger:
        everything_about_a_paid_call_comes_back,
        a_call_of_no_use_is_wasted_also_within_a_step,
        a_step_that_is_paid_again_was_wasted_before,
        a_settled_call_that_nothing_keeps_is_wasted_with_its_attempt,
        what_an_attempt_settled_is_wasted_however_it_ends_without_a_result,
        calls_of_no_job_are_booked_once,
        the_ledger_comes_newest_first_in_pages_without_gaps,
        every_filter_of_the_ledger_filters,
        the_ledger_adds_up_by_whatever_is_asked,
        sums_of_the_ledger_stop_at_the_largest_amount,
        a_start_that_a_cooldown_refuses_is_counted_at_what_it_would_have_cost;
    retention:
        what_is_finished_is_forgotten_when_its_time_has_come,
        each_kind_is_kept_as_long_as_it_is_said,
        the_oldest_are_forgotten_first_and_no_more_than_asked,
        a_key_that_is_forgotten_at_that_moment_gives_the_old_job_or_a_new_one,
        work_comes_back_to_a_queue_that_rested_for_long;
    sweep:
        the_sweep_ends_what_time_has_ended,
        the_sweep_leaves_alone_what_may_still_run,
        the_sweep_keeps_to_its_limit;
    read:
        jobs_come_in_the_order_asked,
        a_key_finds_its_job_within_its_tenant,
        every_filter_filters,
        pages_go_from_new_to_old_without_gaps,
        the_jobs_ahead_are_counted,
        dead_letters_are_grouped_by_what_failed_alike;
    stats:
        the_metrics_count_what_happened,
        the_metrics_of_a_queue_are_its_own,
        the_metrics_forget_what_is_older_than_the_window,
        counters_add_up;
    various:
        the_clock_is_the_given_one,
        a_redrive_is_saved_only_over_the_version_it_was_read_with,
        the_audit_comes_newest_first;
    schedules:
        a_schedule_is_saved_only_over_the_version_it_was_read_with,
        a_schedule_moves_together_with_the_jobs_of_its_ticks,
        a_tick_whose_job_is_there_is_left_as_it_is_and_counted_nowhere,
        of_simultaneous_moves_of_a_schedule_one_is_made,
        a_deleted_schedule_is_gone_and_one_made_again_is_another,
        schedules_are_listed_by_name_within_their_tenant,
        a_schedule_is_due_when_its_tick_has_come;
    processes:
        a_process_is_as_fresh_as_its_last_renewal,
        the_leases_of_a_dead_process_end_at_once,
        a_stopped_process_keeps_its_leases_for_their_time,
        a_process_whose_connection_broke_lives_by_its_renewals,
        only_the_leases_of_the_dead_end,
        a_burial_keeps_to_its_limit,
        of_two_who_bury_a_process_each_lease_ends_once,
        who_is_buried_alive_loses_nothing_until_somebody_claims,
        what_the_death_of_its_worker_ends_is_ended_by_the_sweep;
    upstreams:
        an_upstream_is_as_it_was_set,
        a_failure_that_names_an_upstream_closes_it_for_all,
        of_simultaneous_claims_and_permits_one_is_the_probe,
        a_probes_calls_are_its_own_and_their_success_opens,
        a_probe_that_dies_makes_room_for_another,
        a_failed_probe_closes_for_longer,
        three_failures_in_a_row_over_all_workers_close,
        a_credential_closes_all_that_is_paid_with_it,
        an_operator_closes_for_a_while;
    permits:
        of_sixteen_simultaneous_permits_of_a_limit_of_two_two_are_given,
        a_permit_that_is_asked_for_again_is_the_same_and_takes_nothing,
        a_permit_of_a_job_needs_its_lease_and_ends_with_it,
        a_settled_call_is_booked_once_with_its_job,
        a_call_that_is_settled_after_its_lease_is_paid_all_the_same,
        a_call_without_a_job_is_paid_too,
        a_step_settles_the_permit_of_its_call,
        a_budget_is_reserved_settled_and_given_back,
        a_spent_budget_stops_claims_until_the_next_day,
        a_tenants_limits_hold_over_all_upstreams,
        a_job_makes_no_more_paid_calls_than_it_may,
        a_rate_lets_calls_begin_one_after_another,
        a_call_that_was_cut_short_is_booked_and_says_nothing_of_its_upstream,
        a_call_that_was_not_sent_costs_nothing_and_counts_in_a_row;
    room:
        what_a_provider_says_is_left_is_heeded,
        simultaneous_calls_take_no_more_than_is_left,
        a_step_tells_the_upstream_of_its_call_what_is_left,
        what_a_lost_attempt_had_in_flight_is_room_again,
        a_call_whose_end_states_nothing_is_taken_off_what_is_left,
        what_is_left_of_one_upstream_concerns_no_other,
        estimates_of_any_size_are_in_flight_together;
    blocked:
        the_phase_that_is_shown_is_the_phase_that_is_found,
        what_waits_too_long_for_an_upstream_ends_with_its_code,
        a_wait_begins_with_the_closing_and_lasts_through_probes,
        what_waits_too_long_for_money_is_given_up,
        what_waits_too_long_is_given_up_a_few_at_a_time,
        a_tenant_out_of_money_leaves_a_claim_to_the_others;
    odd:
        odd_text_comes_back_as_it_was,
        a_megabyte_comes_back_as_it_was,
        numbers_at_their_bounds_come_back_as_they_were,
        a_thousand_jobs_go_through_at_once;
    history:
        a_random_history_agrees_with_the_model_1,
        a_random_history_agrees_with_the_model_2,
        a_random_history_agrees_with_the_model_3,
        a_random_history_agrees_with_the_model_4;
}
