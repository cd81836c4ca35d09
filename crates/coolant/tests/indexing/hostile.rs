//! Files that were made to break their reader, in one folder with good ones, and the exact answer to each.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use crate::database::Database;
use crate::fixtures::numbered;
use crate::kit::{Site, counts, failed, postgres_url, texts};
use crate::made::{archive, content, docx, flate_bomb, laughs, noise, pdf, pdf_of, word};

const DAMAGED: Option<&str> = Some("DOCUMENT_DAMAGED");
const ENCRYPTED: Option<&str> = Some("DOCUMENT_ENCRYPTED");
const NO_TEXT: Option<&str> = Some("DOCUMENT_NO_TEXT");
const TOO_LARGE: Option<&str> = Some("DOCUMENT_TOO_LARGE");
const UNSUPPORTED: Option<&str> = Some("DOCUMENT_UNSUPPORTED");
/// Indexed, and its `needle` is found.
const GOOD: Option<&str> = None;

type Hostile = (&'static str, Vec<u8>, Option<&'static str>);

#[tokio::test]
async fn every_hostile_file_has_its_exact_answer_and_harms_no_other() {
    hostile_and_good(Site::new()).await;
}

#[tokio::test]
async fn postgres_every_hostile_file_has_its_exact_answer_and_harms_no_other() {
    let Some(database) = Database::create().await else { return };
    let site = Site::new().store(Some(postgres_url(&database)));
    site.run(["migrate"]).await.expect(0);
    hostile_and_good(site).await;
    database.drop_it().await;
}

async fn hostile_and_good(site: Site) {
    let site = site.limited_to_gib(2).env("COOLANT_PARSER_SECONDS", "20");
    let table: Vec<Hostile> =
        hostile_pdfs().into_iter().chain(hostile_office()).chain(hostile_texts()).collect();
    let (mut right, mut good) = (BTreeMap::new(), 0);
    for (at, (name, bytes, answer)) in table.iter().enumerate() {
        site.write(name, bytes);
        match answer {
            Some(code) => drop(right.insert(format!("docs/{name}"), (*code).to_owned())),
            None => good += 1,
        }
        // A good one between any two.
        site.write(format!("good{at:02}.pdf"), numbered(&format!("good{at:02}"), "first", 2));
    }
    let hostile = right.len();
    println!("{hostile} files with an error, {good} hostile ones with text, {} good ones", table.len());
    assert!(hostile >= 20);

    let report = site.index().await.report(1);
    assert_eq!(failed(&report).into_iter().collect::<BTreeMap<_, _>>(), right);
    assert_eq!(counts(&report)[..4], [(good + table.len()) as u64, 0, 0, hostile as u64]);
    for failed in report["documents"]["failed"].as_array().unwrap() {
        let reason = failed["reason"].as_str().unwrap();
        assert!(!reason.is_empty() && reason.len() < 400 && !reason.contains('\n'), "{failed}");
    }
    let (server, client) = site.serve(&["--no-work"]).await;
    for (at, (name, _, answer)) in table.iter().enumerate() {
        let found = client.get(format!("/search?q=needle&document_id=docs%2F{name}")).await.expect(200);
        let has_it = texts(found["hits"].as_array().unwrap()).contains("needle");
        assert_eq!(has_it, answer.is_none(), "{name}: {found}");
        let good = format!("good{at:02}");
        let found = client.get(format!("/search?q={good}&mode=text&document_id=docs%2F{good}.pdf")).await;
        assert_eq!(found.expect(200)["hits"].as_array().unwrap().len(), 2);
    }
    server.kill();

    // Again: the same answers from what is known, and nothing is read a second time.
    let report = site.index().await.report(1);
    assert_eq!(failed(&report).into_iter().collect::<BTreeMap<_, _>>(), right);
    assert_eq!(counts(&report)[..4], [0, 0, (good + table.len()) as u64, hostile as u64]);
    let jobs = site.run(["jobs", "list", "--json", "--limit", "500"]).await.report(0);
    let tried = |job: &serde_json::Value| job["attempt_count"] == 1;
    assert!(jobs["items"].as_array().unwrap().iter().all(tried), "{jobs}");
    site.examine().await;
}

