//! Names of a fixed set on the wire: each comes from the one list that the rules keep.

use coolant_core::failure::FailureClass;
use coolant_core::job::{Outcome, Status};
use coolant_core::ledger::LedgerBy;
use coolant_core::schedule::CatchUp;
use coolant_core::store::{IfFailed, RedriveState};
use coolant_core::view::Phase;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::engine::documents::SearchMode;
use crate::engine::explain::ReasonKind;

/// A value of a fixed set, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named<T>(pub(crate) T);

/// See [`Status`].
pub(crate) type StatusName = Named<Status>;
/// See [`Phase`].
pub(crate) type PhaseName = Named<Phase>;
/// See [`FailureClass`].
pub(crate) type ClassName = Named<FailureClass>;
/// See [`Outcome`].
pub(crate) type OutcomeName = Named<Outcome>;
/// See [`IfFailed`].
pub(crate) type IfFailedName = Named<IfFailed>;
/// See [`RedriveState`].
pub(crate) type RedriveStateName = Named<RedriveState>;
/// See [`CatchUp`].
pub(crate) type CatchUpName = Named<CatchUp>;
/// See [`LedgerBy`].
pub(crate) type LedgerByName = Named<LedgerBy>;
/// See [`SearchMode`].
pub(crate) type SearchModeName = Named<SearchMode>;
/// See [`ReasonKind`].
pub(crate) type ReasonName = Named<ReasonKind>;

/// A fixed set of values with names.
pub(crate) trait NameSet: Copy + 'static {
    /// What the set is called in the description of the API.
    const SET: &'static str;
    /// All of them.
    const MEMBERS: &'static [Self];
    /// The name of one.
    fn member_name(self) -> &'static str;
}

macro_rules! names {
    ($type:ty, $set:literal, $members:expr) => {
        impl NameSet for $type {
            const SET: &'static str = $set;
            const MEMBERS: &'static [Self] = &$members;
            fn member_name(self) -> &'static str {
                self.as_str()
            }
        }
    };
    ($type:ident, $set:literal, $($member:ident = $name:literal),+) => {
        impl NameSet for $type {
            const SET: &'static str = $set;
            const MEMBERS: &'static [Self] = &[$(Self::$member),+];
            fn member_name(self) -> &'static str {
                match self {
                    $(Self::$member => $name,)+
                }
            }
        }
    };
}

names!(Status, "Status", Status::ALL);
names!(Phase, "Phase", Phase::ALL);
names!(FailureClass, "FailureClass", FailureClass::ALL);
names!(Outcome, "Outcome", Outcome::ALL);
names!(LedgerBy, "LedgerBy", LedgerBy::ALL);
names!(IfFailed, "IfFailed", Return = "return", Retry = "retry");
names!(RedriveState, "RedriveState", Running = "running", Done = "done", Stopped = "stopped");
names!(CatchUp, "CatchUp", Skip = "skip", Latest = "latest", All = "all");
names!(SearchMode, "SearchMode", Hybrid = "hybrid", Vector = "vector", Text = "text");
names!(
    ReasonKind,
    "ReasonKind",
    Cooling = "cooling",
    UpstreamClosed = "upstream_closed",
    RateLimited = "rate_limited",
    Concurrency = "concurrency",
    Budget = "budget",
    LockHeld = "lock_held",
    Scheduled = "scheduled",
    BehindInQueue = "behind_in_queue",
    NoWorker = "no_worker"
);

impl<T: NameSet> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.member_name())
    }
}

impl<'de, T: NameSet> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let found = T::MEMBERS.iter().copied().find(|member| member.member_name() == text);
        found.map(Self).ok_or_else(|| {
            let names: Vec<_> = T::MEMBERS.iter().map(|member| member.member_name()).collect();
            serde::de::Error::custom(format_args!("takes one of {}", names.join(", ")))
        })
    }
}

impl<T: NameSet> PartialSchema for Named<T> {
    fn schema() -> RefOr<Schema> {
        let names = T::MEMBERS.iter().map(|member| member.member_name());
        ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names)).into()
    }
}

impl<T: NameSet> ToSchema for Named<T> {
    fn name() -> std::borrow::Cow<'static, str> {
        T::SET.into()
    }
}
