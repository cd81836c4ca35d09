//! Gates: which jobs a claim may give out, by the upstreams they name.
//!
//! Jobs that name the same upstreams wait behind the same gate, so that a claim passes over all of them at
//! once while one of these upstreams is closed.
//!
//! Elsewhere: what closes an upstream (the store), which job of an open gate goes first (`turns`).

use std::collections::BTreeMap;

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

/// How many jobs of a gate a claim may give out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// None: an upstream is closed.
    None,
    /// That many, at least 1: an upstream is being probed, or opens slowly.
    AtMost(u32),
    /// Any number.
    Any,
}

/// What one claim may give out of each gate. An upstream that is not limited is open.
#[derive(Debug, Clone, Default)]
pub struct Gates {
    left: BTreeMap<String, u32>,
}

impl Gates {
    /// Lets that many jobs that name the upstream through, in all of this claim; 0 closes it. Of two limits
    /// the lower one holds.
    pub fn limit(&mut self, upstream: &Upstream, at_most: u32) {
        let left = self.left.entry(upstream.as_str().to_owned()).or_insert(at_most);
        *left = at_most.min(*left);
    }

    /// How many more jobs of a gate may pass: as many as the tightest of its upstreams lets through.
    #[must_use]
    pub fn allowance(&self, gate: &Gate) -> Allowance {
        match gate.upstreams().filter_map(|name| self.left.get(name)).min() {
            None => Allowance::Any,
            Some(0) => Allowance::None,
            Some(left) => Allowance::AtMost(*left),
        }
    }

    /// Lets one job through, which then counts for each of its upstreams. Gives whether it may pass.
    pub fn admit(&mut self, gate: &Gate) -> bool {
        if self.allowance(gate) == Allowance::None {
            return false;
        }
        for name in gate.upstreams() {
            if let Some(left) = self.left.get_mut(name) {
                *left = left.saturating_sub(1);
            }
        }
        true
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

    #[test]
    fn a_closed_upstream_closes_each_gate_that_names_it_and_no_other() {
        let mut gates = Gates::default();
        gates.limit(&upstream("u"), 0);
        assert!(!gates.admit(&gate(&["u"])) && !gates.admit(&gate(&["u", "v"])));
        assert_eq!(gates.allowance(&gate(&["u", "v"])), Allowance::None);
        assert!(gates.admit(&gate(&["v"])) && gates.admit(&gate(&[])));
        assert_eq!(gates.allowance(&gate(&["v"])), Allowance::Any);
    }

    #[test]
    fn gates_that_share_an_upstream_share_its_allowance() {
        let mut gates = Gates::default();
        gates.limit(&upstream("u"), 3);
        gates.limit(&upstream("u"), 2);
        gates.limit(&upstream("u"), 5);
        assert_eq!(gates.allowance(&gate(&["u"])), Allowance::AtMost(2));
        assert!(gates.admit(&gate(&["u"])) && gates.admit(&gate(&["u", "v"])));
        assert!(!gates.admit(&gate(&["u"])));
    }
}
