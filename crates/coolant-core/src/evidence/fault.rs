//! The fault inside an answer: codes, words and stated waits, dug out of whatever wraps them.
//!
//! Errors come nested (a gateway's error around a provider's), as JSON in strings, as Python reprs in
//! prose, as lists of validation messages, or as frames of a binary stream. All of it is walked with a
//! bounded budget; nothing here judges.

use serde_json::{Map, Value};

use super::{Context, Evidence, embedded, matching};

/// How deep wrappings may nest, counting JSON levels and quoted layers alike.
const MAX_DEPTH: usize = 24;
/// How many JSON values are looked at.
const MAX_NODES: usize = 4096;
/// How many bytes of text are kept for matching.
const MAX_TEXT: usize = 64 * 1024;
/// Longer strings are sentences, not codes.
const MAX_CODE: usize = 128;

/// Fields whose value names the kind of fault, in lower case without punctuation.
const CODE_KEYS: &str = " code type status reason errortype errorcode errcode exceptiontype exception subcode \
    quotaid quotalimit limitsource category statuscode httpstatus httpstatuscode rawstatuscode \
    originalstatuscode blockreason name kind policy slug errorname ";
/// Numeric fields among them that may hold an HTTP status.
const STATUS_KEYS: &str = " code status statuscode httpstatus httpstatuscode rawstatuscode errorcode \
    originalstatuscode ";
/// Fields that hold words for people.
const TEXT_KEYS: &str = " message msg error errors detail details title description errordescription \
    errormessage errormsg statusmsg statusmessage raw reason body cause info originalmessage usermessage \
    warning response text fault failure exception data ";
/// Fields that echo the caller's own data or point elsewhere. User data must never decide.
const ECHO_KEYS: &str = " input inputs prompt messages ctx loc param params request requestid url path id userid \
    trace traceback stack stacktrace help links link documentation choices candidates usage \
    failedgeneration schema prediction ";

/// A wait that stands in a field of the body, as it was written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum BodyWait {
    /// Google's `RetryInfo.retryDelay`, or a field that names its wait in seconds or with a unit.
    Delay(String),
    /// A field that names its wait in milliseconds.
    Millis(String),
    /// How long the model is still loading, in seconds.
    Estimate(String),
    /// An absolute time: epoch or RFC 3339.
    Until(String),
}

/// What an error says, without its wrapping.
#[derive(Debug, Default)]
pub(crate) struct Fault {
    /// The status that counts: the innermost one in the body, else that of HTTP.
    pub(crate) status: Option<u16>,
    /// The status that the body names.
    pub(crate) inner_status: Option<u16>,
    /// Names of the fault, outermost first, as written.
    pub(crate) codes: Vec<String>,
    /// The same in the form that they are compared in.
    pub(crate) bare_codes: Vec<String>,
    /// What is said, as written.
    pub(crate) texts: Vec<String>,
    /// All of `texts` in the form that phrases are matched against.
    pub(crate) words: String,
    /// Waits that stand in fields.
    pub(crate) waits: Vec<BodyWait>,
    /// Headers that a gateway copied into its body.
    pub(crate) headers: Vec<(String, String)>,
    /// A quota's value is given, and it is zero.
    pub(crate) zero_quota: bool,
    /// Whether an error object was found, not only words.
    pub(crate) structured: bool,
    /// The provider, squashed to lower case letters and digits.
    pub(crate) provider: Option<String>,
}

impl Fault {
    /// The fault in the whole body.
    pub(crate) fn of_error(evidence: &Evidence, context: &Context) -> Self {
        Self::of_value(evidence, &evidence.body, context)
    }

    /// The fault in one value: a stream's error event, or an error found inside a 200.
    pub(crate) fn of_value(evidence: &Evidence, error: &Value, context: &Context) -> Self {
        let provider = context.provider.as_deref().map(squash);
        let mut walk =
            Walk { fault: Self { provider, ..Self::default() }, nodes: MAX_NODES, bytes: MAX_TEXT };
        walk.value(error, 0);
        for name in ["x-amzn-errortype", "x-ms-error-code", "x-error-code", "grpc-status-name"] {
            if let Some(code) = evidence.header(name) {
                walk.code(code, false);
            }
        }
        let mut fault = walk.fault;
        fault.words = matching::normalise(&fault.texts.join("\n"));
        // Words name a status only where HTTP has none of its own to offer.
        if fault.inner_status.is_none() && !matches!(evidence.status, Some(400..=499)) {
            fault.inner_status = status_in_words(&fault.words);
        }
        fault.bare_codes = fault.codes.iter().map(|code| matching::bare_code(code)).collect();
        let outer = evidence.status.filter(|status| *status >= 300);
        fault.status =
            fault.inner_status.or(outer).or_else(|| matching::family_status(&fault)).or(evidence.status);
        fault
    }
}

