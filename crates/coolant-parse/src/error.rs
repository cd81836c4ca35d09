//! Why a document could not be read.

use std::io;

use serde::{Deserialize, Serialize};

/// What is wrong with a document. Each is final: the same bytes will fail again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// It needs a password.
    Encrypted,
    /// It is broken, or it crashed its reader.
    Damaged,
    /// It is of a format that is not read.
    Unsupported,
    /// It is intact, but holds no text (a scan, an empty page).
    NoText,
    /// It needs more time, memory or room than its limits allow.
    TooLarge,
}

impl Fault {
    /// The stable code users see.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Encrypted => "DOCUMENT_ENCRYPTED",
            Self::Damaged => "DOCUMENT_DAMAGED",
            Self::Unsupported => "DOCUMENT_UNSUPPORTED",
            Self::NoText => "DOCUMENT_NO_TEXT",
            Self::TooLarge => "DOCUMENT_TOO_LARGE",
        }
    }
}

/// Why there is no text.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// The document is at fault. Permanent.
    #[error("{message}")]
    Document {
        /// What is wrong with it.
        fault: Fault,
        /// One sentence for users. It never quotes the document.
        message: String,
    },
    /// The reader could not be run, or was stopped from outside. A later try may succeed.
    #[error("the document reader {what}")]
    Reader {
        /// What happened to it.
        what: String,
        /// The cause, where the system gave one.
        #[source]
        source: Option<io::Error>,
    },
}

impl ParseError {
    pub(crate) fn document(fault: Fault, message: impl Into<String>) -> Self {
        Self::Document { fault, message: message.into() }
    }

    pub(crate) fn damaged(message: impl Into<String>) -> Self {
        Self::document(Fault::Damaged, message)
    }

    pub(crate) fn unsupported(looks_like: &str) -> Self {
        Self::document(Fault::Unsupported, format!("the file looks like {looks_like}, which is not read"))
    }

    pub(crate) fn no_text() -> Self {
        Self::document(Fault::NoText, "the document holds no text")
    }

    pub(crate) fn reader(what: impl Into<String>, source: Option<io::Error>) -> Self {
        Self::Reader { what: what.into(), source }
    }

    /// The stable code: one of the `DOCUMENT_...` codes, or `PARSER_UNAVAILABLE`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Document { fault, .. } => fault.code(),
            Self::Reader { .. } => "PARSER_UNAVAILABLE",
        }
    }

    /// Whether the same bytes may be read by a later try.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Reader { .. })
    }

    /// What the user can do about it, in one sentence.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Document { fault, .. } => Some(match fault {
                Fault::Encrypted => "upload the document without its password",
                Fault::Damaged => "open the file in its own program and save it anew",
                Fault::Unsupported => "PDF, Markdown, HTML, DOCX, PPTX, XLSX and plain text are read",
                Fault::NoText => "a scanned document needs text recognition before it can be indexed",
                Fault::TooLarge => "split the document, or raise the limit the message names",
            }),
            Self::Reader { .. } => None,
        }
    }
}
