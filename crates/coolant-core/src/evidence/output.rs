//! A language model's answer in the forms of the providers, and whether its text is the JSON asked for.

use serde_json::{Map, Value};

/// How deep a schema and an answer are compared.
const MAX_DEPTH: usize = 32;

/// What an answer says, whichever provider's form it has. Chunks of a stream add up.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// All text, without reasoning.
    pub(crate) text: String,
    /// Why it ended, as the provider puts it.
    pub(crate) finish: Option<String>,
    /// The model's own words of refusal.
    pub(crate) refusal: Option<String>,
    /// Whether it calls tools: then it may have no text.
    pub(crate) has_calls: bool,
    /// Whether a whole call has arguments that are not JSON.
    pub(crate) has_broken_call: bool,
    /// Tokens of the answer, as reported.
    pub(crate) output_tokens: Option<u64>,
    is_known: bool,
}

impl Answer {
    /// Whether anything in it had the form of an answer.
    pub(crate) fn is_known_form(&self) -> bool {
        self.is_known
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && !self.has_calls
    }

    /// Takes in one answer or one chunk.
    pub(crate) fn absorb(&mut self, body: &Value) {
        let Value::Object(map) = body else { return };
        if map.get("type").and_then(Value::as_str).is_some_and(|kind| kind.ends_with(".done")) {
            // Repeats what the deltas before it said.
            return;
        }
        for choice in list(map, "choices") {
            self.finish_from(choice, &["finish_reason"]);
            for message in ["message", "delta"].iter().filter_map(|key| choice.get(*key)) {
                self.message(message);
            }
            self.text_from(choice.get("text"));
            // In a stream the arguments come in pieces, which are no JSON yet.
            self.has_broken_call |= choice.get("message").is_some_and(has_broken_call);
        }
        self.is_known |= ["choices", "candidates", "promptFeedback", "stop_reason", "stopReason", "done"]
            .iter()
            .any(|key| map.contains_key(*key));
        self.google(map);
        self.finish_from(
            body,
            &["stop_reason", "stopReason", "finish_reason", "done_reason", "completionReason"],
        );
        for key in ["message", "delta"] {
            match map.get(key) {
                Some(part @ Value::Object(_)) => {
                    self.finish_from(part, &["stop_reason", "finish_reason"]);
                    self.message(part);
                    // Cohere puts a message into the delta.
                    if let Some(inner @ Value::Object(_)) = part.get("message") {
                        self.message(inner);
                    }
                }
                // Responses API: the delta is the text itself; that of a refusal is one.
                Some(Value::String(text)) => match map.get("type").and_then(Value::as_str) {
                    Some("response.refusal.delta") => self.refuse(text),
                    Some("response.output_text.delta") => self.push(text),
                    _ => {}
                },
                _ => {}
            }
        }
        self.content(map.get("content"));
        self.bedrock_and_responses(map);
        for result in list(map, "results").iter().chain(list(map, "generations")) {
            self.finish_from(result, &["completionReason", "finish_reason"]);
            self.text_from(result.get("outputText").or_else(|| result.get("text")));
        }
        for key in ["response", "text", "generated_text", "generation", "output_text", "completion"] {
            self.text_from(map.get(key));
        }
        if let Some(details) = map.get("details") {
            self.finish_from(details, &["finish_reason"]);
        }
        self.usage(map);
    }

    fn google(&mut self, map: &Map<String, Value>) {
        for candidate in list(map, "candidates") {
            self.finish_from(candidate, &["finishReason"]);
            for part in candidate.get("content").map(|content| list_of(content, "parts")).unwrap_or_default()
            {
                self.has_calls |= part.get("functionCall").is_some() || part.get("inlineData").is_some();
                if part.get("thought") != Some(&Value::Bool(true)) {
                    self.text_from(part.get("text"));
                }
            }
        }
        if let Some(reason) =
            map.get("promptFeedback").and_then(|f| f.get("blockReason")).and_then(Value::as_str)
        {
            // Whatever the reason is called, the prompt was blocked.
            self.refuse(&format!("prompt blocked, {reason}"));
        }
    }

    fn bedrock_and_responses(&mut self, map: &Map<String, Value>) {
        if let Some(message) = map.get("output").and_then(|output| output.get("message")) {
            self.message(message);
        }
        for item in list(map, "output") {
            self.is_known = true;
            let kind = item.get("type").and_then(Value::as_str).unwrap_or_default();
            self.has_calls |= kind.ends_with("_call");
            self.content(item.get("content"));
        }
        for key in ["contentBlockDelta", "contentBlockStart"] {
            if let Some(delta) =
                map.get(key).and_then(|event| event.get("delta").or_else(|| event.get("start")))
            {
                self.part(delta);
            }
        }
        for (key, reason) in [("messageStop", "stopReason"), ("incomplete_details", "reason")] {
            if let Some(part) = map.get(key) {
                self.finish_from(part, &[reason]);
            }
        }
        for key in ["content_block", "delta"] {
            if let Some(part) = map.get(key) {
                self.part(part);
            }
        }
        if let Some(response @ Value::Object(_)) = map.get("response") {
            let text = std::mem::take(&mut self.text);
            self.absorb(response);
            // The closing event repeats the whole text; a stream's deltas came before.
            if !text.is_empty() {
                self.text = text;
            }
        }
    }

    fn message(&mut self, message: &Value) {
        self.is_known = true;
        if let Some(text) = message.get("refusal").and_then(Value::as_str) {
            self.refuse(text);
        }
        let filled = |key: &str| {
            message.get(key).is_some_and(|calls| match calls {
                Value::Array(calls) => !calls.is_empty(),
                calls => calls.is_object(),
            })
        };
        self.has_calls |= filled("tool_calls") || filled("function_call") || filled("audio");
        self.content(message.get("content"));
    }

