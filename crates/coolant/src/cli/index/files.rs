//! The files that were meant, and their names as documents.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use walkdir::WalkDir;

use super::super::CommandError;
use crate::engine::documents::MAX_DOCUMENT;

/// A file to be indexed.
pub(super) struct Found {
    /// The document's id: the path as it was given, without `.` and doubled slashes.
    pub(super) name: String,
    /// Where it is.
    pub(super) path: PathBuf,
}

/// Longest name that is used as it is; a longer one keeps its end and gets a hash.
const LONGEST_NAME: usize = 384;

/// Something at the paths that is no file and no folder.
pub(super) struct LeftOut {
    /// Its name, as a document's would be.
    pub(super) name: String,
    /// Why it is left out.
    pub(super) why: &'static str,
}

/// All files under the paths, each once, in the order of their names, and what was left out. What begins
/// with a dot is passed over, unless it was named itself; links to folders are not followed.
pub(super) fn find(paths: &[PathBuf]) -> Result<(Vec<Found>, Vec<LeftOut>), CommandError> {
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for path in paths {
        if !path.exists() {
            return Err(CommandError::Usage(format!("`{}` does not exist", path.display())));
        }
        let walk = WalkDir::new(path).sort_by_file_name().into_iter();
        let visible = walk.filter_entry(|entry| {
            entry.depth() == 0 || !entry.file_name().to_string_lossy().starts_with('.')
        });
        for entry in visible {
            let (path, why_not) = match entry {
                Ok(entry) if entry.file_type().is_dir() => continue,
                Ok(entry) => (entry.path().to_owned(), no_file(entry.path(), entry.depth())),
                // A folder that may not be read is a failed document, by its name, not the end.
                Err(error) => match error.path() {
                    Some(path) => (path.to_owned(), None),
                    None => continue,
                },
            };
            let name = name(&path);
            match why_not {
                _ if !seen.insert(name.clone()) => {}
                None => found.push(Found { name, path }),
                Some(why) => left_out.push(LeftOut { name, why }),
            }
        }
    }
    if found.is_empty() {
        return Err(CommandError::Usage("there are no files to index at these paths".into()));
    }
    Ok((found, left_out))
}

/// Why something is no file to be read; a pipe or a device could block for ever, or never end.
fn no_file(path: &Path, depth: usize) -> Option<&'static str> {
    match std::fs::metadata(path) {
        Ok(about) if about.is_file() => None,
        // The folder that a named link leads to is walked.
        Ok(about) if about.is_dir() && depth == 0 => Some("a folder"),
        Ok(about) if about.is_dir() => Some("a link to a folder"),
        Ok(_) => Some("no file"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some("a link that leads nowhere"),
        Err(_) => Some("a link that cannot be followed"),
    }
}

fn name(path: &Path) -> String {
    let plain: PathBuf = path.components().filter(|part| !matches!(part, Component::CurDir)).collect();
    let text = plain.to_string_lossy();
    let mut name = printable(&text);
    let is_exact = matches!(text, std::borrow::Cow::Borrowed(_)) && name == text;
    if name.len() > LONGEST_NAME || !is_exact {
        // Two names that look alike once they are cut or mended must stay two documents.
        let hash = blake3::hash(plain.as_os_str().as_encoded_bytes()).to_hex();
        let mut start = name.len().saturating_sub(LONGEST_NAME - 18);
        while !name.is_char_boundary(start) {
            start += 1;
        }
        name = format!("{}~{}", &hash[..16], &name[start..]);
    }
    name
}

/// A name without what would break a line, an id or a terminal.
pub(super) fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A file's bytes, or the code and reason why it has none.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, (&'static str, String)> {
    use std::io::Read;
    let unreadable = |error: std::io::Error| ("UNREADABLE", format!("the file cannot be read: {error}"));
    let file = std::fs::File::open(path).map_err(unreadable)?;
    // Read no further than the limit: a file may grow while it is read.
    let mut bytes = Vec::new();
    file.take(MAX_DOCUMENT as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > MAX_DOCUMENT {
        let mib = MAX_DOCUMENT >> 20;
        return Err(("DOCUMENT_TOO_LARGE", format!("the file has more than {mib} MiB; split it")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_file_has_one_name_however_it_was_written() {
        assert_eq!(name(Path::new("./docs//a.md")), "docs/a.md");
        assert_eq!(name(Path::new("docs/a.md")), "docs/a.md");
        assert_eq!(name(Path::new("/docs/가.md")), "/docs/가.md");
    }

    #[test]
    fn names_that_cannot_be_ids_stay_apart() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let (a, b) = (OsStr::from_bytes(b"x\xff"), OsStr::from_bytes(b"x\xfe"));
        assert_ne!(name(Path::new(a)), name(Path::new(b)));
        let long = |end: &str| name(Path::new(&format!("{}{end}", "가/".repeat(300))));
        assert!(long("a").len() <= LONGEST_NAME);
        assert_ne!(long("a"), long("b"));
        assert_ne!(name(Path::new("a\nb")), name(Path::new("a\rb")));
    }
}
