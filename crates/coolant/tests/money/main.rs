//! Money: the ledger over HTTP and by command, limits that providers state, the fake provider, the storm.
//!
//! Everything but the ledger's own calls is shown on the real program as processes of their own.

#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod fake_provider;
mod ledger;
mod program;
mod room;
mod spent;
mod storm;
#[path = "../support/mod.rs"]
mod support;
