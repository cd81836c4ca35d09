//! Markdown and plain text: already text, so only cleaned.

use crate::clean;

/// Markdown with its title.
pub(crate) struct Markdown {
    pub(crate) title: Option<String>,
    pub(crate) markdown: String,
}

/// Cleans Markdown and finds its title: the front matter's, or the first top heading.
pub(crate) fn markdown(raw: &str) -> Markdown {
    let cleaned = clean::markdown(raw);
    let (front_matter, body) = split_front_matter(&cleaned);
    let title = front_matter.and_then(front_matter_title).or_else(|| first_heading(body));
    // Its lines stay searchable, but not its fences: the last one would make a heading of them.
    let markdown = match front_matter {
        Some(front_matter) if !front_matter.trim().is_empty() => {
            format!("{}\n\n{}", front_matter.trim(), body.trim_start_matches('\n')).trim_end().to_owned()
        }
        _ => body.trim_start_matches('\n').to_owned(),
    };
    Markdown { title, markdown }
}

fn split_front_matter(text: &str) -> (Option<&str>, &str) {
    let split = || {
        let rest = text.strip_prefix("---\n")?;
        let end = rest.find("\n---\n").or_else(|| rest.strip_suffix("\n---").map(str::len))?;
        // A rule between two paragraphs looks the same, but its text has no `key:` at the start.
        let is_front_matter = rest[..end].lines().next().is_some_and(|line| line.contains(':'));
        let body = rest.get(end + "\n---\n".len()..).unwrap_or("");
        is_front_matter.then_some((Some(&rest[..end]), body))
    };
    split().unwrap_or((None, text))
}

fn front_matter_title(front_matter: &str) -> Option<String> {
    let title = front_matter.lines().find_map(|line| line.strip_prefix("title:"))?;
    let title = clean::line(title.trim().trim_matches(['"', '\'']));
    (!title.is_empty()).then_some(title)
}

fn first_heading(body: &str) -> Option<String> {
    let mut in_fence = false;
    body.lines().find_map(|line| {
        if line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~") {
            in_fence = !in_fence;
        }
        let heading = line.strip_prefix("# ").filter(|_| !in_fence)?;
        Some(clean::line(heading.trim_end_matches('#'))).filter(|title| !title.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::markdown;

    #[test]
    fn front_matter_gives_the_title_and_no_heading() {
        let read = markdown("\u{FEFF}---\ntitle: \"Guide\"\ntags: [a]\n---\n# 색인 안내\n\ntext\n");
        assert_eq!(read.title.as_deref(), Some("Guide"));
        assert_eq!(read.markdown, "title: \"Guide\"\ntags: [a]\n\n# 색인 안내\n\ntext");
    }

    #[test]
    fn without_front_matter_the_first_top_heading_is_the_title() {
        let read = markdown("## Low\n```\n# no heading\n```\n# High #\ntext");
        assert_eq!(read.title.as_deref(), Some("High"));
    }

    #[test]
    fn a_rule_is_no_front_matter() {
        assert_eq!(markdown("---\n\ntext\n\n---\n").markdown, "---\n\ntext\n\n---");
    }
}
