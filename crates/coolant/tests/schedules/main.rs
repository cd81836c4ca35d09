//! Schedules: which instants an expression names, and that each of them becomes one job, whoever looks and
//! whatever fails.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong")]

mod cron;
#[path = "../../../coolant-backends/tests/support/database.rs"]
mod database;
mod firing;
mod http;
#[path = "../support/mod.rs"]
mod support;
