//! Durable AI work: each piece is paid for once, whatever fails.

pub mod bell;
pub mod engine;
pub mod http;
