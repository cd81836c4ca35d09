//! The ledger over HTTP.

use axum::extract::State;

use super::App;
use super::extract::{Call, Query};
use super::problem::{AnyProblem, Problem};
use super::wire::ledger::{
    LedgerQuery, LedgerRowView, LedgerSumView, SummaryQuery, ledger_cursor, read_ledger_cursor,
};
use super::wire::{Items, ListPage};

/// Paid calls, newest first.
#[utoipa::path(get, path = "/ledger", tag = "ledger", params(LedgerQuery),
    responses((status = 200, body = ListPage<LedgerRowView>), AnyProblem))]
pub(crate) async fn list(
    State(app): State<App>,
    call: Call,
    Query(query): Query<LedgerQuery>,
) -> Result<axum::Json<ListPage<LedgerRowView>>, Problem> {
    let (limit, before) = (query.limit, read_ledger_cursor(query.cursor.as_deref())?);
    let page = app.engine.ledger(&call.caller, query.question()?, limit, before).await?;
    let items = page.items.into_iter().map(Into::into).collect();
    Ok(axum::Json(ListPage { items, next_cursor: page.next.map(ledger_cursor) }))
}

/// Paid calls added up: by upstream, tenant or type the highest cost first, by day the newest first.
#[utoipa::path(get, path = "/ledger/summary", tag = "ledger", params(SummaryQuery),
    responses((status = 200, body = Items<LedgerSumView>), AnyProblem))]
pub(crate) async fn summary(
    State(app): State<App>,
    call: Call,
    Query(query): Query<SummaryQuery>,
) -> Result<axum::Json<Items<LedgerSumView>>, Problem> {
    let by = query.by.0;
    let sums = app.engine.ledger_sums(&call.caller, by, query.question()?).await?;
    Ok(axum::Json(Items { items: sums.into_iter().map(Into::into).collect() }))
}
