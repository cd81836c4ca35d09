//! The rules of a job's life, one test each.

#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod common;

use common::*;
use coolant_core::failure::FailureClass::*;
use coolant_core::job::{Job, JobState, Outcome, Reopen, Wait};
use coolant_core::lifecycle::{Answer, Event, Refusal, bars, gives_up_at, holds_lock};
use coolant_core::names::Tenant;

fn claimed() -> Story {
    Story::of(job()).then(0, &claim())
}

#[test]
fn a_job_is_not_started_before_its_instant() {
    let waits = job_with(|_| {});
    let later =
        Story::of(Job { state: JobState::Pending { visible_at: at(10), wait: Wait::Start }, ..waits });
    later.refused(9, &claim(), &Refusal::NotVisible { visible_at: at(10) }).then(10, &claim());
}

#[test]
fn a_running_job_is_claimed_again_only_after_its_lease() {
    let story = claimed().refused(29, &claim(), &Refusal::NotVisible { visible_at: at(30) });
    let story = story.then(30, &claim());
    assert_eq!(story.job.counters.claims, 2);
    assert_eq!(story.last.ended.as_ref().map(|end| (end.number, end.outcome)), Some((1, Outcome::Lost)));
}

#[test]
fn a_lease_is_the_claims_then_the_jobs_and_kept_in_bounds() {
    let lease_of = |asked, own| {
        let job = job_with(|spec| spec.policy.lease = own);
        let event = Event::Claim { worker: "w".into(), lease: asked };
        Story::of(job).then(0, &event).job.visible_at().unwrap().as_millis()
    };
    assert_eq!(lease_of(None, secs(7)), 7000);
    assert_eq!(lease_of(Some(secs(9)), secs(7)), 9000);
    assert_eq!(lease_of(Some(secs(0)), secs(7)), 500);
    assert_eq!(lease_of(Some(secs(9999)), secs(7)), 3_600_000);
}

#[test]
fn a_stale_token_is_refused_by_every_event_that_carries_one() {
    let story = claimed().then(30, &claim());
    [renew(1), step(1, "s", 1), succeed(1), fail(1, Network), defer(1, 5), release(1)]
        .iter()
        .fold(story, |story, event| story.refused(31, event, &Refusal::LeaseLost));
}

#[test]
fn a_late_beat_a_late_step_and_a_late_success_are_accepted() {
    claimed()
        .answered(100, &renew(1), &Answer::Held { until: at(130) })
        .answered(200, &step(1, "s", 1), &Answer::Held { until: at(130) })
        .answered(300, &succeed(1), &Answer::Done);
}

#[test]
fn a_beat_never_shortens_a_lease_when_the_clock_steps_back() {
    claimed().then(20, &renew(1)).answered(15, &renew(1), &Answer::Held { until: at(50) });
}

#[test]
fn a_late_success_raises_a_job_that_the_sweep_buried_with_its_last_attempt() {
    let story = Story::of(job_with(|spec| spec.policy.max_attempts = 1)).then(0, &claim());
    let story = story.answered(30, &Event::Sweep, &Answer::Ended).failed_as("WORKER_LOST");
    let story = story.refused(31, &fail(1, Network), &Refusal::LeaseLost);
    let story = story.answered(32, &succeed(1), &Answer::Done);
    assert_eq!(story.job.state, JobState::Succeeded { at: at(32) });
    assert_eq!((story.job.counters.lost, &story.job.last_error), (0, &None));
}

#[test]
fn an_attempt_over_its_time_limit_is_timed_out_whoever_notices() {
    let long = || Story::of(job_with(|spec| spec.policy.timeout = secs(20))).then(0, &claim());
    for (seconds, event) in [(20, Event::Sweep), (20, renew(1)), (30, claim()), (20, fail(1, InvalidRequest))]
    {
        let story = long().answered(seconds, &event, &Answer::Ended);
        assert_eq!(story.job.last_error.as_ref().unwrap().code, "TIMED_OUT");
        assert_eq!(story.job.counters.timeouts, 1);
        story.pending_until(seconds + 5).refused(seconds, &renew(1), &Refusal::LeaseLost);
    }
    // Its answer is paid for.
    long().answered(25, &succeed(1), &Answer::Done);
}

