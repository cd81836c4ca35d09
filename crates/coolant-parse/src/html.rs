//! HTML to Markdown.
//!
//! Works on the stream of tags, without building a tree: a page with 100 000 open elements costs no more
//! than its length, where a tree builder would take minutes and its printer the whole stack. Tag soup needs
//! no repair for this purpose: text belongs to the block that was opened last.

use std::cell::RefCell;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer};

use crate::clean;
use crate::markup::{self, Block};

/// A page as Markdown, with its title.
pub(crate) struct Html {
    pub(crate) title: Option<String>,
    pub(crate) markdown: String,
}

/// Tables inside tables beyond this depth are read as text of the cell around them.
const DEEPEST_TABLE: usize = 16;

/// Reads a page. It never fails: any text is HTML of some kind.
pub(crate) fn read(text: &str) -> Html {
    let mut page = read_page(text, true);
    if page.skipped.is_some() {
        // A hidden element that was never closed swallowed the rest: better to show what was meant to be
        // hidden than to lose the page.
        page = read_page(text, false);
    }
    let blocks = page.finish();
    let title = Some(clean::line(&page.title)).filter(|title| !title.is_empty());
    Html { title: title.or_else(|| markup::first_heading(&blocks)), markdown: markup::write(&blocks) }
}

fn read_page(text: &str, hide: bool) -> Page {
    let head: String = text.chars().take(1000).collect();
    let is_xhtml = head.contains("<?xml") || head.contains("//DTD XHTML") || head.contains("1999/xhtml");
    let sink = Sink(RefCell::new(Page { hide, is_xhtml, ..Page::default() }));
    let tokenizer = Tokenizer::new(sink, html5ever::tokenizer::TokenizerOpts::default());
    let input = BufferQueue::default();
    input.push_back(StrTendril::from_slice(text));
    // `feed` stops at scripts only, and the sink reports none.
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    tokenizer.sink.0.into_inner()
}

