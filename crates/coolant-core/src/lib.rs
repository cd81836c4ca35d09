//! The rules of durable AI work: jobs, leases, cooldowns and failure classes.
//!
//! Nothing in here does IO, reads a clock, starts a task or rolls dice: time, tokens and randomness come
//! in as values, so that a test, a simulation and the server all run the same rules.

pub mod documents;
pub mod evidence;
pub mod failure;
pub mod fingerprint;
pub mod gate;
pub mod handler;
pub mod job;
pub mod ledger;
pub mod lifecycle;
pub mod lock;
pub mod model;
pub mod money;
pub mod names;
pub mod prices;
pub mod process;
pub mod retention;
pub mod retry;
pub mod say;
pub mod schedule;
pub mod store;
pub mod time;
pub mod turns;
pub mod upstream;
pub mod usage;
pub mod view;
