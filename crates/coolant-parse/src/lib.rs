//! Files to text: any bytes in, clean text with pages and headings out, or an error with a stable code.
//!
//! Readers of foreign formats are the part of the product that a hostile file can break, so the parent
//! never runs them: [`Parser`] starts a child (the program itself, which calls [`child_main`]), hands it
//! the bytes and takes the text back page by page. A file that spins, eats memory or crashes ends its
//! child, and the caller gets an error that names the limit.
//!
//! Always true:
//! - the bytes decide the format; a name or a declared type only breaks ties (see [`Hints`]);
//! - the same bytes, hints and [`Parser::version`] give the same [`Document`];
//! - a document that comes back holds text, and that text went through [`clean`];
//! - a parse ends within its [`Limits`], and no process outlives it.
//!
//! | input | answer |
//! |---|---|
//! | no bytes at all, whatever its name | `DOCUMENT_DAMAGED` |
//! | white space, control characters, markup or pages, but no text | `DOCUMENT_NO_TEXT` |
//! | a password is needed | `DOCUMENT_ENCRYPTED` |
//! | an image, archive, program or other binary data | `DOCUMENT_UNSUPPORTED`, naming what it looks like |
//! | it broke off, contradicts itself or crashed its reader | `DOCUMENT_DAMAGED` |
//! | out of time, memory or room for its text | `DOCUMENT_TOO_LARGE`, naming the limit |
//!
//! Elsewhere: how text becomes chunks (the `coolant-ai` crate).

mod charset;
mod child;
pub mod clean;
mod document;
mod error;
mod html;
mod markup;
mod office;
mod parser;
mod pdf;
mod poppler;
mod read;
mod sniff;
mod text;
mod wire;

pub use child::child_main;
pub use document::{Document, Format, Hints, PARSER_VERSION, Page};
pub use error::{Fault, ParseError};
pub use parser::{Limits, Parser};
pub use poppler::find_pdftotext;
pub use read::read;
