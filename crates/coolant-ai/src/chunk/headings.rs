//! Which Markdown headings stand above a place in the text.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// A heading's part of a path is cut to this many characters: some "headings" are whole paragraphs.
const MAX_HEADING_CHARS: usize = 120;

/// The heading paths of one section, and the headings still open at its end.
#[derive(Default)]
pub(super) struct Headings {
    open: Vec<(HeadingLevel, String)>,
    /// The path that holds before the section's first heading.
    before: Option<String>,
    /// Where each heading starts.
    starts: Vec<usize>,
    /// The path from the heading of the same index on.
    paths: Vec<Option<String>>,
}

impl Headings {
    /// Reads the next section. The headings still open above it stay open.
    ///
    /// Only `#` headings count: text from other formats is full of lines that `---` below them would
    /// turn into headings by accident.
    pub(super) fn read(&mut self, markdown: &str) {
        self.before = self.path();
        self.starts.clear();
        self.paths.clear();
        let mut current: Option<(HeadingLevel, usize, String)> = None;
        // The same options as `text-splitter`, so that both see the same headings.
        for (event, range) in Parser::new_ext(markdown, Options::all()).into_offset_iter() {
            match event {
                Event::Start(Tag::Heading { level, .. }) if markdown[range.start..].starts_with('#') => {
                    current = Some((level, range.start, String::new()));
                }
                Event::End(TagEnd::Heading(_)) => {
                    if let Some((level, start, title)) = current.take() {
                        self.enter(level, start, &title);
                    }
                }
                Event::Text(text) | Event::Code(text) | Event::InlineMath(text) => {
                    if let Some((_, _, title)) = &mut current {
                        title.push_str(&text);
                    }
                }
                _ => {}
            }
        }
    }

    fn enter(&mut self, level: HeadingLevel, start: usize, title: &str) {
        self.open.retain(|(open, _)| *open < level);
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        if !title.is_empty() {
            self.open.push((level, title.chars().take(MAX_HEADING_CHARS).collect()));
        }
        self.starts.push(start);
        self.paths.push(self.path());
    }

    fn path(&self) -> Option<String> {
        let titles: Vec<&str> = self.open.iter().map(|(_, title)| title.as_str()).collect();
        (!titles.is_empty()).then(|| titles.join(" > "))
    }

    /// Byte offsets of the section's headings, ascending.
    pub(super) fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// The path at a byte offset of the section; a heading counts from its own first byte on.
    pub(super) fn path_at(&self, offset: usize) -> Option<&str> {
        match self.starts.partition_point(|&start| start <= offset) {
            0 => self.before.as_deref(),
            after => self.paths[after - 1].as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_at(markdown: &str, needle: &str) -> Option<String> {
        let mut headings = Headings::default();
        headings.read(markdown);
        headings.path_at(markdown.find(needle).unwrap()).map(str::to_owned)
    }

    #[test]
    fn a_heading_closes_those_of_its_level_and_below() {
        let text = "intro\n\n# A\none\n## B `c` *d*\ntwo\n### C\nthree\n## D\nfour\n# E\nfive\n";
        for (needle, path) in [
            ("intro", None),
            ("one", Some("A")),
            ("two", Some("A > B c d")),
            ("three", Some("A > B c d > C")),
            ("four", Some("A > D")),
            ("# E", Some("E")),
            ("five", Some("E")),
        ] {
            assert_eq!(path_at(text, needle).as_deref(), path, "{needle}");
        }
    }

    #[test]
    fn a_code_fence_holds_no_headings() {
        let text = "# Setup\n```sh\n# install it\nmake\n```\n~~~\n# this neither\n~~~\n    # nor this\n\nend";
        assert_eq!(path_at(text, "make").as_deref(), Some("Setup"));
        assert_eq!(path_at(text, "end").as_deref(), Some("Setup"));
    }

    #[test]
    fn a_line_of_dashes_makes_no_heading() {
        assert_eq!(path_at("# A\ntable row\n---\nrest", "rest").as_deref(), Some("A"));
    }

    #[test]
    fn a_long_heading_is_cut_and_an_empty_one_closes_only() {
        assert_eq!(path_at(&format!("# {}\nx\n", "가".repeat(500)), "x").unwrap().chars().count(), 120);
        assert_eq!(path_at("# A\n## B\n##\nrest", "rest").as_deref(), Some("A"));
    }

    #[test]
    fn headings_stay_open_over_sections() {
        let mut headings = Headings::default();
        headings.read("# A\n## B\ntext");
        headings.read("more\n## C\nend");
        assert_eq!(headings.path_at(0), Some("A > B"));
        assert_eq!(headings.path_at(6), Some("A > C"));
    }
}