    fn content(&mut self, content: Option<&Value>) {
        match content {
            Some(Value::String(text)) => self.push(text),
            Some(Value::Array(parts)) => parts.iter().for_each(|part| self.part(part)),
            Some(part @ Value::Object(_)) => self.part(part),
            _ => {}
        }
    }

    fn part(&mut self, part: &Value) {
        let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
        self.has_calls |= matches!(kind, "tool_use" | "server_tool_use" | "tool_call" | "input_json_delta")
            || part.get("toolUse").is_some();
        match kind {
            "refusal" => {
                self.refuse(part.get("refusal").and_then(Value::as_str).unwrap_or("no reason given"));
            }
            "thinking" | "reasoning" | "thinking_delta" | "reasoning_text" => {}
            _ => self.text_from(part.get("text")),
        }
    }

    fn usage(&mut self, map: &Map<String, Value>) {
        let usage = map.get("usage").or_else(|| map.get("usageMetadata"));
        let names = ["completion_tokens", "output_tokens", "outputTokens", "candidatesTokenCount"];
        let used = usage.and_then(|usage| names.iter().find_map(|name| usage.get(name)?.as_u64()));
        self.output_tokens = used.or_else(|| map.get("eval_count")?.as_u64()).or(self.output_tokens);
    }

    fn finish_from(&mut self, part: &Value, keys: &[&str]) {
        for reason in keys.iter().filter_map(|key| part.get(key)?.as_str()) {
            self.is_known = true;
            self.finish = Some(reason.to_owned());
        }
    }

    fn text_from(&mut self, text: Option<&Value>) {
        if let Some(text) = text.and_then(Value::as_str) {
            self.push(text);
        }
    }

    fn push(&mut self, text: &str) {
        self.is_known = true;
        self.text.push_str(text);
    }

    fn refuse(&mut self, words: &str) {
        self.is_known = true;
        if !words.is_empty() {
            self.refusal.get_or_insert_default().push_str(words);
        }
    }
}

fn has_broken_call(message: &Value) -> bool {
    list_of(message, "tool_calls").iter().any(|call| {
        let arguments = call.get("function").and_then(|function| function.get("arguments")?.as_str());
        let filled = arguments.filter(|text| !text.trim().is_empty());
        filled.is_some_and(|text| serde_json::from_str::<Value>(text).is_err())
    })
}

fn list<'a>(map: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    map.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn list_of<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Why a text is not the JSON that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// It holds JSON, inside a fence or prose: the caller can take it out without a new call.
    #[error("the JSON stands inside other text")]
    Wrapped,
    #[error("the answer is not JSON")]
    NotJson,
    #[error("the JSON does not fit the schema: {0}")]
    Schema(String),
}

impl Problem {
    pub(crate) fn rule(&self) -> &'static str {
        match self {
            Self::Wrapped => "output_wrapped",
            Self::NotJson => "output_not_json",
            Self::Schema(_) => "output_schema",
        }
    }

    pub(crate) fn may_be_cut(&self) -> bool {
        matches!(self, Self::NotJson)
    }
}

/// What is wrong with a text that has to be JSON.
pub(crate) fn problem(text: &str, schema: Option<&Value>) -> Option<Problem> {
    let Ok(value) = serde_json::from_str::<Value>(text.trim()) else {
        let wrapped =
            super::embedded::find(text).is_some_and(|(value, _)| value.is_object() || value.is_array());
        return Some(if wrapped { Problem::Wrapped } else { Problem::NotJson });
    };
    misfit(&value, schema?, "$", 0).map(Problem::Schema)
}

/// The first place where a value breaks a schema, for the keywords that need no library.
fn misfit(value: &Value, schema: &Value, place: &str, depth: usize) -> Option<String> {
    let schema = schema.as_object()?;
    if depth > MAX_DEPTH {
        return None;
    }
    if let Some(kind) = schema.get("type") {
        let kinds = kind.as_array().map_or_else(|| vec![kind], |kinds| kinds.iter().collect());
        if !kinds.iter().filter_map(|kind| kind.as_str()).any(|kind| is_of(value, kind)) {
            return Some(format!("`{place}` is not of type {kind}"));
        }
    }
    if schema.get("enum").and_then(Value::as_array).is_some_and(|allowed| !allowed.contains(value)) {
        return Some(format!("`{place}` is none of the allowed values"));
    }
    if schema.get("const").is_some_and(|only| only != value) {
        return Some(format!("`{place}` is not the required constant"));
    }
    match value {
        Value::Object(map) => object_misfit(map, schema, place, depth),
        Value::Array(items) => {
            let of_items = schema.get("items")?;
            items
                .iter()
                .enumerate()
                .find_map(|(at, item)| misfit(item, of_items, &format!("{place}[{at}]"), depth + 1))
        }
        _ => None,
    }
}

fn object_misfit(
    map: &Map<String, Value>,
    schema: &Map<String, Value>,
    place: &str,
    depth: usize,
) -> Option<String> {
    let missing =
        list(schema, "required").iter().filter_map(Value::as_str).find(|name| !map.contains_key(*name));
    if let Some(name) = missing {
        return Some(format!("`{place}.{name}` is missing"));
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let wrong = properties
        .into_iter()
        .flatten()
        .find_map(|(name, schema)| misfit(map.get(name)?, schema, &format!("{place}.{name}"), depth + 1));
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false))
        && !schema.contains_key("patternProperties");
    wrong.or_else(|| {
        let extra = map.keys().find(|name| !properties.is_some_and(|known| known.contains_key(*name)));
        extra.filter(|_| is_closed).map(|name| format!("`{place}.{name}` is not allowed"))
    })
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        // JSON Schema counts 1.0 as an integer.
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => true,
    }
}
