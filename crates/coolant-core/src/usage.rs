//! Usage as providers report it, read into one form: nothing counted twice, nothing left out.
//!
//! The trap is the cache. OpenAI and those who speak like it, and Gemini, count cached tokens inside the
//! input; Anthropic and Bedrock count them beside it. Likewise with reasoning: inside the output for OpenAI
//! and Anthropic, beside it for Gemini and xAI. A reading always has them inside.
//!
//! Who reports is seen by the names of the fields, since gateways put one provider behind another's API.
//!
//! Always true of a reading:
//! - `cached + cache_write <= input`, `cache_write_1h <= cache_write`, `reasoning <= output`;
//! - no count is negative.
//!
//! Elsewhere: what it costs (`prices`), what is kept of it (`money`).

use serde_json::Value;

/// How a call was bought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tier {
    /// At list price.
    #[default]
    Standard,
    /// In a batch, at the batch price.
    Batch,
    /// In another way, such as `priority` or `flex`, for which the list price does not hold.
    Other,
}

/// The counts of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// Tokens in, all of them.
    pub input: i64,
    /// Of `input`: read from the cache.
    pub cached: i64,
    /// Of `input`: written to the cache.
    pub cache_write: i64,
    /// Of `cache_write`: to be kept for an hour, which costs more.
    pub cache_write_1h: i64,
    /// Tokens out, all of them.
    pub output: i64,
    /// Of `output`: reasoning.
    pub reasoning: i64,
    /// How it was bought.
    pub tier: Tier,
}

/// Reads the usage object of an answer; `None` if it counts no tokens.
#[must_use]
pub fn read(reported: &Value) -> Option<Reading> {
    let has = |names: &[&str]| names.iter().any(|name| reported.get(name).is_some());
    let reading = if has(&["prompt_tokens", "completion_tokens"]) {
        openai_chat(reported)
    } else if has(&["promptTokenCount", "candidatesTokenCount"]) {
        gemini(reported)
    } else if has(&["inputTokens", "outputTokens"]) {
        bedrock(reported)
    } else if has(&["prompt_eval_count", "eval_count"]) {
        Reading {
            input: count(reported, "prompt_eval_count"),
            output: count(reported, "eval_count"),
            ..none()
        }
    } else if has(&["input_tokens_details", "output_tokens_details"]) {
        openai_responses(reported)
    } else if has(&["input_tokens", "output_tokens"]) {
        anthropic(reported)
    } else if has(&["billed_units", "tokens"]) {
        cohere(reported)
    } else if has(&["total_tokens"]) {
        Reading { input: count(reported, "total_tokens"), ..none() }
    } else {
        return None;
    };
    Some(Reading { tier: tier(reported), ..reading.coherent() })
}

/// Where the usage is in the body of an answer, of any provider.
#[must_use]
pub fn find(body: &Value) -> Option<&Value> {
    let named = ["usage", "usageMetadata", "meta"].into_iter().filter_map(|name| body.get(name));
    // Ollama counts beside the answer itself.
    named.chain([body]).find(|found| read(found).is_some())
}

impl Reading {
    /// Parts that are larger than their whole say that the whole was reported without them.
    fn coherent(mut self) -> Self {
        self.cache_write = self.cache_write.max(self.cache_write_1h);
        self.input = self.input.max(self.cached.saturating_add(self.cache_write));
        // At the far end of the numbers the parts give way, so that they still fit.
        self.cache_write = self.cache_write.min(self.input - self.cached);
        self.cache_write_1h = self.cache_write_1h.min(self.cache_write);
        self.output = self.output.max(self.reasoning);
        self
    }
}

fn none() -> Reading {
    Reading::default()
}

/// Chat completions and embeddings as OpenAI, Groq, Mistral, DeepSeek and most servers report them.
fn openai_chat(usage: &Value) -> Reading {
    let prompt = usage.get("prompt_tokens_details").unwrap_or(&Value::Null);
    let completion = usage.get("completion_tokens_details").unwrap_or(&Value::Null);
    let (output, total) = (count(usage, "completion_tokens"), count(usage, "total_tokens"));
    let input = match usage.get("prompt_tokens") {
        Some(_) => count(usage, "prompt_tokens"),
        None => total.saturating_sub(output).max(0),
    };
    let reasoning = count(completion, "reasoning_tokens");
    // xAI counts reasoning beside the completion; only its total tells.
    let beside = reasoning > 0 && total == input.saturating_add(output).saturating_add(reasoning);
    Reading {
        input,
        cached: first(&[
            (prompt, "cached_tokens"),
            (usage, "prompt_cache_hit_tokens"),
            (usage, "cached_tokens"),
        ]),
        cache_write: count(prompt, "cache_write_tokens"),
        output: if beside { output.saturating_add(reasoning) } else { output },
        reasoning,
        ..none()
    }
}

