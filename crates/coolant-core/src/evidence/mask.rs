//! Masking of API keys in texts that people and logs see.

use serde_json::Value;

/// What stands in place of a secret.
const MASK: &str = "***";
/// How keys of known providers begin, and how many more characters make it one.
const PREFIXES: [(&str, usize); 25] = [
    ("sk-", 6),
    ("sk_", 6),
    ("pk-", 10),
    ("pk_", 10),
    ("rk_", 10),
    ("gsk_", 6),
    ("xai-", 6),
    ("hf_", 6),
    ("r8_", 6),
    ("AIza", 6),
    ("AKIA", 8),
    ("ASIA", 8),
    ("ya29.", 6),
    ("nvapi-", 6),
    ("pplx-", 6),
    ("fw_", 10),
    ("tgp_v1_", 6),
    ("jina_", 10),
    ("pa-", 16),
    ("csk-", 6),
    ("ghp_", 6),
    ("github_pat_", 6),
    ("eyJ", 16),
    ("AQ.", 20),
    ("glpat-", 6),
];
/// Words after which a value is a secret, in lower case without punctuation.
const NAMES: [&str; 22] = [
    "key",
    "apikey",
    "xapikey",
    "xgoogapikey",
    "token",
    "accesstoken",
    "refreshtoken",
    "authtoken",
    "idtoken",
    "sessiontoken",
    "xamzsecuritytoken",
    "secret",
    "clientsecret",
    "secretkey",
    "secretaccesskey",
    "password",
    "passwd",
    "authorization",
    "proxyauthorization",
    "subscriptionkey",
    "ocpapimsubscriptionkey",
    "sig",
];
/// Longer runs of letters and digits are keys without a prefix (Azure, Cohere, Mistral).
const RANDOM_RUN: usize = 32;

/// The text with every API key, bearer token and `key=...` value replaced by `***`. The beginning that
/// names the kind of key is kept.
///
/// ```
/// assert_eq!(coolant_core::evidence::mask("key sk-proj-abcdefgh12345 is wrong"), "key sk-*** is wrong");
/// ```
#[must_use]
pub fn mask(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    // Kept, so that a long run of key characters is measured once and not at every edge inside it.
    let mut run_end = 0;
    while let Some(c) = text[at..].chars().next() {
        if at >= run_end {
            run_end = text[at..].find(|c: char| !is_key_char(c)).map_or(text.len(), |length| at + length);
        }
        let at_edge = !out.ends_with(|c: char| c.is_ascii_alphanumeric());
        let found = if at_edge { secret(&text[at..], run_end - at, secret_follows(&out)) } else { None };
        if let Some((kept, length)) = found {
            out.push_str(&text[at..at + kept]);
            out.push_str(MASK);
            at += length;
        } else {
            out.push(c);
            at += c.len_utf8();
        }
    }
    out
}

/// How many bytes at the start of the text name the kind of key, and how many are the whole key.
fn secret(text: &str, end: usize, after_name: bool) -> Option<(usize, usize)> {
    let run = &text[..end];
    for (prefix, more) in PREFIXES {
        if run.starts_with(prefix) && run.len() >= prefix.len() + more {
            return Some((prefix.len(), end));
        }
    }
    for scheme in ["bearer ", "basic ", "Bearer ", "Basic ", "BEARER "] {
        if let Some(token) = text.strip_prefix(scheme) {
            let token_end = token.find(|c: char| !is_key_char(c)).unwrap_or(token.len());
            // "Bearer authentication" is prose: a token holds a digit or is long.
            let token_text = &token[..token_end];
            if token_end >= 8 && (token_end >= 20 || token_text.bytes().any(|b| b.is_ascii_digit())) {
                return Some((scheme.len(), scheme.len() + token_end));
            }
        }
    }
    if after_name && run.len() >= 6 && run.bytes().any(|b| b.is_ascii_digit() || b.is_ascii_uppercase()) {
        return Some((0, end));
    }
    let plain = run.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let mixed = run.as_bytes()[..plain].iter().any(u8::is_ascii_digit)
        && run.as_bytes()[..plain].iter().any(u8::is_ascii_alphabetic);
    (plain >= RANDOM_RUN && mixed).then_some((0, end))
}

/// Whether the text ends in `key=`, `"api_key": "` or the like.
fn secret_follows(text: &str) -> bool {
    const LOOK_BACK: usize = 80;
    let mut from = text.len().saturating_sub(LOOK_BACK);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let before = text[from..].trim_end_matches(['"', '\'', ' ', '\\']);
    let Some(before) = before.strip_suffix(['=', ':']) else { return false };
    let before = before.trim_end_matches(['"', '\'', ' ', '\\']);
    let name = before.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_').next();
    let name = super::fault::squash(name.unwrap_or_default());
    NAMES.contains(&name.as_str()) || name.ends_with("apikey")
}

fn is_key_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | '/' | '=' | '~')
}

/// A header's value, hidden as a whole if its name says that it is a secret.
pub(crate) fn header(name: &str, value: &str) -> String {
    let name = super::fault::squash(name);
    let secret = NAMES.contains(&name.as_str()) || name.contains("cookie") || name.ends_with("apikey");
    if secret { MASK.to_owned() } else { mask(value) }
}

/// A body with every string masked. Fields that are named as secrets lose their whole value.
pub(crate) fn json(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(mask(text)),
        Value::Array(items) => items.iter().map(json).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| match value {
                // "key" and "token" name too much else in JSON; a secret has a telling name or a telling form.
                Value::String(text) if super::fault::squash(key).len() > 5 => {
                    (key.clone(), header(key, text).into())
                }
                value => (key.clone(), json(value)),
            })
            .collect(),
        other => other.clone(),
    }
}
