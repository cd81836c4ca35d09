//! A Markdown table that grows by columns.

use std::fmt;
use std::time::Duration;

pub(crate) struct Table {
    title: String,
    columns: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
}

impl Table {
    pub(crate) fn new(title: &str) -> Self {
        Self { title: title.to_owned(), columns: Vec::new(), rows: Vec::new() }
    }

    /// Begins a column; what is put in from now on stands there.
    pub(crate) fn column(&mut self, name: &str) {
        eprintln!("{}: {name}", self.title.trim_start_matches("### "));
        self.columns.push(name.to_owned());
    }

    pub(crate) fn put(&mut self, row: &str, cell: String) {
        eprintln!("    {row}: {cell}");
        let at = self.columns.len() - 1;
        let index = self.rows.iter().position(|(name, _)| name == row).unwrap_or_else(|| {
            self.rows.push((row.to_owned(), Vec::new()));
            self.rows.len() - 1
        });
        let cells = &mut self.rows[index].1;
        cells.resize(at, String::new());
        cells.push(cell);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.title)?;
        writeln!(f, "| | {} |", self.columns.join(" | "))?;
        writeln!(f, "|---|{}", "---:|".repeat(self.columns.len()))?;
        for (name, cells) in &self.rows {
            writeln!(f, "| {name} | {} |", cells.join(" | "))?;
        }
        Ok(())
    }
}

/// A number of things, its thousands apart, with three digits that count.
pub(crate) fn grouped(number: f64) -> String {
    let magnitude = 10_f64.powf((number.max(1.0).log10().floor() - 2.0).max(0.0));
    let digits = format!("{}", ((number / magnitude).round() * magnitude) as u64);
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn per_second(rate: f64) -> String {
    format!("{}/s", grouped(rate))
}

pub(crate) fn ms(span: Duration) -> String {
    let ms = span.as_secs_f64() * 1000.0;
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{} ms", grouped(ms)) }
}