struct Walk {
    fault: Fault,
    nodes: usize,
    bytes: usize,
}

impl Walk {
    fn value(&mut self, value: &Value, depth: usize) {
        if depth > MAX_DEPTH || self.nodes == 0 {
            return;
        }
        self.nodes -= 1;
        match value {
            Value::Object(map) => self.object(map, depth),
            Value::Array(items) => items.iter().for_each(|item| self.value(item, depth + 1)),
            Value::String(text) => self.text(text, depth),
            _ => {}
        }
    }

    fn object(&mut self, map: &Map<String, Value>, depth: usize) {
        self.fault.structured = true;
        // Own fields first, so that the innermost status and code come last whatever the key order.
        for (key, value) in map {
            let key = squash(key);
            match value {
                Value::String(text) => self.field(&key, text, depth),
                Value::Number(number) => self.number(&key, &number.to_string()),
                _ => {}
            }
        }
        for (key, value) in map {
            let key = squash(key);
            if !value.is_object() && !value.is_array() || among(ECHO_KEYS, &key) {
                continue;
            }
            match value {
                Value::Object(headers) if key.ends_with("headers") => self.copied_headers(headers),
                Value::Object(delay) if key == "retrydelay" => self.protobuf_delay(delay),
                // MiniMax numbers its faults in a range that others use too: keep the origin.
                Value::Object(base) if key == "baseresp" => self.base_resp(base),
                _ => self.value(value, depth + 1),
            }
        }
    }

    fn field(&mut self, key: &str, text: &str, depth: usize) {
        self.wait_field(key, text);
        if among(ECHO_KEYS, key) {
            return;
        }
        if among(CODE_KEYS, key) {
            self.code(text, among(STATUS_KEYS, key));
        }
        if key == "quotavalue" || key == "quotalimitvalue" {
            self.fault.zero_quota |= text.trim() == "0";
        }
        // Both, because some put a code where others put a sentence.
        let is_sentence = text.trim().contains(char::is_whitespace) || !text.is_ascii();
        if among(TEXT_KEYS, key) && (!among(CODE_KEYS, key) || is_sentence) {
            if !is_sentence {
                self.code(text, false);
            }
            self.text(text, depth);
        }
    }

    fn number(&mut self, key: &str, digits: &str) {
        self.wait_field(key, digits);
        match key {
            "quotavalue" | "quotalimitvalue" => self.fault.zero_quota |= digits == "0",
            // Baidu's numbers are small and would collide with anything.
            "errorcode" if digits.len() <= 3 && !is_error_status(digits) => {
                self.fault.codes.push(format!("baidu/{digits}"));
            }
            _ if among(STATUS_KEYS, key) => self.code(digits, true),
            _ => {}
        }
    }

    /// A duration that protobuf's JSON form did not turn into text.
    fn protobuf_delay(&mut self, delay: &Map<String, Value>) {
        let part = |name: &str| match delay.get(name) {
            Some(Value::Number(number)) => number.as_u64(),
            Some(Value::String(text)) => text.parse().ok(),
            _ => None,
        };
        let (seconds, nanos) = (part("seconds").unwrap_or(0), part("nanos").unwrap_or(0));
        self.wait_field("retrydelay", &format!("{seconds}.{nanos:09}"));
    }

    fn base_resp(&mut self, base: &Map<String, Value>) {
        if let Some(code) = base.get("status_code").filter(|code| **code != 0) {
            self.fault.codes.push(format!("minimax/{code}"));
        }
        if let Some(Value::String(text)) = base.get("status_msg") {
            self.text(text, MAX_DEPTH);
        }
    }

