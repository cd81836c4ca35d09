//! Evidence: what a paid call left behind when it failed, and how it is read.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is known about one paid call that did not give a usable answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// HTTP status; `None` means that no answer came, and `body` is the client library's error text.
    pub status: Option<u16>,
    /// Header names in lower case with their values, in the order they came.
    pub headers: Vec<(String, String)>,
    /// The body: parsed JSON, or a string for anything that is not JSON (HTML, raw SSE text, plain text).
    pub body: Value,
}
