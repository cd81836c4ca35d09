use proptest::prelude::*;

use super::*;

fn section(text: &str, markdown: bool) -> Section<'_> {
    Section { page: None, markdown, text }
}

fn chunks(text: &str, markdown: bool) -> Vec<Chunk> {
    Chunker::new(ChunkSettings::default()).chunk(&[section(text, markdown)])
}

fn without_space(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

fn assert_sound(sections: &[Section<'_>], chunks: &[Chunk], settings: ChunkSettings) {
    let whole: String = sections.iter().map(|section| without_space(section.text)).collect();
    let kept: String = chunks.iter().map(|chunk| without_space(&chunk.text)).collect();
    assert_eq!(kept, whole);
    for (index, chunk) in chunks.iter().enumerate() {
        assert_eq!(chunk.ordinal as usize, index);
        assert!(!chunk.text.trim().is_empty());
        assert_eq!(chunk.tokens, estimate_tokens(&chunk.text));
        assert!(chunk.tokens <= settings.max, "{} tokens", chunk.tokens);
    }
}

#[test]
fn text_is_cut_between_sentences_in_every_script() {
    let sentences = [
        "The lease is renewed while the call runs. ",
        "임대는 호출이 진행되는 동안 갱신된다. 작업자가 죽으면 임대가 끝난다. ",
        "リースは呼び出しの間に更新されます。作業者が死ぬと終わります。",
        "租约在调用期间续期。工作者死亡后租约结束。",
    ];
    for sentence in sentences {
        let text = sentence.repeat(200);
        let chunks = chunks(&text, false);
        assert_sound(&[section(&text, false)], &chunks, ChunkSettings::default());
        for chunk in &chunks {
            assert!(chunk.text.ends_with(['.', '。']), "{}", chunk.text);
            assert_eq!(text[chunk.start..][..chunk.text.len()], chunk.text);
        }
        assert!(chunks[0].tokens >= 250, "{} tokens", chunks[0].tokens);
    }
}

#[test]
fn a_chunk_knows_its_headings() {
    let text = format!(
        "# 설치\n\n{}\n\n## 데이터베이스\n\n{}\n\n```\n# not a heading\n{}\n```\n",
        "서버를 설치한다. ".repeat(60),
        "포스트그레스를 쓴다. ".repeat(60),
        "code();\n".repeat(150)
    );
    let chunks = chunks(&text, true);
    assert_sound(&[section(&text, true)], &chunks, ChunkSettings::default());
    assert!(chunks[0].text.starts_with("# 설치"));
    assert_eq!(chunks[0].heading.as_deref(), Some("설치"));
    assert!(chunks.iter().skip(1).any(|chunk| chunk.text.starts_with("## 데이터베이스")));
    for chunk in chunks.iter().filter(|chunk| chunk.text.contains("포스트") || chunk.text.contains("code"))
    {
        assert_eq!(chunk.heading.as_deref(), Some("설치 > 데이터베이스"));
    }
}

#[test]
fn a_chunk_belongs_to_one_page() {
    let long = "A sentence of one page. ".repeat(200);
    let texts = ["", "  \n", "one line", &long, "한 줄"];
    let sections: Vec<Section<'_>> =
        (1..).zip(texts).map(|(page, text)| Section { page: Some(page), markdown: false, text }).collect();
    let chunks = Chunker::new(ChunkSettings::default()).chunk(&sections);
    assert_sound(&sections, &chunks, ChunkSettings::default());
    assert_eq!(chunks[0].page, Some(3));
    assert_eq!(chunks.last().unwrap().page, Some(5));
    for chunk in &chunks {
        let page = texts[chunk.page.unwrap() as usize - 1];
        assert_eq!(page[chunk.start..][..chunk.text.len()], chunk.text);
    }
}

#[test]
fn four_thousand_small_pages_are_four_thousand_chunks() {
    let sections: Vec<Section<'_>> =
        (1..=4000).map(|page| Section { page: Some(page), markdown: false, text: "one line" }).collect();
    tokens::work::MEASURED.with(|bytes| bytes.set(0));
    let chunks = Chunker::new(ChunkSettings::default()).chunk(&sections);
    assert_eq!(chunks.len(), 4000);
    assert!(tokens::work::MEASURED.with(std::cell::Cell::get) <= 4000 * 8 * 10);
}

/// The work, in bytes measured, grows with the length of the text and not with its square.
#[test]
fn text_without_a_space_costs_linear_work() {
    for (unit, bytes) in [("a", 1_500_000), ("가", 150_000), ("漢", 150_000), ("a\u{301}", 150_000)] {
        for markdown in [false, true] {
            let work = |bytes: usize| {
                let text = unit.repeat(bytes / unit.len());
                tokens::work::MEASURED.with(|measured| measured.set(0));
                let chunks = chunks(&text, markdown);
                assert_sound(&[section(&text, markdown)], &chunks, ChunkSettings::default());
                tokens::work::MEASURED.with(std::cell::Cell::get)
            };
            let (one, five) = (work(bytes / 5), work(bytes));
            assert!(five <= one * 6, "{unit}: {one} then {five} bytes measured");
            assert!(five <= bytes * 40, "{unit}: {five} bytes measured");
        }
    }
}

#[test]
fn sizes_that_cannot_work_are_refused() {
    assert!(ChunkSettings::new(300, 512).is_ok());
    for (desired, max) in [(15, 512), (513, 512), (300, 8193)] {
        assert!(ChunkSettings::new(desired, max).is_err(), "{desired}..{max}");
    }
}

#[test]
fn the_hash_separates_fingerprint_and_text() {
    assert_eq!(chunk_hash("p", "text"), chunk_hash("p", "text"));
    assert_ne!(chunk_hash("p", "text"), chunk_hash("q", "text"));
    assert_ne!(chunk_hash("ab", "c"), chunk_hash("a", "bc"));
}

/// If this fails, the chunks of every indexed document have changed: raise [`CHUNKER_VERSION`] and pin
/// the new value, so that documents are indexed again instead of getting a mixture.
#[test]
fn the_chunks_of_the_sample_are_those_of_this_version() {
    let markdown = format!(
        "# Leases\n\n{}\n\n- one\n- two\n\n## 한국어\n\n{}\n\n```rust\nfn main() {{}}\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
        "A lease ends by itself. A lock does not. ".repeat(80),
        "임대는 스스로 끝난다. 日本語の文章も。中文句子。".repeat(60)
    );
    let plain = markdown.replace(['#', '`', '|'], "");
    let chunker = Chunker::new(ChunkSettings::default());
    let chunks = chunker.chunk(&[section(&markdown, true), section(&plain, false)]);
    let mut all = blake3::Hasher::new();
    for chunk in &chunks {
        all.update(&chunk_hash(&chunker.fingerprint(), &format!("{}|{:?}", chunk.text, chunk.heading)));
    }
    let pinned = "58f65f9ec786e79fbb1883e0ef8cf9376cb59fd9519911fa04d8d4ab982b4008";
    assert_eq!(
        (chunker.fingerprint().as_str(), all.finalize().to_hex().as_str()),
        ("chunker=1,300..512", pinned)
    );
}

proptest! {
    #[test]
    fn chunks_cover_any_text(
        text in "([a-z]{1,9}[ .]|[가-힣]{1,5} |[ぁ-ん一-龠]{1,9}。?|\n|\n\n# |```\n|- |> |\u{1f600}|\\PC){0,600}",
        markdown: bool,
        sizes in (16_u32..60).prop_flat_map(|desired| (Just(desired), desired..200)),
    ) {
        let settings = ChunkSettings::new(sizes.0, sizes.1).unwrap();
        let sections = [section(&text, markdown)];
        let chunker = Chunker::new(settings);
        let chunks = chunker.chunk(&sections);
        assert_sound(&sections, &chunks, settings);
        for chunk in &chunks {
            prop_assert_eq!(&text[chunk.start..][..chunk.text.len()], &chunk.text);
        }
        prop_assert_eq!(chunker.chunk(&sections), chunks);
    }
}
