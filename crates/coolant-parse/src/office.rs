//! Office Open XML (DOCX, PPTX, XLSX) to Markdown.

use memchr::memmem;
use undoc::{ErrorKind, FormatType, ListType, Paragraph, Table};

use crate::clean;
use crate::document::Format;
use crate::error::{Fault, ParseError};
use crate::markup::{self, Block};

/// An Office document as Markdown, with its title.
pub(crate) struct Office {
    pub(crate) format: Format,
    pub(crate) title: Option<String>,
    pub(crate) markdown: String,
}

/// Reads a ZIP archive or an OLE compound file.
///
/// # Errors
/// By what undoc found; an archive that is no Office document is unsupported.
pub(crate) fn read(bytes: &[u8]) -> Result<Office, ParseError> {
    let format = match undoc::detect_format_from_bytes(bytes).map_err(|error| not_office(bytes, &error))? {
        FormatType::Docx => Format::Docx,
        FormatType::Pptx => Format::Pptx,
        FormatType::Xlsx => Format::Xlsx,
        FormatType::Doc => {
            return Err(ParseError::unsupported("a Word document of before 2007 (save it as .docx)"));
        }
        FormatType::Xls => {
            return Err(ParseError::unsupported("an Excel workbook of before 2007 (save it as .xlsx)"));
        }
        FormatType::Ppt => {
            return Err(ParseError::unsupported("PowerPoint slides of before 2007 (save them as .pptx)"));
        }
    };
    let document = undoc::parse_bytes(bytes).map_err(|error| fault(&error))?;
    let mut blocks = Vec::new();
    for section in &document.sections {
        // A sheet is called something; a slide only has a number, and a title of its own among its blocks.
        if let Some(name) = section.name.as_ref().filter(|_| format == Format::Xlsx) {
            blocks.push(Block::Heading(1, name.clone()));
        }
        for block in &section.content {
            push_block(&mut blocks, block);
        }
        section.notes.iter().flatten().for_each(|paragraph| push_paragraph(&mut blocks, paragraph));
    }
    let title = document.metadata.title.as_deref().map(clean::line).filter(|title| !title.is_empty());
    let title = title.or_else(|| markup::first_heading(&blocks));
    Ok(Office { format, title, markdown: markup::write(&blocks) })
}

fn push_block(blocks: &mut Vec<Block>, block: &undoc::Block) {
    match block {
        undoc::Block::Paragraph(paragraph) => push_paragraph(blocks, paragraph),
        undoc::Block::Table(table) => push_table(blocks, table),
        undoc::Block::Note { content, .. } => {
            content.iter().for_each(|paragraph| push_paragraph(blocks, paragraph));
        }
        undoc::Block::Image { alt_text: Some(text), .. } => blocks.push(Block::Paragraph(text.clone())),
        undoc::Block::Image { alt_text: None, .. } | undoc::Block::PageBreak | undoc::Block::SectionBreak => {
        }
    }
}

fn push_paragraph(blocks: &mut Vec<Block>, paragraph: &Paragraph) {
    let text = paragraph_text(paragraph);
    if let Some(level) = heading_level(paragraph) {
        blocks.push(Block::Heading(level, text));
        return;
    }
    blocks.push(match &paragraph.list_info {
        Some(list) => Block::Item {
            depth: usize::from(list.level),
            marker: match (list.list_type, list.number) {
                (ListType::Numbered, Some(number)) => format!("{number}."),
                _ => "-".to_owned(),
            },
            text,
        },
        None => Block::Paragraph(text),
    });
}

/// The level undoc found by the outline, or else the one in the style's name, which is English in every
/// language of Word.
fn heading_level(paragraph: &Paragraph) -> Option<usize> {
    if paragraph.heading.is_heading() {
        return Some(usize::from(paragraph.heading.level()));
    }
    [&paragraph.style_name, &paragraph.style_id].into_iter().flatten().find_map(|style| {
        let style = style.to_ascii_lowercase();
        let level = style.strip_prefix("heading")?.trim_start().parse().ok()?;
        (1..=9).contains(&level).then_some(level)
    })
}

/// The text of the runs: bold and links are for the eye, and marks of theirs would tear words apart.
fn paragraph_text(paragraph: &Paragraph) -> String {
    let mut text = String::new();
    for run in &paragraph.runs {
        // Removed by a tracked change: not part of the text as its author left it.
        if matches!(run.revision, undoc::model::RevisionType::Deleted) {
            continue;
        }
        text.push_str(&run.text);
        if run.line_break || run.page_break {
            text.push('\n');
        }
    }
    for image in &paragraph.images {
        if let Some(alternative) = &image.alt_text {
            text.push(' ');
            text.push_str(alternative);
        }
    }
    text
}

fn push_table(blocks: &mut Vec<Block>, table: &Table) {
    if let Some(caption) = &table.caption {
        blocks.push(Block::Paragraph(caption.clone()));
    }
    let cell_text = |cell: &undoc::Cell| {
        let paragraphs: Vec<String> = cell.content.iter().map(paragraph_text).collect();
        paragraphs.join(" ")
    };
    let rows = table.rows.iter().map(|row| row.cells.iter().map(cell_text).collect()).collect();
    blocks.push(Block::Table(rows));
    for nested in table.rows.iter().flat_map(|row| &row.cells).flat_map(|cell| &cell.nested_tables) {
        push_table(blocks, nested);
    }
}

/// What an archive is that is no Office document, by the names of its parts.
fn not_office(bytes: &[u8], error: &undoc::Error) -> ParseError {
    let holds = |name: &[u8]| memmem::find(bytes, name).is_some();
    match error.kind() {
        ErrorKind::Encrypted => fault(error),
        // Damaged or not, it would never have been read.
        _ if holds(b"mimetypeapplication/epub") => ParseError::unsupported("an EPUB book"),
        _ if holds(b"mimetypeapplication/vnd.oasis") => ParseError::unsupported("an OpenDocument file"),
        ErrorKind::UnknownFormat | ErrorKind::UnsupportedFormat | ErrorKind::MissingComponent => {
            if holds(b"META-INF/MANIFEST.MF") {
                ParseError::unsupported("a Java archive")
            } else if bytes.starts_with(b"PK") {
                ParseError::unsupported("a ZIP archive that is no Office document")
            } else {
                ParseError::unsupported("an OLE compound file")
            }
        }
        _ => fault(error),
    }
}

/// undoc's errors may quote the document, so their texts go no further.
fn fault(error: &undoc::Error) -> ParseError {
    match error.kind() {
        ErrorKind::Encrypted => ParseError::document(Fault::Encrypted, "the document needs a password"),
        ErrorKind::MissingComponent => ParseError::damaged("a part of the Office document is missing"),
        ErrorKind::UnsupportedFormat => ParseError::unsupported("an Office document of an unknown kind"),
        ErrorKind::ZipArchive | ErrorKind::Io if is_bomb(error) => {
            ParseError::document(Fault::TooLarge, "a part of the Office document unpacks to too many bytes")
        }
        ErrorKind::ZipArchive | ErrorKind::Io => {
            ParseError::damaged("the Office document's archive is broken")
        }
        _ => ParseError::damaged("the Office document's contents are broken"),
    }
}

/// undoc refuses parts that unpack to over a hundred times their size; it gives this no kind of its own.
fn is_bomb(error: &undoc::Error) -> bool {
    let text = error.to_string();
    text.contains("decompression bomb")
}
