//! The laws of the code's layout. Each reads the sources, and says what to do when it is broken.
#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

use std::path::{Path, PathBuf};

/// A line of code outside tests and comments.
struct Line {
    file: String,
    number: usize,
    text: String,
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn files_under(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files_under(&path, files),
            false => files.push(path),
        }
    }
}

/// Every line of code of every crate's `src`, by its path from the workspace.
fn all_code() -> Vec<Line> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(workspace().join("crates")).unwrap() {
        files_under(&entry.unwrap().path().join("src"), &mut files);
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    files.sort();
    assert!(files.len() > 10, "the sources are where this test looks for them");
    files.iter().flat_map(|path| code_of(path)).collect()
}

fn code_of(path: &Path) -> Vec<Line> {
    let file = path.strip_prefix(workspace()).unwrap().to_str().unwrap().replace('\\', "/");
    let is_test =
        ["/tests/", "/tests.rs", "_test.rs", "/conformance/"].iter().any(|part| file.contains(part));
    if is_test {
        return Vec::new();
    }
    code_in(&file, &std::fs::read_to_string(path).unwrap())
}

/// The code of a text: without comments, and without what stands under `#[cfg(test)]`.
fn code_in(file: &str, text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut skipped_indent: Option<usize> = None;
    let mut gate = false;
    for (index, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        if let Some(outer) = skipped_indent {
            if indent == outer && line.trim_start().starts_with('}') {
                skipped_indent = None;
            }
            continue;
        }
        let code = line.split("//").next().unwrap_or_default();
        if gate {
            gate = code.trim_start().starts_with("#[");
            if code.trim_end().ends_with('{') {
                skipped_indent = Some(indent);
            }
            continue;
        }
        gate = code.trim() == "#[cfg(test)]";
        if !gate && !code.trim().is_empty() {
            lines.push(Line { file: file.to_owned(), number: index + 1, text: code.to_owned() });
        }
    }
    lines
}

/// Lines that break a law.
fn breaches(code: &[Line], breaks: impl Fn(&Line) -> bool) -> Vec<String> {
    let broken = code.iter().filter(|line| breaks(line));
    broken.map(|line| format!("{}:{}: {}", line.file, line.number, line.text.trim())).collect()
}

#[track_caller]
fn obeyed(law: &str, instead: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{law}.\n{instead}\n\n{}\n", broken.join("\n"));
}

fn is_core(line: &Line) -> bool {
    line.file.starts_with("crates/coolant-core/src/")
}

/// The names under a table of a manifest.
fn dependencies(manifest: &str, table: &str) -> Vec<String> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if let Some(header) = line.trim().strip_prefix('[') {
            inside = header.trim_end_matches(']') == table;
        } else if inside && let Some((name, _)) = line.split_once('=') {
            names.push(name.trim().split('.').next().unwrap().to_owned());
        }
    }
    names
}

fn manifest(name: &str) -> String {
    std::fs::read_to_string(workspace().join("crates").join(name).join("Cargo.toml")).unwrap()
}

fn has_word(text: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let goes_on_before = before.is_some_and(is_name) && word.starts_with(is_name);
        let goes_on_after = after.is_some_and(is_name) && word.ends_with(is_name);
        !goes_on_before && !goes_on_after
    })
}

const IO: [&str; 12] = [
    "std::fs",
    "std::net",
    "std::env",
    "std::io",
    "std::process",
    "std::thread",
    "SystemTime::now",
    "Instant::now",
    "rand::",
    "tokio",
    "now_v7",
    "new_v4",
];

fn does_io(line: &Line) -> bool {
    let grouped = line.text.contains("std::{");
    IO.iter().any(|word| {
        let inner = word.strip_prefix("std::").filter(|_| grouped);
        has_word(&line.text, word) || inner.is_some_and(|inner| has_word(&line.text, inner))
    })
}

#[test]
fn the_core_has_no_io_clock_or_dice() {
    obeyed(
        "coolant-core holds rules: time, tokens and randomness come in as values",
        "Take the value as an argument, and read the file, clock or dice in the crate that calls.",
        &breaches(&all_code(), |line| is_core(line) && does_io(line)),
    );
}

#[test]
fn the_core_depends_on_nothing_that_could_do_io() {
    const ALLOWED: [&str; 7] =
        ["async-trait", "blake3", "futures", "serde", "serde_json", "thiserror", "uuid"];
    let others: Vec<_> = dependencies(&manifest("coolant-core"), "dependencies")
        .into_iter()
        .filter(|name| !ALLOWED.contains(&name.as_str()))
        .collect();
    obeyed(
        "coolant-core depends on a short list of crates that do no IO",
        "Use it in another crate; if it is free of IO, add it to the list in this test.",
        &others,
    );
}

#[test]
fn the_middle_crates_do_not_know_each_other() {
    let mut broken = Vec::new();
    for name in ["coolant-core", "coolant-backends", "coolant-parse", "coolant-ai"] {
        let manifest = manifest(name);
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let foreign = dependencies(&manifest, table)
                .into_iter()
                .filter(|other| other.starts_with("coolant") && other != "coolant-core" && other != name);
            broken.extend(foreign.map(|other| format!("{name} depends on {other}")));
        }
    }
    obeyed(
        "everything depends on coolant-core, and the crates in the middle do not know each other",
        "Put what both need into coolant-core, or join the two in coolant.",
        &broken,
    );
}

