//! coolant-parse.
