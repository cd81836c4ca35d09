//! Wire: the shapes of everything that goes over HTTP. No other module knows them.

pub(crate) mod dlq;
pub(crate) mod documents;
pub(crate) mod job;
pub(crate) mod ledger;
pub(crate) mod locks;
pub(crate) mod named;
pub(crate) mod object;
pub(crate) mod ops;
pub(crate) mod query;
pub(crate) mod schedules;
pub(crate) mod submit;
pub(crate) mod time;
pub(crate) mod upstreams;
pub(crate) mod work;

use serde::Serialize;
use utoipa::ToSchema;

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ListPage<T: ToSchema> {
    /// Newest first.
    pub(crate) items: Vec<T>,
    /// Gives the next page as `cursor`; null at the end.
    pub(crate) next_cursor: Option<String>,
}

/// All of a short list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Items<T: ToSchema> {
    /// All of them.
    pub(crate) items: Vec<T>,
}