/// Whether a line makes a state, other than by a pattern: `x = JobState::Failed {`, `(JobState::Failed {`.
fn makes_a_state(line: &Line) -> bool {
    let text = line.text.trim();
    let is_pattern = text.contains("=>")
        || text.contains("matches!")
        || text.contains("let JobState::")
        || text.starts_with("JobState::")
        || text.starts_with("| JobState::")
        || text.contains("let (JobState::")
        || text.contains("Some(JobState::");
    let assigns = [".state = JobState::", "state: JobState::", "(JobState::", "= JobState::"];
    text.contains("JobState::") && !is_pattern && assigns.iter().any(|assign| text.contains(assign))
}

#[test]
fn only_the_lifecycle_decides_a_state() {
    const MAY: [&str; 3] = [
        "crates/coolant-core/src/lifecycle",
        // A job's first instant.
        "crates/coolant-core/src/store.rs",
        // What a row says.
        "crates/coolant-backends/src/sql/",
    ];
    obeyed(
        "only lifecycle decides a job's state; stores save it, handlers ask for it",
        "Send a lifecycle::Event through Store::apply. A store that reads a row does so in sql/.",
        &breaches(&all_code(), |line| {
            makes_a_state(line) && !MAY.iter().any(|part| line.file.starts_with(part))
        }),
    );
}

fn reads_the_environment(line: &Line) -> bool {
    ["env::var", "env::vars", "env::var_os"].iter().any(|word| has_word(&line.text, word))
}

#[test]
fn only_config_reads_the_environment() {
    obeyed(
        "only config reads the environment",
        "Add a setting to crates/coolant/src/config and hand its value down.",
        &breaches(&all_code(), |line| {
            reads_the_environment(line) && !line.file.starts_with("crates/coolant/src/config")
        }),
    );
}

fn speaks_http(line: &Line) -> bool {
    ["axum", "hyper", "utoipa"].iter().any(|word| has_word(&line.text, &format!("{word}::")))
}

#[test]
fn wire_types_live_in_the_http_module_alone() {
    const MAY: [&str; 2] = [
        "crates/coolant/src/http",
        // Somebody else's API, by the server that plays their part.
        "crates/coolant/src/cli/fake_provider/",
    ];
    obeyed(
        "wire types live only in coolant's http module",
        "Let the rest of the program use the types of coolant-core, and turn them into JSON in http/.",
        &breaches(&all_code(), |line| {
            speaks_http(line) && !MAY.iter().any(|part| line.file.starts_with(part))
        }),
    );
}

fn holds_sql(line: &Line) -> bool {
    const STARTS: [&str; 7] = [
        "SELECT ",
        "INSERT INTO ",
        "UPDATE ",
        "DELETE FROM ",
        "CREATE TABLE ",
        "ALTER TABLE ",
        "DROP TABLE ",
    ];
    let in_text = |start: &str| {
        line.text.match_indices(start).any(|(at, _)| {
            let before = line.text[..at].trim_end();
            before.is_empty() || before.ends_with(['"', '(', '\\'])
        })
    };
    STARTS.iter().any(|start| in_text(start))
}

#[test]
fn sql_is_written_in_the_backends_alone() {
    obeyed(
        "SQL text lives only in coolant-backends",
        "Ask the Store or DocumentStore trait; if it cannot say what you need, give it a method.",
        &breaches(&all_code(), |line| holds_sql(line) && !line.file.starts_with("crates/coolant-backends/")),
    );
}

// A law that cannot be broken says nothing: what each of them looks for is found in lines that break it.

fn line(text: &str) -> Line {
    Line { file: "crates/coolant-core/src/x.rs".into(), number: 1, text: text.into() }
}

#[test]
fn every_law_can_be_broken() {
    for text in ["let now = Instant::now();", "use std::{fmt, fs};", "tokio::spawn(x)", "rand::rng()"] {
        assert!(does_io(&line(text)), "{text}");
    }
    assert!(!does_io(&line("/// the instant; Instantly")));
    for text in [
        "job.state = JobState::Succeeded { at };",
        "let job = Job { state: JobState::Pending { visible_at, wait }, ..job };",
        "let state = JobState::Cancelled { at };",
        "self.save(JobState::Failed { at, reopen })",
    ] {
        assert!(makes_a_state(&line(text)), "{text}");
    }
    for text in [
        "JobState::Running { .. } => true,",
        "if let JobState::Running { lease, .. } = &job.state {",
        "matches!(job.state, JobState::Failed { .. })",
    ] {
        assert!(!makes_a_state(&line(text)), "{text}");
    }
    assert!(reads_the_environment(&line("let key = std::env::var(\"KEY\");")));
    assert!(reads_the_environment(&line("env::vars().collect()")));
    assert!(speaks_http(&line("use axum::Json;")));
    assert!(holds_sql(&line("db.query(\"SELECT id FROM jobs\")")));
    assert!(holds_sql(&line("    UPDATE jobs SET x = 1")));
    assert!(!holds_sql(&line("let help = \"press UPDATE to go on\";")));
    assert_eq!(
        dependencies("[dependencies]\na.workspace = true\nb = { path = \"b\" }\n[x]\nc = 1", "dependencies"),
        ["a", "b"]
    );
}

#[test]
fn tests_and_comments_are_no_code() {
    let text = "use a;\n// Instant\n#[cfg(test)]\nmod tests {\n    use tokio;\n}\nuse b; // tokio\n#[cfg(test)]\nmod x;\nuse c;\n";
    let seen: Vec<_> = code_in("x.rs", text).into_iter().map(|line| line.text.trim().to_owned()).collect();
    assert_eq!(seen, ["use a;", "use b;", "use c;"]);
}
