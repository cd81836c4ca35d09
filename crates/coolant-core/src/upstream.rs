//! Upstreams: the paid services that jobs use, and the leave to make one paid call of them.
//!
//! ```text
//!  a job that names it        a paid call
//!          │ claim                 │ permit
//!          ▼                       ▼
//!       [`Breaker`] ── closed? ── [`Meter`] ── room? ── the call ── settle: real usage, class of a failure
//!          ▲                                                        │
//!          └────────────── closes, or opens after a probe ◀─────────┘
//! ```
//!
//! Always true:
//! - while an upstream is closed no call to it is permitted and no job that names it is claimed, but for one
//!   probe once its time has come;
//! - the latest deadline that anybody reported counts; a shorter one never shortens it;
//! - only a success of the probe, or an operator, opens it, and then at a bounded ramp;
//! - while a provider's word on what is left of its limits holds, no more begins than is left, calls in flight
//!   counted as large as they may be;
//! - what a permit takes it gives back: with its settle the difference to what was really used, with its end
//!   (the lease's, or [`PERMIT_LIFE`]) all of what it had reserved.
//!
//! Elsewhere: how a failure gets its class (`evidence`), what it does to a job (`lifecycle`), where upstreams
//! are kept (the store behind [`UpstreamStore`]).

mod admit;
mod blockage;
mod breaker;
mod bucket;
mod desk;
mod limits;
mod meter;
mod permit;
mod room;
mod store;

use std::time::Duration;

pub use admit::{Ask, BreakerNow, Denial, Denied, Live, Party, admit, close, settle};
pub use blockage::Blockage;
pub use breaker::{Allowance, Breaker, BreakerState, Closure, Report, Starter};
pub use bucket::Bucket;
pub use desk::{Desk, TenantRecord, UpstreamRecord};
pub use limits::{Limits, Per, Rate, UpstreamSettings};
pub use meter::{Meter, day_of, end_of_day};
pub use permit::{
    ClosedWhat, MOST_TOKENS, Permit, PermitId, PermitRequest, PermitSettlement, SettledPermit, Spending,
    Verdict,
};
pub use room::{Left, Room};
pub use store::{Control, NoPermit, TenantNow, UpstreamNow, UpstreamStore};

/// How long a permit lives that belongs to no job, and its reservation with it.
pub const PERMIT_LIFE: Duration = Duration::from_secs(120);