struct Sink(RefCell<Page>);

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut page = self.0.borrow_mut();
        match token {
            Token::CharacterTokens(text) => page.text(&text),
            Token::TagToken(tag) => match tag.kind {
                TagKind::StartTag => {
                    page.start(&tag);
                    // The tokenizer has to be told which elements hold raw text.
                    return match &*tag.name {
                        _ if page.closes_itself(&tag) => TokenSinkResult::Continue,
                        "title" | "textarea" => TokenSinkResult::RawData(RawKind::Rcdata),
                        "script" => TokenSinkResult::RawData(RawKind::ScriptData),
                        "style" | "xmp" | "iframe" | "noembed" | "noframes" | "noscript" => {
                            TokenSinkResult::RawData(RawKind::Rawtext)
                        }
                        _ => TokenSinkResult::Continue,
                    };
                }
                TagKind::EndTag => page.end(&tag.name),
            },
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

/// Where text goes at the moment.
#[derive(Debug, Default)]
enum Line {
    #[default]
    Paragraph,
    Heading(usize),
    Item {
        depth: usize,
        marker: String,
    },
    Code,
}

/// A table being read. Cells hold blocks, since a table may lay out a whole page.
#[derive(Debug, Default)]
struct Table {
    rows: Vec<Vec<Vec<Block>>>,
    /// Whether a cell is open, so that text belongs to it.
    in_cell: bool,
}

#[derive(Debug, Default)]
struct Page {
    /// Whether hidden elements are left out.
    hide: bool,
    /// Whether `<name/>` is a whole element.
    is_xhtml: bool,
    title: String,
    in_title: bool,
    blocks: Vec<Block>,
    tables: Vec<Table>,
    /// Tables that were opened beyond the depth limit.
    ignored_tables: usize,
    /// Per open list, the number of its last entry; `None` for bullets.
    lists: Vec<Option<u32>>,
    line: Line,
    text: String,
    /// The element whose content is dropped, and how many of its name are open.
    skipped: Option<(String, usize)>,
    /// Inside the reading aid of an East Asian word, which would tear the word apart.
    in_ruby_text: bool,
}

impl Page {
    fn text(&mut self, text: &str) {
        if self.in_title {
            self.title.push_str(text);
        } else if self.skipped.is_none() && !self.in_ruby_text {
            if matches!(self.line, Line::Code) {
                self.text.push_str(text);
            } else {
                push_collapsed(&mut self.text, text);
            }
        }
    }

    fn start(&mut self, tag: &Tag) {
        let name = &*tag.name;
        if let Some((skipped, open)) = &mut self.skipped {
            *open += usize::from(skipped == name && !tag.self_closing);
            return;
        }
        if self.is_dropped(tag) {
            if !self.closes_itself(tag) {
                self.skipped = Some((name.to_owned(), 1));
            }
            return;
        }
        self.in_ruby_text = matches!(name, "rt" | "rp");
        match name {
            "title" if self.title.is_empty() => self.in_title = true,
            "br" => self.line_break(),
            "img" => self.alternative_text(tag),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.flush();
                self.line = Line::Heading(usize::from(name.as_bytes()[1] - b'0'));
            }
            "pre" | "xmp" | "listing" => {
                self.flush();
                self.line = Line::Code;
            }
            "ul" | "ol" | "menu" | "dir" => {
                self.flush();
                let first = attribute(tag, "start").and_then(|start| start.parse::<u32>().ok()).unwrap_or(1);
                self.lists.push((name == "ol").then(|| first.saturating_sub(1)));
            }
            "li" => self.item(),
            "table" => self.open_table(),
            "tr" => self.open_row(),
            "td" | "th" => self.open_cell(),
            // A paragraph inside a list entry or a heading does not end it before it has text.
            "p" | "div" if self.text.trim().is_empty() => {}
            _ if is_block(name) => self.flush(),
            _ => {}
        }
    }

    fn end(&mut self, name: &str) {
        if let Some((skipped, open)) = &mut self.skipped {
            if skipped == name {
                *open -= 1;
                if *open == 0 {
                    self.skipped = None;
                }
            }
            return;
        }
        match name {
            "rt" | "rp" | "ruby" => self.in_ruby_text = false,
            "title" => self.in_title = false,
            "p" if self.text.trim().is_empty() => {}
            "br" => self.line_break(),
            "ul" | "ol" | "menu" | "dir" => {
                self.flush();
                self.line = Line::Paragraph;
                self.lists.pop();
            }
            "li" => {
                self.flush();
                self.line = Line::Paragraph;
            }
            "td" | "th" => self.close_cell(),
            "tr" => self.close_cell(),
            "table" => self.close_table(),
            _ if is_block(name) => self.flush(),
            _ => {}
        }
    }

    /// `<script/>` is closed in XHTML only: HTML ignores the slash except in drawings and formulas.
    fn closes_itself(&self, tag: &Tag) -> bool {
        tag.self_closing && (self.is_xhtml || matches!(&*tag.name, "svg" | "math"))
    }

    /// Elements without text for readers. Hidden ones only if their end tag may not be left out.
    fn is_dropped(&self, tag: &Tag) -> bool {
        match &*tag.name {
            "script" | "style" | "noscript" | "iframe" | "noembed" | "noframes" | "textarea" => true,
            "template" | "svg" | "select" | "datalist" | "object" | "canvas" | "audio" | "video" => self.hide,
            "div" | "span" | "section" | "article" | "aside" | "nav" | "header" | "footer" | "ul" | "ol"
            | "table" | "form" | "a" => self.hide && is_hidden(tag),
            _ => false,
        }
    }

    fn line_break(&mut self) {
        let is_one_line =
            matches!(self.line, Line::Heading(_)) || self.tables.iter().any(|table| table.in_cell);
        self.text.push(if is_one_line { ' ' } else { '\n' });
    }

    fn alternative_text(&mut self, tag: &Tag) {
        if let Some(text) = attribute(tag, "alt").filter(|text| !text.trim().is_empty()) {
            push_collapsed(&mut self.text, &format!(" {text} "));
        }
    }

    fn item(&mut self) {
        self.flush();
        let depth = self.lists.len().saturating_sub(1);
        let marker = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number = number.saturating_add(1);
                format!("{number}.")
            }
            _ => "-".to_owned(),
        };
        self.line = Line::Item { depth, marker };
    }

    /// Ends the block that is being read.
    fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        let line = std::mem::take(&mut self.line);
        if text.trim().is_empty() {
            // An entry or heading whose text comes in a block of its own keeps waiting for it.
            if matches!(line, Line::Item { .. }) {
                self.line = line;
            }
            return;
        }
        let block = match line {
            Line::Paragraph => Block::Paragraph(text),
            Line::Heading(level) => Block::Heading(level, text),
            Line::Item { depth, marker } => Block::Item { depth, marker, text },
            Line::Code => Block::Code(text),
        };
        self.push(block);
    }

    /// Adds a block to the innermost open cell, or to the page.
    fn push(&mut self, block: Block) {
        let cell = self.tables.iter_mut().rev().find(|table| table.in_cell);
        let cell = cell.and_then(|table| table.rows.last_mut()).and_then(|row| row.last_mut());
        cell.unwrap_or(&mut self.blocks).push(block);
    }

    fn open_table(&mut self) {
        self.flush();
        self.line = Line::Paragraph;
        if self.tables.len() < DEEPEST_TABLE {
            self.tables.push(Table::default());
        } else {
            self.ignored_tables += 1;
        }
    }

    fn open_row(&mut self) {
        self.close_cell();
        if let (Some(table), 0) = (self.tables.last_mut(), self.ignored_tables) {
            table.rows.push(Vec::new());
        }
    }

    fn open_cell(&mut self) {
        self.close_cell();
        if let (Some(table), 0) = (self.tables.last_mut(), self.ignored_tables) {
            if table.rows.is_empty() {
                table.rows.push(Vec::new());
            }
            table.rows.last_mut().into_iter().for_each(|row| row.push(Vec::new()));
            table.in_cell = true;
        }
    }

    fn close_cell(&mut self) {
        self.flush();
        self.line = Line::Paragraph;
        if let (Some(table), 0) = (self.tables.last_mut(), self.ignored_tables) {
            table.in_cell = false;
        }
    }

    fn close_table(&mut self) {
        self.close_cell();
        if self.ignored_tables > 0 {
            self.ignored_tables -= 1;
            return;
        }
        let Some(table) = self.tables.pop() else { return };
        for block in table.into_blocks() {
            self.push(block);
        }
    }

    fn finish(&mut self) -> Vec<Block> {
        self.ignored_tables = 0;
        self.flush();
        while !self.tables.is_empty() {
            self.close_table();
        }
        std::mem::take(&mut self.blocks)
    }
}

