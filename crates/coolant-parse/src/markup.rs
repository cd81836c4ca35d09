//! Writing Markdown that a splitter can rely on: what is a heading in the output was one in the document.

use crate::clean;

/// One block of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Block {
    /// A heading of level 1 to 6.
    Heading(usize, String),
    Paragraph(String),
    /// A list entry at a depth from 0.
    Item {
        depth: usize,
        marker: String,
        text: String,
    },
    Code(String),
    /// A row of cells each.
    Table(Vec<Vec<String>>),
}

/// Deeper lists are written at this depth: indentation is no more than a help to the reader.
const DEEPEST_ITEM: usize = 8;

/// Cells longer than this, in bytes, are no data: the table lays out a page and is written as paragraphs.
const LONGEST_CELL: usize = 1000;

/// Writes the blocks as Markdown, clean but for the inside of code.
pub(crate) fn write(blocks: &[Block]) -> String {
    let mut out = String::new();
    let mut was_item = false;
    for block in blocks {
        let is_item = matches!(block, Block::Item { .. });
        let start = out.len();
        if start > 0 {
            out.push_str(if is_item && was_item { "\n" } else { "\n\n" });
        }
        let before = out.len();
        write_block(&mut out, block);
        if out.len() == before {
            out.truncate(start);
        } else {
            was_item = is_item;
        }
    }
    out
}

fn write_block(out: &mut String, block: &Block) {
    match block {
        Block::Heading(level, text) => {
            let text = clean::line(text);
            if !text.is_empty() {
                out.extend(std::iter::repeat_n('#', (*level).clamp(1, 6)));
                out.push(' ');
                out.push_str(&text);
            }
        }
        Block::Paragraph(text) => out.push_str(&escape_lines(&clean::text(text))),
        Block::Item { depth, marker, text } => {
            let text = clean::text(text);
            if !text.is_empty() {
                out.extend(std::iter::repeat_n("  ", (*depth).min(DEEPEST_ITEM)));
                out.push_str(marker);
                out.push(' ');
                out.push_str(&text.replace("\n\n", "\n").replace('\n', " "));
            }
        }
        Block::Code(text) => write_code(out, text),
        Block::Table(rows) => write_table(out, rows),
    }
}

/// A line of plain text that Markdown would take for structure gets a backslash.
fn escape_lines(text: &str) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| {
            let is_structure = line.starts_with(['#', '>'])
                || line.starts_with("```")
                || line.starts_with("~~~")
                || (line.len() >= 2 && line.chars().all(|c| c == '=' || c == '-'));
            if is_structure { format!("\\{line}") } else { line.to_owned() }
        })
        .collect();
    lines.join("\n")
}

fn write_code(out: &mut String, text: &str) {
    let text = text.trim_matches(['\n', '\r']).trim_end();
    if text.trim().is_empty() {
        return;
    }
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat((longest + 1).max(3));
    out.push_str(&clean::markdown(&format!("{fence}\n{text}\n{fence}")));
}

fn write_table(out: &mut String, rows: &[Vec<String>]) {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| clean::line(cell)).collect::<Vec<_>>())
        .filter(|row| row.iter().any(|cell| !cell.is_empty()))
        .collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    if columns < 2 || rows.iter().flatten().any(|cell| cell.len() > LONGEST_CELL) {
        let cells: Vec<String> = rows.into_iter().flatten().filter(|cell| !cell.is_empty()).collect();
        out.push_str(&escape_lines(&cells.join("\n\n")));
        return;
    }
    for (at, row) in rows.iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        out.push('|');
        // A row is padded only in its own width: one cell spanning a million columns must not fill the disk.
        for cell in row {
            out.push(' ');
            out.push_str(&cell.replace('|', "\\|"));
            out.push_str(" |");
        }
        if at == 0 {
            out.push_str("\n|");
            out.extend(std::iter::repeat_n(" --- |", row.len()));
        }
    }
}

/// The first heading of the highest level that the blocks use.
pub(crate) fn first_heading(blocks: &[Block]) -> Option<String> {
    let headings = || {
        blocks.iter().filter_map(|block| match block {
            Block::Heading(level, text) => Some((*level, text)),
            _ => None,
        })
    };
    let top = headings().map(|(level, _)| level).min()?;
    let (_, text) = headings().find(|(level, _)| *level == top)?;
    Some(clean::line(text)).filter(|text| !text.is_empty())
}
