//! Coolant's stores.

#[cfg(feature = "conformance")]
pub mod conformance;
