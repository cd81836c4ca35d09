//! The README's commands, as a reader would give them.

#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The commands in the README's `sh` blocks, continued lines joined.
fn commands() -> Vec<String> {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let blocks = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks
        .flat_map(|block| block.replace("\\\n", "").lines().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// Runs a command of the README in the project's folder, with the built program for `cargo run --release`.
fn run(command: &str, store: &Path) -> Output {
    let built = command.replace("cargo run --release --", env!("CARGO_BIN_EXE_coolant"));
    assert_ne!(built, command, "the command runs the program");
    Command::new("sh")
        .args(["-c", &built])
        .current_dir(root())
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap())
        .env("COOLANT_STORE", format!("sqlite:{}", store.display()))
        .output()
        .unwrap()
}

#[test]
fn the_first_command_indexes_and_the_second_finds() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("coolant.db");
    let commands = commands();
    let index = commands.iter().find(|command| command.contains(" index ")).unwrap();
    let search = commands.iter().find(|command| command.contains(" search ")).unwrap();

    let indexed = run(index, &store);
    let text = String::from_utf8(indexed.stdout).unwrap();
    assert!(indexed.status.success(), "{text}{}", String::from_utf8_lossy(&indexed.stderr));
    assert!(text.contains("0 failed") && !text.contains(" 0 new"), "{text}");

    let found = run(search, &store);
    let text = String::from_utf8(found.stdout).unwrap();
    assert!(found.status.success() && text.contains("README.md"), "{text}");

    let again = run(index, &store);
    let text = String::from_utf8(again.stdout).unwrap();
    assert!(again.status.success() && text.contains("chunks: 0 embedded, 0 reused"), "{text}");
}

#[test]
fn the_test_command_is_there_and_runs_everything() {
    assert!(commands().contains(&"scripts/test".to_owned()));
    let script = std::fs::read_to_string(root().join("scripts/test")).unwrap();
    for step in ["fmt", "clippy", "nextest", "--doc", "cargo doc"] {
        assert!(script.contains(step), "{step}");
    }
    let ci = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    assert!(ci.contains("scripts/test"));
}

#[test]
fn the_rust_example_is_the_one_that_runs() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let shown = readme.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    let lines = shown.lines().filter(|line| !line.trim().is_empty()).count();
    assert!(lines < 36, "{lines} lines");
    let example = root().join("crates/coolant/examples/embedded.rs");
    let example = std::fs::read_to_string(example).unwrap();
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    assert!(squeezed(&example).contains(&squeezed(shown)), "README.md and the example differ");
}
