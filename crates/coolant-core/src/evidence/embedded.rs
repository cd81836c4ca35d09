//! Errors quoted inside text: JSON, JSON with its quotes escaped, Python's `{'error': None}`, and the
//! names in a binary event-stream frame.

use serde_json::{Deserializer, Value};

/// How many opening brackets of a text are tried.
const MAX_STARTS: usize = 12;

/// The first object (or list of objects) in a text, and the text around it.
pub(crate) fn find(text: &str) -> Option<(Value, String)> {
    let mut tried = 0;
    for (start, bracket) in text.char_indices().filter(|(_, c)| matches!(c, '{' | '[')) {
        tried += 1;
        if tried > MAX_STARTS {
            break;
        }
        let rest = &text[start..];
        let json = if bracket == '[' && !rest[1..].trim_start().starts_with(['{', '[']) {
            None
        } else {
            json(rest).or_else(|| escaped(rest)).or_else(|| python(rest))
        };
        if let Some((value, length)) = json {
            let prose = format!("{} {}", &text[..start], rest.get(length..).unwrap_or_default());
            return Some((value, prose));
        }
    }
    None
}

fn json(text: &str) -> Option<(Value, usize)> {
    let mut values = Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    let filled = value.as_object().is_some_and(|map| !map.is_empty())
        || value.as_array().is_some_and(|items| items.iter().any(Value::is_object));
    filled.then(|| (value, values.byte_offset()))
}

/// JSON that was put into a string twice. The whole rest of the text counts as eaten.
fn escaped(text: &str) -> Option<(Value, usize)> {
    let head = &text.as_bytes()[..text.len().min(64)];
    if !head.windows(2).any(|pair| pair == b"\\\"") {
        return None;
    }
    let (value, _) = json(&text.replace("\\\"", "\"").replace("\\\\", "\\"))?;
    Some((value, text.len()))
}

/// A Python dict as `repr` prints it.
fn python(text: &str) -> Option<(Value, usize)> {
    let mut out = String::with_capacity(text.len());
    let mut depth = 0_usize;
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        match c {
            '\'' | '"' => python_string(c, &mut rest, &mut out)?,
            '{' | '[' | '(' => {
                depth += 1;
                out.push(if c == '(' { '[' } else { c });
            }
            '}' | ']' | ')' => {
                depth = depth.checked_sub(1)?;
                out.push(if c == ')' { ']' } else { c });
                if depth == 0 {
                    let value = serde_json::from_str::<Value>(&out).ok()?;
                    let filled = value.as_object().is_some_and(|map| !map.is_empty());
                    return filled.then_some((value, at + 1));
                }
            }
            _ if c.is_ascii_alphabetic() => {
                let end = text[at..].find(|c: char| !c.is_ascii_alphabetic()).map_or(text.len(), |n| at + n);
                out.push_str(match &text[at..end] {
                    "None" | "null" => "null",
                    "True" | "true" => "true",
                    "False" | "false" => "false",
                    // Scientific notation, or the prefix of a bytes literal; anything else is no data.
                    "e" | "E" => "e",
                    "b" | "u" => "",
                    _ => return None,
                });
                while rest.peek().is_some_and(|(next, _)| *next < end) {
                    rest.next();
                }
            }
            _ => out.push(c),
        }
    }
    None
}

/// Copies one Python string as a JSON string, without its quotes' own escapes.
fn python_string(
    quote: char,
    rest: &mut std::iter::Peekable<std::str::CharIndices<'_>>,
    out: &mut String,
) -> Option<()> {
    out.push('"');
    loop {
        match rest.next()?.1 {
            c if c == quote => break,
            '\\' => match rest.next()?.1 {
                '\'' => out.push('\''),
                c @ ('"' | '\\' | 'n' | 'r' | 't' | 'u' | 'b' | 'f' | '/') => out.extend(['\\', c]),
                c => out.extend(['\\', '\\', c]),
            },
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out.push('"');
    Some(())
}

/// The exception names in AWS event-stream frames that were not decoded: the header's name, a type byte,
/// a two-byte length and the value. All of them survive as characters in lossy text.
pub(crate) fn frame_names(text: &str) -> impl Iterator<Item = &str> {
    [":exception-type", ":error-code"].into_iter().filter_map(|mark| {
        let after = text.split_once(mark)?.1.trim_start_matches(|c: char| c.is_control());
        let end = after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len());
        (end > 3).then(|| &after[..end])
    })
}
