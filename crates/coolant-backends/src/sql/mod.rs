//! What is said to the database, once for SQLite and PostgreSQL. Each function runs inside a transaction
//! that its caller opened.

pub(crate) mod ahead;
pub(crate) mod apply;
pub(crate) mod blocked;
pub(crate) mod candidates;
pub(crate) mod claim;
pub(crate) mod codec;
pub(crate) mod counters;
pub(crate) mod delayed;
pub(crate) mod documents;
pub(crate) mod effects;
pub(crate) mod examine;
pub(crate) mod floor;
pub(crate) mod jobs;
pub(crate) mod last_turns;
pub(crate) mod ledger;
pub(crate) mod lines;
pub(crate) mod locks;
pub(crate) mod lost;
pub(crate) mod operation;
pub(crate) mod permits;
#[cfg(test)]
pub(crate) mod plan;
pub(crate) mod processes;
pub(crate) mod retention;
pub(crate) mod schedules;
pub(crate) mod search;
pub(crate) mod stats;
pub(crate) mod submit;
pub(crate) mod upstreams;
pub(crate) mod vector_index;
pub(crate) mod waiting;