#[test]
fn a_repeated_settle_is_answered_alike_and_changes_nothing() {
    for event in [succeed(1), fail(1, Network), fail(1, InvalidRequest), defer(1, 5), release(1)] {
        claimed().answered(1, &event, &Answer::Done).answered(2, &event, &Answer::Already);
    }
    let overloaded = fail_as(1, of_upstream(Overloaded));
    claimed().answered(1, &overloaded, &Answer::Done).answered(2, &overloaded, &Answer::Already);
    // Also once the next attempt runs.
    claimed().then(1, &release(1)).then(2, &claim()).answered(3, &release(1), &Answer::Already);
    // Another end than the first is no repetition.
    claimed().then(1, &fail(1, Network)).refused(2, &succeed(1), &Refusal::LeaseLost);
}

#[test]
fn a_success_raises_no_job_that_its_own_attempt_gave_up() {
    let story = Story::of(job_with(|spec| spec.policy.max_attempts = 1)).then(0, &claim());
    let story = story.then(1, &fail(1, Network)).failed_as("LLM_NETWORK");
    story.refused(2, &succeed(1), &Refusal::LeaseLost);
}

#[test]
fn a_new_attempt_starts_without_the_progress_of_the_last() {
    let progress = Some(coolant_core::job::Progress { done: 3, ..Default::default() });
    let story = claimed().then(1, &Event::Renew { token: token(1), progress: progress.clone() });
    assert_eq!(story.job.progress, progress);
    let story = story.then(31, &claim());
    assert_eq!(story.job.progress, None);
}

#[test]
fn the_wait_for_an_upstream_is_over_with_a_failure_of_the_jobs_own_and_with_a_reopening() {
    let waiting = || claimed().then(0, &defer(1, 10)).then(10, &claim());
    assert_eq!(waiting().job.deferred_since, Some(at(0)), "a claim alone does not end it");
    assert_eq!(waiting().then(11, &fail(2, Network)).job.deferred_since, None);
    let story = claimed().then(0, &defer(1, 10)).then(1, &Event::Cancel).then(2, &reopen());
    assert_eq!(story.job.deferred_since, None);
}

#[test]
fn nothing_leaves_a_success() {
    let story = claimed().then(1, &succeed(1));
    let story = story.refused(2, &claim(), &Refusal::Ended).refused(2, &Event::Cancel, &Refusal::Ended);
    let story = story.refused(2, &reopen(), &Refusal::Succeeded).refused(2, &forced(), &Refusal::Succeeded);
    story.refused(2, &Event::Discard, &Refusal::Ended).answered(9999, &Event::Sweep, &Answer::Already);
}

#[test]
fn a_worker_killer_is_dead_lettered_after_max_lost_although_attempts_are_left() {
    let story = Story::of(job_with(|spec| spec.policy.max_attempts = 100));
    let story = story.then(0, &claim()).then(30, &claim()).then(60, &claim());
    let story = story.answered(90, &claim(), &Answer::Ended).failed_as("WORKER_LOST");
    assert_eq!((story.job.counters.lost, story.job.counters.executions), (3, 3));
    let story = story.refused(90, &claim(), &Refusal::Ended);
    story.refused(389, &reopen(), &Refusal::CoolingDown { until: at(390) }).then(390, &reopen());
}

#[test]
fn a_job_out_of_attempts_is_ended_by_the_sweep_and_one_with_attempts_left_is_not() {
    claimed().answered(30, &Event::Sweep, &Answer::Already);
    let story = Story::of(job_with(|spec| spec.policy.max_attempts = 1)).then(0, &claim());
    story.answered(29, &Event::Sweep, &Answer::Already).answered(30, &Event::Sweep, &Answer::Ended);
}

#[test]
fn the_lease_is_the_whole_cooldown_of_a_lost_worker() {
    let story = claimed().answered(29, &Event::Sweep, &Answer::Already).then(30, &claim());
    assert_eq!(story.job.counters.lost, 1);
    assert_eq!(story.job.last_error.as_ref().unwrap().class, WorkerLost);
}

fn died(n: i64) -> Event {
    Event::HolderDied { token: token(n) }
}

#[test]
fn a_lease_ends_with_the_process_that_holds_it_and_the_job_is_lost_like_any_other() {
    let story = claimed().refused(3, &died(2), &Refusal::LeaseLost).answered(4, &died(1), &Answer::Done);
    assert_eq!((story.job.visible_at(), story.job.counters.lost), (Some(at(4)), 0));
    // Whoever was taken for dead by mistake goes on, as long as nobody else has claimed the job.
    story.clone().answered(5, &succeed(1), &Answer::Done);
    story.clone().answered(5, &renew(1), &Answer::Held { until: at(35) });
    let story = story.answered(4, &died(1), &Answer::Already).then(4, &claim());
    assert_eq!((story.job.counters.lost, story.job.counters.executions), (1, 2));
    story.refused(5, &succeed(1), &Refusal::LeaseLost).refused(5, &died(1), &Refusal::LeaseLost);
}

