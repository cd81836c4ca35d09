//! Where a store is, as it is written on a command line.

use std::path::PathBuf;

/// Where a store is.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    /// A file on this machine.
    Sqlite(PathBuf),
    /// A PostgreSQL server's URL, password and all.
    Postgres(String),
}

/// Why a text is no store's address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no store: give `sqlite:PATH` or `postgres://USER@HOST/DATABASE`")]
pub struct InvalidAddress(String);

impl Address {
    /// Reads `sqlite:PATH` or `postgres://…`.
    ///
    /// # Errors
    /// [`InvalidAddress`], with what it should look like and without what could be a password.
    pub fn parse(text: &str) -> Result<Self, InvalidAddress> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.to_owned()));
        }
        match text.strip_prefix("sqlite:") {
            Some(path) if !path.is_empty() => Ok(Self::Sqlite(PathBuf::from(path))),
            _ => {
                // No further than the first colon: a password may stand anywhere behind it.
                let (shown, rest) = text.split_once(':').map_or((text, ""), |(scheme, _)| (scheme, ":…"));
                Err(InvalidAddress(shown.chars().take(60).chain(rest.chars()).collect()))
            }
        }
    }
}

/// The URL stays out of every log: it may hold a password.
impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(path) => f.debug_tuple("Sqlite").field(path).finish(),
            Self::Postgres(_) => f.write_str("Postgres([redacted])"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_shows_a_password() {
        for wrong in
            ["mysql://u:secret@h/d", "postgres:/u:secret@h", "sqlite:", "u:secret@h", "sqlit:x?secret"]
        {
            let error = Address::parse(wrong).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(Address::parse("mysql://h").unwrap_err().to_string().starts_with("`mysql:…` is no store"));
        let right = Address::parse("postgres://u:secret@h/d").unwrap();
        assert!(!format!("{right:?}").contains("secret"));
    }
}
