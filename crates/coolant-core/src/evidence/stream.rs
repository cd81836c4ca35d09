//! Streams as text: server-sent events and lines of JSON, read as far as a finished recording allows.

use serde_json::Value;

/// One event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    /// The name in its `event:` line.
    pub(crate) name: Option<String>,
    /// Its data: JSON if it parses, else text.
    pub(crate) data: Value,
}

impl Event {
    /// Whether this event reports an error: by its name, its type or its shape.
    pub(crate) fn is_error(&self) -> bool {
        let by_name = self.name.as_deref().is_some_and(|name| {
            name == "error" || name.ends_with(".failed") || name.to_ascii_lowercase().ends_with("exception")
        });
        by_name || is_error_object(&self.data)
    }

    /// Whether this event says that the stream is complete.
    pub(crate) fn is_end(&self) -> bool {
        const ENDS: [&str; 7] = [
            "message_stop",
            "response.completed",
            "response.incomplete",
            "message-end",
            "stream-end",
            "done",
            "completion.done",
        ];
        if let Value::String(text) = &self.data {
            return text.trim() == "[DONE]";
        }
        let kind = self.data.get("type").or_else(|| self.data.get("event_type")).and_then(Value::as_str);
        self.name.as_deref().or(kind).is_some_and(|name| ENDS.contains(&name))
            || kind.is_some_and(|kind| ENDS.contains(&kind))
            || self.data.get("done") == Some(&Value::Bool(true))
            || self.data.get("is_finished") == Some(&Value::Bool(true))
    }
}

/// Whether a JSON value reports an error, and is not an answer that merely has such a field.
pub(crate) fn is_error_object(value: &Value) -> bool {
    let Value::Object(map) = value else { return false };
    let text = |key: &str| map.get(key).and_then(Value::as_str);
    let holds = |key: &str| match map.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.trim().is_empty(),
        Some(Value::Object(inner)) => !inner.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => true,
    };
    if holds("error") || holds("errors") || text("type") == Some("error") || text("object") == Some("error") {
        return true;
    }
    if holds("exception_type")
        || holds("__type")
        || holds("error_code")
        || holds("errorCode")
        || holds("error_msg")
    {
        return true;
    }
    if map.get("success") == Some(&Value::Bool(false)) {
        return true;
    }
    if text("type") == Some("response.failed") || map.get("response").is_some_and(is_error_object) {
        return true;
    }
    // MiniMax and its like send 200 with a status of their own.
    if map.get("base_resp").and_then(|base| base.get("status_code")).is_some_and(|code| *code != 0) {
        return true;
    }
    // A frame or an envelope that is nothing but a refusal: `{"code": "...", "message": "..."}`.
    let is_answer =
        ["choices", "candidates", "content", "output", "data", "embeddings", "embedding", "text", "done"]
            .iter()
            .any(|key| holds(key));
    let says = text("message").or_else(|| text("msg")).or_else(|| text("detail")).is_some();
    let has_code = match map.get("code").or_else(|| map.get("status")) {
        Some(Value::Number(number)) => !matches!(number.as_u64(), Some(0 | 200..=299)),
        Some(Value::String(code)) => {
            !matches!(code.as_str(), "" | "0" | "200" | "ok" | "OK" | "success" | "completed")
        }
        _ => false,
    };
    !is_answer && (says && (has_code || map.len() <= 2) || holds("detail"))
        || map.keys().any(|key| key.ends_with("Exception"))
}

/// The events of a text, or `None` if the text is no stream.
pub(crate) fn events(text: &str) -> Option<Vec<Event>> {
    let first = text.trim_start_matches(['\u{feff}', '\n', '\r', ' ']);
    let is_sse = ["data:", "event:", "id:", "retry:", ":"].iter().any(|field| first.starts_with(field))
        && (first.contains("data:") || first.starts_with(':'));
    if is_sse { Some(server_sent(first)) } else { json_lines(first) }
}

/// The first error event, if the body is a stream that has one.
pub(crate) fn first_error(body: &Value) -> Option<Value> {
    let event = events(body.as_str()?)?.into_iter().find(Event::is_error)?;
    Some(named(event))
}

/// The data of an error event, together with a name that says more than `error`.
pub(crate) fn named(event: Event) -> Value {
    match event.name {
        Some(name) if name != "error" => serde_json::json!({ "exception_type": name, "detail": event.data }),
        _ => event.data,
    }
}

fn server_sent(text: &str) -> Vec<Event> {
    let mut events = Vec::new();
    let mut name = None;
    let mut data = String::new();
    for line in text.lines().chain([""]) {
        let line = line.trim_end_matches('\r');
        if let Some(rest) = line.strip_prefix("event:") {
            name = Some(rest.trim().to_owned());
        } else if let Some(rest) = line.strip_prefix("data:") {
            // Some servers leave out the blank line between events: JSON that is whole is an event.
            if !data.is_empty() && serde_json::from_str::<Value>(&data).is_ok() {
                push(&mut events, name.take(), &data);
                data.clear();
            }
            if !data.is_empty() {
                data.push('\n');
            }
            data.push_str(rest.trim());
        } else if line.is_empty() && !data.is_empty() {
            push(&mut events, name.take(), &data);
            data.clear();
        } else if line.starts_with('{') && serde_json::from_str::<Value>(line).is_ok() {
            // An error written into the open stream by a server that forgot the framing.
            push(&mut events, None, line);
        }
    }
    events
}

fn json_lines(text: &str) -> Option<Vec<Event>> {
    let mut events = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if !line.starts_with('{') {
            return None;
        }
        // The last line may be cut off: what came before it still counts.
        match serde_json::from_str::<Value>(line) {
            Ok(data) => events.push(Event { name: None, data }),
            Err(_) if !events.is_empty() => break,
            Err(_) => return None,
        }
    }
    (!events.is_empty()).then_some(events)
}

fn push(events: &mut Vec<Event>, name: Option<String>, data: &str) {
    let data = serde_json::from_str(data).unwrap_or_else(|_| Value::String(data.to_owned()));
    events.push(Event { name, data });
}
