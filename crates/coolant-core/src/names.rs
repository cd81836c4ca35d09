//! Names that users give: checked once where they come in, never again.

use serde::{Deserialize, Serialize};

/// Why a text cannot be the name it was meant to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// Nothing there.
    #[error("`{field}` must not be empty")]
    Empty {
        /// The field that was given.
        field: &'static str,
    },
    /// Longer than the limit.
    #[error("`{field}` has {len} bytes; at most {max} are allowed")]
    TooLong {
        /// The field that was given.
        field: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The longest allowed, in bytes.
        max: usize,
    },
    /// A control character (NUL, newline, escape) in it: such a name breaks logs and databases.
    #[error("`{field}` holds a control character (U+{code:04X})")]
    Control {
        /// The field that was given.
        field: &'static str,
        /// The character's code point.
        code: u32,
    },
}

fn check(field: &'static str, text: &str, max: usize) -> Result<(), InvalidName> {
    if text.is_empty() {
        return Err(InvalidName::Empty { field });
    }
    if text.len() > max {
        return Err(InvalidName::TooLong { field, len: text.len(), max });
    }
    match text.chars().find(|c| c.is_control()) {
        Some(c) => Err(InvalidName::Control { field, code: c.into() }),
        None => Ok(()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $field:literal, $max:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $type(String);

        impl $type {
            /// The longest that is allowed, in bytes.
            pub const MAX: usize = $max;

            /// Checks the text: 1 byte to [`Self::MAX`], no control characters.
            ///
            /// # Errors
            /// [`InvalidName`], naming the field and the limit.
            pub fn parse(text: impl Into<String>) -> Result<Self, InvalidName> {
                let text = text.into();
                check($field, &text, $max)?;
                Ok(Self(text))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.0
            }
        }
    };
}

name!(
    /// Which handler runs a job, such as `DOCUMENT_INDEX`.
    JobType, "job_type", 128
);
name!(
    /// A named line of jobs.
    Queue, "queue", 128
);
name!(
    /// On whose behalf a job runs. Keys are unique within a tenant.
    Tenant, "tenant", 128
);
name!(
    /// The caller's name for one piece of work: the same key is the same job.
    IdempotencyKey, "idempotency_key", 512
);
name!(
    /// A name shared by jobs of which one runs at a time.
    LockKey, "lock_key", 512
);
name!(
    /// The name of a leaky lock, which needs no job.
    LockName, "key", 512
);
name!(
    /// A paid service: `{provider}/{model}` for the built-in ones.
    Upstream, "upstream", 128
);
name!(
    /// The name of a key that paid services are paid with; never the key itself.
    Credential, "credential", 128
);
name!(
    /// A finished, kept piece of a job.
    StepName, "step", 128
);
name!(
    /// The caller's name for a schedule.
    ScheduleName, "name", 128
);
name!(
    /// The caller's name for a document.
    DocumentId, "document_id", 512
);

impl JobType {
    /// What the ledger names a paid call by that a worker made for no job.
    #[must_use]
    pub fn none() -> Self {
        Self("PAID_CALL".into())
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self("default".into())
    }
}

impl Default for Tenant {
    fn default() -> Self {
        Self("default".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_break_a_log_or_a_database_is_refused() {
        assert!(matches!(Queue::parse(""), Err(InvalidName::Empty { field: "queue" })));
        assert!(matches!(Queue::parse("a\0b"), Err(InvalidName::Control { code: 0, .. })));
        assert!(matches!(Queue::parse("x".repeat(129)), Err(InvalidName::TooLong { len: 129, .. })));
        assert_eq!(IdempotencyKey::parse("문서:42").unwrap().as_str(), "문서:42");
    }
}
