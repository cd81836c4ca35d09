//! PDF to text, page by page.
//!
//! The rules for what a PDF without text means, and for when a second reader is asked, are all in [`read`]
//! and [`Reading`]. The formats inside a PDF are pdf_oxide's and poppler's affair.

use std::panic::{AssertUnwindSafe, catch_unwind};

use encoding_rs::{UTF_16BE, WINDOWS_1252};
use memchr::memmem;
use pdf_oxide::PdfDocument;

use crate::clean;
use crate::document::Page;
use crate::error::{Fault, ParseError};
use crate::poppler;
use crate::read::{Means, holds_text};
use crate::wire::{self, MOST_PAGES};

mod blank;
mod mend;
mod r5;
mod rtl;

/// A PDF's pages, those without text left out, and its title.
pub(crate) struct Pdf {
    pub(crate) title: Option<String>,
    pub(crate) pages: Vec<Page>,
}

/// A file that ends without this, in its last bytes, was cut off.
const END_MARK: &[u8] = b"%%EOF";
const END_MARK_REACH: usize = 2048;

/// Pages that fail one after the other before the page count is taken for a lie.
const MOST_FAILURES_IN_A_ROW: usize = 200;

/// Reads a PDF, with a second reader if the first one fails, finds no text, or finds mostly garbage.
///
/// # Errors
/// A document fault; [`Fault::NoText`] only for a PDF that is whole and opened without complaint.
pub(crate) fn read(bytes: &[u8], means: Means<'_>) -> Result<Pdf, ParseError> {
    let first = read_first(bytes, means);
    let is_convincing = match &first {
        Ok(reading) => reading.readable > 0 && reading.garbage * 4 < reading.readable,
        // More of the same bytes will not fit a second time.
        Err(ParseError::Document { fault: Fault::TooLarge, .. }) => true,
        Err(_) => false,
    };
    if !is_convincing && let Some(second) = read_second(bytes, means) {
        // The second reader knows fewer tricks, so it has to find clearly more.
        let readable = first.as_ref().map_or(0, |reading| reading.readable);
        if second.readable > readable + readable / 2 {
            let title = first.ok().and_then(|reading| reading.pdf.title);
            return Ok(Pdf { title, pages: second.pdf.pages });
        }
    }
    let reading = first?;
    if reading.readable == 0 {
        return Err(reading.why_empty(bytes));
    }
    Ok(reading.pdf)
}

/// What one reader made of the file.
struct Reading {
    pdf: Pdf,
    /// Letters and digits.
    readable: usize,
    /// Characters that stand for glyphs nobody could name.
    garbage: usize,
    /// Whether a page could not be read, or its text got lost.
    is_broken: bool,
    /// Whether its streams unpack to more than any reader will take.
    is_bomb: bool,
}

impl Reading {
    fn new(title: Option<String>, pages: Vec<Page>) -> Self {
        let characters = || pages.iter().flat_map(|page| page.text.chars());
        let readable = characters().filter(|c| c.is_alphanumeric()).count();
        let garbage = characters().filter(|c| is_garbage(*c)).count();
        Self { pdf: Pdf { title, pages }, readable, garbage, is_broken: false, is_bomb: false }
    }

    fn why_empty(&self, bytes: &[u8]) -> ParseError {
        let tail = &bytes[bytes.len().saturating_sub(END_MARK_REACH)..];
        let is_whole = memmem::find(tail, END_MARK).is_some();
        if self.is_bomb {
            ParseError::document(Fault::TooLarge, "the streams of the PDF unpack to too many bytes")
        } else if !is_whole {
            ParseError::damaged("the PDF breaks off, and no text could be saved")
        } else if self.is_broken {
            ParseError::damaged("the pages of the PDF could not be read")
        } else {
            ParseError::document(Fault::NoText, "the PDF holds no text, only pictures or empty pages")
        }
    }
}

/// The replacement character, and private code points that mean something in one font only.
fn is_garbage(c: char) -> bool {
    c == char::REPLACEMENT_CHARACTER || matches!(c, '\u{E000}'..='\u{F8FF}' | '\u{F0000}'..)
}

