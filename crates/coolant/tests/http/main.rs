//! The API over HTTP: every call, in the test's own process, over stores in memory.

#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod dlq;
mod documents;
mod hostile;
mod jobs;
mod language;
mod locks;
mod openapi;
#[path = "../support/mod.rs"]
mod support;
mod upstreams;
