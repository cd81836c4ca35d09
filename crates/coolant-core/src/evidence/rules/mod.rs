//! The table: which signs mean which kind of fault. `docs/provider-failures.md` explains how to extend it.
//!
//! A row is one kind of fault. `codes` decide before any words, `says` before any `family` code, and
//! `status` is the last resort; in each column the upper row wins. So a row's place matters only against
//! rows whose phrases may stand in the same text, and the order is: money, capacity, size against limit,
//! long windows, key, permission, filter, length, batch and settings, missing models, time, rest, rate.
//!
//! Beside it: calls without an answer (`no_answer`) and reasons why an answer ended (`finish`).
//!
//! A phrase must be safe in the text of any provider. If two use the same words with different meanings,
//! the row says under which status the words count, or which words or codes forbid it.

use crate::failure::CoolingScope::{Credential, Job, Upstream};
use crate::failure::FailureClass::{
    Auth, ContentFiltered, ContextTooLong, InvalidOutput, InvalidRequest, Network, NotFound, Overloaded,
    Permission, QuotaExhausted, RateLimited, Timeout, UpstreamError,
};

mod finish;
mod no_answer;

pub(super) use finish::FINISH;
pub(super) use no_answer::NO_ANSWER;

use super::Retry::{Conditional, No, Yes};
use super::matching::Rule;
use super::window;

/// Statuses that already say "too much" or "pay": there, words about length, keys or filters are advice.
const TOO_MUCH: &[u16] = &[402, 429];
/// Statuses under which the request or the key is at fault, whatever their text says of rates.
const CLIENTS_FAULT: &[u16] = &[400, 401, 404, 413, 422];

