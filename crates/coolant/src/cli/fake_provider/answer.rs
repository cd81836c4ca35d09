//! Answers: a call as it came, and what it is given, in OpenAI's words.

use coolant_ai::chunk::estimate_tokens;
use serde_json::{Value, json};

use super::output::{json_for, prose, vector};
use super::script::{Do, Kind, Rule, Script};

/// Most texts of one call.
const MAX_INPUTS: usize = 2048;

/// A call, as far as it matters.
pub(super) struct Asked {
    pub(super) kind: Kind,
    pub(super) model: String,
    /// Texts to embed; of a chat its messages as one text.
    pub(super) inputs: Vec<String>,
    dimensions: Option<usize>,
    max_tokens: Option<usize>,
    pub(super) stream: bool,
    stream_usage: bool,
    /// Whether JSON is asked for, and its schema.
    json: Option<Option<Value>>,
}

/// What a call used.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Used {
    pub(super) input_tokens: i64,
    pub(super) output_tokens: i64,
}

impl Used {
    fn json(self, kind: Kind) -> Value {
        let total = self.input_tokens + self.output_tokens;
        match kind {
            Kind::Embeddings => json!({"prompt_tokens": self.input_tokens, "total_tokens": total}),
            Kind::Chat => json!({"prompt_tokens": self.input_tokens, "completion_tokens": self.output_tokens,
                "total_tokens": total, "prompt_tokens_details": {"cached_tokens": 0}}),
        }
    }
}

impl Asked {
    /// Reads a request, or says what is wrong with it.
    pub(super) fn read(kind: Kind, body: &[u8]) -> Result<Self, String> {
        let body: Value =
            serde_json::from_slice(body).map_err(|error| format!("the body is no JSON: {error}"))?;
        let model = body["model"].as_str().ok_or("you must provide a model parameter")?.to_owned();
        let inputs = match kind {
            Kind::Embeddings => texts(&body["input"])?,
            Kind::Chat => vec![messages(&body["messages"])?],
        };
        let count = |name: &str| body[name].as_u64().and_then(|count| usize::try_from(count).ok());
        let format = &body["response_format"];
        let json = match format["type"].as_str() {
            Some("json_object") => Some(None),
            Some("json_schema") => Some(format["json_schema"].get("schema").cloned()),
            _ => None,
        };
        Ok(Self {
            kind,
            model,
            inputs,
            dimensions: count("dimensions").filter(|count| (1..=4096).contains(count)),
            max_tokens: count("max_completion_tokens").or_else(|| count("max_tokens")),
            stream: kind == Kind::Chat && body["stream"] == true,
            stream_usage: body["stream_options"]["include_usage"] == true,
            json,
        })
    }

    /// What the model says, and why it ends.
    fn content(&self, script: &Script, act: Do) -> (String, &'static str) {
        let input = self.inputs.first().map_or("", String::as_str);
        let words = self.max_tokens.unwrap_or(script.words).clamp(1, script.words);
        let good = match &self.json {
            Some(schema) => json_for(script.seed, input, schema.as_ref()).to_string(),
            None => prose(script.seed, input, words),
        };
        let end = if self.max_tokens.is_some_and(|most| most < script.words) { "length" } else { "stop" };
        match act {
            Do::Truncated => (half(&good).to_owned(), "length"),
            Do::Wrong => (format!("Sure! Here it is: {}", half(&good)), "stop"),
            Do::Empty => (String::new(), "stop"),
            _ => (good, if self.json.is_some() { "stop" } else { end }),
        }
    }
}

fn half(text: &str) -> &str {
    let middle = text.len() / 2;
    let at = (0..=middle).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..at]
}

fn texts(input: &Value) -> Result<Vec<String>, String> {
    let wrong = || "'$.input' is invalid: it takes a text, or up to 2048 texts".to_owned();
    match input {
        Value::String(text) if !text.is_empty() => Ok(vec![text.clone()]),
        Value::Array(items) if !items.is_empty() && items.len() <= MAX_INPUTS => {
            let text = |item: &Value| item.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
            items.iter().map(|item| text(item).ok_or_else(wrong)).collect()
        }
        Value::Array(items) if items.len() > MAX_INPUTS => {
            Err(format!("array too long: at most {MAX_INPUTS} inputs"))
        }
        _ => Err(wrong()),
    }
}

