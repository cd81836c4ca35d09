//! What the tests of the API share. `client` and `schema` work against any address, also that of the real
//! program; `server` runs the API in the test's own process over stores in memory.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "test code that each file uses in part")]

pub mod client;
pub mod memory;
pub mod schema;
pub mod server;