#[test]
fn a_death_brings_no_lease_back_that_had_run_out() {
    let story = claimed().answered(31, &died(1), &Answer::Already);
    assert_eq!(story.job.visible_at(), Some(at(30)));
}

#[test]
fn a_job_that_dies_with_its_process_or_was_cancelled_under_it_is_ended_by_the_sweep_at_once() {
    let last = job_with(|spec| spec.policy.max_attempts = 1);
    let story =
        Story::of(last).then(0, &claim()).then(4, &died(1)).answered(4, &Event::Sweep, &Answer::Ended);
    assert!(matches!(story.job.state, JobState::Failed { .. }));
    let story =
        claimed().then(1, &Event::Cancel).then(4, &died(1)).answered(4, &Event::Sweep, &Answer::Ended);
    assert!(matches!(story.job.state, JobState::Cancelled { .. }));
}

#[test]
fn retries_follow_the_schedule_and_end_in_the_dead_letter_queue() {
    let mut story = Story::of(job());
    let mut now = 0;
    for (attempt, wait) in [(1, 5), (2, 30), (3, 120)] {
        story = story.then(now, &claim()).then(now, &fail(attempt, Network)).pending_until(now + wait);
        assert!(matches!(story.job.state, JobState::Pending { wait: Wait::Cooling, .. }));
        now += wait;
    }
    let story = story.then(now, &claim()).then(now, &fail(4, Network)).failed_as("LLM_NETWORK");
    assert_eq!(story.job.state, JobState::Failed { at: at(now), reopen: Reopen::From(at(now + 300)) });
}

#[test]
fn a_release_uses_up_no_attempt_and_is_claimable_at_once_until_the_limit() {
    let mut story = Story::of(job_with(|spec| spec.policy.max_releases = 3));
    for n in 1..=2 {
        story = story.then(n, &claim()).then(n, &release(n)).pending_until(n);
        let counters = story.job.counters;
        assert_eq!((counters.executions, counters.tries, counters.releases), (0, 0, n as u32));
        assert_eq!(story.job.last_error, None);
    }
    story.then(3, &claim()).then(3, &release(3)).failed_as("RELEASE_LIMIT").then(303, &reopen());
}

#[test]
fn a_deferral_uses_up_no_attempt_and_says_why_it_waits() {
    let story = claimed().then(1, &defer(1, 60)).pending_until(61);
    let counters = story.job.counters;
    assert_eq!((counters.tries, counters.deferrals, counters.releases, counters.lost), (0, 1, 0, 0));
    assert!(
        matches!(&story.job.state, JobState::Pending { wait: Wait::Deferred { reason }, .. } if reason == "closed")
    );
    assert_eq!(gives_up_at(&story.job), Some(at(86_401)));
}

#[test]
fn an_upstreams_failure_waits_for_free_even_on_the_last_try() {
    for class in [RateLimited, Overloaded, QuotaExhausted, Auth, Permission] {
        let story = Story::of(job_with(|spec| spec.policy.max_attempts = 1)).then(0, &claim());
        let story = story.then(0, &fail_as(1, of_upstream(class)));
        assert_eq!((story.job.counters.tries, story.job.counters.deferrals), (0, 1));
        let end = story.last.ended.as_ref().unwrap();
        assert_eq!((end.outcome, end.error.as_ref().unwrap().class), (Outcome::Deferred, class));
        story.pending_until(if class.needs_operator() { 3600 } else { 10 });
    }
}

#[test]
fn an_upstreams_failure_without_an_upstream_counts() {
    let story = claimed().then(0, &fail(1, RateLimited)).pending_until(5);
    assert_eq!((story.job.counters.tries, story.job.counters.deferrals), (1, 0));
    claimed().then(0, &fail(1, Auth)).pending_until(300);
}

#[test]
fn a_failure_that_says_never_again_does_not_wait_for_its_upstream() {
    let final_ = coolant_core::failure::Failure { final_: true, ..of_upstream(RateLimited) };
    claimed().then(0, &fail_as(1, final_)).failed_as("LLM_RATE_LIMIT");
}

