//! `coolant index`, the real program, over folders good and bad: what is found, what is said, and what is
//! paid, whatever happens meanwhile.

#![cfg(unix)]
#![allow(dead_code, unreachable_pub, reason = "test code that each module uses in part")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test ends where it goes wrong, and prints its seed"
)]

#[path = "../support/client.rs"]
mod client;
#[path = "../../../coolant-backends/tests/support/database.rs"]
mod database;
mod fixtures;
mod kit;
mod limits;
#[path = "../../../coolant-parse/tests/common/made.rs"]
mod made;
mod provider;

#[path = "../../../coolant-parse/tests/common/manifest.rs"]
mod cases;

mod again;
mod deaths;
mod hostile;
mod kills;
mod manifest;
mod signals;
mod together;
mod trouble;