fn hostile_pdfs() -> Vec<Hostile> {
    let catalog = "<< /Type /Catalog /Pages 2 0 R >>";
    let whole = pdf_of(&["A needle that is whole", "and another one"]);
    let looping = [catalog, "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"];
    let password = format!(
        "/Encrypt << /Filter /Standard /V 2 /R 3 /Length 128 /P -4 /O <{0}> /U <{0}> >> /ID [<{1}> <{1}>]",
        "5A".repeat(32),
        "00".repeat(16)
    );
    let locked = pdf(
        &[catalog, "<< /Type /Pages /Kids [3 0 R] /Count 1 >>", "<< /Type /Page /Parent 2 0 R >>"],
        &password,
    );
    let nested = format!("{}{}", "<< /A ".repeat(100_000), " >>".repeat(100_000));
    vec![
        ("empty.pdf", Vec::new(), DAMAGED),
        ("header-only.pdf", b"%PDF-1.7\n".to_vec(), DAMAGED),
        ("header-and-noise.pdf", [b"%PDF-1.7\n".as_slice(), &noise(50_000)].concat(), DAMAGED),
        ("cut.pdf", whole[..300].to_vec(), DAMAGED),
        ("zero-pages.pdf", pdf(&[catalog, "<< /Type /Pages /Kids [] /Count 0 >>"], ""), DAMAGED),
        ("pages-of-themselves.pdf", pdf(&looping, ""), DAMAGED),
        ("nested.pdf", pdf(&[nested], ""), DAMAGED),
        ("content-of-noise.pdf", content(&noise(5000), ""), DAMAGED),
        ("locked.pdf", locked, ENCRYPTED),
        ("blank.pdf", pdf_of(&[""]), NO_TEXT),
        ("bomb.pdf", flate_bomb(), TOO_LARGE),
        ("a-pdf.txt", whole.clone(), GOOD),
        ("after-a-mail-header.pdf", [b"X-Mail: yes\r\n\r\n".as_slice(), &whole].concat(), GOOD),
    ]
}

