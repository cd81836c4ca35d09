//! Files that were made to break their reader, and the exact answer to each.

#![allow(clippy::unwrap_used)]

mod common;

use common::made::{archive, content, docx, flate_bomb, laughs, noise, pdf, pdf_of, word};
use common::{named, parser, text};
use coolant_parse::Format;

/// The right answer to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Text of a format, with these words in it.
    Text(Format, &'static str),
    Fault(&'static str),
}

use Answer::{Fault, Text};

const DAMAGED: Answer = Fault("DOCUMENT_DAMAGED");
const ENCRYPTED: Answer = Fault("DOCUMENT_ENCRYPTED");
const NO_TEXT: Answer = Fault("DOCUMENT_NO_TEXT");
const TOO_LARGE: Answer = Fault("DOCUMENT_TOO_LARGE");
const UNSUPPORTED: Answer = Fault("DOCUMENT_UNSUPPORTED");

struct Hostile {
    name: &'static str,
    bytes: Vec<u8>,
    answer: Answer,
}

fn hostile(name: &'static str, bytes: impl Into<Vec<u8>>, answer: Answer) -> Hostile {
    Hostile { name, bytes: bytes.into(), answer }
}

async fn check(table: Vec<Hostile>) {
    let mut wrong = Vec::new();
    for Hostile { name, bytes, answer } in table {
        let mut parser = parser();
        parser.limits = common::case_limits();
        let parsed = parser.parse(&bytes, &named(name)).await;
        let is_right = match (&parsed, answer) {
            (Ok(document), Text(format, words)) => {
                document.format == format && text(document).contains(words)
            }
            (Err(error), Fault(code)) => error.code() == code && !error.is_retryable(),
            _ => false,
        };
        if !is_right {
            let got = match parsed {
                Ok(document) => format!("{:?}: {:.200}", document.format, text(&document)),
                Err(error) => format!("{}: {error}", error.code()),
            };
            wrong.push(format!("{name}: {answer:?} expected, got {got}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn hostile_pdfs() {
    let catalog = "<< /Type /Catalog /Pages 2 0 R >>";
    let whole = pdf_of(&["A page that is whole", "and another one"]);
    let looping = [catalog, "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"];
    let mutual = [
        catalog,
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Pages /Kids [2 0 R] /Parent 2 0 R /Count 1 >>",
    ];
    let password = format!(
        "/Encrypt << /Filter /Standard /V 2 /R 3 /Length 128 /P -4 /O <{0}> /U <{0}> >> /ID [<{1}> <{1}>]",
        "5A".repeat(32),
        "00".repeat(16)
    );
    let locked = pdf(
        &[catalog, "<< /Type /Pages /Kids [3 0 R] /Count 1 >>", "<< /Type /Page /Parent 2 0 R >>"],
        &password,
    );
    check(vec![
        hostile("empty.pdf", "", DAMAGED),
        hostile("header-only.pdf", "%PDF-1.7\n", DAMAGED),
        hostile("header-and-noise.pdf", [b"%PDF-1.7\n".as_slice(), &noise(50_000)].concat(), DAMAGED),
        hostile("cut-in-half.pdf", &whole[..300], DAMAGED),
        hostile("zero-pages.pdf", pdf(&[catalog, "<< /Type /Pages /Kids [] /Count 0 >>"], ""), DAMAGED),
        hostile("pages-of-themselves.pdf", pdf(&looping, ""), DAMAGED),
        hostile("pages-in-a-ring.pdf", pdf(&mutual, ""), DAMAGED),
        hostile("catalog-of-itself.pdf", pdf(&["<< /Type /Catalog /Pages 1 0 R >>"], ""), DAMAGED),
        hostile("letters-before-obj.pdf", letters_before_obj(), DAMAGED),
        hostile("locked.pdf", locked, ENCRYPTED),
        hostile("blank-page.pdf", pdf_of(&[""]), NO_TEXT),
        hostile("empty-content.pdf", content(b"", ""), NO_TEXT),
        hostile("drawing.pdf", content(b"q 10 10 100 100 re f Q", ""), NO_TEXT),
        hostile("named-wrongly.txt", whole.clone(), Text(Format::Pdf, "A page that is whole")),
        hostile(
            "after-a-mail-header.pdf",
            [b"X-Mail: yes\r\n\r\n".as_slice(), &whole].concat(),
            Text(Format::Pdf, "another one"),
        ),
        hostile("content-of-noise.pdf", content(&noise(5000), ""), DAMAGED),
        hostile("content-not-packed.pdf", content(&noise(5000), "/Filter /FlateDecode"), DAMAGED),
        hostile("content-missing.pdf", missing_content(), DAMAGED),
        hostile("flate-bomb.pdf", flate_bomb(), TOO_LARGE),
        hostile("nested-dictionaries.pdf", pdf(&[&nested_dictionaries()], ""), DAMAGED),
    ])
    .await;
}

/// Object headers that are no ASCII: what is left of them is read by looking for the word `obj`.
fn letters_before_obj() -> Vec<u8> {
    let whole = String::from_utf8(pdf_of(&["needle", "broken"])).unwrap();
    whole.replace("6 0 obj", "6 é\nobj").into_bytes()
}

fn missing_content() -> Vec<u8> {
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 9 0 R >>",
    ];
    pdf(&objects, "")
}

fn nested_dictionaries() -> String {
    format!("{}{}", "<< /A ".repeat(100_000), " >>".repeat(100_000))
}

#[tokio::test]
async fn hostile_office_files_and_archives() {
    let zeros = vec![b' '; 200 << 20];
    let bomb = word(&format!("<w:p><w:r><w:t>{}</w:t></w:r></w:p>", String::from_utf8(zeros).unwrap()));
    let laughs = format!(
        "<?xml version=\"1.0\"?><!DOCTYPE d [{}]><w:document xmlns:w=\"http://schemas.openxmlformats.org/wordprocessingml/2006/main\"><w:body><w:p><w:r><w:t>before &l9; after</w:t></w:r></w:p></w:body></w:document>",
        laughs()
    );
    let deep =
        word(&format!("{}{}", "<w:tbl><w:tr><w:tc><w:p/>".repeat(200), "</w:tc></w:tr></w:tbl>".repeat(200)));
    let whole = docx(Some(word("<w:p><w:r><w:t>A whole document</w:t></w:r></w:p>").as_bytes()));
    check(vec![
        hostile("whole.docx", whole.clone(), Text(Format::Docx, "A whole document")),
        hostile("named-wrongly.pdf", whole.clone(), Text(Format::Docx, "A whole document")),
        hostile("bomb.docx", docx(Some(bomb.as_bytes())), TOO_LARGE),
        hostile("without-its-document.docx", docx(None), DAMAGED),
        hostile("cut.docx", &whole[..whole.len() / 2], DAMAGED),
        hostile("unclosed.docx", docx(Some(&word("<w:p><w:r><w:t>never closed").as_bytes()[..150])), DAMAGED),
        hostile("laughs.docx", docx(Some(laughs.as_bytes())), Text(Format::Docx, "before &l9; after")),
        hostile("deep.docx", docx(Some(deep.as_bytes())), NO_TEXT),
        hostile("blank.docx", docx(Some(word("<w:p/>").as_bytes())), NO_TEXT),
        hostile("photos.docx", archive(&[("one.txt", b"text"), ("two.txt", b"text")]), UNSUPPORTED),
        hostile("empty.zip", archive(&[]), UNSUPPORTED),
        hostile(
            "old.doc",
            [b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1".as_slice(), &noise(4096)].concat(),
            UNSUPPORTED,
        ),
    ])
    .await;
}

#[tokio::test]
async fn hostile_pages() {
    let deep = format!("<!doctype html>{}needle{}", "<div>".repeat(100_000), "</div>".repeat(100_000));
    let tables = format!("<html>{}needle", "<table><tr><td>".repeat(50_000));
    let lists = format!("<html>{}needle", "<ul><li>".repeat(50_000));
    let formatting = format!("<html>{}needle", "<b><i><a href=x>".repeat(50_000));
    let attributes = format!("<html><p {}>needle", "a=b ".repeat(20_000));
    check(vec![
        hostile("deep.html", deep, Text(Format::Html, "needle")),
        hostile("tables.html", tables, Text(Format::Html, "needle")),
        hostile("lists.html", lists, Text(Format::Html, "- needle")),
        hostile("formatting.html", formatting, Text(Format::Html, "needle")),
        hostile("attributes.html", attributes, Text(Format::Html, "needle")),
        hostile("only-script.html", "<html><script>var text = 'words';</script><style>p {}</style>", NO_TEXT),
        hostile("unclosed-script.html", "<html><p>needle<script>words", Text(Format::Html, "needle")),
        hostile("unclosed-hidden.html", "<html><div hidden>needle", Text(Format::Html, "needle")),
        hostile("unclosed-comment.html", "<html><p>needle<!-- words", Text(Format::Html, "needle")),
        hostile(
            "span.html",
            "<html><table><tr><td colspan=1000000000>a<td>needle</table>",
            Text(Format::Html, "| a | needle |"),
        ),
        hostile(
            "named-wrongly.pdf",
            "<!DOCTYPE html><title>t</title><p>needle",
            Text(Format::Html, "needle"),
        ),
        hostile(
            "laughs.xml",
            format!("<?xml version=\"1.0\"?><!DOCTYPE d [{}]><d>&l9;</d>", laughs()),
            Text(Format::Text, "&l9;"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn hostile_texts() {
    let odd: Vec<u8> = "needle".encode_utf16().flat_map(u16::to_le_bytes).chain([0x41]).collect();
    let lone: Vec<u8> =
        [0xFEFF_u16, 0xD800, 0x6E, 0xDC00, 0x61].iter().flat_map(|unit| unit.to_be_bytes()).collect();
    let marks = format!("needle e{}", "\u{301}".repeat(500_000));
    check(vec![
        hostile("empty.txt", "", DAMAGED),
        hostile("blank.md", "   \n\t \n\u{A0}\n", NO_TEXT),
        hostile("invisible.txt", "\u{200B}\u{FEFF}\u{AD}\u{202E}", NO_TEXT),
        hostile("nuls.txt", vec![0; 10_000], NO_TEXT),
        hostile("padded.txt", "one\0\0\0\0two\0\0\0\0needle\0", Text(Format::Text, "needle")),
        hostile("odd-length.txt", odd, Text(Format::Text, "needle")),
        hostile("lone-surrogates.txt", lone, Text(Format::Text, "n\u{FFFD}a")),
        hostile("broken-utf8.txt", b"needle \xF0\x9F needle".as_slice(), Text(Format::Text, "needle")),
        hostile("marks.txt", marks, Text(Format::Text, "needle \u{E9}")),
        hostile("bidi.txt", "pay \u{202E}\u{2066}needle\u{2069}", Text(Format::Text, "pay needle")),
        hostile("open-fence.md", "# needle\n\n```\nnever closed", Text(Format::Markdown, "never closed")),
        hostile("quotes-a-header.txt", "The header of a PDF is %PDF-1.7.", Text(Format::Text, "header")),
        hostile("noise.bin", noise(100_000), UNSUPPORTED),
        hostile("noise.txt", noise(300), UNSUPPORTED),
        hostile("picture.txt", b"\x89PNG\r\n\x1A\n\0\0\0\rIHDR".as_slice(), UNSUPPORTED),
        hostile("picture.pdf", b"\xFF\xD8\xFF\xE0\0\x10JFIF\0".as_slice(), UNSUPPORTED),
        hostile("packed.md", b"\x1F\x8B\x08\0\0\0\0\0\0\x03".as_slice(), UNSUPPORTED),
        hostile("program.txt", b"\x7FELF\x02\x01\x01\0".as_slice(), UNSUPPORTED),
        hostile("letter.rtf", "{\\rtf1\\ansi words}", UNSUPPORTED),
    ])
    .await;
}

#[tokio::test]
async fn fifty_megabytes_without_a_break_are_read_as_they_are() {
    let parsed = parser().parse(&vec![b'a'; 50_000_000], &named("a.txt")).await.unwrap();
    assert_eq!(parsed.characters, 50_000_000);
    assert_eq!(parsed.pages.len(), 1);
}
