//! Payloads of the built-in job types, checked at the submit: what is wrong is said at once, not after the
//! queue.
//!
//! Elsewhere: what the handlers do with them (`coolant-ai`).

use std::collections::HashMap;

use coolant_core::names::JobType;
use serde_json::{Map, Value};

use super::{EngineError, EngineResult};

/// Why a payload is not what its job type takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidPayload {
    /// Which part: `payload.messages[0].role`.
    pub field: String,
    /// What it takes.
    pub reason: String,
}

/// Checks the payload of one job type.
pub type PayloadCheck = fn(&Value) -> Result<(), InvalidPayload>;

/// The checks by job type. A type without one takes any payload.
#[derive(Debug, Clone, Default)]
pub struct PayloadChecks(pub HashMap<String, PayloadCheck>);

impl PayloadChecks {
    /// The checks of the built-in job types.
    #[must_use]
    pub fn built_in() -> Self {
        let checks: [(&str, PayloadCheck); 4] = [
            (super::documents::DOCUMENT_INDEX, document_index),
            ("LLM_CALL", llm_call),
            ("BULK_SUMMARIZE", bulk_summarize),
            ("EVAL_RUN", eval_run),
        ];
        Self(checks.into_iter().map(|(name, check)| (name.to_owned(), check)).collect())
    }

    pub(super) fn check(&self, job_type: &JobType, payload: &Value) -> EngineResult<()> {
        let Some(check) = self.0.get(job_type.as_str()) else { return Ok(()) };
        check(payload)
            .map_err(|InvalidPayload { field, reason }| EngineError::InvalidPayload { field, reason })
    }
}

type Checked<T = ()> = Result<T, InvalidPayload>;

fn document_index(payload: &Value) -> Checked {
    let fields = Fields::of(payload, "payload", &["document_id", "version", "pipeline"])?;
    fields.text("document_id", 1..=512)?.ok_or_else(|| fields.missing("document_id"))?;
    fields.whole("version", 1..=i64::MAX)?.ok_or_else(|| fields.missing("version"))?;
    match fields.text("pipeline", 1..=128)? {
        None | Some("default") => Ok(()),
        Some(_) => Err(fields.wrong("pipeline", "takes only `default`")),
    }
}

const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

fn llm_call(payload: &Value) -> Checked {
    let names = ["model", "messages", "prompt", "json_schema", "max_output_tokens", "temperature"];
    let fields = Fields::of(payload, "payload", &names)?;
    fields.text("model", 1..=128)?;
    let prompt = fields.text("prompt", 1..=usize::MAX)?;
    match (prompt, fields.items("messages")?) {
        (Some(_), None) => {}
        (None, Some(messages)) => messages_check(&fields, messages)?,
        (Some(_), Some(_)) => {
            return Err(fields.wrong("messages", "must not be given together with `prompt`"));
        }
        (None, None) => return Err(fields.wrong("prompt", "or `messages` is needed")),
    }
    schema(&fields, "json_schema")?;
    fields.whole("max_output_tokens", 1..=10_000_000)?;
    fields.number("temperature", 0.0..=2.0)?;
    Ok(())
}

fn messages_check(fields: &Fields<'_>, messages: &[Value]) -> Checked {
    if messages.is_empty() {
        return Err(fields.wrong("messages", "must not be empty"));
    }
    for (i, message) in messages.iter().enumerate() {
        let path = format!("payload.messages[{i}]");
        // Other fields are the provider's own: names, tool calls, cache marks.
        let message = Fields::open(message, &path)?;
        let role = message.text("role", 1..=64)?.ok_or_else(|| message.missing("role"))?;
        if !ROLES.contains(&role) {
            return Err(message.wrong("role", &format!("takes one of {}", ROLES.join(", "))));
        }
        match message.get("content") {
            Some(Value::String(_) | Value::Array(_)) => {}
            None if message.get("tool_calls").is_some() => {}
            Some(_) => return Err(message.wrong("content", "takes a text or a list of parts")),
            None => return Err(message.missing("content")),
        }
    }
    Ok(())
}

fn schema(fields: &Fields<'_>, name: &str) -> Checked {
    match fields.get(name) {
        None | Some(Value::Object(_)) => Ok(()),
        Some(_) => Err(fields.wrong(name, "takes a JSON Schema: an object")),
    }
}

