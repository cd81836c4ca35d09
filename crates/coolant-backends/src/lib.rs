//! Coolant's stores: one SQL store for SQLite and PostgreSQL.
//!
//! Every text is written once for both (`conn` says how), every write goes through one queue that commits
//! in groups (`batch`), and every decision is `coolant_core::lifecycle`'s.

mod address;
mod batch;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod conn;
mod hints;
mod migrate;
mod pgvector;
mod postgres;
mod process_lock;
#[cfg(feature = "redis")]
mod redis_locks;
mod sql;
mod sqlite;
mod store;
mod stuck;
mod vector;

pub use address::{Address, InvalidAddress};
pub use clock::TestClock;
pub use hints::Hints;
#[cfg(feature = "redis")]
pub use redis_locks::RedisLocks;
pub use store::{Condition, Finding, Options, SqlStore, Tolerance};
