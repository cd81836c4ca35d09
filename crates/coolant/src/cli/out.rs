//! What a person or a program reads: tables and sentences on a terminal, plain lines in a pipe, JSON where
//! it was asked for.

use std::error::Error;
use std::io::{ErrorKind, IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// Where results go.
pub(super) struct Output {
    json: bool,
    terminal: bool,
}

impl Output {
    pub(super) fn new(json: bool) -> Self {
        Self { json, terminal: std::io::stderr().is_terminal() }
    }

    /// Whether results are to be JSON.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether a person watches: progress bars and colours make sense.
    pub(super) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// A result as JSON, on one line for a program in a pipe.
    pub(super) fn json(&self, value: &impl Serialize) {
        let text = if std::io::stdout().is_terminal() {
            serde_json::to_string_pretty(value)
        } else {
            serde_json::to_string(value)
        };
        self.line(text.unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}")));
    }

    /// A line of a result.
    pub(super) fn line(&self, text: impl AsRef<str>) {
        let mut stdout = std::io::stdout().lock();
        match writeln!(stdout, "{}", text.as_ref()).and_then(|()| stdout.flush()) {
            Ok(()) => {}
            // Whoever read along has gone (`| head`): nothing more to say, and no reason to complain.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
            Err(error) => {
                self.remark(format!("error: cannot write the result\n  cause: {error}"));
                std::process::exit(1);
            }
        }
    }

    /// A name and what is said of it: below it and folded on a terminal, on the same line in a pipe.
    pub(super) fn entry(&self, name: &str, text: &str) {
        if !std::io::stdout().is_terminal() {
            return self.line(format!("{name} {text}"));
        }
        self.line(name);
        for line in folded(text, columns().saturating_sub(4)) {
            self.line(format!("    {line}"));
        }
    }

    /// A sentence: folded on a terminal.
    pub(super) fn sentence(&self, text: &str) {
        if !std::io::stdout().is_terminal() {
            return self.line(text);
        }
        for line in folded(text, columns()) {
            self.line(line);
        }
    }

    /// A remark that is no part of the result.
    pub(super) fn remark(&self, text: impl AsRef<str>) {
        let _ = writeln!(std::io::stderr().lock(), "{}", text.as_ref());
    }

    /// Rows under headings; in a pipe the cells are separated by tabs.
    pub(super) fn table(&self, headings: &[&str], rows: Vec<Vec<String>>) {
        if !std::io::stdout().is_terminal() {
            self.line(headings.join("\t"));
            for row in rows {
                self.line(row.join("\t"));
            }
            return;
        }
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(headings.iter().copied());
        for row in rows {
            table.add_row(row);
        }
        self.line(table.to_string());
    }

    /// An error with its causes, once, and what can be done about it.
    pub(super) fn error(&self, said: String, error: &(dyn Error + 'static), hint: Option<String>) {
        let mut text = said;
        if text.is_empty() {
            return;
        }
        text.insert_str(0, "error: ");
        let mut cause = error.source();
        while let Some(source) = cause {
            text.push_str(&format!("\n  cause: {source}"));
            cause = source.source();
        }
        if let Some(hint) = hint {
            text.push_str(&format!("\n\nhint: {hint}"));
        }
        self.remark(text);
    }
}

/// `1 document`, `2 documents`.
pub(super) fn counted(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// How wide the terminal is.
fn columns() -> usize {
    Table::new().width().map_or(80, usize::from)
}

/// The text on lines of so many characters, broken between words.
fn folded(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The text on one line, cut to so many characters.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_hold_no_more_than_asked() {
        assert_eq!(folded("the file is  empty", 8), ["the file", "is empty"]);
        assert_eq!(folded("a-word-that-is-too-long for it", 8), ["a-word-that-is-too-long", "for it"]);
        assert_eq!(folded("", 8), [""; 0]);
    }
}
