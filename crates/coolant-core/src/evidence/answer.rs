//! Answers that came under a 2xx: errors in disguise, streams, reasons why the answer ended, and then the
//! checks of the answer itself.

use serde_json::Value;

use crate::failure::CoolingScope::{Job, Upstream};
use crate::failure::FailureClass::{ContentFiltered, InvalidOutput, Network, UpstreamError};

use super::Retry::{Conditional, No, Yes};
use super::fault::{Fault, squash};
use super::matching::{self, Column, Rule, Verdict};
use super::output::Answer;
use super::rules::FINISH;
use super::{Context, Evidence, Operation, embedding, output, stream};

/// Judges an answer with a 2xx status; no verdict means that it is usable.
pub(crate) fn judge(evidence: &Evidence, context: &Context) -> (Fault, Option<Verdict>) {
    // A caller may hand JSON on as text.
    let parsed = evidence.body.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let parsed = parsed.filter(|value| value.is_object() || value.is_array());
    match parsed.as_ref().unwrap_or(&evidence.body) {
        Value::String(text) => judge_text(evidence, text, context),
        Value::Null => (Fault::default(), Some(found("empty_answer", None))),
        body => match error_in(body) {
            Some(error) => error_verdict(evidence, error, context),
            None => (Fault::default(), judge_json(body, context)),
        },
    }
}

/// Faults that only an answer can have.
fn found(name: &'static str, detail: Option<String>) -> Verdict {
    let (class, retry, scope) = match name {
        // Nothing at all, or a page of some server in between.
        "empty_answer" | "page_as_answer" | "text_as_answer" => (UpstreamError, Yes, Upstream),
        "cut_stream" | "cut_body" => (Network, Yes, Upstream),
        "refusal" => (ContentFiltered, No, Job),
        _ => (InvalidOutput, Conditional, Job),
    };
    Verdict { detail, ..Rule::new(name, class, retry, scope).verdict(Column::Output) }
}

fn judge_text(evidence: &Evidence, text: &str, context: &Context) -> (Fault, Option<Verdict>) {
    if text.trim().is_empty() {
        return (Fault::default(), Some(found("empty_answer", None)));
    }
    if let Some(events) = stream::events(text) {
        return judge_stream(evidence, events, context);
    }
    let fault = Fault::of_error(evidence, context);
    let start = text.trim_start();
    let name = if fault.structured {
        // A frame, or an error that is quoted in text.
        let verdict = matching::decide(&fault);
        return (fault, Some(verdict));
    } else if start.starts_with(['{', '[']) {
        "cut_body"
    } else if start.starts_with('<') {
        "page_as_answer"
    } else {
        "text_as_answer"
    };
    let verdict = matching::by_body(&fault).unwrap_or_else(|| found(name, Some(name.replace('_', " "))));
    (fault, Some(verdict))
}

fn error_verdict(evidence: &Evidence, error: &Value, context: &Context) -> (Fault, Option<Verdict>) {
    let fault = Fault::of_value(evidence, error, context);
    let verdict = matching::decide(&fault);
    (fault, Some(verdict))
}

/// The error that an answer carries: itself, in its first choice, or among the chunks of a JSON stream.
fn error_in(body: &Value) -> Option<&Value> {
    if stream::is_error_object(body) {
        return Some(body);
    }
    let chunks = body.as_array().map(Vec::as_slice).unwrap_or_default();
    let choices = body.get("choices").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let in_choice = choices.iter().find(|choice| choice.get("error").is_some_and(Value::is_object));
    in_choice.or_else(|| chunks.iter().find(|chunk| stream::is_error_object(chunk)))
}

fn judge_stream(
    evidence: &Evidence,
    events: Vec<stream::Event>,
    context: &Context,
) -> (Fault, Option<Verdict>) {
    let mut answer = Answer::default();
    let mut ended = false;
    for event in events {
        if event.is_error() {
            return error_verdict(evidence, &stream::named(event), context);
        }
        if let Some(error) = error_in(&event.data) {
            return error_verdict(evidence, error, context);
        }
        ended |= event.is_end();
        answer.absorb(&event.data);
    }
    // A clean close proves nothing: without an end the answer is cut, however good it looks.
    let verdict = if let Some(verdict) = finish(&answer) {
        Some(verdict)
    } else if !ended && answer.finish.is_none() {
        Some(found("cut_stream", Some("the stream closed without an end event".to_owned())))
    } else {
        check(&answer, context)
    };
    (Fault::default(), verdict)
}

fn judge_json(body: &Value, context: &Context) -> Option<Verdict> {
    let wants_vectors = context.operation == Some(Operation::Embeddings)
        || context.operation.is_none() && (context.inputs.is_some() || context.dimensions.is_some());
    if context.operation != Some(Operation::Chat)
        && let Some(vectors) = embedding::vectors(body)
    {
        let bad = embedding::check(&vectors, context.inputs, context.dimensions)?;
        let mut verdict = found(bad.rule(), Some(bad.to_string()));
        if bad.never_heals() {
            (verdict.retry, verdict.scope) = (No, Upstream);
        }
        return Some(verdict);
    }
    if wants_vectors {
        return Some(found("no_vectors", Some("the answer holds no vectors".to_owned())));
    }
    if body.get("done") == Some(&Value::Bool(false)) {
        // The first line of Ollama's stream, and nothing after it.
        return Some(found("cut_stream", Some("the stream closed without an end event".to_owned())));
    }
    let mut answer = Answer::default();
    match body {
        Value::Array(chunks) => chunks.iter().for_each(|chunk| answer.absorb(chunk)),
        one => answer.absorb(one),
    }
    finish(&answer).or_else(|| check(&answer, context))
}

/// What the reason for the end says.
fn finish(answer: &Answer) -> Option<Verdict> {
    if let Some(refusal) = &answer.refusal {
        return Some(found("refusal", Some(format!("the model refused: {refusal}"))));
    }
    let reason = answer.finish.as_deref()?;
    let name = squash(reason);
    let (_, rule) =
        FINISH.iter().find(|(names, _)| names.split_ascii_whitespace().any(|entry| squash(entry) == name))?;
    Some(Verdict {
        detail: Some(format!("the answer ended with `{reason}`")),
        ..rule.verdict(Column::Output)
    })
}

/// The answer's text against what was asked for.
fn check(answer: &Answer, context: &Context) -> Option<Verdict> {
    if !answer.is_known_form() {
        // What is not known is not judged, unless the caller says that it had to be a chat answer.
        return (context.operation == Some(Operation::Chat))
            .then(|| found("unknown_answer", Some("the answer has no known form".to_owned())));
    }
    let used_all =
        context.max_tokens.is_some_and(|most| answer.output_tokens.is_some_and(|used| used >= most));
    if answer.has_broken_call {
        return Some(found("broken_call", Some("a tool call's arguments are not JSON".to_owned())));
    }
    if answer.is_empty() {
        return Some(found("empty_text", Some("the answer holds no text".to_owned())));
    }
    let wants_json = context.expects_json || context.schema.is_some();
    if !wants_json || answer.has_calls {
        return None;
    }
    let problem = output::problem(&answer.text, context.schema.as_ref())?;
    let mut verdict = found(problem.rule(), Some(problem.to_string()));
    if used_all && problem.may_be_cut() {
        // It would be cut at the same place again.
        verdict = Rule::new("output_cut", InvalidOutput, No, Job).verdict(Column::Output);
    }
    Some(verdict)
}
