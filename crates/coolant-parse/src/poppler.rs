//! A second opinion on PDFs from poppler's `pdftotext`, where the machine has it.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::clean;
use crate::document::Page;

/// Looks for `pdftotext` in the folders of a `PATH`, which the caller reads from its environment.
#[must_use]
pub fn find_pdftotext(path: &OsStr) -> Option<PathBuf> {
    // The child works in another folder, so a relative one would mean something else there.
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join("pdftotext")).find(|program| program.is_file())
}

/// The pages of a PDF as `pdftotext` reads them; `None` if it cannot.
///
/// It runs as a child of the child, so all limits hold for it too, and its process group ends with it.
pub(crate) fn pages(pdftotext: &Path, bytes: &[u8], text_bytes: u64) -> Option<Vec<Page>> {
    let mut process = Command::new(pdftotext)
        .args(["-q", "-enc", "UTF-8", "-", "-"])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdin = process.stdin.take()?;
    let stdout = process.stdout.take()?;
    let mut text = Vec::new();
    let read = std::thread::scope(|scope| {
        // It may end before it has read everything; what counts is what it wrote.
        scope.spawn(move || stdin.write_all(bytes).is_ok());
        stdout.take(text_bytes.saturating_add(1)).read_to_end(&mut text)
    });
    let is_whole = read.is_ok() && text.len() as u64 <= text_bytes;
    if !is_whole {
        let _ = process.kill();
    }
    let status = process.wait().ok()?;
    (is_whole && status.success()).then(|| split(&String::from_utf8_lossy(&text)))
}

/// `pdftotext` ends every page with a form feed.
fn split(text: &str) -> Vec<Page> {
    let numbered = text.split('\u{C}').zip(1..);
    numbered.map(|(page, number)| Page { number: Some(number), text: clean::text(page) }).collect()
}