fn openai_responses(usage: &Value) -> Reading {
    let (input, output) = (usage.get("input_tokens_details"), usage.get("output_tokens_details"));
    let (input, output) = (input.unwrap_or(&Value::Null), output.unwrap_or(&Value::Null));
    Reading {
        input: count(usage, "input_tokens"),
        cached: count(input, "cached_tokens"),
        cache_write: count(input, "cache_write_tokens"),
        output: count(usage, "output_tokens"),
        reasoning: count(output, "reasoning_tokens"),
        ..none()
    }
}

/// The cache stands beside `input_tokens`.
fn anthropic(usage: &Value) -> Reading {
    let split = usage.get("cache_creation").unwrap_or(&Value::Null);
    let hour = count(split, "ephemeral_1h_input_tokens");
    let by_split = hour.saturating_add(count(split, "ephemeral_5m_input_tokens"));
    let (cached, write) =
        (count(usage, "cache_read_input_tokens"), count(usage, "cache_creation_input_tokens").max(by_split));
    Reading {
        input: count(usage, "input_tokens").saturating_add(cached).saturating_add(write),
        cached,
        cache_write: write,
        cache_write_1h: hour,
        output: count(usage, "output_tokens"),
        ..none()
    }
}

/// The cache stands beside `inputTokens`.
fn bedrock(usage: &Value) -> Reading {
    let cached = first(&[(usage, "cacheReadInputTokens"), (usage, "cacheReadInputTokenCount")]);
    let write = first(&[(usage, "cacheWriteInputTokens"), (usage, "cacheWriteInputTokenCount")]);
    Reading {
        input: count(usage, "inputTokens").saturating_add(cached).saturating_add(write),
        cached,
        cache_write: write,
        output: count(usage, "outputTokens"),
        ..none()
    }
}

/// The cache is inside the prompt; thoughts stand beside the candidates, prompts of tools beside the prompt.
fn gemini(usage: &Value) -> Reading {
    let thoughts = count(usage, "thoughtsTokenCount");
    let tools = count(usage, "toolUsePromptTokenCount");
    Reading {
        input: count(usage, "promptTokenCount").saturating_add(tools),
        cached: count(usage, "cachedContentTokenCount"),
        output: count(usage, "candidatesTokenCount").saturating_add(thoughts),
        reasoning: thoughts,
        ..none()
    }
}

/// What is billed counts; `tokens` is what the model saw.
fn cohere(usage: &Value) -> Reading {
    let counts = |name: &str| usage.get(name).filter(|counts| counts.get("input_tokens").is_some());
    let counts = counts("billed_units").or_else(|| counts("tokens")).unwrap_or(&Value::Null);
    let input = count(counts, "input_tokens");
    let cached = count(usage, "cached_tokens").min(input);
    Reading { input, cached, output: count(counts, "output_tokens"), ..none() }
}

fn tier(usage: &Value) -> Tier {
    match usage.get("service_tier").and_then(Value::as_str) {
        None | Some("standard" | "default" | "auto" | "on_demand") => Tier::Standard,
        Some("batch") => Tier::Batch,
        Some(_) => Tier::Other,
    }
}

/// The first of these counts that is there.
fn first(places: &[(&Value, &str)]) -> i64 {
    let there = places.iter().find(|(object, name)| object.get(*name).is_some_and(Value::is_number));
    there.map_or(0, |(object, name)| count(object, name))
}

/// A count; 0 for what is none. Some providers write whole numbers as `12.0`.
fn count(object: &Value, name: &str) -> i64 {
    let Some(Value::Number(number)) = object.get(name) else { return 0 };
    if let Some(whole) = number.as_i64() {
        return whole.max(0);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the cast stops at the largest number")]
    number.as_f64().map_or(0, |number| number.max(0.0).round() as i64)
}
