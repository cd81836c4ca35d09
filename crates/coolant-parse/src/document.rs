//! What comes out of a file.

use serde::{Deserialize, Serialize};

/// Names everything in this crate that changes the text of a document: part of the pipeline fingerprint.
///
/// The number after `coolant-parse` grows with every change of our own rules; the readers are named with
/// their versions, since an update of theirs changes texts just as well.
pub const PARSER_VERSION: &str =
    "coolant-parse-1+pdf_oxide-0.3.78+undoc-0.27.1+html5ever-0.40.1+chardetng-1.0.0";

/// The format a document was read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Portable Document Format.
    Pdf,
    /// Markdown.
    Markdown,
    /// HTML or XHTML.
    Html,
    /// A Word document (Office Open XML).
    Docx,
    /// A PowerPoint presentation (Office Open XML).
    Pptx,
    /// An Excel workbook (Office Open XML).
    Xlsx,
    /// Any other text.
    Text,
}

impl Format {
    /// Whether the text of the pages is Markdown: headings are `#` lines, tables have pipes.
    #[must_use]
    pub fn is_markdown(self) -> bool {
        match self {
            Self::Markdown | Self::Html | Self::Docx | Self::Pptx | Self::Xlsx => true,
            Self::Pdf | Self::Text => false,
        }
    }
}

/// A document as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// What the bytes turned out to be.
    pub format: Format,
    /// The name of the character encoding (`UTF-8`, `EUC-KR`), for formats that are text themselves.
    pub encoding: Option<String>,
    /// The title the document gives itself, or else its first top heading.
    pub title: Option<String>,
    /// The text in reading order. PDFs have one entry per page that holds text, other formats exactly one.
    pub pages: Vec<Page>,
    /// Unicode characters in all pages together.
    pub characters: u64,
}

/// A page, or the whole text of a document that has no pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The page's number, from 1, in the order of the pages; `None` where the format has no pages.
    pub number: Option<u32>,
    /// Clean text: Markdown or plain, see [`Format::is_markdown`].
    pub text: String,
}

/// What the sender said about the bytes. It never decides against them, only between equals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hints {
    /// The file's name: its ending tells Markdown from plain text.
    pub filename: Option<String>,
    /// The declared media type: likewise, and its `charset` is believed if the bytes agree.
    pub content_type: Option<String>,
}

impl Hints {
    /// The ending of the name, in lower case and without its dot.
    pub(crate) fn extension(&self) -> Option<String> {
        let (_, extension) = self.filename.as_deref()?.rsplit_once('.')?;
        Some(extension.to_ascii_lowercase())
    }

    /// The media type without its parameters, in lower case.
    pub(crate) fn media_type(&self) -> Option<String> {
        let media_type = self.content_type.as_deref()?.split(';').next()?;
        Some(media_type.trim().to_ascii_lowercase())
    }

    /// The `charset` parameter of the media type.
    pub(crate) fn charset(&self) -> Option<&str> {
        self.content_type.as_deref()?.split(';').skip(1).find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches(['"', '\'']))
        })
    }
}
