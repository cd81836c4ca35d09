//! Forms of many providers that the case file need not hold, written down as they arrive.

use serde_json::{Value, json};

use crate::{evidence, reading, said};
use coolant_core::evidence::{Context, Evidence, Operation, read};

type Headers = &'static [(&'static str, &'static str)];
/// Name, status, headers, body, expected reading, expected wait in milliseconds.
type Form = (&'static str, u16, Headers, Value, &'static str, Option<u64>);

fn check(forms: &[Form]) {
    let mut wrong = Vec::new();
    for (name, status, headers, body, expected, wait) in forms {
        let reading = reading(*status, headers, body.clone());
        let ms = reading.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap());
        if said(&reading) != *expected || ms != *wait {
            wrong.push(format!("{name}: {} {ms:?}, expected {expected} {wait:?}; rule {}", said(&reading), reading.rule));
        }
    }
    assert!(wrong.is_empty(), "{}\n", wrong.join("\n"));
}

const RATE: &str = "rate_limited yes credential";
const QUOTA: &str = "quota_exhausted conditional credential";
const MONEY: &str = "quota_exhausted no credential";
const BUSY: &str = "overloaded yes upstream";
const KEY: &str = "auth no credential";
const FORBIDDEN: &str = "permission no credential";
const MISSING: &str = "not_found no upstream";
const BAD: &str = "invalid_request no job";
const LONG: &str = "context_too_long no job";
const FILTERED: &str = "content_filtered no job";
const FAILED: &str = "upstream_error yes upstream";
const LATE: &str = "timeout conditional upstream";
const CUT: &str = "invalid_output no job";
const BROKEN: &str = "invalid_output conditional job";

