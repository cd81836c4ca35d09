//! Files made in code, whole and hostile ones.

use std::io::{Cursor, Write};

use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

/// A PDF of the given objects, numbered from 1, with a correct cross-reference table.
pub fn pdf<Object: AsRef<[u8]>>(objects: &[Object], trailer: &str) -> Vec<u8> {
    let mut out = b"%PDF-1.7\n".to_vec();
    let mut offsets = Vec::new();
    for (object, number) in objects.iter().zip(1..) {
        offsets.push(out.len());
        writeln!(out, "{number} 0 obj").unwrap();
        out.extend(object.as_ref());
        out.extend(b"\nendobj\n");
    }
    let xref = out.len();
    writeln!(out, "xref\n0 {}\n0000000000 65535 f ", objects.len() + 1).unwrap();
    for offset in offsets {
        writeln!(out, "{offset:010} 00000 n ").unwrap();
    }
    let size = objects.len() + 1;
    write!(out, "trailer\n<< /Size {size} /Root 1 0 R {trailer} >>\nstartxref\n{xref}\n%%EOF\n").unwrap();
    out
}

/// A PDF with one page for each text.
pub fn pdf_of<Text: AsRef<str>>(pages: &[Text]) -> Vec<u8> {
    let kids: Vec<String> = (0..pages.len()).map(|at| format!("{} 0 R", 4 + 2 * at)).collect();
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        format!("<< /Type /Pages /Kids [{}] /Count {} >>", kids.join(" "), pages.len()),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
    ];
    for (at, text) in pages.iter().enumerate() {
        objects.push(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F 3 0 R >> >> \
             /Contents {} 0 R >>",
            5 + 2 * at
        ));
        let content = format!("BT /F 12 Tf 60 700 Td ({}) Tj ET", text.as_ref());
        objects.push(format!("<< /Length {} >>\nstream\n{content}\nendstream", content.len()));
    }
    pdf(&objects, "")
}

pub fn archive(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in parts {
        // Stored where packing would make a small part look like a bomb.
        let method =
            if bytes.len() < 100 << 20 { CompressionMethod::Stored } else { CompressionMethod::Deflated };
        writer.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

const CONTENT_TYPES: &str = r#"<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>"#;

const RELATIONSHIPS: &str = r#"<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/></Relationships>"#;

const STYLE_RELATIONSHIP: &str = r#"<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/styles" Target="styles.xml"/></Relationships>"#;

const STYLES: &str = r#"<?xml version="1.0"?><w:styles xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/><w:pPr><w:outlineLvl w:val="0"/></w:pPr></w:style></w:styles>"#;

/// A Word document whose main part is given, or missing.
pub fn docx(document: Option<&[u8]>) -> Vec<u8> {
    let mut parts: Vec<(&str, &[u8])> = vec![
        ("[Content_Types].xml", CONTENT_TYPES.as_bytes()),
        ("_rels/.rels", RELATIONSHIPS.as_bytes()),
        ("word/_rels/document.xml.rels", STYLE_RELATIONSHIP.as_bytes()),
        ("word/styles.xml", STYLES.as_bytes()),
    ];
    parts.extend(document.map(|document| ("word/document.xml", document)));
    archive(&parts)
}

/// The main part of a Word document around paragraphs and tables.
pub fn word(body: &str) -> String {
    format!(
        r#"<?xml version="1.0"?><w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>{body}</w:body></w:document>"#
    )
}

/// Bytes that look like nothing, the same on every run.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

/// A PDF of one page with the given content.
pub fn content(stream: &[u8], filter: &str) -> Vec<u8> {
    let head = format!("<< {filter} /Length {} >>\nstream\n", stream.len());
    let content = [head.as_bytes(), stream, b"\nendstream"].concat();
    let objects: [&[u8]; 4] = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R >>",
        &content,
    ];
    pdf(&objects, "")
}

/// A page whose content unpacks to 2 GiB of spaces.
pub fn flate_bomb() -> Vec<u8> {
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    let blanks = vec![b' '; 1 << 20];
    for _ in 0..2048 {
        packed.write_all(&blanks).unwrap();
    }
    let packed = packed.finish().unwrap();
    content(&packed, "/Filter /FlateDecode")
}

/// Ten entities, each ten times the one before.
pub fn laughs() -> String {
    let mut entities = "<!ENTITY l0 \"ha\">".to_owned();
    for level in 1..10 {
        let below = format!("&l{};", level - 1).repeat(10);
        entities.push_str(&format!("<!ENTITY l{level} \"{below}\">"));
    }
    entities
}
