//! Durable AI work: each piece is paid for once, whatever fails.
//!
//! As a program, see [`cli`]. To run jobs inside a program of your own, see [`embedded`]:
//!
//! ```no_run
//! use coolant::{Context, Coolant, Handler, HandlerError, async_trait};
//!
//! struct Greet;
//!
//! #[async_trait]
//! impl Handler for Greet {
//!     type Payload = String;
//!     type Output = String;
//!
//!     fn job_type(&self) -> &str {
//!         "GREET"
//!     }
//!
//!     async fn run(&self, ctx: &Context, name: String) -> Result<String, HandlerError> {
//!         ctx.step("greeting", async || Ok(format!("Hello, {name}!"))).await
//!     }
//! }
//! ```

pub mod app;
pub mod bell;
pub mod cli;
pub mod config;
mod deaths;
pub mod embedded;
pub mod engine;
pub mod http;
pub mod language;
mod size;
pub mod worker;

pub use async_trait::async_trait;
pub use coolant_core::evidence::Evidence;
pub use coolant_core::handler::{CallError, Charge, Context, Handler, HandlerError, Paid, PaidCall};
pub use coolant_core::retention::Retention;
pub use embedded::{Coolant, LeakyLock, LockError, LockGuard};