#[test]
fn limits_and_money() {
    check(&[
        ("openai insufficient_quota", 429, &[("retry-after", "3")], json!({"error": {"message": "You exceeded your current quota, please check your plan and billing details. For more information on this error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors.", "type": "insufficient_quota", "param": null, "code": "insufficient_quota"}}), MONEY, None),
        ("openai text only", 429, &[], json!({"error": {"message": "You exceeded your current quota, please check your plan and billing details."}}), MONEY, None),
        ("openai payment hint is no money problem", 429, &[], json!({"error": {"message": "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000. Please try again in 2s. Visit https://platform.openai.com/account/rate-limits to learn more. You can increase your rate limit by adding a payment method to your account at https://platform.openai.com/account/billing.", "type": "tokens", "code": "rate_limit_exceeded"}}), RATE, Some(2000)),
        ("openai request too large", 429, &[("retry-after", "1")], json!({"error": {"message": "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 30921. The input or output tokens must be reduced in order to run successfully.", "type": "tokens", "code": "rate_limit_exceeded"}}), LONG, None),
        ("groq request too large 413", 413, &[], json!({"error": {"message": "Request too large for model `llama-3.1-8b-instant` in organization `org_x` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 9214, please reduce your message size and try again.", "type": "tokens", "code": "rate_limit_exceeded"}}), LONG, None),
        ("groq flex capacity", 498, &[], json!({"error": {"message": "Flex tier capacity exceeded", "type": "flex_tier_capacity_exceeded", "code": "capacity_exceeded"}}), BUSY, None),
        ("azure s0", 429, &[("retry-after", "86400"), ("x-ratelimit-remaining-requests", "-1")], json!({"error": {"code": "429", "message": "Requests to the Embeddings_Create Operation under Azure OpenAI API version 2023-05-15 have exceeded call rate limit of your current OpenAI S0 pricing tier. Please retry after 86400 seconds."}}), QUOTA, Some(86_400_000)),
        ("azure short", 429, &[], json!({"error": {"code": "429", "message": "Requests to the ChatCompletions_Create Operation under Azure OpenAI API version 2024-02-01 have exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 7 seconds. Please go here: https://aka.ms/oai/quotaincrease if you would like to further increase the default rate limit."}}), RATE, Some(7000)),
        ("azure sentinels", 429, &[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "0"), ("retry-after", "0")], json!(""), RATE, None),
        ("apim rate", 429, &[("retry-after", "12")], json!({"statusCode": 429, "message": "Rate limit is exceeded. Try again in 12 seconds."}), RATE, Some(12_000)),
        ("apim quota", 403, &[], json!({"statusCode": 403, "message": "Out of call volume quota. Quota will be replenished in 02:10:33."}), QUOTA, Some(7_833_000)),
        ("apim quota with days", 403, &[], json!({"statusCode": 403, "message": "Out of call volume quota. Quota will be replenished in 6.02:10:33."}), QUOTA, Some(526_233_000)),
        ("anthropic usage until", 400, &[("date", "Tue, 31 Mar 2026 00:00:00 GMT")], json!({"type": "error", "error": {"type": "invalid_request_error", "message": "You have reached your specified API usage limits. You will regain access on 2026-04-01 at 00:00 UTC."}}), QUOTA, Some(86_400_000)),
        ("anthropic acceleration", 429, &[("retry-after", "14"), ("anthropic-ratelimit-input-tokens-remaining", "0"), ("anthropic-ratelimit-input-tokens-reset", "2026-01-01T00:00:30Z"), ("date", "Thu, 01 Jan 2026 00:00:00 GMT")], json!({"type": "error", "error": {"type": "rate_limit_error", "message": "This request would exceed your organization's rate limit of 40,000 input tokens per minute. For details, refer to: https://docs.anthropic.com/en/api/rate-limits. You can see the response headers for current usage. Please reduce the prompt length or the maximum tokens requested, or try again later."}}), RATE, Some(14_000)),
        ("anthropic reset header", 429, &[("anthropic-ratelimit-input-tokens-remaining", "0"), ("anthropic-ratelimit-input-tokens-reset", "2026-01-01T00:00:30Z"), ("anthropic-ratelimit-requests-remaining", "3"), ("anthropic-ratelimit-requests-reset", "2026-01-01T00:05:00Z"), ("date", "Thu, 01 Jan 2026 00:00:00 GMT")], json!({"type": "error", "error": {"type": "rate_limit_error", "message": "Rate limited"}}), RATE, Some(30_000)),
        ("anthropic plan", 429, &[("anthropic-ratelimit-unified-status", "rejected"), ("anthropic-ratelimit-unified-reset", "1767236400"), ("date", "Thu, 01 Jan 2026 00:00:00 GMT")], json!({"type": "error", "error": {"type": "rate_limit_error", "message": "This request would exceed your account's rate limit. Please try again later."}}), QUOTA, Some(10_800_000)),
        ("codex plan", 429, &[], json!({"error": {"type": "usage_limit_reached", "message": "The usage limit has been reached", "plan_type": "plus", "resets_in_seconds": 18000}}), QUOTA, Some(18_000_000)),
        ("zai five hours", 429, &[("date", "Thu, 01 Jan 2026 00:00:00 GMT")], json!({"error": {"code": "1308", "message": "Usage limit reached for 5 hour. Your limit will reset at 2026-01-01 03:00:00"}}), QUOTA, Some(10_800_000)),
        ("zai concurrency", 429, &[], json!({"error": {"code": "1302", "message": "您的账户已达到速率限制,请您控制请求频率"}}), RATE, None),
        ("openrouter free day", 429, &[], json!({"error": {"message": "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day", "code": 429, "metadata": {"headers": {"X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1767312000000"}}}}), QUOTA, None),
        ("openrouter no credits", 402, &[], json!({"error": {"message": "Insufficient credits. Add more using https://openrouter.ai/settings/credits", "code": 402}}), MONEY, None),
        ("openrouter key limit", 403, &[], json!({"error": {"message": "Key limit exceeded (total limit). Manage it using https://openrouter.ai/settings/keys", "code": 403}}), MONEY, None),
        ("cohere month", 429, &[], json!({"message": "You are using a Trial key, which is limited to 1000 API calls / month. You can continue to use the Trial key for free or upgrade to a Production key"}), QUOTA, None),
        ("gemini spend cap", 429, &[], json!({"error": {"code": 429, "message": "Your project has exceeded its monthly spending cap. Please go to AI Studio.", "status": "RESOURCE_EXHAUSTED"}}), MONEY, None),
        ("gemini day in prose", 429, &[], json!([{"error": {"code": 429, "message": "You exceeded your current quota, please check your plan and billing details. For more information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits.\n* Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: 20, model: gemini-2.5-flash\nPlease retry in 17.2s.", "status": "RESOURCE_EXHAUSTED", "details": [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests", "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "20"}]}, {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"}]}}]), QUOTA, None),
        ("vertex online prediction", 429, &[], json!({"error": {"code": 429, "message": "Quota exceeded for aiplatform.googleapis.com/online_prediction_requests_per_base_model with base model: textembedding-gecko. Please submit a quota increase request.", "status": "RESOURCE_EXHAUSTED"}}), RATE, None),
        ("bedrock on-demand throttle", 429, &[("X-Amzn-ErrorType", "ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/")], json!({"message": "Too many requests, please wait before trying again."}), RATE, None),
        ("bedrock busy instance", 429, &[("x-amzn-errortype", "TooManyRequestsException")], json!({"message": "Model instance too busy"}), "rate_limited yes credential", None),
        ("dashscope throttling", 429, &[], json!({"code": "Throttling.RateQuota", "message": "Requests rate limit exceeded, please try again later.", "request_id": "x"}), RATE, None),
        ("dashscope free tier", 403, &[], json!({"code": "AllocationQuota.FreeTierOnly", "message": "The free tier of the model has been exhausted. If you wish to continue access the model on a paid basis, please disable the \"use free tier only\" mode in the management console."}), MONEY, None),
        ("moonshot", 429, &[], json!({"error": {"message": "Your account org-x is suspended due to insufficient balance, please recharge your account or check your plan and billing details", "type": "exceeded_current_quota_error"}}), MONEY, None),
        ("moonshot concurrency", 429, &[], json!({"error": {"message": "Your account org-x request reached max organization concurrency: 1, please try again after 1 seconds", "type": "rate_limit_reached_error"}}), RATE, Some(1000)),
        ("moonshot engine", 429, &[], json!({"error": {"message": "The engine is currently overloaded, please try again later", "type": "engine_overloaded_error"}}), BUSY, None),
        ("siliconflow", 403, &[], json!({"code": 30001, "message": "Sorry, your account balance is insufficient", "data": null}), MONEY, None),
        ("minimax rate", 200, &[], json!({"base_resp": {"status_code": 1002, "status_msg": "rate limit"}}), RATE, None),
        ("minimax money", 200, &[], json!({"id": "x", "choices": null, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}), MONEY, None),
        ("baidu qps", 200, &[], json!({"error_code": 18, "error_msg": "Open api qps request limit reached"}), RATE, None),
        ("together rate", 429, &[("x-ratelimit-reset", "4")], json!({"error": {"message": "You have been rate limited. Your rate limit is 60 queries per minute. Please navigate to https://www.together.ai/forms/rate-limit-increase", "type": "credit_limit", "code": null}}), RATE, Some(4000)),
        ("together credit", 402, &[], json!({"error": {"message": "Credit limit exceeded, please navigate to https://api.together.xyz/settings/billing to add credit", "type": "credit_limit"}}), MONEY, None),
        ("voyage no card", 429, &[], json!({"detail": "You have not yet added your payment method in the billing page and will have reduced rate limits of 3 RPM and 10K TPM."}), RATE, None),
        ("jina money", 402, &[], json!({"detail": "[INSUFFICIENT_BALANCE] Insufficient account balance."}), MONEY, None),
        ("litellm budget", 400, &[], json!({"error": {"message": "Budget has been exceeded! Current cost: 10.2, Max budget: 10.0", "type": "budget_exceeded", "param": null, "code": "400"}}), MONEY, None),
        ("litellm wrap", 429, &[], json!({"error": {"message": "litellm.RateLimitError: AnthropicException - {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"Number of request tokens has exceeded your per-minute rate limit\"}}. Received Model Group=claude", "type": null, "param": null, "code": "429"}}), RATE, None),
        ("litellm python repr", 500, &[], json!({"error": {"message": "litellm.APIError: OpenAIException - Error code: 429 - {'error': {'message': 'You exceeded your current quota, please check your plan and billing details.', 'type': 'insufficient_quota', 'param': None, 'code': 'insufficient_quota'}}", "code": "500"}}), MONEY, None),
        ("cloudflare 1015", 429, &[("retry-after", "30")], json!("<html><head><title>Access denied | api.x.com used Cloudflare to restrict access</title></head><body>Error 1015 You are being rate limited</body></html>"), RATE, Some(30_000)),
        ("plain", 429, &[], json!("Too Many Requests"), RATE, None),
        ("cerebras day", 429, &[("x-ratelimit-remaining-requests-day", "0"), ("x-ratelimit-reset-requests-day", "33011.38"), ("x-ratelimit-remaining-tokens-minute", "200"), ("x-ratelimit-reset-tokens-minute", "11.3")], json!({"message": "Requests per day limit exceeded - too many requests sent.", "type": "too_many_requests_error", "param": "quota", "code": "request_quota_exceeded"}), QUOTA, Some(33_011_380)),
        ("cerebras queue", 429, &[], json!({"message": "We're experiencing high traffic right now! Please try again soon.", "type": "too_many_requests_error", "param": "queue", "code": "queue_exceeded"}), BUSY, None),
        ("openai enqueued batch", 400, &[], json!({"error": {"message": "Enqueued token limit reached for gpt-4o in organization org-x. Limit: 90,000 enqueued tokens. Please try again once some in_progress batches have been completed.", "type": "invalid_request_error", "code": "token_limit_exceeded"}}), RATE, None),
        ("copilot", 429, &[], json!({"error": {"code": "user_weekly_rate_limited", "message": "You've hit your weekly rate limit."}}), QUOTA, None),
        ("github models", 429, &[("retry-after", "63000")], json!({"error": {"code": "RateLimitReached", "message": "Rate limit of 50 per 86400s exceeded for UserByModelByDay. Please wait 63000 seconds before retrying.", "details": "Rate limit of 50 per 86400s exceeded for UserByModelByDay. Please wait 63000 seconds before retrying."}}), QUOTA, Some(63_000_000)),
    ]);
}

#[test]
fn capacity_and_own_failures() {
    check(&[
        ("llama.cpp loading", 503, &[], json!({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}), BUSY, None),
        ("tei overloaded", 429, &[], json!({"error": "Model is overloaded", "error_type": "overloaded"}), BUSY, None),
        ("gemini 503", 503, &[], json!({"error": {"code": 503, "message": "The model is overloaded. Please try again later.", "status": "UNAVAILABLE"}}), BUSY, None),
        ("gemini 500", 500, &[], json!({"error": {"code": 500, "message": "An internal error has occurred. Please retry or report in https://developers.generativeai.google/guide/troubleshooting", "status": "INTERNAL"}}), FAILED, None),
        ("deepseek 503", 503, &[], json!({"error": {"message": "Service is too busy. We advise users to temporarily switch to alternative LLM API service providers.", "type": "service_unavailable_error"}}), BUSY, None),
        ("envoy", 503, &[], json!("upstream connect error or disconnect/reset before headers. reset reason: connection termination"), BUSY, None),
        ("envoy 504", 504, &[], json!("upstream request timeout"), LATE, None),
        ("nginx 502", 502, &[], json!("<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx</center></body></html>"), FAILED, None),
        ("nginx 504", 504, &[], json!("<html><head><title>504 Gateway Time-out</title></head></html>"), LATE, None),
        ("cloudflare 522", 522, &[], json!("<html><title>522: Connection timed out</title></html>"), "timeout yes upstream", None),
        ("vllm 500", 500, &[], json!({"object": "error", "message": "Internal server error", "type": "InternalServerError", "param": null, "code": 500}), FAILED, None),
        ("ollama oom", 500, &[], json!({"error": "llama runner process has terminated: cudaMalloc failed: out of memory"}), "upstream_error conditional upstream", None),
        ("ollama nan", 500, &[], json!({"error": "failed to encode response: json: unsupported value: NaN"}), BROKEN, None),
        ("sagemaker", 424, &[("x-amzn-errortype", "ModelError")], json!({"ErrorCode": "INTERNAL_FAILURE_FROM_MODEL", "LogStreamArn": "arn", "OriginalMessage": "Worker died.", "OriginalStatusCode": 500}), "upstream_error conditional upstream", None),
        ("openai 500", 500, &[], json!({"error": {"message": "The server had an error while processing your request. Sorry about that!", "type": "server_error", "param": null, "code": null}}), FAILED, None),
        ("retry-after on 503", 503, &[("Retry-After", "120")], json!("Service Unavailable"), BUSY, Some(120_000)),
        ("maintenance of hours stays capacity", 503, &[("Retry-After", "7200")], json!("down for maintenance"), BUSY, Some(7_200_000)),
        ("openrouter choice error", 200, &[], json!({"id": "x", "choices": [{"error": {"code": 502, "message": "Upstream error from Provider"}, "finish_reason": "error", "message": {"role": "assistant", "content": "par"}}]}), FAILED, None),
        ("openrouter 200 with error", 200, &[], json!({"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": "{\"error\":{\"message\":\"Rate limit exceeded\",\"code\":\"rate_limit_exceeded\"}}", "provider_name": "X"}}}), RATE, None),
        ("empty 200", 200, &[], json!(""), FAILED, None),
        ("html 200", 200, &[], json!("<!DOCTYPE html><html><body>Maintenance</body></html>"), FAILED, None),
        ("cut json", 200, &[], json!("{\"choices\":[{\"message\":{\"content\":\"Hel"), "network yes upstream", None),
        ("deepseek no resources", 200, &[], json!({"choices": [{"finish_reason": "insufficient_system_resource", "message": {"role": "assistant", "content": "x"}}]}), BUSY, None),
        ("responses failed", 200, &[], json!({"object": "response", "status": "failed", "error": {"code": "server_error", "message": "The model failed to generate a response."}, "output": []}), FAILED, None),
        ("responses rate in stream", 200, &[], json!("event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"status\":\"in_progress\",\"error\":null}}\n\nevent: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"Rate limit reached for gpt-5. Please try again in 5.2s.\"}}}\n\n"), RATE, Some(5200)),
        ("ollama stream error", 200, &[], json!("{\"model\":\"x\",\"response\":\"a\",\"done\":false}\n{\"error\":\"an error was encountered while running the model: unexpected EOF\"}\n"), FAILED, None),
        ("workers ai", 200, &[], json!({"success": false, "errors": [{"code": 3040, "message": "Capacity temporarily exceeded, please try again."}], "result": null}), BUSY, None),
        ("aws raw frame", 200, &[], json!("\u{0}\u{0}\u{0}q\r:exception-type\u{7}\u{0}\u{13}throttlingException\r:content-type\u{7}\u{0}\u{10}application/json\r:message-type\u{7}\u{0}\texception{\"message\":\"Too many tokens, please wait before trying again.\"}"), RATE, None),
        ("bedrock frame of the sdk", 200, &[], json!({"internalServerException": {"message": "The system encountered an unexpected error during processing. Try your request again."}}), FAILED, None),
        ("conflict", 409, &[], json!({"error": {"message": "Conflict"}}), FAILED, None),
    ]);
}

#[test]
fn keys_permissions_and_models() {
    check(&[
        ("gemini key", 400, &[], json!({"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT", "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]}}), KEY, None),
        ("gemini key not found", 400, &[], json!({"error": {"code": 400, "message": "API Key not found. Please pass a valid API key.", "status": "INVALID_ARGUMENT"}}), KEY, None),
        ("gemini location", 400, &[], json!({"error": {"code": 400, "message": "User location is not supported for the API use.", "status": "FAILED_PRECONDITION"}}), "permission no upstream", None),
        ("gemini no key", 403, &[], json!({"error": {"code": 403, "message": "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other form of API consumer identity to call this API.", "status": "PERMISSION_DENIED"}}), KEY, None),
        ("vertex disabled", 403, &[], json!({"error": {"code": 403, "message": "Vertex AI API has not been used in project x before or it is disabled.", "status": "PERMISSION_DENIED", "details": [{"reason": "SERVICE_DISABLED"}]}}), FORBIDDEN, None),
        ("vertex token", 401, &[], json!({"error": {"code": 401, "message": "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid authentication credential.", "status": "UNAUTHENTICATED"}}), KEY, None),
        ("aws expired", 403, &[("x-amzn-errortype", "ExpiredTokenException")], json!({"message": "The security token included in the request is expired"}), "auth conditional credential", None),
        ("aws unknown key", 403, &[("x-amzn-errortype", "UnrecognizedClientException")], json!({"message": "The security token included in the request is invalid."}), KEY, None),
        ("aws not authorized", 403, &[("x-amzn-errortype", "AccessDeniedException")], json!({"message": "User: arn:aws:iam::1:user/x is not authorized to perform: bedrock:InvokeModel on resource: arn:aws:bedrock:x because no identity-based policy allows the bedrock:InvokeModel action"}), FORBIDDEN, None),
        ("openai scopes", 401, &[], json!({"error": {"message": "You have insufficient permissions for this operation. Missing scopes: model.request.", "type": "invalid_request_error"}}), FORBIDDEN, None),
        ("openai model or access", 404, &[], json!({"error": {"message": "The model `gpt-9` does not exist or you do not have access to it.", "type": "invalid_request_error", "param": null, "code": "model_not_found"}}), MISSING, None),
        ("openai deactivated", 401, &[], json!({"error": {"message": "Your OpenAI account has been deactivated, please check your email for more information.", "type": "invalid_request_error", "code": "account_deactivated"}}), FORBIDDEN, None),
        ("openrouter no auth", 401, &[], json!({"error": {"message": "No auth credentials found", "code": 401}}), KEY, None),
        ("openrouter moderation", 403, &[], json!({"error": {"message": "Your chosen model requires moderation and your input was flagged", "code": 403, "metadata": {"reasons": ["violence"], "flagged_input": "x"}}}), FILTERED, None),
        ("openrouter model id", 400, &[], json!({"error": {"message": "foo/bar is not a valid model ID", "code": 400}}), MISSING, None),
        ("azure deployment", 404, &[], json!({"error": {"code": "DeploymentNotFound", "message": "The API deployment for this resource does not exist. If you created the deployment within the last 5 minutes, please wait a moment and try again."}}), "not_found conditional upstream", None),
        ("azure url", 404, &[], json!({"error": {"code": "404", "message": "Resource not found"}}), MISSING, None),
        ("mistral model", 400, &[], json!({"object": "error", "message": "Invalid model: foo", "type": "invalid_model", "param": null, "code": "1500"}), MISSING, None),
        ("groq decommissioned", 400, &[], json!({"error": {"message": "The model `x` has been decommissioned and is no longer supported.", "type": "invalid_request_error", "code": "model_decommissioned"}}), MISSING, None),
        ("xai key", 400, &[], json!({"code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***xx. You can obtain an API key from https://console.x.ai."}), KEY, None),
        ("xai no credits", 403, &[], json!({"code": "The caller does not have permission to execute the specified operation", "error": "Your newly created team doesn't have any credits yet. You can purchase credits on https://console.x.ai/team/x."}), MONEY, None),
        ("deepseek key", 401, &[], json!({"error": {"message": "Authentication Fails, Your api key: ****1234 is invalid", "type": "authentication_error", "param": null, "code": "invalid_request_error"}}), KEY, None),
        ("hf gated", 403, &[], json!({"error": "Access to model meta-llama/x is restricted and you are not in the authorized list. Visit the gated repo to ask for access."}), FORBIDDEN, None),
        ("litellm key", 401, &[], json!({"error": {"message": "Authentication Error, Invalid proxy server token passed. Received API Key = sk-...1234", "type": "token_not_found_in_db", "param": "key", "code": "401"}}), KEY, None),
        ("lm studio", 404, &[], json!({"error": {"message": "No models loaded. Please load a model in the developer page or use the `lms load` command.", "type": "invalid_request_error", "param": "model", "code": "model_not_found"}}), MISSING, None),
        ("vllm model", 404, &[], json!({"object": "error", "message": "The model `x` does not exist.", "type": "NotFoundError", "param": null, "code": 404}), MISSING, None),
        ("bedrock end of life", 404, &[("x-amzn-errortype", "ResourceNotFoundException")], json!({"message": "This model version has reached the end of its life."}), MISSING, None),
        ("dashscope key", 401, &[], json!({"code": "InvalidApiKey", "message": "Invalid API-key provided.", "request_id": "x"}), KEY, None),
        ("fastapi forbidden", 403, &[], json!({"detail": "Forbidden"}), FORBIDDEN, None),
        ("cloudflare block", 403, &[], json!("<html><title>Attention Required! | Cloudflare</title>Sorry, you have been blocked</html>"), "permission no upstream", None),
        ("problem details", 401, &[], json!({"type": "about:blank", "title": "Unauthorized", "status": 401}), KEY, None),
        ("anthropic org disabled", 400, &[], json!({"type": "error", "error": {"type": "invalid_request_error", "message": "This organization has been disabled."}}), FORBIDDEN, None),
        ("redirect", 302, &[("location", "https://x/login")], json!(""), MISSING, None),
    ]);
}

#[test]
fn requests_lengths_and_filters() {
    check(&[
        ("tei batch", 422, &[], json!({"error": "batch size 64 > maximum allowed batch size 32", "error_type": "Validation"}), BAD, None),
        ("cohere batch", 400, &[], json!({"message": "invalid request: total number of texts must be at most 96 - received 120"}), BAD, None),
        ("voyage batch", 400, &[], json!({"detail": "Request to model 'voyage-3' failed. The max allowed tokens per submitted batch is 120000. Your batch has 150000 tokens after truncation. Please lower the number of tokens in the batch."}), BAD, None),
        ("openai array", 400, &[], json!({"error": {"message": "'$.input' is invalid. Please check the API reference: https://platform.openai.com/docs/api-reference.", "type": "invalid_request_error", "param": null, "code": null}}), BAD, None),
        ("openai 2048", 400, &[], json!({"error": {"message": "Invalid 'input': array too long. Expected an array with maximum length 2048, but got an array with length 3000 instead.", "type": "invalid_request_error", "param": "input", "code": "array_above_max_length"}}), BAD, None),
        ("nginx 413", 413, &[], json!("<html><head><title>413 Request Entity Too Large</title></head></html>"), BAD, None),
        ("mistral context", 400, &[], json!({"object": "error", "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", "type": "invalid_request_error", "param": null, "code": "3051"}), LONG, None),
        ("deepseek context", 400, &[], json!({"error": {"message": "This model's maximum context length is 65536 tokens. However, you requested 70000 tokens (66000 in the messages, 4000 in the completion). Please reduce the length of the messages or completion.", "type": "invalid_request_error", "param": null, "code": "invalid_request_error"}}), LONG, None),
        ("bedrock context", 400, &[("x-amzn-errortype", "ValidationException")], json!({"message": "Input is too long for requested model."}), LONG, None),
        ("titan context", 400, &[("x-amzn-errortype", "ValidationException")], json!({"message": "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 9211 "}), LONG, None),
        ("together context", 422, &[], json!({"error": {"message": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 8000 `inputs` tokens and 512 `max_new_tokens`", "type": "invalid_request_error"}}), LONG, None),
        ("xai context", 400, &[], json!({"code": "Client specified an invalid argument", "error": "This model's maximum prompt length is 131072 but the request contains 140000 tokens."}), LONG, None),
        ("ollama embed", 400, &[], json!({"error": "the input length exceeds the context length"}), LONG, None),
        ("dashscope context", 400, &[], json!({"code": "InvalidParameter", "message": "Range of input length should be [1, 6000]", "request_id": "x"}), LONG, None),
        ("openai max_tokens", 400, &[], json!({"error": {"message": "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.", "type": "invalid_request_error", "param": "max_tokens", "code": "invalid_value"}}), BAD, None),
        ("openai policy", 400, &[], json!({"error": {"message": "Invalid prompt: your prompt was flagged as potentially violating our usage policy. Please try again with a different prompt.", "type": "invalid_request_error", "param": null, "code": "invalid_prompt"}}), FILTERED, None),
        ("anthropic output filter", 400, &[], json!({"type": "error", "error": {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"}}), FILTERED, None),
        ("filter that mentions rates", 400, &[], json!({"error": {"message": "The prompt was blocked by our content filter. Repeated violations count toward your rate limit; please wait before sending similar prompts.", "code": "content_filter"}}), FILTERED, None),
        ("dashscope inspection", 400, &[], json!({"code": "DataInspectionFailed", "message": "Input data may contain inappropriate content.", "request_id": "x"}), FILTERED, None),
        ("zai unsafe", 400, &[], json!({"contentFilter": [{"level": 1, "role": "user"}], "error": {"code": "1301", "message": "系统检测到输入或生成内容可能包含不安全或敏感内容"}}), FILTERED, None),
        ("groq json", 400, &[], json!({"error": {"message": "Failed to generate JSON. Please adjust your prompt. See 'failed_generation' for more details.", "type": "invalid_request_error", "code": "json_validate_failed", "failed_generation": "{rate limit exceeded"}}), BROKEN, None),
        ("groq tool", 400, &[], json!({"error": {"message": "Failed to call a function. Please adjust your prompt.", "type": "invalid_request_error", "code": "tool_use_failed", "failed_generation": "x"}}), BROKEN, None),
        ("ollama tools", 400, &[], json!({"error": "registry.ollama.ai/library/x does not support tools"}), BAD, None),
        ("fastapi list", 422, &[], json!({"detail": [{"loc": ["body", "input"], "msg": "field required", "type": "value_error.missing", "input": "rate limit exceeded, insufficient balance"}]}), BAD, None),
        ("user data about money", 400, &[], json!({"error": {"message": "Invalid type for 'messages[0].content': expected string", "type": "invalid_request_error", "input": "insufficient_quota"}}), BAD, None),
        ("openai param", 400, &[], json!({"error": {"message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", "type": "invalid_request_error", "param": "max_tokens", "code": "unsupported_parameter"}}), BAD, None),
        ("python in text", 400, &[], json!("Error code: 400 - {'error': {'message': \"This model's maximum context length is 8192 tokens.\", 'type': 'invalid_request_error', 'param': 'messages', 'code': 'context_length_exceeded'}}"), LONG, None),
        ("twice encoded", 500, &[], json!("{\"error\":\"{\\\"error\\\":{\\\"message\\\":\\\"{\\\\\\\"type\\\\\\\":\\\\\\\"error\\\\\\\",\\\\\\\"error\\\\\\\":{\\\\\\\"type\\\\\\\":\\\\\\\"overloaded_error\\\\\\\",\\\\\\\"message\\\\\\\":\\\\\\\"Overloaded\\\\\\\"}}\\\"}}\"}"), BUSY, None),
        ("teapot", 418, &[], json!("short and stout"), BAD, None),
    ]);
}

#[test]
fn endings_of_answers() {
    let gemini = |reason: &str| json!({"candidates": [{"finishReason": reason, "content": {"role": "model"}}]});
    let openai = |reason: &str, content: Value| {
        json!({"choices": [{"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": content}}]})
    };
    check(&[
        ("gemini safety", 200, &[], gemini("SAFETY"), FILTERED, None),
        ("gemini recitation", 200, &[], gemini("RECITATION"), FILTERED, None),
        ("gemini cut", 200, &[], gemini("MAX_TOKENS"), CUT, None),
        ("gemini other", 200, &[], gemini("OTHER"), BROKEN, None),
        ("openai refusal", 200, &[], json!({"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": null, "refusal": "I'm sorry, I can't assist with that."}}]}), FILTERED, None),
        ("responses refusal", 200, &[], json!({"object": "response", "status": "completed", "error": null, "output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]}), FILTERED, None),
        ("zai sensitive", 200, &[], openai("sensitive", json!("")), FILTERED, None),
        ("zai network", 200, &[], openai("network_error", json!("par")), FAILED, None),
        ("mistral model_length", 200, &[], openai("model_length", json!("par")), CUT, None),
        ("anthropic window", 200, &[], json!({"type": "message", "role": "assistant", "content": [{"type": "text", "text": "par"}], "stop_reason": "model_context_window_exceeded"}), LONG, None),
        ("cohere toxic", 200, &[], json!({"id": "x", "finish_reason": "ERROR_TOXIC", "message": {"role": "assistant", "content": []}}), FILTERED, None),
        ("cohere cut", 200, &[], json!({"id": "x", "finish_reason": "MAX_TOKENS", "message": {"role": "assistant", "content": [{"type": "text", "text": "par"}]}}), CUT, None),
        ("titan filtered", 200, &[], json!({"inputTextTokenCount": 3, "results": [{"tokenCount": 0, "outputText": "", "completionReason": "CONTENT_FILTERED"}]}), FILTERED, None),
        ("ollama cut", 200, &[], json!({"model": "x", "message": {"role": "assistant", "content": "par"}, "done": true, "done_reason": "length"}), CUT, None),
        ("stream filtered", 200, &[], json!("data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"content_filter\"}]}\n\ndata: [DONE]\n\n"), FILTERED, None),
        ("stream cut at length", 200, &[], json!("event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\"},\"usage\":{\"output_tokens\":9}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"), CUT, None),
        ("stream without end", 200, &[], json!(": keep-alive\n\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n"), "network yes upstream", None),
        ("stream of pings", 200, &[], json!(": keep-alive\n\n: keep-alive\n\n"), "network yes upstream", None),
        ("empty choices", 200, &[], json!({"choices": []}), BROKEN, None),
    ]);
}

#[test]
fn good_answers_are_successes() {
    let good = [
        json!({"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "rate limit exceeded", "refusal": null}}], "error": null}),
        json!({"choices": [{"finish_reason": "tool_calls", "message": {"role": "assistant", "content": null, "tool_calls": [{"id": "x"}]}}]}),
        json!({"type": "message", "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"}),
        json!({"candidates": [{"finishReason": "STOP", "content": {"parts": [{"text": "hi"}]}}]}),
        json!({"output": {"message": {"role": "assistant", "content": [{"text": "hi"}]}}, "stopReason": "end_turn"}),
        json!({"object": "response", "status": "completed", "error": null, "incomplete_details": null, "output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}]}),
        json!({"model": "x", "message": {"role": "assistant", "content": "hi"}, "done": true, "done_reason": "stop"}),
        json!({"model": "x", "response": "hi", "done": true}),
        json!([{"generated_text": "hi"}]),
        json!({"id": "x", "finish_reason": "COMPLETE", "message": {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}}),
        json!({"object": "list", "data": [{"index": 0, "embedding": [0.1, 0.2]}]}),
        json!({"embeddings": {"float": [[0.1, 0.2]]}}),
        json!({"embeddings": [{"values": [0.1, 0.2]}]}),
        json!({"predictions": [{"embeddings": {"values": [0.1, 0.2], "statistics": {"token_count": 2}}}]}),
        json!([{"index": 0, "embedding": [[0.1, 0.2]]}]),
        json!({"output": {"embeddings": [{"text_index": 0, "embedding": [0.1, 0.2]}]}, "usage": {"total_tokens": 1}}),
        json!({"object": "list", "data": [{"index": 0, "embedding": "zczMPc3MTD4="}]}),
        json!("data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":null}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"),
        json!("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"type\":\"message\",\"content\":[],\"stop_reason\":null}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"),
        json!("{\"model\":\"x\",\"response\":\"h\",\"done\":false}\n{\"model\":\"x\",\"response\":\"\",\"done\":true,\"done_reason\":\"stop\"}\n"),
        json!("event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"error\":null,\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"hi\"}]}]}}\n\n"),
    ];
    for body in good {
        let reading = reading(200, &[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "1s")], body.clone());
        assert!(reading.is_success(), "{body}: {reading:?}");
    }
}

#[test]
fn vectors_that_must_not_be_stored() {
    let context = Context {
        operation: Some(Operation::Embeddings),
        inputs: Some(2),
        dimensions: Some(2),
        ..Context::default()
    };
    let with = |vectors: Value| evidence(200, &[], json!({"object": "list", "data": vectors}));
    let of = |vectors: Value| said(&read(&with(vectors), &context));
    assert_eq!(of(json!([{"index": 1, "embedding": [1.0, 2]}, {"index": 0, "embedding": [3, 4]}])), "success no job");
    assert_eq!(of(json!([{"index": 0, "embedding": [1.0, 2]}])), BROKEN);
    assert_eq!(of(json!([{"index": 0, "embedding": [1, 2]}, {"index": 1, "embedding": [3, 4]}, {"index": 2, "embedding": [5, 6]}])), BROKEN);
    assert_eq!(of(json!([{"index": 0, "embedding": [1, 2]}, {"index": 2, "embedding": [3, 4]}])), BROKEN);
    assert_eq!(of(json!([{"index": 0, "embedding": [0, 0.0]}, {"index": 1, "embedding": [3, 4]}])), BROKEN);
    assert_eq!(of(json!([{"index": 0, "embedding": null}, {"index": 1, "embedding": [3, 4]}])), BROKEN);
    assert_eq!(of(json!([{"index": 0, "embedding": []}, {"index": 1, "embedding": [3, 4]}])), BROKEN);
    assert_eq!(of(json!([{"index": 0, "embedding": [1, 2, 3]}, {"index": 1, "embedding": [3, 4, 5]}])), "invalid_output no upstream");
    assert_eq!(of(json!("nonsense")), BROKEN);
    // NaN packed into base64, which JSON would not have let through.
    assert_eq!(of(json!([{"index": 0, "embedding": "AADAfwAAgD8="}, {"index": 1, "embedding": "AACAPwAAgD8="}])), BROKEN);
}

#[test]
fn json_that_was_asked_for() {
    let schema = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "array", "items": {"type": ["integer", "null"]}}, "b": {"enum": ["x", "y"]}}, "additionalProperties": false});
    let of = |text: &str| {
        let body = json!({"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": text}}]});
        let context = Context { operation: Some(Operation::Chat), schema: Some(schema.clone()), ..Context::default() };
        read(&evidence(200, &[], body), &context)
    };
    assert!(of("{\"a\": [1, 2.0, null], \"b\": \"x\"}").is_success());
    for (text, rule) in [
        ("{\"a\": [1, \"2\"]}", "output_schema"),
        ("{\"b\": \"x\"}", "output_schema"),
        ("{\"a\": [], \"b\": \"z\"}", "output_schema"),
        ("{\"a\": [], \"c\": 1}", "output_schema"),
        ("Here it is: {\"a\": []}", "output_wrapped"),
        ("I cannot do that", "output_not_json"),
        ("  ", "empty_text"),
    ] {
        assert_eq!(of(text).rule, rule, "{text}");
        assert_eq!(said(&of(text)), BROKEN, "{text}");
    }
}

#[test]
fn calls_without_an_answer() {
    let of = |text: &str| said(&read(&Evidence { status: None, headers: vec![], body: json!(text) }, &Context::default()));
    for (text, expected) in [
        ("error sending request for url (https://api.x.com/): client error (Connect): invalid peer certificate: UnknownIssuer", "network no upstream"),
        ("x509: certificate signed by unknown authority", "network no upstream"),
        ("self-signed certificate in certificate chain", "network no upstream"),
        ("getaddrinfo EAI_AGAIN api.openai.com", "network yes upstream"),
        ("getaddrinfo ENOTFOUND api.openai.com", "network conditional upstream"),
        ("[Errno -3] Temporary failure in name resolution", "network yes upstream"),
        ("connect ECONNREFUSED 127.0.0.1:11434", "network yes upstream"),
        ("tcp connect error: Connection refused (os error 111)", "network yes upstream"),
        ("read ECONNRESET", "network yes upstream"),
        ("[Errno 104] Connection reset by peer", "network yes upstream"),
        ("socket hang up", "network yes upstream"),
        ("Server disconnected without sending a response.", "network yes upstream"),
        ("connection closed before message completed", "network yes upstream"),
        ("http2 error: connection error received: GOAWAY", "network yes upstream"),
        ("error decoding response body: unexpected end of file", "network yes upstream"),
        ("Connection error.", "network yes upstream"),
        ("Request timed out.", LATE),
        ("operation timed out", LATE),
        ("The operation was aborted due to timeout", LATE),
        ("context deadline exceeded (Client.Timeout exceeded while awaiting headers)", LATE),
        ("HTTPSConnectionPool(host='x', port=443): Read timed out. (read timeout=60)", LATE),
        ("HTTPSConnectionPool(host='x', port=443): Max retries exceeded with url: /v1 (Caused by ConnectTimeoutError(<x>, 'Connection to x timed out. (connect timeout=5)'))", "timeout yes upstream"),
        ("dial tcp 1.2.3.4:443: i/o timeout", "timeout yes upstream"),
        ("UND_ERR_CONNECT_TIMEOUT", "timeout yes upstream"),
        ("UND_ERR_HEADERS_TIMEOUT", LATE),
        ("litellm.Timeout: APITimeoutError - Request timed out.", LATE),
        ("Error code: 401 - {'error': {'message': 'Incorrect API key provided', 'code': 'invalid_api_key'}}", KEY),
        ("Error code: 529 - {'type': 'error', 'error': {'type': 'overloaded_error', 'message': 'Overloaded'}}", BUSY),
        ("The api_key client option must be set: no API key found", KEY),
        ("something nobody has seen", "network conditional upstream"),
    ] {
        assert_eq!(of(text), expected, "{text}");
    }
}

#[test]
fn the_server_may_forbid_and_allow_a_retry() {
    let no = &[("X-Should-Retry", "false")];
    assert_eq!(said(&reading(429, no, json!(""))), "rate_limited no credential");
    assert_eq!(said(&reading(500, no, json!(""))), "upstream_error no job");
    let yes = &[("x-should-retry", "true")];
    assert_eq!(said(&reading(400, yes, json!(""))), FAILED);
    // No header makes a wrong key right.
    assert_eq!(said(&reading(401, yes, json!(""))), KEY);
}

#[test]
fn numeric_codes_belong_to_their_vendor() {
    let body = json!({"error": {"code": "1300", "message": "x"}});
    let of = |provider: Option<&str>| {
        let context = Context { provider: provider.map(str::to_owned), ..Context::default() };
        said(&read(&evidence(400, &[], body.clone()), &context))
    };
    assert_eq!(of(Some("mistral")), RATE);
    assert_eq!(of(None), RATE);
    assert_eq!(of(Some("z.ai/glm-4")), BAD);
}