#[test]
fn a_job_that_waits_too_long_is_dead_lettered_with_its_upstreams_code() {
    let short = |spec: &mut coolant_core::job::JobSpec| spec.policy.max_wait = secs(100);
    let told = fail_as(1, of_upstream(Overloaded).with_retry_after(Some(secs(1000))));
    let story = Story::of(job_with(short)).then(0, &claim()).then(0, &told);
    let story = story.answered(99, &Event::Sweep, &Answer::Already);
    story.answered(100, &Event::Sweep, &Answer::Ended).failed_as("LLM_OVERLOADED");
    // The time runs from the first deferral, over all of them.
    let story = Story::of(job_with(short)).then(0, &claim()).then(0, &defer(1, 60));
    story.then(60, &claim()).then(101, &defer(2, 60)).failed_as("UPSTREAM_CLOSED");
}

#[test]
fn a_wait_for_an_upstream_does_not_end_with_the_code_of_an_older_failure() {
    let story = Story::of(job_with(|spec| spec.policy.max_wait = secs(100))).then(0, &claim());
    let story = story.then(0, &fail(1, HandlerError)).then(5, &claim()).then(5, &defer(2, 1000));
    story.answered(105, &Event::Sweep, &Answer::Ended).failed_as("UPSTREAM_CLOSED");
}

#[test]
fn a_pending_job_is_cancelled_at_once_and_a_running_one_at_its_next_beat() {
    let story = Story::of(job()).answered(1, &Event::Cancel, &Answer::Done);
    assert_eq!(story.job.state, JobState::Cancelled { at: at(1) });
    let story = story.answered(2, &Event::Cancel, &Answer::Already).refused(2, &claim(), &Refusal::Ended);
    story.then(3, &reopen()).then(3, &claim());

    let story = claimed().answered(1, &Event::Cancel, &Answer::Done);
    assert_eq!(story.job.visible_at(), Some(at(30)));
    let story = story.answered(2, &Event::Cancel, &Answer::Already);
    let story = story.answered(3, &renew(1), &Answer::Cancelled);
    assert_eq!(story.job.state, JobState::Cancelled { at: at(3) });
    story.refused(4, &renew(1), &Refusal::LeaseLostByCancel);
}

#[test]
fn a_success_after_a_cancel_is_refused_and_its_cost_kept() {
    let success = Event::Succeed { token: token(1), result: 1.into(), usage: vec![paid(7)] };
    let story = claimed().then(1, &Event::Cancel).answered(2, &success, &Answer::Cancelled);
    assert_eq!(story.job.state, JobState::Cancelled { at: at(2) });
    assert_eq!((story.job.usage.cost.as_nanos(), story.job.usage.wasted.as_nanos()), (7, 7));
    story.refused(3, &success, &Refusal::LeaseLostByCancel);
}

#[test]
fn a_cancelled_job_whose_worker_is_gone_ends_cancelled() {
    for event in [claim(), Event::Sweep] {
        let story = claimed().then(1, &Event::Cancel).answered(30, &event, &Answer::Ended);
        assert_eq!(story.job.state, JobState::Cancelled { at: at(30) });
    }
}

#[test]
fn a_cancelled_job_that_runs_over_its_time_ends_cancelled_and_not_as_a_retry() {
    let story = Story::of(job_with(|spec| spec.policy.timeout = secs(20))).then(0, &claim());
    let story = story.then(1, &Event::Cancel).answered(20, &Event::Sweep, &Answer::Ended);
    assert_eq!(story.job.state, JobState::Cancelled { at: at(20) });
}

#[test]
fn every_door_is_closed_until_the_same_instant_while_a_job_cools() {
    let story = claimed().then(0, &fail(1, Network)).pending_until(5);
    let until = at(5);
    let story = story.refused(4, &claim(), &Refusal::NotVisible { visible_at: until });
    let story = story.refused(4, &reopen(), &Refusal::CoolingDown { until });
    let story = story.refused(5, &reopen(), &Refusal::NotEnded);
    let story = story.then(4, &forced()).pending_until(4);
    assert_eq!(story.job.counters.tries, 1, "the job has not ended, so its tries go on");
}

