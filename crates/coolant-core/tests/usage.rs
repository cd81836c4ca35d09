//! Usage as each provider reports it, read into one form.
#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

use coolant_core::money::{MAX_REPORTED, Usage};
use coolant_core::usage::{Reading, Tier, find, read};
use proptest::prelude::*;
use serde_json::{Value, json};

fn counts(reported: &Value) -> [i64; 6] {
    let Reading { input, cached, cache_write, cache_write_1h, output, reasoning, .. } =
        read(reported).unwrap();
    [input, cached, cache_write, cache_write_1h, output, reasoning]
}

#[test]
fn openai_chat_counts_the_cache_and_the_reasoning_inside() {
    let reported = json!({
        "prompt_tokens": 2006, "completion_tokens": 300, "total_tokens": 2306,
        "prompt_tokens_details": {"cached_tokens": 1920, "cache_write_tokens": 40, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 192, "audio_tokens": 0,
            "accepted_prediction_tokens": 5, "rejected_prediction_tokens": 7},
    });
    assert_eq!(counts(&reported), [2006, 1920, 40, 0, 300, 192]);
}

#[test]
fn openai_responses_count_the_cache_inside() {
    let reported = json!({
        "input_tokens": 75, "input_tokens_details": {"cached_tokens": 32},
        "output_tokens": 1186, "output_tokens_details": {"reasoning_tokens": 1024}, "total_tokens": 1261,
    });
    assert_eq!(counts(&reported), [75, 32, 0, 0, 1186, 1024]);
}

#[test]
fn embeddings_have_no_output() {
    assert_eq!(counts(&json!({"prompt_tokens": 8, "total_tokens": 8})), [8, 0, 0, 0, 0, 0]);
    assert_eq!(counts(&json!({"total_tokens": 8})), [8, 0, 0, 0, 0, 0]);
}

#[test]
fn anthropic_counts_the_cache_beside_the_input() {
    let reported = json!({
        "input_tokens": 50, "cache_creation_input_tokens": 248, "cache_read_input_tokens": 1800,
        "cache_creation": {"ephemeral_5m_input_tokens": 148, "ephemeral_1h_input_tokens": 100},
        "output_tokens": 503, "service_tier": "standard", "server_tool_use": {"web_search_requests": 0},
    });
    assert_eq!(counts(&reported), [2098, 1800, 248, 100, 503, 0]);
    assert_eq!(counts(&json!({"input_tokens": 5, "output_tokens": 2})), [5, 0, 0, 0, 2, 0]);
    let split_alone =
        json!({"input_tokens": 5, "output_tokens": 2, "cache_creation": {"ephemeral_5m_input_tokens": 7}});
    assert_eq!(counts(&split_alone), [12, 0, 7, 0, 2, 0]);
}

#[test]
fn bedrock_counts_the_cache_beside_the_input() {
    let reported = json!({"inputTokens": 12, "outputTokens": 40, "totalTokens": 1076,
        "cacheReadInputTokens": 1000, "cacheWriteInputTokens": 24});
    assert_eq!(counts(&reported), [1036, 1000, 24, 0, 40, 0]);
}

#[test]
fn gemini_counts_the_cache_inside_and_the_thoughts_beside() {
    let reported = json!({"promptTokenCount": 1200, "cachedContentTokenCount": 1000, "candidatesTokenCount": 80,
        "thoughtsTokenCount": 300, "toolUsePromptTokenCount": 20, "totalTokenCount": 1600});
    assert_eq!(counts(&reported), [1220, 1000, 0, 0, 380, 300]);
    assert_eq!(counts(&json!({"promptTokenCount": 9, "totalTokenCount": 9})), [9, 0, 0, 0, 0, 0]);
}

#[test]
fn groq_and_mistral_report_as_openai_does() {
    let groq = json!({"queue_time": 0.03, "prompt_tokens": 24, "prompt_time": 0.0002, "completion_tokens": 377,
        "completion_time": 0.5, "total_tokens": 401, "total_time": 0.5});
    assert_eq!(counts(&groq), [24, 0, 0, 0, 377, 0]);
    let mistral =
        json!({"prompt_tokens": 14, "completion_tokens": 3, "total_tokens": 17, "prompt_audio_seconds": {}});
    assert_eq!(counts(&mistral), [14, 0, 0, 0, 3, 0]);
}

