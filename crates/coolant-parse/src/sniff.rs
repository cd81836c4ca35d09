//! What the bytes are, from the bytes.

use memchr::memmem;

use crate::document::{Format, Hints};
use crate::error::ParseError;

/// How far into a file the PDF header may stand, in bytes: mail gateways and scanners put lines before it.
const PDF_HEADER_REACH: usize = 1024;

/// Beginnings of files that are recognised only to say what they are: an offset, the bytes, a name. Each is
/// long enough, or holds a byte, that no text begins so.
const UNREAD: &[(usize, &[u8], &str)] = &[
    (0, b"\x89PNG\r\n\x1A\n", "a PNG image"),
    (0, b"\xFF\xD8\xFF", "a JPEG image"),
    (0, b"GIF87a", "a GIF image"),
    (0, b"GIF89a", "a GIF image"),
    (0, b"II*\0", "a TIFF image"),
    (0, b"MM\0*", "a TIFF image"),
    (8, b"WEBPVP8", "a WebP image"),
    (0, b"8BPS\0", "a Photoshop image"),
    (0, b"\0\0\x01\0", "an icon"),
    (0, b"\x1A\x45\xDF\xA3", "a Matroska or WebM video"),
    (8, b"AVI LIST", "an AVI video"),
    (8, b"WAVEfmt ", "a WAV recording"),
    (0, b"ID3\x02", "an MP3 recording"),
    (0, b"ID3\x03", "an MP3 recording"),
    (0, b"ID3\x04", "an MP3 recording"),
    (0, b"OggS\0", "an Ogg recording"),
    (0, b"fLaC\0", "a FLAC recording"),
    (0, b"\x1F\x8B", "a gzip archive"),
    (4, b"1AY&SY", "a bzip2 archive"),
    (0, b"\xFD7zXZ\0", "an xz archive"),
    (0, b"\x28\xB5\x2F\xFD", "a Zstandard archive"),
    (0, b"7z\xBC\xAF\x27\x1C", "a 7-Zip archive"),
    (0, b"Rar!\x1A\x07", "a RAR archive"),
    (0, b"PK\x05\x06", "an empty ZIP archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x7FELF", "a Linux program"),
    (0, b"\xCF\xFA\xED\xFE", "a macOS program"),
    (0, b"\xCA\xFE\xBA\xBE", "a Java class or a macOS program"),
    (0, b"\0asm", "a WebAssembly module"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"PAR1\x15", "a Parquet file"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"{\\rtf", "an RTF document"),
    (0, b"%!PS", "a PostScript file"),
    (0, b"wOFF\0\x01", "a font"),
    (0, b"wOF2\0\x01", "a font"),
    (0, b"OTTO\0", "a font"),
    (0, b"\0\x01\0\0\0", "a font"),
];

/// What kind of reader the bytes need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Container {
    Pdf,
    /// A ZIP archive; it may be an Office document.
    Zip,
    /// An OLE compound file: an old Office document, or an encrypted new one.
    Compound,
    /// Nothing that is known by its first bytes: text, or nothing that is read.
    Text,
}

/// Tells the container by its bytes.
///
/// # Errors
/// `DOCUMENT_DAMAGED` for no bytes, `DOCUMENT_UNSUPPORTED` for a known format that is not read.
pub(crate) fn container(bytes: &[u8]) -> Result<Container, ParseError> {
    if bytes.is_empty() {
        return Err(ParseError::damaged("the file is empty"));
    }
    if bytes.starts_with(b"PK\x03\x04") {
        return Ok(Container::Zip);
    }
    if bytes.starts_with(b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1") {
        return Ok(Container::Compound);
    }
    let unread =
        |(at, magic, _): &&(usize, &[u8], &str)| bytes.get(*at..).is_some_and(|rest| rest.starts_with(magic));
    if let Some((_, _, name)) = UNREAD.iter().find(unread) {
        return Err(ParseError::unsupported(name));
    }
    if is_windows_program(bytes) {
        return Err(ParseError::unsupported("a Windows program"));
    }
    if bytes.starts_with(b"\0\0\0") && bytes.get(4..8) == Some(b"ftyp") {
        return Err(ParseError::unsupported("an MP4, HEIC or AVIF file"));
    }
    if bmp(bytes) {
        return Err(ParseError::unsupported("a BMP image"));
    }
    let head = &bytes[..bytes.len().min(PDF_HEADER_REACH)];
    let at = memmem::find(head, b"%PDF-");
    // A text that quotes the header is no PDF: only what is no text, or names an object, goes with it.
    let is_pdf = at.is_some_and(|at| at == 0 || memmem::find(&bytes[at..], b" obj").is_some());
    Ok(if is_pdf { Container::Pdf } else { Container::Text })
}

/// `MZ` alone begins texts as well; the header it points to does not.
fn is_windows_program(bytes: &[u8]) -> bool {
    let Some(at) = bytes.get(0x3C..0x40).and_then(|at| at.try_into().ok()).map(u32::from_le_bytes) else {
        return false;
    };
    let signature = usize::try_from(at).ok().and_then(|at| bytes.get(at..));
    bytes.starts_with(b"MZ") && signature.is_some_and(|rest| rest.starts_with(b"PE\0\0"))
}

fn bmp(bytes: &[u8]) -> bool {
    bytes.starts_with(b"BM") && bytes.get(6..10) == Some(&[0, 0, 0, 0])
}