#[test]
fn a_permanent_failure_is_reopened_only_by_force() {
    for class in [InvalidRequest, ContextTooLong, NotFound, ContentFiltered, InvalidDocument] {
        let story = claimed().then(0, &fail(1, class));
        assert!(matches!(story.job.state, JobState::Failed { reopen: Reopen::OnlyForced, .. }));
        story.refused(999_999, &reopen(), &Refusal::Permanent).then(1, &forced()).pending_until(1);
    }
}

#[test]
fn a_reopening_gives_tries_afresh_and_counts_on_what_happened() {
    let story = Story::of(job_with(|spec| spec.policy.max_attempts = 1)).then(0, &claim());
    let story = story.then(0, &fail(1, Timeout)).then(1, &forced());
    let counters = story.job.counters;
    assert_eq!((counters.claims, counters.executions), (1, 1));
    assert_eq!((counters.tries, counters.lost, counters.timeouts, counters.deferrals), (0, 0, 0, 0));
    assert_eq!(story.job.finished_at, None);
    let story = story.then(1, &claim());
    assert_eq!((story.job.counters.claims, story.job.counters.executions), (2, 2));
}

#[test]
fn a_discarded_job_comes_back_by_no_door() {
    let story = claimed().refused(0, &Event::Discard, &Refusal::NotEnded).then(0, &fail(1, InvalidRequest));
    let story = story.answered(1, &Event::Discard, &Answer::Done);
    assert_eq!(story.job.state, JobState::Failed { at: at(0), reopen: Reopen::Discarded });
    let story = story.answered(2, &Event::Discard, &Answer::Already);
    story.refused(2, &reopen(), &Refusal::Permanent).refused(2, &forced(), &Refusal::Permanent);
}

#[test]
fn a_pending_job_past_its_expiry_ends_and_a_running_one_may_finish() {
    let expiring = || Story::of(job_with(|spec| spec.expires_at = Some(at(50))));
    assert_eq!(gives_up_at(&expiring().job), Some(at(50)));
    for event in [claim(), Event::Sweep] {
        let story = expiring().answered(50, &event, &Answer::Ended).failed_as("EXPIRED");
        story.refused(9999, &reopen(), &Refusal::Permanent);
    }
    expiring().then(49, &claim()).then(60, &renew(1)).answered(70, &succeed(1), &Answer::Done);
    let story = expiring().then(49, &claim()).answered(79, &Event::Sweep, &Answer::Ended);
    assert_eq!(story.failed_as("EXPIRED").job.counters.lost, 1);
}

#[test]
fn a_job_that_was_never_claimed_waits_for_what_is_closed_as_long_as_it_may() {
    let closed = |since| Event::Blocked { since: at(since), failure: failure(RateLimited) };
    let patient = || Story::of(job_with(|spec| spec.policy.max_wait = secs(100)));
    // From its own instant on, or from the closing.
    for (since, end) in [(-500, 100), (0, 100), (70, 170)] {
        let story = patient().answered(end - 1, &closed(since), &Answer::Already);
        let story = story.answered(end, &closed(since), &Answer::Ended).failed_as("LLM_RATE_LIMIT");
        assert_eq!(story.job.state, JobState::Failed { at: at(end), reopen: Reopen::From(at(end + 300)) });
        assert_eq!(story.last.ended, None, "no attempt was under way");
        story.then(end + 300, &reopen()).answered(end + 399, &closed(since), &Answer::Already);
    }
    // One that waits for itself, runs, or has ended, does not wait for what is closed.
    let cooling = patient().then(0, &claim()).then(0, &fail(1, Network)).pending_until(5);
    let cooling = cooling.answered(4, &closed(-500), &Answer::Already);
    cooling.answered(104, &closed(-500), &Answer::Already).answered(105, &closed(-500), &Answer::Ended);
    let running = patient().then(0, &claim()).answered(500, &closed(-500), &Answer::Already);
    running.then(500, &succeed(1)).answered(900, &closed(-500), &Answer::Already);
}

#[test]
fn an_expired_job_that_an_operator_insists_on_runs_once_more() {
    let story = Story::of(job_with(|spec| spec.expires_at = Some(at(50)))).then(60, &Event::Sweep);
    let story = story.then(70, &forced()).answered(71, &Event::Sweep, &Answer::Already);
    assert_eq!(gives_up_at(&story.job), None);
    let story = story.then(72, &claim());
    assert_eq!(story.job.counters.claims, 1);
    story.then(73, &fail(1, Network)).answered(74, &Event::Sweep, &Answer::Ended).failed_as("EXPIRED");
}

