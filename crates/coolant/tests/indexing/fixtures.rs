//! Documents of any length.

use crate::made::pdf_of;

/// So many pages of a document, each unlike any other page of any other document.
pub fn numbered(document: &str, edition: &str, count: usize) -> Vec<u8> {
    let texts: Vec<String> = (1..=count)
        .map(|page| format!("{document} {edition} page{page} of{count} speaks of machines that cool"))
        .collect();
    pdf_of(&texts)
}
