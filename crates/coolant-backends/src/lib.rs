//! coolant-backends.
