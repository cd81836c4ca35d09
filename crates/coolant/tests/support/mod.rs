//! What the tests of the API share. `client` and `schema` work against any address, also that of the real
//! program; `server` runs the API in the test's own process over stores in memory.

#![allow(dead_code, unreachable_pub, reason = "every test file uses another part of it")]

pub mod client;
pub mod memory;
pub mod schema;
pub mod server;
