//! Room: what providers say is left of their limits, and calls that have to fit into it.

use std::sync::Arc;
use std::time::Duration;

use coolant_core::failure::FailureClass;
use coolant_core::lifecycle::Event;
use coolant_core::money::Usage;
use coolant_core::upstream::{
    Denial, Left, MOST_TOKENS, NoPermit, PermitRequest, PermitSettlement, Room, Verdict,
};
use serde_json::json;

use super::Subject;
use super::calls::*;
use super::kit::*;

fn left(amount: u64, seconds: u64) -> Vec<Left> {
    vec![Left { amount, reset_in: secs(seconds) }]
}

fn tokens(amount: u64, seconds: u64) -> Room {
    Room { tokens: left(amount, seconds), ..Room::default() }
}

/// Asks number `n` for a call of so many tokens.
fn sized(n: u32, tokens: u64) -> PermitRequest {
    PermitRequest { tokens, ..ask(n, None, 0.0) }
}

impl Subject {
    /// A call of `u` goes well, whose answer states that room.
    async fn told(&self, n: u32, room: Room) {
        self.permit(sized(n, 1)).await.unwrap();
        self.settle(PermitSettlement { verdict: Verdict::Ok { room }, ..ok(n, 0.0) }).await;
    }

    /// Why number `n` gets no permit for a call of so many tokens, and when to ask again.
    async fn refusal(&self, n: u32, tokens: u64) -> (Denial, Option<Duration>) {
        match self.permit(sized(n, tokens)).await {
            Err(NoPermit::Denied(denied)) => (denied.denial, denied.retry_after),
            other => panic!("not denied: {other:?}"),
        }
    }
}

pub(super) async fn what_a_provider_says_is_left_is_heeded(s: Subject) {
    s.told(1, Room { requests: left(1, 30), tokens: left(1000, 60) }).await;
    assert_eq!(s.refusal(2, 1001).await, (Denial::RateLimited, Some(secs(60))));
    assert_eq!(acquire(&s.twin, sized(2, 900)).await.unwrap().id, permit(2));
    assert_eq!(s.upstream("u").await.live.tokens, 900);
    assert_eq!(s.refusal(3, 50).await, (Denial::RateLimited, Some(secs(1))), "one call is in flight");
    s.advance(30);
    assert_eq!(s.refusal(3, 101).await.0, Denial::RateLimited);
    assert!(s.permit(sized(3, 100)).await.is_ok());
    // The reset: nobody knows what is left, and a call of any size goes.
    s.advance(30);
    assert!(s.permit(sized(4, 1_000_000)).await.is_ok());
}

pub(super) async fn simultaneous_calls_take_no_more_than_is_left(s: Subject) {
    s.told(0, tokens(1000, 60)).await;
    let asked = (1..=32_u32).map(|n| {
        let store = Arc::clone(if n % 2 == 0 { &s.store } else { &s.twin });
        async move { acquire(&store, sized(n, 150)).await }
    });
    let answers = futures::future::join_all(asked).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 6);
    assert_eq!(answers.iter().filter(|it| denial(it) == Some(Denial::RateLimited)).count(), 26);
    // In one call of the store, too.
    let more = s.store.acquire_permits((41..=44).map(|n| sized(n, 50)).collect()).await.unwrap();
    assert_eq!(more.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false, false]);
}

pub(super) async fn a_step_tells_the_upstream_of_its_call_what_is_left(s: Subject) {
    s.running(job(1)).await;
    s.permit(ask(1, Some(1), 0.0)).await.unwrap();
    let room = Room { requests: left(0, 30), ..Room::default() };
    let usage = vec![Usage { permit: Some(permit(1)), room, ..paid(5) }];
    s.apply(id(1), Event::SaveStep { token: token(1), name: "a".into(), output: json!(1), usage })
        .await
        .unwrap();
    assert_eq!(s.refusal(2, 0).await, (Denial::RateLimited, Some(secs(30))));
    let kept = &s.store.ledger(id(1)).await.unwrap()[0].usage;
    assert_eq!(kept.room, Room::default(), "that is not the ledger's affair");
    s.advance(30);
    assert!(s.permit(ask(3, None, 0.0)).await.is_ok());
}

pub(super) async fn what_a_lost_attempt_had_in_flight_is_room_again(s: Subject) {
    s.told(1, tokens(1000, 600)).await;
    s.running(job(1)).await;
    s.permit(PermitRequest { tokens: 900, ..ask(2, Some(1), 0.0) }).await.unwrap();
    assert_eq!(s.refusal(3, 200).await.0, Denial::RateLimited);
    s.advance(30);
    assert_eq!(s.upstream("u").await.live.tokens, 0);
    assert!(s.permit(sized(3, 200)).await.is_ok());
}

pub(super) async fn a_call_whose_end_states_nothing_is_taken_off_what_is_left(s: Subject) {
    s.told(1, tokens(1000, 60)).await;
    s.permit(sized(2, 400)).await.unwrap();
    let usage = Usage { input_tokens: 250, output_tokens: 50, ..Usage::default() };
    s.settle(PermitSettlement { usage, ..ok(2, 0.0) }).await;
    s.permit(sized(3, 400)).await.unwrap();
    s.settle(failed(3, FailureClass::InvalidRequest)).await;
    assert_eq!(s.refusal(4, 701).await, (Denial::RateLimited, Some(secs(60))));
    assert!(s.permit(sized(4, 700)).await.is_ok());
}

pub(super) async fn what_is_left_of_one_upstream_concerns_no_other(s: Subject) {
    s.store.set_tenant(&tenant("default"), Default::default()).await.unwrap();
    s.told(1, tokens(0, 60)).await;
    assert_eq!(s.refusal(2, 1).await.0, Denial::RateLimited);
    let elsewhere = PermitRequest { upstream: upstream("v"), ..sized(3, 1) };
    assert!(s.permit(elsewhere).await.is_ok());
    let now = s.twin.tenant(&tenant("default")).await.unwrap().unwrap();
    assert_eq!((now.live.permits, now.live.tokens), (1, 1));
}

pub(super) async fn estimates_of_any_size_are_in_flight_together(s: Subject) {
    let asked = s.store.acquire_permits((1..=3).map(|n| sized(n, u64::MAX)).collect()).await.unwrap();
    assert!(asked.iter().all(Result::is_ok));
    assert_eq!(s.upstream("u").await.live.tokens, 3 * MOST_TOKENS);
    s.settle(ok(1, 0.0)).await;
    assert_eq!(s.upstream("u").await.live.tokens, 2 * MOST_TOKENS);
}
