//! The `coolant` program.

fn main() {}