impl Table {
    /// A table of short cells stays one; a table that lays out a page is taken apart.
    fn into_blocks(self) -> Vec<Block> {
        let is_data = |cell: &Vec<Block>| match cell.as_slice() {
            [] | [Block::Paragraph(_)] => true,
            many => {
                many.len() <= 4 && many.iter().all(|b| matches!(b, Block::Paragraph(_) | Block::Item { .. }))
            }
        };
        if !self.rows.iter().flatten().all(is_data) {
            return self.rows.into_iter().flatten().flatten().collect();
        }
        let text = |block: Block| match block {
            Block::Paragraph(text) | Block::Item { text, .. } => text,
            _ => String::new(),
        };
        let cell = |blocks: Vec<Block>| blocks.into_iter().map(text).collect::<Vec<_>>().join(" ");
        let rows: Vec<Vec<String>> =
            self.rows.into_iter().map(|row| row.into_iter().map(cell).collect()).collect();
        if rows.is_empty() { Vec::new() } else { vec![Block::Table(rows)] }
    }
}

/// White space in HTML separates words and nothing else.
fn push_collapsed(out: &mut String, text: &str) {
    for c in text.chars() {
        if !matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{C}') {
            out.push(c);
        } else if !out.ends_with([' ', '\n']) {
            out.push(' ');
        }
    }
}

fn attribute<'a>(tag: &'a Tag, name: &str) -> Option<&'a str> {
    tag.attrs.iter().find(|attribute| &*attribute.name.local == name).map(|attribute| &*attribute.value)
}

fn is_hidden(tag: &Tag) -> bool {
    let style: String =
        attribute(tag, "style").unwrap_or_default().chars().filter(|c| !c.is_whitespace()).collect();
    let style = style.to_ascii_lowercase();
    attribute(tag, "hidden").is_some()
        || style.contains("display:none")
        || style.contains("visibility:hidden")
}

fn is_block(name: &str) -> bool {
    matches!(
        name,
        "address"
            | "article"
            | "aside"
            | "blockquote"
            | "body"
            | "button"
            | "caption"
            | "center"
            | "dd"
            | "details"
            | "dialog"
            | "div"
            | "dl"
            | "dt"
            | "fieldset"
            | "figcaption"
            | "figure"
            | "footer"
            | "form"
            | "h1"
            | "h2"
            | "h3"
            | "h4"
            | "h5"
            | "h6"
            | "head"
            | "header"
            | "hr"
            | "html"
            | "legend"
            | "li"
            | "listing"
            | "main"
            | "nav"
            | "option"
            | "p"
            | "pre"
            | "search"
            | "section"
            | "summary"
            | "tbody"
            | "tfoot"
            | "thead"
            | "xmp"
    )
}

#[cfg(test)]
mod tests;