/// Errors that came over HTTP, or inside a 200.
pub(super) const RULES: &[Rule] = &[
    // --- Money: no timer heals it.
    Rule::new("charge_pending", QuotaExhausted, Yes, Credential)
        .codes("credit_unresolved")
        .says(
            "charge is still being * reconciled | in flight requests | in flight request | pending charge | \
             retry shortly | try again shortly",
        )
        .under(&[402]),
    Rule::new("paid_option_missing", QuotaExhausted, No, Job)
        .says("extra usage is required | long context beta is not | extra usage * long context"),
    Rule::new("zero_quota", QuotaExhausted, No, Credential)
        .shows(window::limit_is_zero)
        .not_under(&[400, 401, 404, 422]),
    Rule::new("no_money", QuotaExhausted, No, Credential)
        .codes(
            "insufficient_quota billing_hard_limit_reached insufficient_balance insufficient_user_quota \
             billing_not_active billing_error payment_required insufficient_credits insufficient_funds \
             credit_balance_too_low exceeded_current_quota_error Arrearage AccountOverdueError account_overdue \
             PrepaidBillOverdue PostpaidBillOverdue FreeTierOnly budget_exceeded quota_not_enough \
             credits_exhausted out_of_credits insufficient_credit balance_not_enough spend_limit_reached \
             spending_limit_reached hard_limit_reached BillingDisabled BILLING_DISABLED CommodityNotPurchased \
             pre_consume_token_quota_failed zai/1113 siliconflow/30001 minimax/1008 minimax/2056",
        )
        .says(
            "credit balance is too low | insufficient balance | insufficient credit | insufficient fund | \
             insufficient quota | insufficient account balance | balance is insufficient | \
             balance not enough | balance is not enough | not enough balance | balance is too low | \
             account balance * negative | negative balance | billing hard limit | billing must be enabled | \
             requires billing to be enabled | billing account * disabled | \
             check your billing | used all * credits | spending limit | spend limit | spending cap | \
             purchase more credits | buy more credits | requires more credits | out of credits | \
             no credits left | no credits remaining | no remaining credits | have no credits | \
             have any credits | not enough credits | included credits | prepayment credits | \
             credits are depleted | depleted your | credits have been exhausted | credits expired | \
             exhausted its * credits | past invoices | overdue invoice | unpaid invoice | unpaid bill | \
             overdue payment | payment overdue | overdue balance | payment required | payment is required | \
             invalid payment | valid payment instrument | account * good standing | please recharge | \
             please top up | trial has expired | trial has ended | trial expired | \
             budget has been exceeded | exceeded budget | over budget | key limit exceeded | \
             credit limit exceeded | 余额不足 | 额度不足 | 欠费 | 账户余额 | 请充值",
        ),
    // Google uses OpenAI's money sentence for every quota, also for that of a minute.
    Rule::new("no_money", QuotaExhausted, No, Credential)
        .says("exceeded your current quota | check your plan and billing")
        .unless_code("RESOURCE_EXHAUSTED QuotaFailure QUOTA_EXHAUSTED"),
    // --- Capacity: the provider's lack, not the caller's excess.
    Rule::new("unhealthy", UpstreamError, Yes, Upstream).codes("unhealthy"),
    Rule::new("loading", Overloaded, Yes, Upstream)
        .codes("ModelNotReadyException model_loading model_not_ready model_is_loading")
        .says(
            "currently loading | is loading | still loading | loading model | being loaded | model is starting | \
             not ready to serve | model is not ready | not ready yet | warming up | cold start | \
             initializing model | scaling up from zero",
        )
        .not_under(&[401, 403]),
    Rule::new("shared_limit", Overloaded, Yes, Upstream)
        .codes("upstream_provider_shared_pool model_cooldown no_deployments_available")
        .says(
            "rate limited upstream | no deployments available | all credentials * cooling down | \
             deployments * cooling down | all * in cooldown | no available channel | no available accounts | \
             upstream * saturated | 负载已饱和",
        ),
    Rule::new("capacity", Overloaded, Yes, Upstream)
        .codes(
            "overloaded server_is_overloaded server_overloaded engine_overloaded model_overloaded \
             service_unavailable_error ServiceUnavailableException MODEL_CAPACITY_EXHAUSTED \
             resource_unavailable no_capacity capacity_exceeded capacity_not_available \
             service_tier_capacity_exceeded \
             insufficient_capacity slow_down queue_full system_busy mistral/3505 zai/1305 zai/1312 \
             siliconflow/50501 siliconflow/50505 server_busy queue_exceeded",
        )
        .says(
            "overloaded | over capacity | at capacity | capacity * exceeded | no capacity | \
             insufficient capacity | not enough capacity | capacity constraints | lack of capacity | \
             capacity * not available | capacity is not | out of capacity | exceeded * capacity for this model | \
             high demand | high load | heavy load | peak load | high traffic | high volume of requests | \
             server busy | server is busy | servers are busy | too busy | currently busy | model is busy | \
             system is busy | maximum pending requests | queue is full | queue full | resource unavailable | \
             resources are temporarily unavailable | temporarily out of | system overload | \
             访问量过大 | 负载过高 | 服务繁忙 | 系统繁忙",
        )
        .unless_says("exhausted your capacity on | reduce * capacity")
        .not_under(&[401, 402, 404, 413, 422]),
    // --- One request against the size of a budget: it can never fit.
    Rule::new("larger_than_limit", ContextTooLong, No, Job).shows(window::request_over_limit).not_under(&[400, 422]),
    // --- Long windows: minutes of backoff are useless.
    Rule::new("usage_limit", QuotaExhausted, Conditional, Credential)
        .codes(
            "GoUsageLimitError usage_limit_reached usage_limit_exceeded usage_not_included QUOTA_EXHAUSTED \
             daily_limit_exceeded dailyLimitExceeded daily_quota_exceeded monthly_limit_exceeded \
             weekly_limit_reached QuotaExceeded quota_exceeded SetLimitExceeded \
             zai/1304 zai/1308 zai/1310 baidu/4 baidu/17 baidu/19",
        )
        .says(
            "usage limit | usage cap | monthly limit | weekly limit | daily limit | daily request limit | \
             daily token limit | daily quota | monthly quota | weekly quota | out of call volume quota | \
             quota will be replenished | free models per day | hit your limit | limit for today | \
             5 hour limit | five hour limit",
        )
        .unless_says("hourly | per hour | per minute | per second")
        .not_under(&[404, 413, 422]),
    Rule::new("service_quota", QuotaExhausted, No, Credential)
        .codes("ServiceQuotaExceededException")
        .says("exceeds the service quota for your account"),
    Rule::new("throttled", RateLimited, Yes, Credential)
        .codes(
            "ThrottlingException Throttling RateQuota BurstRate ThrottledException \
             RequestLimitExceeded RequestThrottled ProvisionedThroughputExceededException limit_requests \
             rate_limited userRateLimitExceeded limit_burst_rate \
             concurrency_limit_exceeded EndpointTPMExceeded EndpointRPMExceeded mistral/1300 \
             zai/1302 zai/1303 minimax/1002 baidu/18 baidu/336501 baidu/336502",
        )
        .says("too many tokens, please wait | too many requests, please wait | wait before trying again | \
             enqueued token limit")
        .shows(says_rate_first),
    // --- The key.
    Rule::new("session_expired", Auth, Conditional, Credential)
        .codes("ExpiredTokenException ExpiredToken TokenRefreshRequired RequestExpired")
        .says("security token * is expired | session token * expired | session has expired"),
    Rule::new("wrong_key", Auth, No, Credential)
        .codes(
            "invalid_api_key incorrect_api_key_error API_KEY_INVALID API_KEY_SERVICE_BLOCKED InvalidApiKey \
             invalid_authentication_error invalid_authentication UnrecognizedClientException \
             InvalidSignatureException SignatureDoesNotMatch IncompleteSignature MissingAuthenticationToken \
             InvalidClientTokenId token_expired ACCESS_TOKEN_EXPIRED ACCESS_TOKEN_TYPE_UNSUPPORTED \
             CREDENTIALS_MISSING invalid_token api_key_disabled api_key_expired key_expired no_api_key \
             missing_api_key invalid_auth no_auth UNAUTHENTICATED auth_error invalid_access_key \
             zai/1000 zai/1001 zai/1002 zai/1003 zai/1004 minimax/1004 minimax/2049 baidu/110 baidu/111",
        )
        .says(
            "invalid api key | api key is invalid | api key * invalid | api key not valid | \
             api key * not valid | api key * is valid | api key not found | api key expired | \
             api key * expired | incorrect api key | wrong api key | no api key | missing api key | \
             api key is missing | api key * required | api key * missing | provide an api key | \
             provide your api key | provide a valid | api key * disabled | api key * revoked | \
             api key * leaked | invalid x api key | invalid api token | invalid access token | invalid auth | \
             invalid bearer token | invalid token | token seems invalid | token is invalid | token * revoked | \
             token has expired | token expired | invalid subscription key | missing subscription key | \
             authentication failed | authentication required | authentication fails | authorization failed | \
             missing authentication | could not be authenticated | invalid credentials | \
             no auth credentials | no cookie auth | missing bearer | missing authorization | \
             invalid username or password | invalid signature | signature * does not match | \
             token included in the request is | without established identity | unregistered callers | \
             credentials * not found | unable to locate credentials | \
             无效的令牌 | 令牌无效 | 令牌已过期 | 身份验证 | 鉴权失败",
        )
        .family("authentication_error")
        .unless_says("unauthorized to | not found for account")
        .not_under(&[402, 429, 502, 503, 504]),
    // Under 403 these may mean "not allowed" too.
    Rule::new("not_logged_in", Auth, No, Credential)
        .says("unauthorized | unauthenticated | not authenticated | user not found")
        .unless_says("unauthorized to | not found for account")
        .not_under(&[402, 403, 429, 500, 502, 503, 504]),
    // --- Permission.
    Rule::new("region", Permission, No, Upstream)
        .codes("unsupported_country_region_territory unsupported_location region_not_supported")
        .says(
            "country, region | not available in your country | not available in your region | \
             not available in your location | location is not supported | region is not supported | \
             region not supported | country is not supported | not supported in your | \
             access from your * restricted | you have been blocked | error code: 1009 | error code: 1020 | \
             error code: 1010 | error 1020 | error 1009",
        ),
    Rule::new("no_permission", Permission, No, Credential)
        .codes(
            "VALIDATION_REQUIRED SERVICE_DISABLED CONSUMER_SUSPENDED CONSUMER_INVALID model_access_denied \
             model_not_allowed insufficient_permissions Unpurchased ACCESS_TOKEN_SCOPE_INSUFFICIENT ModelNotOpen \
             OptInRequired team_model_access_denied key_model_access_denied must_be_verified \
             organization_disabled organization_restricted not_authorized_invalid_project account_deactivated account_suspended access_terminated \
             NotAuthorizedException model_terms_required user_not_authorized zai/1220 zai/1112 zai/1110 \
             zai/1309 zai/1311",
        )
        .says(
            "have access to the model | have access to model | have access to this model | \
             access to the requested model | do not have permission | does not have permission | \
             don't have permission | permission denied | permission * required | lacks permission | \
             not authorized to | is not authorized | \
             unauthorized to | not allowed to access | not allowed to use | not permitted to | \
             insufficient permission | missing scopes | missing permissions | data policy | \
             must be verified | terms of service | accept the terms | requires terms acceptance | \
             gated | use case details | \
             requires a subscription | requires a paid | api has not been used in project | \
             has been archived | organization has been restricted | account has been restricted | account is suspended | account has been suspended | account has been disabled | \
             account * deactivated | account is blocked | organization has been disabled | \
             organization * deactivated | account has been blocked | ip address is not | not in * allowlist | \
             not included in your plan | not available on your plan | access to this model is | \
             model access is denied | 无权 | 没有权限",
        )
        .family("permission_error permission_denied AccessDenied forbidden")
        .unless_says("does not exist | doesn't exist | not exist or | not found")
        .not_under(TOO_MUCH),
    // --- The provider's filter.
    Rule::new("bad_filter_setting", InvalidRequest, No, Job).says("invalid content filter policy"),
    Rule::new("filtered", ContentFiltered, No, Job)
        .codes(
            "content_filter content_policy_violation ResponsibleAIPolicyViolation content_filtered \
             cyber_policy policy_violation moderation moderation_blocked moderation_error flagged \
             DataInspectionFailed data_inspection_failed invalid_prompt sensitive_content \
             SensitiveContentDetected InputTextSensitiveContentDetected OutputTextSensitiveContentDetected \
             content_blocked guardrail_intervened guardrails_triggered jailbreak safety_violation \
             PROHIBITED_CONTENT content_safety unsafe_content image_content_policy_violation bio_policy \
             ContentPolicyViolationError zai/1301 minimax/1026 minimax/1027",
        )
        .says(
            "content exists risk | content management policy | content policy | usage policy | usage policies | \
             content filter policy | flagged * moderation | flagged * policy | flagged * violat | \
             flagged as | blocked by * policy | blocked by * moderation | blocked by * filter | blocked by * guardrail | \
             blocked by * safety | safety system | safety filter | inappropriate content | \
             content filtering policy | requires moderation | was flagged | been flagged | \
             sensitive content | unsafe content | harmful content | prohibited content | prohibited use | \
             violates our | violates * guidelines | violates * policies | violates the * policy | violation of our | blocked due to safety | \
             potentially unsafe or sensitive | 敏感 | 不安全 | 违规",
        )
        .not_under(TOO_MUCH),
    // --- Size: a batch or body can be split, one long text must be shortened.
    Rule::new("batch_too_large", InvalidRequest, No, Job)
        .codes("max_tokens_per_request request_too_large payload_too_large mistral/3210 array_above_max_length \
             RequestEntityTooLarge batch_size_exceeded")
        .says(
            "split into more batches | tokens per request | in one batch | batch size | at most * items | \
             at most * inputs | at most * texts | at most * requests | \
             allowed per prediction | too many inputs | too many texts | too many instances | too many items | \
             array too long | maximum array length | dimension or less | number of texts must | \
             body size | entity too large | payload too large | request body too large | body too large | \
             content too large | body is too large | exceeded * limit while buffering | \
             exceeds the maximum size | request size exceeds | length limit exceeded | \
             max allowed tokens per submitted batch | tokens in the batch | tokens per batch",
        )
        .not_under(&[402, 429, 500, 502, 503]),
    Rule::new("output_limit_setting", InvalidRequest, No, Job)
        .says("max tokens is too large | supports at most * completion tokens | max tokens must be | \
             maximum allowed number of output tokens | completion tokens * but * supports at most")
        .unless_says("context length | context window"),
    Rule::new("too_long", ContextTooLong, No, Job)
        .codes(
            "context_length_exceeded exceed_context_size_error ContextWindowExceededError context_too_long \
             context_length_error prompt_too_long input_too_long tokens_limit_reached context_limit_exceeded model_max_prompt_tokens_exceeded \
             model_context_window_exceeded string_above_max_length max_context_length_exceeded \
             input_length_exceeded zai/1261 minimax/1039 baidu/336007 baidu/336103",
        )
        .says(
            "maximum context length | context length | context window | context size | context limit | \
             prompt is too long | prompt too long | input is too long | conversation is too long | conversation too long | input too long | text is too long | \
             input length * exceed | input length * longer than | input token count * exceeds | token count * supports | \
             input tokens exceed | input tokens * exceeds | \
             too many tokens | too many input tokens | exceeds the maximum number of tokens | \
             exceeds the maximum * tokens | exceed * max tokens | maximum number of tokens | \
             must have less than * tokens | must be less than * tokens | \
             cannot exceed * tokens | tokens * exceeds the limit | exceeds the token limit | \
             exceeds token limit | exceeds the limit of * tokens | token limit exceeded | \
             maximum prompt length | exceeds the model | range of input length | reduce the length of | \
             reduce your prompt | max sequence length | maximum sequence length | \
             max new tokens * must be | longest sequence | too large to process | is too long for | \
             too many total text bytes | exceeds max length | exceeds maximum length | \
             exceeds the maximum length | maximum length of | prompt * exceeds max | \
             tokens, which exceeds | larger than the max context | \
             prompt tokens limit exceeded | 输入过长 | 超长 | 超过最大长度",
        )
        .unless_says(
            "overall | please wait | wait before | content policy | string should have at most | \
             per minute | per day",
        )
        .shows(window::tokens_over_limit)
        .family("token_limit_exceeded max_tokens_exceeded")
        .not_under(TOO_MUCH),
    // --- Settings of the request.
    Rule::new("needs_other_id", InvalidRequest, No, Upstream).says("on demand throughput"),
    Rule::new("feature_not_served", InvalidRequest, No, Job)
        .says("no endpoints found that support | no endpoints found that can handle | does not support * tool | \
             does not support tools | does not support embeddings | does not support image | \
             does not support chat | not a chat model | does not support generate | does not support function | \
             no endpoints found supporting"),
    Rule::new("output_refused_by_server", InvalidOutput, Conditional, Job)
        .codes("json_validate_failed tool_use_failed output_parse_failed")
        .says("failed to generate json | failed to validate json | failed to call a function | \
             unsupported value: nan | unsupported value: +inf | unsupported value: inf | \
             out of range float values are not json | nan values | generated * invalid json"),
    // --- Missing models and endpoints.
    Rule::new("new_deployment", NotFound, Conditional, Upstream)
        .codes("DeploymentNotFound")
        .says("created the deployment within the last"),
    Rule::new("no_such_model", NotFound, No, Upstream)
        .codes(
            "model_not_found ModelNotFound model_not_exist unknown_model invalid_model invalid_model_id \
             model_decommissioned model_deprecated model_not_supported ResourceNotFoundException \
             not_found_error unknown_url InvalidEndpointOrModel ModelNotExist UnknownOperationException \
             resource_not_found model_not_available deployment_not_found zai/1211 zai/1212 zai/1222 siliconflow/20012",
        )
        .says(
            "model * not found | model not found | model * does not exist | model does not exist | \
             model * doesn't exist | model identifier is invalid | unsupported model | invalid model | unknown model | no such model | \
             no endpoints found | model not exist | deployment * does not exist | \
             is not found for api version | been deprecated | been decommissioned | decommissioned | \
             end of its life | no longer available | no longer supported | is not a valid model | \
             model * not supported by | try pulling it | no models loaded | \
             model * is not available | invalid url | unknown request url | unrecognized request url | \
             page not found | no route matched | \
             模型不存在",
        )
        .unless_says("file * not found | image * not found | response_format | response format | parameter")
        .not_under(&[402, 429, 500, 502, 503, 504]),
    // --- Time.
    Rule::new("fetch_timeout", Timeout, Yes, Job)
        .says("timeout while downloading | timed out while downloading | timeout while fetching | \
             timed out while fetching | timed out downloading | timed out fetching | download * timed out")
        .under(&[400, 422]),
    Rule::new("server_timeout", Timeout, Conditional, Upstream)
        .codes(
            "timeout_error timeout DEADLINE_EXCEEDED ModelTimeoutException RequestTimeOut request_timeout \
             gateway_timeout APITimeoutError upstream_timeout",
        )
        .says(
            "request timed out | timed out while | deadline expired | deadline exceeded | gateway time out | \
             gateway timeout | upstream request timeout | took too long | operation timed out | \
             timed out waiting | timeout occurred",
        )
        .status(&[408, 504, 524])
        .not_under(&[400, 401, 402, 403, 404, 413, 422, 429]),
    // --- The provider failed by itself.
    Rule::new("server_dead", UpstreamError, Conditional, Upstream)
        .codes("ModelErrorException EngineDeadError")
        .says(
            "enginecore encountered | engine core * | enginedead | engine is dead | engine loop is not running | \
             background loop has errored | requires more system memory | out of memory | \
             insufficient memory | not enough memory | cuda error | \
             error while processing the model",
        )
        .not_under(&[400, 401, 403, 404, 422]),
    Rule::new("server_failed", UpstreamError, Yes, Upstream)
        .codes("ModelStreamErrorException incomplete_generation zai/1234 minimax/1000 minimax/1013")
        .says("internal server error | incomplete generation | runner process | bad gateway | \
             upstream connect error | no healthy upstream | something went wrong | \
             unexpected error | server had an error")
        .status(&[409, 423, 425, 499, 500, 502, 507, 520, 521, 523, 525, 527, 530])
        .not_under(&[400, 401, 402, 403, 404, 413, 422, 429, 503, 504]),
    // --- The plain rate limit: last of the words, since any other text may mention it.
    Rule::new("rate", RateLimited, Yes, Credential)
        .says(
            "rate limit * reached | rate limit * exceeded | rate limit exceeded | rate limit reached | \
             rate limited | ratelimit | exceeded * rate limit | exceeded * ratelimit | too many requests | \
             requests per min | tokens per min | requests per sec | rate limit is exceeded | \
             too many concurrent | concurrency limit | concurrent request limit | request was throttled | \
             throttled | throttling | call rate limit | quota exceeded for | 请求过于频繁 | 频率 | 限流",
        )
        .family(
            "rate_limit_exceeded rate_limit_error RESOURCE_EXHAUSTED too_many_requests \
             rate_limit_reached rate_limit",
        )
        .status(&[429])
        .not_under(CLIENTS_FAULT),
    // --- Status alone.
    Rule::new("status_auth", Auth, No, Credential).status(&[401, 407]),
    Rule::new("status_money", QuotaExhausted, No, Credential).status(&[402]),
    Rule::new("status_forbidden", Permission, No, Credential).status(&[403]),
    Rule::new("status_legal", Permission, No, Upstream).status(&[451]),
    Rule::new("status_missing", NotFound, No, Upstream).status(&[404, 405, 410, 501]),
    Rule::new("status_empty_413", ContextTooLong, No, Job).shows(says_nothing).under(&[413]),
    Rule::new("status_failed_dependency", UpstreamError, Conditional, Upstream).status(&[424, 526]),
    Rule::new("status_capacity", Overloaded, Yes, Upstream).status(&[498, 503, 529]),
    // Cloudflare could not connect to the origin: nothing was sent on.
    Rule::new("status_connect_timeout", Timeout, Yes, Upstream).status(&[522]),
    Rule::new("status_login_page", Network, No, Upstream).status(&[511]),
];