#[test]
fn what_an_attempt_without_a_result_paid_beside_its_steps_is_wasted() {
    let usage = vec![paid(5)];
    let ends = [
        Event::Fail { token: token(1), failure: failure(Network), jitter: 0.0, usage: usage.clone() },
        Event::Defer { token: token(1), wait: secs(1), reason: "r".into(), usage: usage.clone() },
    ];
    for end in ends {
        let story = claimed().then(0, &step(1, "kept", 3)).then(0, &end);
        assert_eq!((story.job.usage.cost.as_nanos(), story.job.usage.wasted.as_nanos()), (8, 5));
    }
    let story = claimed().then(0, &Event::Succeed { token: token(1), result: 1.into(), usage });
    assert_eq!((story.job.usage.cost.as_nanos(), story.job.usage.wasted.as_nanos()), (5, 0));
}

fn holder() -> Story {
    Story::of(job_with(|spec| {
        locked(spec);
        spec.policy.max_attempts = 2;
    }))
}

#[test]
fn a_lock_key_is_held_while_its_job_runs_and_while_it_cools() {
    let story = holder();
    assert_eq!(holds_lock(&story.job, at(0)), None);
    let story = story.then(0, &claim());
    assert_eq!(holds_lock(&story.job, at(29)), Some(at(30)));
    assert_eq!(holds_lock(&story.job, at(30)), None);
    let story = story.then(1, &fail(1, Network));
    assert_eq!(holds_lock(&story.job, at(5)), Some(at(6)));
    let story = story.then(6, &claim()).then(6, &fail(2, Network)).failed_as("LLM_NETWORK");
    assert_eq!(holds_lock(&story.job, at(305)), Some(at(306)));
    assert_eq!(holds_lock(&story.job, at(306)), None);
}

#[test]
fn success_cancel_deferral_permanent_failure_and_a_lost_worker_free_a_lock_key_at_once() {
    let free = |story: Story| assert_eq!(holds_lock(&story.job, at(1)), None, "{:?}", story.job.state);
    let running = || holder().then(0, &claim());
    free(running().then(1, &succeed(1)));
    free(running().then(0, &Event::Cancel).then(1, &renew(1)));
    free(running().then(1, &release(1)));
    free(running().then(1, &defer(1, 60)));
    free(running().then(1, &fail(1, InvalidRequest)));
    let lost = running().then(30, &claim()).then(60, &Event::Sweep).failed_as("WORKER_LOST");
    assert_eq!(holds_lock(&lost.job, at(60)), None);
    free(Story::of(job()).then(0, &claim()));
}

#[test]
fn a_beat_that_came_too_late_does_not_bring_a_lock_key_back_that_another_job_took() {
    let stalled = holder().then(0, &claim()).job;
    let other = Job { id: id(2), ..holder().job };
    assert_eq!(bars(&other, &stalled, &renew(1), at(40)), None, "nobody has it");
    let other = Story::of(other).then(40, &claim()).job;
    assert_eq!(bars(&other, &stalled, &renew(1), at(41)), Some(at(70)));
    assert_eq!(bars(&other, &stalled, &renew(1), at(29)), Some(at(70)), "a clock set back changes nothing");
    assert_eq!(bars(&stalled, &other, &renew(1), at(29)), None, "the one that took it goes on");
    assert_eq!(bars(&other, &stalled, &succeed(1), at(41)), None, "a late success is paid for");
    let cooling = Story::of(other).then(42, &fail(1, Network)).job;
    assert_eq!(bars(&cooling, &stalled, &renew(1), at(43)), Some(at(47)));
}

#[test]
fn a_claim_is_barred_by_others_of_its_lock_key_and_tenant_alone() {
    let running = holder().then(0, &claim()).job;
    let other = |change: fn(&mut coolant_core::job::JobSpec)| Job { id: id(2), ..job_with(change) };
    assert_eq!(bars(&running, &other(locked), &claim(), at(1)), Some(at(30)));
    assert_eq!(bars(&running, &other(locked), &claim(), at(30)), None);
    assert_eq!(bars(&running, &running, &claim(), at(1)), None);
    assert_eq!(bars(&running, &other(|_| {}), &claim(), at(1)), None);
    let of_another_tenant = other(|spec| {
        locked(spec);
        spec.tenant = Tenant::parse("other").unwrap();
    });
    assert_eq!(bars(&running, &of_another_tenant, &claim(), at(1)), None);
}