fn hostile_office() -> Vec<Hostile> {
    let whole = docx(Some(word("<w:p><w:r><w:t>A whole needle</w:t></w:r></w:p>").as_bytes()));
    let zeros = " ".repeat(200 << 20);
    let bomb = word(&format!("<w:p><w:r><w:t>{zeros}</w:t></w:r></w:p>"));
    let laughs = format!(
        "<?xml version=\"1.0\"?><!DOCTYPE d [{}]><w:document xmlns:w=\"http://schemas.openxmlformats.org/wordprocessingml/2006/main\"><w:body><w:p><w:r><w:t>needle &l9; after</w:t></w:r></w:p></w:body></w:document>",
        laughs()
    );
    vec![
        ("a-word.pdf", whole.clone(), GOOD),
        ("bomb.docx", docx(Some(bomb.as_bytes())), TOO_LARGE),
        ("without-its-document.docx", docx(None), DAMAGED),
        ("cut.docx", whole[..whole.len() / 2].to_vec(), DAMAGED),
        ("laughs.docx", docx(Some(laughs.as_bytes())), GOOD),
        ("blank.docx", docx(Some(word("<w:p/>").as_bytes())), NO_TEXT),
        ("photos.zip", archive(&[("one.txt", b"text"), ("two.txt", b"text")]), UNSUPPORTED),
        ("old.doc", [b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1".as_slice(), &noise(4096)].concat(), UNSUPPORTED),
    ]
}

fn hostile_texts() -> Vec<Hostile> {
    let deep = format!("<!doctype html>{}needle{}", "<div>".repeat(100_000), "</div>".repeat(100_000));
    let tables = format!("<html>{}needle", "<table><tr><td>".repeat(50_000));
    let marks = format!("needle e{}", "\u{301}".repeat(500_000));
    let mut one_word = vec![b'a'; 3_000_000];
    one_word.extend_from_slice(b" needle");
    vec![
        ("empty.txt", Vec::new(), DAMAGED),
        ("blank.md", b"   \n\t \n\n".to_vec(), NO_TEXT),
        ("nuls.txt", vec![0; 10_000], NO_TEXT),
        ("invisible.txt", "\u{200B}\u{FEFF}\u{AD}\u{202E}".into(), NO_TEXT),
        ("only-script.html", b"<html><script>var text = 'words';</script>".to_vec(), NO_TEXT),
        ("noise.bin", noise(100_000), UNSUPPORTED),
        ("picture.txt", b"\x89PNG\r\n\x1A\n\0\0\0\rIHDR".to_vec(), UNSUPPORTED),
        ("packed.md", b"\x1F\x8B\x08\0\0\0\0\0\0\x03".to_vec(), UNSUPPORTED),
        ("program.txt", b"\x7FELF\x02\x01\x01\0".to_vec(), UNSUPPORTED),
        ("letter.rtf", b"{\\rtf1\\ansi words}".to_vec(), UNSUPPORTED),
        ("deep.html", deep.into(), GOOD),
        ("tables.html", tables.into(), GOOD),
        ("marks.txt", marks.into(), GOOD),
        ("broken-utf8.txt", b"needle \xF0\x9F needle".to_vec(), GOOD),
        ("padded.txt", b"one\0\0\0\0two\0\0\0\0needle\0".to_vec(), GOOD),
        ("one-word.txt", one_word, GOOD),
    ]
}

#[tokio::test]
async fn a_folder_of_what_is_no_file_gives_its_files_and_says_what_it_left_out() {
    let site = Site::new().limited_to_gib(2);
    let docs = site.docs();
    site.write("good.txt", "A needle in good order.");
    site.write(".hidden/secret.txt", "A needle that nobody meant.");
    std::fs::create_dir(docs.join("empty")).unwrap();
    // A file that opens and gives no byte, also for root.
    symlink("/proc/self/mem", docs.join("unreadable")).unwrap();
    symlink("nowhere", docs.join("dangling")).unwrap();
    symlink("loop-b", docs.join("loop-a")).unwrap();
    symlink("loop-a", docs.join("loop-b")).unwrap();
    symlink("..", docs.join("above")).unwrap();
    symlink("good.txt", docs.join("link.txt")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, docs.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(docs.join("socket")).unwrap();
    site.write(OsStr::from_bytes(b"not-utf8-\xFF\xFE.txt"), "A needle under a name of bytes.");
    site.write("two\nlines.txt", "A needle under a name of two lines.");
    let deep: std::path::PathBuf = (0..6).map(|_| "d".repeat(80)).collect();
    site.write(deep.join("far.txt"), "A needle far down.");
    let huge = std::fs::File::create(docs.join("huge.bin")).unwrap();
    huge.set_len((64 << 20) + 1).unwrap();

    let ran = site.index().await;
    let report = ran.report(1);
    let expected = [("docs/huge.bin", "DOCUMENT_TOO_LARGE"), ("docs/unreadable", "UNREADABLE")];
    assert_eq!(failed(&report), expected.map(|(name, code)| (name.to_owned(), code.to_owned())));
    assert_eq!(counts(&report)[..4], [5, 0, 0, 2], "{ran:#?}");
    for left_out in ["above", "dangling", "loop-a", "loop-b", "pipe", "socket"] {
        let line = format!("left out docs/{left_out}: ");
        assert!(ran.stderr.contains(&line), "{left_out}: {ran:#?}");
    }
    let hits = site.search(&["needle", "--mode", "text"]).await;
    assert_eq!(hits.len(), 5, "{hits:?}");
    let names: Vec<&str> = hits.iter().map(|hit| hit["document_id"].as_str().unwrap()).collect();
    assert!(names.iter().all(|name| name.len() <= 384 && !name.chars().any(char::is_control)), "{names:?}");
    assert!(names.iter().any(|name| name.ends_with("docs/two\u{FFFD}lines.txt")), "{names:?}");
    assert_eq!(counts(&site.index().await.report(1))[..4], [0, 0, 5, 2]);
}

#[tokio::test]
async fn paths_that_hold_nothing_are_wrong_usage_and_one_named_twice_counts_once() {
    let site = Site::new();
    let ran = site.run(["index", "docs"]).await.expect(2);
    assert!(ran.stderr.contains("there are no files to index"), "{ran:#?}");
    let ran = site.run(["index", "nowhere"]).await.expect(2);
    assert!(ran.stderr.contains("`nowhere` does not exist"), "{ran:#?}");
    site.write("a/one.txt", "One.");
    site.write("b.txt", "Two.");
    let ran = site.run(["index", "--json", "docs/a/one.txt", "docs", "docs/a", "./docs//b.txt"]).await;
    assert_eq!(counts(&ran.report(0))[..4], [2, 0, 0, 0], "{ran:#?}");
}