fn bulk_summarize(payload: &Value) -> Checked {
    let fields = Fields::of(payload, "payload", &["documents", "instruction", "max_words", "combine"])?;
    let documents = fields.items("documents")?.ok_or_else(|| fields.missing("documents"))?;
    if documents.is_empty() || documents.len() > 10_000 {
        return Err(fields.wrong("documents", "takes 1 to 10000 items"));
    }
    for (i, document) in documents.iter().enumerate() {
        let path = format!("payload.documents[{i}]");
        let document = Fields::of(document, &path, &["document_id", "text", "name"])?;
        document.text("name", 1..=512)?;
        let id = document.text("document_id", 1..=512)?;
        match (id, document.text("text", 1..=usize::MAX)?) {
            (Some(_), None) | (None, Some(_)) => {}
            _ => return Err(document.wrong("document_id", "or `text` is needed, one of the two")),
        }
    }
    fields.text("instruction", 1..=usize::MAX)?;
    fields.whole("max_words", 1..=100_000)?;
    fields.flag("combine")
}

fn eval_run(payload: &Value) -> Checked {
    let fields = Fields::of(payload, "payload", &["dataset", "prompt_template", "model", "scorers"])?;
    match fields.get("dataset") {
        Some(Value::String(text)) if !text.trim().is_empty() => {}
        Some(dataset @ Value::Object(_)) => {
            let dataset = Fields::of(dataset, "payload.dataset", &["document_id"])?;
            dataset.text("document_id", 1..=512)?.ok_or_else(|| dataset.missing("document_id"))?;
        }
        Some(_) => return Err(fields.wrong("dataset", "takes JSON lines as text, or a `document_id`")),
        None => return Err(fields.missing("dataset")),
    }
    let template = fields.text("prompt_template", 1..=usize::MAX)?;
    template.ok_or_else(|| fields.missing("prompt_template"))?;
    fields.text("model", 1..=128)?;
    let scorers = fields.items("scorers")?.ok_or_else(|| fields.missing("scorers"))?;
    if scorers.is_empty() || scorers.len() > 32 {
        return Err(fields.wrong("scorers", "takes 1 to 32 items"));
    }
    scorers.iter().enumerate().try_for_each(|(i, scorer)| scorer_check(i, scorer))
}

const SCORERS: [&str; 6] = ["exact", "contains", "regex", "json_schema", "numeric", "llm_judge"];

fn scorer_check(i: usize, scorer: &Value) -> Checked {
    // A judge takes further settings of its own.
    let scorer = Fields::open(scorer, &format!("payload.scorers[{i}]"))?;
    let kind = scorer.text("type", 1..=64)?.ok_or_else(|| scorer.missing("type"))?;
    if !SCORERS.contains(&kind) {
        return Err(scorer.wrong("type", &format!("takes one of {}", SCORERS.join(", "))));
    }
    let pattern = scorer.text("pattern", 1..=4096)?;
    if kind == "regex" {
        pattern.ok_or_else(|| scorer.missing("pattern"))?;
    }
    schema(&scorer, "schema")?;
    if kind == "json_schema" && scorer.get("schema").is_none() {
        return Err(scorer.missing("schema"));
    }
    scorer.number("tolerance", 0.0..=f64::MAX)?;
    scorer.text("field", 1..=512)?;
    Ok(())
}