    fn copied_headers(&mut self, headers: &Map<String, Value>) {
        for (name, value) in headers.iter().take(64) {
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => continue,
            };
            self.fault.headers.push((name.to_ascii_lowercase(), value));
        }
    }

    fn wait_field(&mut self, key: &str, value: &str) {
        let wait: fn(String) -> BodyWait = match key {
            "retrydelay"
            | "retryafter"
            | "retryafterseconds"
            | "retryafters"
            | "retryin"
            | "resetsinseconds"
            | "retryafterinseconds"
            | "cooldownseconds"
            | "resetseconds"
            | "waitseconds"
            | "retrydelayseconds"
            | "resetafterseconds" => BodyWait::Delay,
            "retryafterms" | "retrydelayms" | "waitms" | "retryinms" => BodyWait::Millis,
            "estimatedtime" => BodyWait::Estimate,
            "resetsat" | "resetat" | "quotaresettimestamp" | "retryat" | "resettime" => BodyWait::Until,
            _ => return,
        };
        if value.len() <= MAX_CODE && self.fault.waits.len() < 32 {
            self.fault.waits.push(wait(value.to_owned()));
        }
    }

    /// Notes a code, with the parts of a compound one: `com.amazon.coral#X`, `X:http://...`, `A.B`, `a:b`.
    fn code(&mut self, code: &str, may_be_status: bool) {
        let code = code.trim();
        if code.is_empty() || code.len() > MAX_CODE || self.fault.codes.len() > 256 {
            return;
        }
        if may_be_status && is_error_status(code) {
            // Later ones lie deeper: they belong to the provider, the outer ones to a gateway.
            self.fault.inner_status = code.parse().ok();
        }
        let code = code.rsplit('#').next().unwrap_or(code);
        let code = code.split(":http").next().unwrap_or(code).trim();
        self.fault.codes.push(code.to_owned());
        if code.contains(['.', ':']) {
            self.fault.codes.extend(code.split(['.', ':']).filter(|part| part.len() > 3).map(str::to_owned));
        }
    }

    /// Notes words, and walks into errors that are quoted inside them.
    fn text(&mut self, text: &str, depth: usize) {
        let text = clip(text, self.bytes);
        if text.trim().is_empty() || depth > MAX_DEPTH {
            return;
        }
        self.bytes -= text.len();
        for name in embedded::frame_names(text) {
            self.fault.structured = true;
            self.code(name, false);
        }
        let mut said = text.trim().to_owned();
        if let Some((inner, prose)) = embedded::find(text) {
            self.value(&inner, depth + 1);
            said = prose.trim().to_owned();
        }
        let names = said.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in names.filter(|name| is_name_of_fault(name)).take(8) {
            self.fault.codes.push(name.to_owned());
        }
        if !said.is_empty() {
            self.fault.texts.push(said);
        }
    }
}

/// Whether a word in prose is a fault's name: `RateLimitError`, `RESOURCE_EXHAUSTED`.
fn is_name_of_fault(word: &str) -> bool {
    let is_constant = || {
        word.contains('_') && word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    };
    word.len() > 8 && (word.ends_with("Error") || word.ends_with("Exception") || is_constant())
}

/// Whether these digits are an HTTP error status.
fn is_error_status(digits: &str) -> bool {
    digits.len() == 3 && matches!(digits.parse::<u16>(), Ok(400..=599))
}

/// `Error code: 429`, `status code 503`, `<400> InternalError`: a status that a client library put in words.
fn status_in_words(words: &str) -> Option<u16> {
    const BEFORE: [&str; 11] = [
        "error ",
        "error code: ",
        "status code: ",
        "status code ",
        "statuscode: ",
        "http status ",
        "http error ",
        "http/1.1 ",
        "got status: ",
        "with status ",
        "returned status ",
    ];
    let three = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        if is_error_status(&digits) { digits.parse().ok() } else { None }
    };
    let bracketed = words.strip_prefix('<').filter(|rest| rest.get(3..4) == Some(">")).and_then(three);
    bracketed.or_else(|| BEFORE.iter().find_map(|mark| three(words.split_once(mark)?.1)))
}

/// A key in lower case without punctuation: `retryDelay`, `retry_delay` and `Retry-Delay` are one.
pub(crate) fn squash(key: &str) -> String {
    key.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

fn among(list: &str, key: &str) -> bool {
    !key.is_empty() && list.split_ascii_whitespace().any(|entry| entry == key)
}

/// The start of a text, at most that many bytes, cut between characters.
pub(crate) fn clip(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