fn read_first(bytes: &[u8], means: Means<'_>) -> Result<Reading, ParseError> {
    // Its errors may quote the document, so their texts go no further.
    let unreadable = |()| ParseError::damaged("the PDF's structure could not be read");
    let mended = mend::checksums(bytes);
    let is_bomb = mended.is_bomb;
    let open = |bytes: Vec<u8>| calmly(|| PdfDocument::from_bytes(bytes)).map_err(unreadable);
    let mut pdf = open(mended.bytes.to_vec())?;
    if let Some(rewrapped) = r5::as_revision_6(&mended.bytes, &pdf) {
        pdf = open(rewrapped)?;
    }
    // Without this, a file with a password is read as one without text.
    if pdf.is_encrypted() && !matches!(calmly(|| pdf.authenticate(b"")), Ok(true)) {
        return Err(ParseError::document(Fault::Encrypted, "the PDF needs a password"));
    }
    let count = calmly(|| pdf.page_count()).map_err(unreadable)?;
    if count == 0 {
        return Err(ParseError::damaged("the PDF has no pages"));
    }
    if count > MOST_PAGES {
        let message = format!("the PDF has more than {MOST_PAGES} pages");
        return Err(ParseError::document(Fault::TooLarge, message));
    }
    let mut pages = Vec::new();
    let mut text_bytes = 0;
    let mut failed = 0;
    let mut failed_in_a_row = 0;
    for (index, number) in (0..count).zip(1..) {
        match calmly(|| pdf.extract_text(index)) {
            Ok(raw) => {
                failed_in_a_row = 0;
                let text = clean::text(&rtl::logical_order(&raw));
                text_bytes += text.len() as u64;
                if holds_text(&text) {
                    pages.push(Page { number: Some(number), text });
                }
            }
            // One broken page does not cost the others.
            Err(_) => {
                failed += 1;
                failed_in_a_row += 1;
            }
        }
        if text_bytes > means.text_bytes {
            return Err(wire::too_much_text(means.text_bytes));
        }
        if failed_in_a_row > MOST_FAILURES_IN_A_ROW {
            break;
        }
    }
    let mut reading = Reading { is_bomb, ..Reading::new(title(&pdf), pages) };
    reading.is_broken = failed > 0 || (reading.readable == 0 && blank::is_broken(&pdf, count));
    Ok(reading)
}

/// Takes a panic of the reader for an error: it slices broken texts between their characters, and neither
/// the pages after it nor the second reader should be lost over one such place.
fn calmly<T>(read: impl FnOnce() -> pdf_oxide::Result<T>) -> Result<T, ()> {
    // Its locks recover from a panic, and a document that panicked is only read further, page by page.
    catch_unwind(AssertUnwindSafe(read)).map_err(drop)?.map_err(drop)
}

fn read_second(bytes: &[u8], means: Means<'_>) -> Option<Reading> {
    let pages = poppler::pages(means.pdftotext?, bytes, means.text_bytes)?;
    Some(Reading::new(None, pages))
}

/// The title in the document's information, unless a program filled it in.
fn title(pdf: &PdfDocument) -> Option<String> {
    let info = pdf.resolve_object(pdf.trailer().as_dict()?.get("Info")?).ok()?;
    let title = pdf.resolve_object(info.as_dict()?.get("Title")?).ok()?;
    let title = clean::line(&decode_string(title.as_string()?));
    let is_placeholder =
        matches!(title.to_lowercase().as_str(), "" | "untitled" | "(untitled)" | "(anonymous)");
    (!is_placeholder).then_some(title)
}

/// A text string of a PDF: UTF-16 or UTF-8 by its mark, else an encoding close to windows-1252.
fn decode_string(bytes: &[u8]) -> String {
    match bytes {
        [0xFE, 0xFF, rest @ ..] => UTF_16BE.decode_without_bom_handling(rest).0.into_owned(),
        [0xEF, 0xBB, 0xBF, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        _ => WINDOWS_1252.decode_without_bom_handling(bytes).0.into_owned(),
    }
}