/// The fields of an object in a payload, and where it is. A null counts as left out.
struct Fields<'a> {
    path: String,
    fields: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// An object with these fields and no others.
    fn of(value: &'a Value, path: &str, known: &[&str]) -> Checked<Self> {
        let fields = Self::open(value, path)?;
        match fields.fields.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(fields.wrong(name, "is not a field of this job type")),
            None => Ok(fields),
        }
    }

    /// An object with any fields.
    fn open(value: &'a Value, path: &str) -> Checked<Self> {
        let wrong = || InvalidPayload { field: path.to_owned(), reason: "takes an object".into() };
        Ok(Self { path: path.to_owned(), fields: value.as_object().ok_or_else(wrong)? })
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn wrong(&self, name: &str, reason: &str) -> InvalidPayload {
        InvalidPayload { field: format!("{}.{name}", self.path), reason: reason.to_owned() }
    }

    fn missing(&self, name: &str) -> InvalidPayload {
        self.wrong(name, "is needed")
    }

    fn text(&self, name: &str, bytes: std::ops::RangeInclusive<usize>) -> Checked<Option<&'a str>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_str() {
            Some(text) if bytes.contains(&text.len()) => Ok(Some(text)),
            Some("") => Err(self.wrong(name, "must not be empty")),
            Some(_) => Err(self.wrong(name, &format!("takes at most {} bytes", bytes.end()))),
            None => Err(self.wrong(name, "takes a text")),
        }
    }

    fn items(&self, name: &str) -> Checked<Option<&'a [Value]>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(_) => Err(self.wrong(name, "takes a list")),
        }
    }

    fn whole(&self, name: &str, range: std::ops::RangeInclusive<i64>) -> Checked<Option<i64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_i64().filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let (min, max) = range.into_inner();
                Err(self.wrong(name, &format!("takes a whole number from {min} to {max}")))
            }
        }
    }

    fn number(&self, name: &str, range: std::ops::RangeInclusive<f64>) -> Checked<Option<f64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_f64().filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let (min, max) = range.into_inner();
                Err(self.wrong(name, &format!("takes a number from {min} to {max}")))
            }
        }
    }

    fn flag(&self, name: &str) -> Checked {
        match self.get(name) {
            None | Some(Value::Bool(_)) => Ok(()),
            Some(_) => Err(self.wrong(name, "takes true or false")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_payload_is_named() {
        let checks = PayloadChecks::built_in();
        let wrong = |job_type: &str, payload: &Value| match checks.0[job_type](payload) {
            Ok(()) => "-".to_owned(),
            Err(invalid) => invalid.field,
        };
        let user = json!({"role": "user", "content": "Hi"});
        let cases = [
            ("LLM_CALL", json!({"prompt": "Hi"}), "-"),
            ("LLM_CALL", json!({"messages": [user], "temperature": 0.5, "model": null}), "-"),
            ("LLM_CALL", json!({}), "payload.prompt"),
            ("LLM_CALL", json!([]), "payload"),
            ("LLM_CALL", json!({"prompt": ""}), "payload.prompt"),
            ("LLM_CALL", json!({"prompt": "Hi", "messages": [user]}), "payload.messages"),
            ("LLM_CALL", json!({"messages": []}), "payload.messages"),
            (
                "LLM_CALL",
                json!({"messages": [{"role": "boss", "content": "Hi"}]}),
                "payload.messages[0].role",
            ),
            ("LLM_CALL", json!({"messages": [{"role": "user"}]}), "payload.messages[0].content"),
            ("LLM_CALL", json!({"prompt": "Hi", "temperature": 3}), "payload.temperature"),
            ("LLM_CALL", json!({"prompt": "Hi", "promt": "Hi"}), "payload.promt"),
            ("DOCUMENT_INDEX", json!({"document_id": "a", "version": 1}), "-"),
            ("DOCUMENT_INDEX", json!({"document_id": "a", "version": 0}), "payload.version"),
            ("DOCUMENT_INDEX", json!({"version": 1}), "payload.document_id"),
            ("BULK_SUMMARIZE", json!({"documents": [{"text": "a"}, {"document_id": "b"}]}), "-"),
            ("BULK_SUMMARIZE", json!({"documents": [{"name": "a"}]}), "payload.documents[0].document_id"),
            ("BULK_SUMMARIZE", json!({"documents": []}), "payload.documents"),
            ("BULK_SUMMARIZE", json!({"documents": [{"text": "a"}], "combine": 1}), "payload.combine"),
            (
                "EVAL_RUN",
                json!({"dataset": "{}", "prompt_template": "a", "scorers": [{"type": "exact"}]}),
                "-",
            ),
            ("EVAL_RUN", json!({"dataset": "{}", "prompt_template": "a", "scorers": []}), "payload.scorers"),
            (
                "EVAL_RUN",
                json!({"dataset": "{}", "prompt_template": "a", "scorers": [{"type": "regex"}]}),
                "payload.scorers[0].pattern",
            ),
            ("EVAL_RUN", json!({"dataset": {}, "prompt_template": "a"}), "payload.dataset.document_id"),
        ];
        for (job_type, payload, field) in cases {
            assert_eq!(wrong(job_type, &payload), field, "{job_type} {payload}");
        }
    }
}
