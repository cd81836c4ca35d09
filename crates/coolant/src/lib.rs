//! Durable AI work: each piece is paid for once, whatever fails.

pub mod bell;
pub mod embedded;
pub mod engine;
pub mod http;
pub mod worker;

pub use async_trait::async_trait;
pub use coolant_core::handler::{Context, Handler, HandlerError};
pub use embedded::Coolant;
