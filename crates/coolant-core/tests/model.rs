//! What only the model store promises; everything else is checked by the suite that all stores share.
#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod common;

use common::*;
use coolant_core::model::{ManualClock, ModelStore};
use coolant_core::store::Store as _;
use futures::FutureExt as _;

#[test]
fn no_call_of_the_model_ever_waits() {
    let clock = ManualClock::at(at(0));
    let store = ModelStore::new(clock.reader());
    let submitted = store.submit(vec![new_job(1, spec())]).now_or_never().unwrap().unwrap();
    assert_eq!(submitted[0].record.job.created_at, at(0));
    clock.advance(secs(5));
    assert_eq!(store.now().now_or_never().unwrap().unwrap(), at(5));
    clock.set(at(3));
    assert_eq!(store.now().now_or_never().unwrap().unwrap(), at(3));
}
