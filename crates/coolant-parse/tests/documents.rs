//! Whole documents of our own making, through the real child.

#![allow(clippy::unwrap_used)]

mod common;

use common::made::{docx, pdf, pdf_of, word};
use common::{parse, text};
use coolant_parse::Format;

#[tokio::test]
async fn pages_keep_their_numbers_and_a_pdf_its_title() {
    let document = parse(&pdf_of(&["One idempo-", "", "\\(three\\)"]), "a.pdf").await.unwrap();
    let pages: Vec<_> = document.pages.iter().map(|page| (page.number, page.text.as_str())).collect();
    assert_eq!(pages, [(Some(1), "One idempo-"), (Some(3), "(three)")]);
    assert_eq!((document.format, document.title, document.encoding), (Format::Pdf, None, None));

    let titled = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R \
         /Resources << /Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        "<< /Length 36 >>\nstream\nBT /F 12 Tf 60 700 Td (needle) Tj ET\nendstream",
        "<< /Title <FEFFD55CAE00> >>",
    ];
    let document = parse(&pdf(&titled, "/Info 5 0 R"), "a.pdf").await.unwrap();
    assert_eq!(document.title.as_deref(), Some("한글"));
}

#[tokio::test]
async fn the_structure_of_a_word_document_is_markdown() {
    let paragraph = |style: &str, text: &str| {
        format!("<w:p><w:pPr><w:pStyle w:val=\"{style}\"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>")
    };
    let cell = |text: &str| format!("<w:tc><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:tc>");
    // The styles part knows Heading1; the other is known by its name only.
    let body = [
        paragraph("Heading1", "Runbook"),
        "<w:p><w:r><w:t>A le</w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>ase</w:t></w:r></w:p>".to_owned(),
        paragraph("heading3", "Codes"),
        format!(
            "<w:tbl><w:tr>{}{}</w:tr><w:tr>{}{}</w:tr></w:tbl>",
            cell("code"),
            cell("action"),
            cell("E_AUTH"),
            cell("stop")
        ),
    ];
    let document = parse(&docx(Some(word(&body.concat()).as_bytes())), "runbook").await.unwrap();
    assert_eq!(document.title.as_deref(), Some("Runbook"));
    let markdown = "# Runbook\n\nA lease\n\n### Codes\n\n| code | action |\n| --- | --- |\n| E_AUTH | stop |";
    assert_eq!(text(&document), markdown);
    assert_eq!(document.characters, markdown.chars().count() as u64);
}

#[tokio::test]
async fn a_page_of_old_korean_is_markdown_and_names_its_encoding() {
    let page = "<html><head><title>점검</title></head><body><h1>점검 안내</h1><p>색인은 두 시에 시작한다.</body></html>";
    let (bytes, _, _) = encoding_rs::EUC_KR.encode(page);
    let document = parse(&bytes, "page.html").await.unwrap();
    assert_eq!((document.encoding.as_deref(), document.title.as_deref()), (Some("EUC-KR"), Some("점검")));
    assert_eq!(text(&document), "# 점검 안내\n\n색인은 두 시에 시작한다.");
}

#[test]
fn the_version_names_the_readers_that_are_locked() {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
    for reader in ["pdf_oxide", "undoc", "html5ever", "chardetng"] {
        let (_, after) = lock.split_once(&format!("name = \"{reader}\"\nversion = \"")).unwrap();
        let (version, _) = after.split_once('"').unwrap();
        // Texts may change with a reader, so a new one has to make a new pipeline version.
        let named = format!("{reader}-{version}");
        assert!(coolant_parse::PARSER_VERSION.contains(&named), "PARSER_VERSION does not name {named}");
    }
}
