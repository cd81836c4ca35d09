//! A worker and a store: who runs what, who stops when, and what is never lost or paid twice.

#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod common;
#[path = "../../../coolant-core/tests/common/forward.rs"]
mod forward;
mod leases;
mod paid_calls;
mod running;
mod shutdown;