/// Family names that stand in for a status where there is none: in a stream, a frame or under a 200.
pub(super) const FAMILY_STATUS: &[(&str, u16)] = &[
    ("rate_limit_error rate_limit_exceeded RESOURCE_EXHAUSTED too_many_requests insufficient_quota", 429),
    ("authentication_error Unauthorized", 401),
    ("permission_error PermissionDeniedError", 403),
    ("not_found_error NOT_FOUND NotFoundError", 404),
    ("overloaded_error UNAVAILABLE ServiceUnavailableError", 503),
    ("timeout_error DEADLINE_EXCEEDED", 504),
    (
        "api_error server_error INTERNAL InternalServerError InternalFailure InternalFailure UNKNOWN CANCELLED",
        500,
    ),
    (
        "invalid_request_error INVALID_ARGUMENT FAILED_PRECONDITION OUT_OF_RANGE ValidationException \
         BadRequestError UnprocessableEntityError bad_request invalid_request InvalidParameter validation_error",
        400,
    ),
];

/// Whether the message opens with a rate limit. Anywhere else the words may be advice or a quotation.
fn says_rate_first(fault: &super::fault::Fault) -> bool {
    ["rate limit", "too many requests", "ratelimit"].iter().any(|start| fault.words.starts_with(start))
}

/// Whether the body has neither words nor codes.
fn says_nothing(fault: &super::fault::Fault) -> bool {
    fault.words.trim().is_empty() && fault.codes.is_empty()
}