#[test]
fn xai_counts_reasoning_beside_the_completion_and_its_total_says_so() {
    let reported = json!({"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 135,
        "completion_tokens_details": {"reasoning_tokens": 94}});
    assert_eq!(counts(&reported), [32, 0, 0, 0, 103, 94]);
}

#[test]
fn deepseek_names_its_cache_hits() {
    let reported = json!({"prompt_tokens": 100, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36,
        "completion_tokens": 5, "total_tokens": 105});
    assert_eq!(counts(&reported), [100, 64, 0, 0, 5, 0]);
}

#[test]
fn cohere_counts_what_is_billed() {
    let chat = json!({"billed_units": {"input_tokens": 17.0, "output_tokens": 12.0},
        "tokens": {"input_tokens": 215.0, "output_tokens": 64.0}});
    assert_eq!(counts(&chat), [17, 0, 0, 0, 12, 0]);
    assert_eq!(counts(&json!({"billed_units": {"input_tokens": 3}})), [3, 0, 0, 0, 0, 0]);
    let free =
        json!({"billed_units": {"search_units": 1}, "tokens": {"input_tokens": 9, "output_tokens": 1}});
    assert_eq!(counts(&free), [9, 0, 0, 0, 1, 0]);
}

#[test]
fn ollama_counts_beside_its_answer() {
    let body = json!({"model": "llama3.2", "done": true, "prompt_eval_count": 26, "eval_count": 259});
    assert_eq!(counts(find(&body).unwrap()), [26, 0, 0, 0, 259, 0]);
    assert_eq!(counts(&json!({"prompt_eval_count": 8})), [8, 0, 0, 0, 0, 0]);
}

#[test]
fn the_usage_of_an_answer_is_found_where_it_is() {
    let openai = json!({"id": "x", "usage": {"prompt_tokens": 1}});
    let gemini = json!({"candidates": [], "usageMetadata": {"promptTokenCount": 1}});
    let cohere = json!({"id": "x", "embeddings": [], "meta": {"billed_units": {"input_tokens": 1}}});
    for body in [openai, gemini, cohere] {
        assert_eq!(counts(find(&body).unwrap())[0], 1, "{body}");
    }
    assert_eq!(find(&json!({"usage": null, "error": {}})), None);
    assert_eq!(read(&json!("prompt_tokens")), None);
    assert_eq!(read(&json!({"seconds": 3})), None);
}

#[test]
fn nonsense_is_no_count() {
    let reported = json!({"prompt_tokens": -5, "completion_tokens": "many", "prompt_tokens_details": []});
    assert_eq!(counts(&reported), [0; 6]);
    assert_eq!(counts(&json!({"prompt_tokens": 1e300, "completion_tokens": 2.6})), [i64::MAX, 0, 0, 0, 3, 0]);
    assert_eq!(counts(&json!({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}))[0], 9);
}

#[test]
fn the_way_a_call_was_bought_is_read() {
    let tier = |name: &str| read(&json!({"prompt_tokens": 1, "service_tier": name})).unwrap().tier;
    assert_eq!((tier("default"), tier("batch"), tier("flex")), (Tier::Standard, Tier::Batch, Tier::Other));
}

#[test]
fn a_report_of_unreasonable_size_is_only_measured() {
    let usage = Usage::of_report("x/m", json!({"prompt_tokens": 7, "noise": "n".repeat(MAX_REPORTED)}));
    assert_eq!(usage.input_tokens, 7);
    let kept = usage.reported.unwrap().to_string();
    assert!(kept.len() < 50 && kept.contains("left_out_bytes"), "{kept}");
}

/// What really happened in a call.
#[derive(Debug, Clone, Copy)]
struct Truth {
    fresh: i64,
    cached: i64,
    written: i64,
    visible: i64,
    reasoning: i64,
}