fn messages(messages: &Value) -> Result<String, String> {
    let all = messages.as_array().filter(|all| !all.is_empty());
    let all = all.ok_or("'messages' is a required property: a list of at least one message")?;
    let text = |message: &Value| match &message["content"] {
        Value::String(text) => text.clone(),
        // Parts: only their texts are read.
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    };
    Ok(all.iter().map(text).collect::<Vec<_>>().join("\n"))
}

/// What a call is given: parts of a stream, or one body.
pub(super) enum Given {
    Body(Value),
    Stream(Vec<Value>),
}

/// A paid answer, and what it used.
pub(super) fn paid(asked: &Asked, script: &Script, act: Do, number: u64) -> (Given, Used) {
    let input_tokens = asked.inputs.iter().map(|input| i64::from(estimate_tokens(input))).sum();
    match asked.kind {
        Kind::Embeddings => {
            let used = Used { input_tokens, output_tokens: 0 };
            (Given::Body(embeddings(asked, script, act, used)), used)
        }
        Kind::Chat => {
            let (content, end) = asked.content(script, act);
            let used = Used { input_tokens, output_tokens: i64::from(estimate_tokens(&content)) };
            (chat(asked, &content, end, used, number), used)
        }
    }
}

fn embeddings(asked: &Asked, script: &Script, act: Do, used: Used) -> Value {
    let dimensions = asked.dimensions.unwrap_or(script.dimensions);
    let given = match act {
        Do::Truncated => &asked.inputs[..asked.inputs.len() - 1],
        Do::Empty => &[],
        _ => &asked.inputs[..],
    };
    let data = given.iter().enumerate().map(|(index, text)| {
        let embedding = match act {
            // JSON has no NaN: servers that compute one write null.
            Do::Wrong => vec![Value::Null; dimensions],
            _ => vector(script.seed, text, dimensions).into_iter().map(Value::from).collect(),
        };
        json!({"object": "embedding", "index": index, "embedding": embedding})
    });
    let data: Vec<Value> = data.collect();
    json!({"object": "list", "model": asked.model, "data": data, "usage": used.json(asked.kind)})
}

fn chat(asked: &Asked, content: &str, end: &str, used: Used, number: u64) -> Given {
    let id = format!("chatcmpl-fake-{number}");
    if !asked.stream {
        let message = json!({"role": "assistant", "content": content, "refusal": null});
        return Given::Body(
            json!({"id": id, "object": "chat.completion", "created": 0, "model": asked.model,
            "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": end}],
            "usage": used.json(asked.kind)}),
        );
    }
    let part = |choices: Value, usage: Value| {
        json!({"id": id, "object": "chat.completion.chunk", "created": 0, "model": asked.model,
            "choices": choices, "usage": usage})
    };
    let delta = |delta: Value, end: Value| {
        part(json!([{"index": 0, "delta": delta, "finish_reason": end}]), Value::Null)
    };
    let mut parts = vec![delta(json!({"role": "assistant", "content": ""}), Value::Null)];
    parts.extend(content.split_inclusive(' ').map(|word| delta(json!({"content": word}), Value::Null)));
    parts.push(delta(json!({}), json!(end)));
    if asked.stream_usage {
        parts.push(part(json!([]), used.json(asked.kind)));
    }
    Given::Stream(parts)
}

/// A refusal: its status and body.
pub(super) fn refusal(rule: &Rule, asked_model: &str) -> (u16, String) {
    let (status, kind, code, message) = match rule.act {
        Do::RateLimit => {
            (429, "requests", "rate_limit_exceeded", "Rate limit reached. Please try again later.")
        }
        Do::Overloaded => (503, "server_error", "overloaded", "The engine is currently overloaded."),
        Do::Quota => (
            429,
            "insufficient_quota",
            "insufficient_quota",
            "You exceeded your current quota, please check your plan and billing details.",
        ),
        Do::Auth => (401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
        Do::BadRequest => {
            (400, "invalid_request_error", "invalid_value", "The request cannot be processed as it is.")
        }
        Do::ContextTooLong => (
            400,
            "invalid_request_error",
            "context_length_exceeded",
            "This model's maximum context length is 8192 tokens.",
        ),
        Do::NotFound => (
            404,
            "invalid_request_error",
            "model_not_found",
            "The model does not exist or you do not have access to it.",
        ),
        _ => (500, "server_error", "server_error", "The server had an error while processing your request."),
    };
    let usual = || error(kind, code, &format!("{message} (model `{asked_model}`)"));
    (rule.status.unwrap_or(status), rule.body.clone().unwrap_or_else(usual))
}

/// An error as OpenAI writes it.
pub(super) fn error(kind: &str, code: &str, message: &str) -> String {
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}}).to_string()
}
