//! Reasons why an answer ended, in the words of the providers.

use crate::failure::CoolingScope::{Job, Upstream};
use crate::failure::FailureClass::{
    ContentFiltered, ContextTooLong, InvalidOutput, Overloaded, Timeout, UpstreamError,
};

use crate::evidence::Retry::{Conditional, No, Yes};
use crate::evidence::matching::Rule;

/// Reasons why an answer ended that make it unusable.
pub(in crate::evidence) const FINISH: &[(&str, Rule)] = &[
    (
        "content_filter content_filtered filtered SAFETY RECITATION PROHIBITED_CONTENT BLOCKLIST SPII \
         IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION IMAGE_OTHER_SAFETY LANGUAGE refusal sensitive \
         guardrail_intervened guardrails ERROR_TOXIC MODEL_ARMOR JAILBREAK safety_violation policy cyber_policy \
         BLOCKED_REASON_UNSPECIFIED",
        Rule::new("finish_filtered", ContentFiltered, No, Job),
    ),
    (
        "model_context_window_exceeded ERROR_LIMIT context_length_exceeded",
        Rule::new("finish_context", ContextTooLong, No, Job),
    ),
    (
        "length max_tokens max_output_tokens MAX_TOKENS model_length max_length token_limit",
        Rule::new("finish_cut", InvalidOutput, No, Job),
    ),
    (
        "MALFORMED_FUNCTION_CALL malformed_model_output malformed_tool_use UNEXPECTED_TOOL_CALL \
         TOO_MANY_TOOL_CALLS MISSING_THOUGHT_SIGNATURE NO_IMAGE IMAGE_OTHER OTHER load MALFORMED_RESPONSE",
        Rule::new("finish_broken", InvalidOutput, Conditional, Job),
    ),
    ("insufficient_system_resource", Rule::new("finish_no_resources", Overloaded, Yes, Upstream)),
    (
        "error network_error abort aborted cancelled failed ERROR server_error",
        Rule::new("finish_failed", UpstreamError, Yes, Upstream),
    ),
    ("timeout", Rule::new("finish_timeout", Timeout, Conditional, Upstream)),
];
