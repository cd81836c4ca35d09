//! Gates: which jobs a claim may give out, by the upstreams they name.
//!
//! Jobs that name the same upstreams wait behind the same gate, so that a claim passes over all of them at
//! once while one of these upstreams is closed.
//!
//! Elsewhere: what an upstream lets through (`upstream`), which job of an open gate goes first (`turns`).

use crate::names::Upstream;

/// The upstreams of a job as one text: their names in the order of their bytes, each once. Empty for a job
/// without any.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gate(String);

/// Between two names. Names hold no control characters.
const SEPARATOR: char = '\u{1f}';

impl Gate {
    /// The gate of a job that names these upstreams.
    #[must_use]
    pub fn of(upstreams: &[Upstream]) -> Self {
        let mut names: Vec<&str> = upstreams.iter().map(Upstream::as_str).collect();
        names.sort_unstable();
        names.dedup();
        Self(names.join(&SEPARATOR.to_string()))
    }

    /// A gate as a store kept it.
    #[must_use]
    pub const fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// The text that a store keeps.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The names of its upstreams.
    pub fn upstreams(&self) -> impl Iterator<Item = &str> {
        self.0.split(SEPARATOR).filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(name: &str) -> Upstream {
        Upstream::parse(name).expect("a name")
    }

    fn gate(names: &[&str]) -> Gate {
        Gate::of(&names.iter().map(|name| upstream(name)).collect::<Vec<_>>())
    }

    #[test]
    fn the_same_upstreams_are_one_gate_in_whatever_order() {
        assert_eq!(gate(&["b", "a", "b"]), gate(&["a", "b"]));
        assert_eq!(gate(&["a", "b"]).as_str(), "a\u{1f}b");
        assert_eq!(gate(&["B", "a", "é", "z"]).upstreams().collect::<Vec<_>>(), ["B", "a", "z", "é"]);
        assert_eq!(gate(&[]), Gate::default());
        assert_eq!(gate(&[]).upstreams().count(), 0);
    }
}
