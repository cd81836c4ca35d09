//! The last turn of each tenant: kept with the attempt that took it, so that every process finds it and no two
//! write to one row.

use std::collections::BTreeMap;

use coolant_core::names::Tenant;
use coolant_core::store::StoreResult;
use coolant_core::turns::{Kind as Asked, Turn};

use crate::conn::{Columns, Conn, Kind};
use crate::sql::codec::name;

/// The last turn of a tenant among requests of a kind, one step down the index.
pub(crate) fn last_turn(asked: &str, tenant: &str) -> String {
    format!(
        "(SELECT t.turn FROM attempts t WHERE t.turn_among = {asked} AND t.turn_of {{bytewise}} = {tenant} \
         AND t.turn IS NOT NULL ORDER BY t.turn DESC LIMIT 1)"
    )
}

/// The last turns of these tenants, of those that had one.
pub(crate) async fn last_turns<'t>(
    conn: &mut Conn,
    asked: Asked,
    tenants: impl IntoIterator<Item = &'t Tenant>,
) -> StoreResult<BTreeMap<Tenant, Turn>> {
    let rows = tenants.into_iter().map(|tenant| vec![tenant.as_str().into()]).collect();
    let text = format!("SELECT r.tenant, {}", last_turn("$1", "r.tenant"));
    let tenant: Columns<'_> = &[("tenant", Kind::Text)];
    let mut last = BTreeMap::new();
    for mut row in conn.query_for_each(&text, &[asked.number().into()], tenant, rows).await? {
        let tenant = name(Tenant::parse(row.text()?))?;
        if let Some(turn) = row.maybe_int()? {
            last.insert(tenant, Turn::from_number(turn));
        }
    }
    Ok(last)
}