/// Whether decoded text is no text at all: too many control characters, or characters that are none.
///
/// NULs do not count: padded records and UTF-16 without a mark have many and are text.
pub(crate) fn is_binary(text: &str) -> bool {
    let mut total = 0_usize;
    let mut strange = 0_usize;
    for c in text.chars().filter(|c| *c != '\0') {
        total += 1;
        let is_layout = matches!(c, '\t' | '\n' | '\r' | '\u{8}' | '\u{B}' | '\u{C}' | '\u{1A}' | '\u{1B}');
        if (c.is_ascii_control() && !is_layout) || c == char::REPLACEMENT_CHARACTER {
            strange += 1;
        }
    }
    // A short text may hold one or two by accident (a cut character, a stray bell).
    strange > 2 && strange * 20 > total
}

/// Tells the format of a text.
pub(crate) fn text_format(text: &str, hints: &Hints) -> Format {
    let start = text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '\u{FEFF}' | '\0'));
    if is_html_document(start) {
        return Format::Html;
    }
    let extension = hints.extension();
    let media_type = hints.media_type();
    let is_named = |extensions: &[&str], media_types: &[&str]| {
        let by_name = extension.as_deref().map(|extension| extensions.contains(&extension));
        let by_type = media_type.as_deref().is_some_and(|media_type| media_types.contains(&media_type));
        by_name.unwrap_or(false) || by_type
    };
    if is_named(&["md", "markdown", "mdown", "mkd", "mdx"], &["text/markdown", "text/x-markdown"]) {
        return Format::Markdown;
    }
    let has_tags = has_html_tags(start);
    if has_tags && is_named(&["html", "htm", "xhtml", "shtml"], &["text/html", "application/xhtml+xml"]) {
        return Format::Html;
    }
    if extension.is_none() && media_type.as_deref().is_none_or(|t| t == "application/octet-stream") {
        if has_tags && start.starts_with('<') {
            return Format::Html;
        }
        if looks_like_markdown(start) {
            return Format::Markdown;
        }
    }
    Format::Text
}

/// Whether the text opens as an HTML document does, after comments and an XML declaration.
fn is_html_document(start: &str) -> bool {
    let mut rest = start;
    loop {
        rest = rest.trim_start();
        let skipped = if rest.starts_with("<!--") {
            rest.find("-->").map(|end| end + 3)
        } else if rest.starts_with("<?xml") {
            rest.find("?>").map(|end| end + 2)
        } else {
            None
        };
        match skipped {
            Some(end) => rest = &rest[end..],
            None => break,
        }
    }
    ["<!doctype html", "<html", "<head>", "<body"]
        .iter()
        .any(|tag| rest.get(..tag.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(tag)))
}

/// Whether one of the first tags is an HTML tag.
fn has_html_tags(text: &str) -> bool {
    const TAGS: &[&str] = &[
        "html", "head", "body", "title", "meta", "p", "div", "span", "h1", "h2", "h3", "h4", "ul", "ol",
        "li", "table", "tr", "td", "a", "br", "b", "i", "em", "strong", "script", "style", "section",
        "article", "pre",
    ];
    text.split('<').skip(1).take(50).any(|tag| {
        let name: String = tag.chars().take_while(char::is_ascii_alphanumeric).take(8).collect();
        TAGS.contains(&name.to_ascii_lowercase().as_str())
    })
}

/// Two different signs of Markdown, since one alone (a `#`, a list) is found in any text.
fn looks_like_markdown(text: &str) -> bool {
    let lines = || text.lines().take(500);
    let heading = |line: &str| {
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        (1..=6).contains(&level) && line[level..].starts_with(' ')
    };
    let signs = [
        lines().any(heading),
        lines().any(|line| line.starts_with("```")),
        lines().any(|line| line.starts_with("- ") || line.starts_with("* ")),
        lines().any(|line| line.contains("](")),
        text.starts_with("---\n") || text.starts_with("---\r\n"),
    ];
    signs.iter().filter(|sign| **sign).count() >= 2
}

#[cfg(test)]
mod tests {
    use super::{container, text_format};
    use crate::document::{Format, Hints};

    fn format(text: &str, filename: Option<&str>, content_type: Option<&str>) -> Format {
        let hints =
            Hints { filename: filename.map(str::to_owned), content_type: content_type.map(str::to_owned) };
        text_format(text, &hints)
    }

    #[test]
    fn the_bytes_decide_and_a_name_breaks_ties() {
        for (text, filename, content_type, right) in [
            ("<!DOCTYPE HTML><p>a", Some("a.md"), Some("text/markdown"), Format::Html),
            ("<?xml version='1.0'?>\n<!-- c --><html>", Some("a.txt"), None, Format::Html),
            ("<p>a</p>", Some("a.html"), None, Format::Html),
            ("<p>a</p>", None, Some("Text/HTML; charset=utf-8"), Format::Html),
            ("<p>a</p>", None, None, Format::Html),
            ("<p>a</p>", Some("a.txt"), None, Format::Text),
            ("no tags", Some("a.html"), Some("text/html"), Format::Text),
            ("# a", Some("README.MD"), None, Format::Markdown),
            ("# a", None, Some("text/markdown"), Format::Markdown),
            ("# a", Some("a.py"), None, Format::Text),
            ("# a\n\n- b", None, None, Format::Markdown),
            ("# a\n\n- b", Some("a.txt"), None, Format::Text),
            ("a < b and c > d", None, None, Format::Text),
            ("<?xml version='1.0'?><feed/>", None, None, Format::Text),
        ] {
            assert_eq!(format(text, filename, content_type), right, "{text} {filename:?} {content_type:?}");
        }
    }

    #[test]
    fn words_that_begin_like_a_magic_number_are_text() {
        for text in
            ["ID3 tags", "MZ and PE", "BM is a name", "Rar! she cried", "OTTO and ftyp", "Convert AVI now"]
        {
            assert!(container(text.as_bytes()).is_ok(), "{text}");
        }
    }
}