impl Truth {
    /// The same call as each provider tells it, and which parts it can tell apart.
    fn told(self) -> Vec<(&'static str, Value, [i64; 5])> {
        let Self { fresh, cached, written, visible, reasoning } = self;
        let (input, output) = (fresh + cached + written, visible + reasoning);
        let all = [input, cached, written, output, reasoning];
        let no_reasoning = [input, cached, written, output, 0];
        vec![
            (
                "openai",
                json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
                "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
                "completion_tokens_details": {"reasoning_tokens": reasoning}}),
                all,
            ),
            (
                "responses",
                json!({"input_tokens": input, "output_tokens": output,
                "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
                "output_tokens_details": {"reasoning_tokens": reasoning}}),
                all,
            ),
            (
                "anthropic",
                json!({"input_tokens": fresh, "cache_read_input_tokens": cached,
                "cache_creation_input_tokens": written, "output_tokens": output}),
                no_reasoning,
            ),
            (
                "bedrock",
                json!({"inputTokens": fresh, "cacheReadInputTokens": cached,
                "cacheWriteInputTokens": written, "outputTokens": output}),
                no_reasoning,
            ),
            (
                "gemini",
                json!({"promptTokenCount": fresh + cached, "cachedContentTokenCount": cached,
                "toolUsePromptTokenCount": written, "candidatesTokenCount": visible,
                "thoughtsTokenCount": reasoning}),
                [input, cached, 0, output, reasoning],
            ),
            (
                "xai",
                json!({"prompt_tokens": input, "completion_tokens": visible,
                "total_tokens": input + output, "prompt_tokens_details": {"cached_tokens": cached},
                "completion_tokens_details": {"reasoning_tokens": reasoning}}),
                [input, cached, 0, output, reasoning],
            ),
            ("ollama", json!({"prompt_eval_count": input, "eval_count": output}), [input, 0, 0, output, 0]),
            (
                "cohere",
                json!({"billed_units": {"input_tokens": input, "output_tokens": output}}),
                [input, 0, 0, output, 0],
            ),
        ]
    }
}

prop_compose! {
    fn truth()(
        fresh in 0_i64..1_000_000, cached in 0_i64..1_000_000, written in 0_i64..1_000_000,
        visible in 0_i64..1_000_000, reasoning in 0_i64..1_000_000,
    ) -> Truth {
        Truth { fresh, cached, written, visible, reasoning }
    }
}

proptest! {
    #[test]
    fn a_call_counts_the_same_whoever_reports_it(truth in truth()) {
        for (provider, reported, [input, cached, written, output, reasoning]) in truth.told() {
            let reading = read(&reported).unwrap();
            let found = [reading.input, reading.cached, reading.cache_write, reading.output, reading.reasoning];
            prop_assert_eq!(found, [input, cached, written, output, reasoning], "{}", provider);
        }
    }

    #[test]
    fn a_reading_of_anything_is_coherent(
        names in prop::collection::vec(prop::sample::select(vec![
            "prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens", "cached_tokens",
            "cache_read_input_tokens", "cache_creation_input_tokens", "promptTokenCount", "thoughtsTokenCount",
            "cachedContentTokenCount", "inputTokens", "cacheReadInputTokens", "eval_count", "reasoning_tokens",
            "ephemeral_1h_input_tokens", "cache_write_tokens",
        ]), 0..8),
        numbers in prop::collection::vec(any::<i64>(), 8),
    ) {
        let flat: serde_json::Map<String, Value> =
            names.iter().zip(&numbers).map(|(name, number)| ((*name).to_owned(), json!(number))).collect();
        let mut whole = flat.clone();
        for part in ["prompt_tokens_details", "completion_tokens_details", "cache_creation", "billed_units"] {
            whole.insert(part.to_owned(), Value::Object(flat.clone()));
        }
        for reported in [Value::Object(flat), Value::Object(whole)] {
            let Some(reading) = read(&reported) else { continue };
            prop_assert!(reading.cached >= 0 && reading.cache_write_1h >= 0 && reading.reasoning >= 0);
            prop_assert!(reading.cached.saturating_add(reading.cache_write) <= reading.input, "{:?}", reading);
            prop_assert!(reading.cache_write_1h <= reading.cache_write && reading.reasoning <= reading.output);
            let usage = Usage::of_report("x/m", reported);
            prop_assert_eq!(usage.reading(), reading);
        }
    }
}
