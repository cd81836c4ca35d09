//! Whether a page without text is blank or broken.
//!
//! The reader skips what it cannot decode, so a damaged page comes back as an empty one. A blank page or a
//! scan says what it is: it has no content, or content of drawing operators.

use memchr::memmem;
use pdf_oxide::PdfDocument;
use pdf_oxide::object::Object;

/// How many pages are looked at: enough to judge a document none of whose pages has text.
const PAGES_JUDGED: usize = 50;

/// Whether one of the first pages has content that cannot be read.
pub(super) fn is_broken(pdf: &PdfDocument, pages: usize) -> bool {
    (0..pages.min(PAGES_JUDGED)).any(|page| is_page_broken(pdf, page).unwrap_or(true))
}

/// `None` if the page cannot be read at all.
fn is_page_broken(pdf: &PdfDocument, index: usize) -> Option<bool> {
    let page = pdf.get_page(index).ok()?;
    let content = pdf.get_page_content_data(index).ok()?;
    if content.trim_ascii().is_empty() {
        let declared = page.as_dict()?.get("Contents");
        return Some(declared.is_some_and(|contents| holds_bytes(pdf, contents)));
    }
    Some(!has_operators(&content))
}

/// Whether a page's contents have bytes, so that there should be something once they are decoded.
fn holds_bytes(pdf: &PdfDocument, contents: &Object) -> bool {
    match pdf.resolve_object(contents) {
        Ok(Object::Stream { data, .. }) => !data.trim_ascii().is_empty(),
        Ok(Object::Array(parts)) => parts.iter().any(|part| match pdf.resolve_object(part) {
            Ok(Object::Stream { data, .. }) => !data.trim_ascii().is_empty(),
            Ok(_) | Err(_) => true,
        }),
        // A reference to nothing: what was there is lost.
        Ok(Object::Null) => contents.as_reference().is_some(),
        Ok(_) | Err(_) => true,
    }
}

/// Whether the operators are there without which nothing is drawn.
fn has_operators(content: &[u8]) -> bool {
    let operators: [&[u8]; 12] =
        [b"q", b"Q", b"cm", b"Do", b"BT", b"re", b"gs", b"rg", b"f", b"S", b"BMC", b"BDC"];
    let is_blank = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_whitespace);
    operators.iter().any(|operator| {
        memmem::find_iter(content, operator).any(|at| {
            let before = at.checked_sub(1).and_then(|before| content.get(before));
            is_blank(before) && is_blank(content.get(at + operator.len()))
        })
    })
}
