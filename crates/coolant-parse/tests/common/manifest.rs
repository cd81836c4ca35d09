//! Real files with their right results, from the folder that `COOLANT_CASES` names.

use std::path::PathBuf;

use serde::Deserialize;

#[derive(Deserialize)]
pub struct Manifest {
    pub cases: Vec<Case>,
}

#[derive(Deserialize)]
pub struct Case {
    pub file: String,
    pub encoding: Option<String>,
    pub expect: Expect,
}

#[derive(Deserialize)]
pub struct Expect {
    pub kind: String,
    #[serde(default)]
    pub must_contain: Vec<String>,
    #[serde(default)]
    pub must_not_contain: Vec<String>,
}

/// The folder of a kind of files, and its manifest; `None`, and a line that says so, where no folder is named.
pub fn read(kind: &str) -> Option<(PathBuf, Manifest)> {
    let Some(cases) = std::env::var_os("COOLANT_CASES") else {
        println!("skipped: cases (COOLANT_CASES names no folder, so the {kind} cases were not run)");
        return None;
    };
    let folder = PathBuf::from(cases).join(kind);
    let manifest = std::fs::read_to_string(folder.join("manifest.json")).unwrap();
    Some((folder, serde_json::from_str(&manifest).unwrap()))
}
