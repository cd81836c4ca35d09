//! coolant-ai.
