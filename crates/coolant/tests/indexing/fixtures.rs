//! Files made in code.

use std::io::Write;

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

/// A PDF with one page, and so one chunk, for each text.
pub fn pages<Text: AsRef<str>>(pages: &[Text]) -> Vec<u8> {
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

/// So many pages of a document, each unlike any other page of any other document.
pub fn numbered(document: &str, edition: &str, count: usize) -> Vec<u8> {
    let texts: Vec<String> = (1..=count)
        .map(|page| format!("{document} {edition} page{page} of{count} speaks of machines that cool"))
        .collect();
    pages(&texts)
}
