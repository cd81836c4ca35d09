//! Upstreams, credentials and tenants' limits: locked, put on the desk, and kept as the desk left them.
//!
//! One order of locks holds for all writers, so that none waits for another in a circle: permits, jobs,
//! upstreams, credentials, tenants, each by name. What a transaction has to tell upstreams is therefore
//! gathered ([`Dealings`]) and dealt with at its end, before claims, which wait for no row of a job.

use std::collections::{BTreeMap, BTreeSet};

use coolant_core::job::{Job, JobId, LeaseToken};
use coolant_core::lifecycle::Event;
use coolant_core::money::Money;
use coolant_core::names::{Credential, Tenant, Upstream};
use coolant_core::store::StoreResult;
use coolant_core::time::Timestamp;
use coolant_core::upstream::{
    Breaker, Desk, Limits, Live, Meter, PermitSettlement, Report, SettledPermit, Spending, Starter,
    TenantNow, TenantRecord, UpstreamNow, UpstreamRecord, UpstreamSettings,
};

use crate::conn::{Columns, Conn, Kind, Row, Value};
use crate::sql::codec::{from_json, name, to_json};

/// What a transaction has to tell upstreams.
#[derive(Default)]
pub(crate) struct Dealings {
    /// Calls that are over, their permits marked as settled.
    pub(crate) settled: Vec<(Spending, PermitSettlement)>,
    /// Attempts that failed at an upstream.
    pub(crate) reports: Vec<(Upstream, Report)>,
    /// Jobs that went well, with the upstreams they name.
    pub(crate) successes: Vec<(Vec<Upstream>, Starter)>,
}

impl Dealings {
    pub(crate) fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.reports.is_empty() && self.successes.is_empty()
    }

    /// What the end of an attempt tells upstreams.
    pub(crate) fn hear(&mut self, job: &Job, event: &Event) {
        match event {
            Event::Fail { token, failure, .. } => {
                let name = failure.upstream.clone().and_then(|name| Upstream::parse(name).ok());
                self.reports.extend(name.map(|name| (name, Report::of_attempt(failure, job.id, *token))));
            }
            Event::Succeed { token, .. } if !job.spec.upstreams.is_empty() => {
                let by = Starter::Job { id: job.id, token: *token };
                self.successes.push((job.spec.upstreams.clone(), by));
            }
            _ => {}
        }
    }

    /// Tells everything; gives the answers to the settled calls, in their order.
    pub(crate) fn tell(self, desk: &mut Desk, now: Timestamp) -> Vec<SettledPermit> {
        let settled = self.settled.iter().map(|(call, settlement)| {
            let closed = desk.settle(call, settlement, now);
            SettledPermit { class: settlement.class(), closed, repeated: false }
        });
        let settled = settled.collect();
        for (upstream, report) in &self.reports {
            desk.report(upstream, report, now);
        }
        for (names, by) in &self.successes {
            desk.succeeded(names, *by, now);
        }
        settled
    }
}

/// Which rows a transaction needs.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// These upstreams, made if they are not there.
    pub(crate) upstreams: BTreeSet<Upstream>,
    /// The limits of these tenants, where they have any.
    pub(crate) tenants: BTreeSet<Tenant>,
    /// All that a claim has to look at.
    pub(crate) all_that_need_care: bool,
}

impl Needs {
    /// What it takes to tell these.
    pub(crate) fn of(dealings: &Dealings) -> Self {
        let settled = dealings.settled.iter().map(|(call, _)| call);
        Self {
            upstreams: settled
                .clone()
                .map(|call| call.upstream.clone())
                .chain(dealings.reports.iter().map(|(name, _)| name.clone()))
                .collect(),
            tenants: settled.map(|call| call.tenant.clone()).collect(),
            all_that_need_care: !dealings.successes.is_empty(),
        }
    }
}

/// The desk of a transaction, and how it was before.
pub(crate) struct Loaded {
    pub(crate) desk: Desk,
    before: Desk,
    /// Those whose rows say that they need care.
    marked: BTreeSet<Upstream>,
    marked_tenants: BTreeSet<Tenant>,
}

/// Locks what is needed and puts it on the desk.
pub(crate) async fn load(conn: &mut Conn, needs: &Needs, now: Timestamp) -> StoreResult<Loaded> {
    make(conn, &needs.upstreams).await?;
    let (upstreams, marked) = locked_upstreams(conn, needs).await?;
    let mut desk = Desk { upstreams, ..Desk::default() };
    let credentials: BTreeSet<Credential> =
        desk.upstreams.values().filter_map(|upstream| upstream.settings.credential.clone()).collect();
    desk.credentials = locked_credentials(conn, &credentials, needs.all_that_need_care).await?;
    let (tenants, marked_tenants) = locked_tenants(conn, needs).await?;
    desk.tenants = tenants;
    look_around(conn, &mut desk, now).await?;
    Ok(Loaded { before: desk.clone(), desk, marked, marked_tenants })
}

/// Keeps what has changed on the desk.
pub(crate) async fn save(conn: &mut Conn, loaded: Loaded, now: Timestamp) -> StoreResult<()> {
    let Loaded { mut desk, before, marked, marked_tenants } = loaded;
    desk.settle_down(now);
    let mut rows = Vec::new();
    for (name, upstream) in &desk.upstreams {
        let care = upstream.needs_care(now);
        let same = before
            .upstreams
            .get(name)
            .is_some_and(|was| (&was.breaker, &was.meter) == (&upstream.breaker, &upstream.meter));
        if !same || care != marked.contains(name) {
            rows.push(vec![
                name.as_str().into(),
                to_json(&upstream.breaker)?.into(),
                to_json(&upstream.meter)?.into(),
                i64::from(care).into(),
            ]);
        }
    }
    let columns: Columns<'_> =
        &[("name", Kind::Text), ("breaker", Kind::Text), ("meter", Kind::Text), ("care", Kind::Int)];
    let text = "UPDATE upstreams SET breaker = r.breaker, meter = r.meter, needs_care = r.care {from_rows} \
                WHERE upstreams.name = r.name";
    conn.execute_rows(text, &[], columns, rows).await?;
    let mut rows = Vec::new();
    for (name, breaker) in &desk.credentials {
        if before.credentials.get(name) != Some(breaker) {
            let care = i64::from(breaker.needs_care());
            rows.push(vec![name.as_str().into(), to_json(breaker)?.into(), care.into()]);
        }
    }
    let columns: Columns<'_> = &[("name", Kind::Text), ("breaker", Kind::Text), ("care", Kind::Int)];
    let text = "INSERT INTO credentials (name, breaker, needs_care) SELECT name, breaker, care FROM {rows} \
                WHERE true ON CONFLICT (name) DO UPDATE SET breaker = excluded.breaker, \
                needs_care = excluded.needs_care";
    conn.execute_rows(text, &[], columns, rows).await?;
    let mut rows = Vec::new();
    for (tenant, record) in &desk.tenants {
        let care = record.meter.is_exhausted(&record.limits, now);
        let same = before.tenants.get(tenant).is_some_and(|was| was.meter == record.meter);
        if !same || care != marked_tenants.contains(tenant) {
            let care = i64::from(care);
            rows.push(vec![tenant.as_str().into(), to_json(&record.meter)?.into(), care.into()]);
        }
    }
    let columns: Columns<'_> = &[("tenant", Kind::Text), ("meter", Kind::Text), ("care", Kind::Int)];
    let text = "UPDATE tenant_limits SET meter = r.meter, needs_care = r.care {from_rows} \
                WHERE tenant_limits.tenant = r.tenant";
    conn.execute_rows(text, &[], columns, rows).await?;
    Ok(())
}

const NAME: Columns<'_> = &[("name", Kind::Text)];

/// Sees to it that these upstreams have a row to lock.
pub(crate) async fn make(conn: &mut Conn, names: &BTreeSet<Upstream>) -> StoreResult<()> {
    let open = to_json(&Breaker::default())?;
    let params: [Value; 3] =
        [to_json(&UpstreamSettings::default())?.into(), open.into(), to_json(&Meter::default())?.into()];
    let rows = names.iter().map(|name| vec![name.as_str().into()]).collect();
    let text = "INSERT INTO upstreams (name, settings, breaker, meter, needs_care) \
                SELECT name, $1, $2, $3, 0 FROM {rows} WHERE true ON CONFLICT (name) DO NOTHING";
    conn.execute_rows(text, &params, NAME, rows).await?;
    Ok(())
}

/// `$n, $n+1, …` for a list of so many, after the first `before` parameters; `NULL` for none.
pub(crate) fn list(count: usize, before: usize) -> String {
    match count {
        0 => "NULL".to_owned(),
        _ => (1..=count).map(|n| format!("${}", before + n)).collect::<Vec<_>>().join(", "),
    }
}

/// That a claim has to look at an upstream `u`.
const NEEDS_CARE: &str =
    "(u.needs_care = 1 OR u.credential IN (SELECT c.name FROM credentials c WHERE c.needs_care = 1))";

const UPSTREAM_COLUMNS: &str = "u.name, u.settings, u.breaker, u.meter";

fn upstream_row(row: &mut Row) -> StoreResult<(Upstream, UpstreamRecord)> {
    let key = name(Upstream::parse(row.text()?))?;
    let settings = from_json(&row.text()?)?;
    let breaker = from_json(&row.text()?)?;
    let meter = from_json(&row.text()?)?;
    Ok((key, UpstreamRecord { settings, breaker, meter, live: Live::default() }))
}

async fn locked_upstreams(
    conn: &mut Conn,
    needs: &Needs,
) -> StoreResult<(BTreeMap<Upstream, UpstreamRecord>, BTreeSet<Upstream>)> {
    let care = if needs.all_that_need_care { format!("OR {NEEDS_CARE}") } else { String::new() };
    let text = format!(
        "SELECT {UPSTREAM_COLUMNS}, u.needs_care FROM upstreams u WHERE u.name IN ({}) {care} \
         ORDER BY u.name {{lock}}",
        list(needs.upstreams.len(), 0),
    );
    let params: Vec<Value> = needs.upstreams.iter().map(|name| name.as_str().into()).collect();
    let (mut found, mut marked) = (BTreeMap::new(), BTreeSet::new());
    for mut row in conn.query(&text, &params).await? {
        let (name, record) = upstream_row(&mut row)?;
        if row.int()? == 1 {
            marked.insert(name.clone());
        }
        found.insert(name, record);
    }
    Ok((found, marked))
}

async fn locked_credentials(
    conn: &mut Conn,
    names: &BTreeSet<Credential>,
    all_that_need_care: bool,
) -> StoreResult<BTreeMap<Credential, Breaker>> {
    if names.is_empty() && !all_that_need_care {
        return Ok(BTreeMap::new());
    }
    let text = format!(
        "SELECT name, breaker FROM credentials WHERE name IN ({}) {} ORDER BY name {{lock}}",
        list(names.len(), 0),
        if all_that_need_care { "OR needs_care = 1" } else { "" },
    );
    let params: Vec<Value> = names.iter().map(|name| name.as_str().into()).collect();
    let rows = conn.query(&text, &params).await?;
    rows.into_iter()
        .map(|mut row| Ok((name(Credential::parse(row.text()?))?, from_json(&row.text()?)?)))
        .collect()
}

async fn locked_tenants(
    conn: &mut Conn,
    needs: &Needs,
) -> StoreResult<(BTreeMap<Tenant, TenantRecord>, BTreeSet<Tenant>)> {
    let (mut found, mut marked) = (BTreeMap::new(), BTreeSet::new());
    if needs.tenants.is_empty() && !needs.all_that_need_care {
        return Ok((found, marked));
    }
    let text = format!(
        "SELECT tenant, limits, meter, needs_care FROM tenant_limits WHERE tenant IN ({}) {} \
         ORDER BY tenant {{lock}}",
        list(needs.tenants.len(), 0),
        if needs.all_that_need_care { "OR needs_care = 1" } else { "" },
    );
    let params: Vec<Value> = needs.tenants.iter().map(|tenant| tenant.as_str().into()).collect();
    for mut row in conn.query(&text, &params).await? {
        let (tenant, record) = tenant_row(&mut row)?;
        if row.int()? == 1 {
            marked.insert(tenant.clone());
        }
        found.insert(tenant, record);
    }
    Ok((found, marked))
}

fn tenant_row(row: &mut Row) -> StoreResult<(Tenant, TenantRecord)> {
    let tenant = name(Tenant::parse(row.text()?))?;
    let (limits, meter) = (from_json(&row.text()?)?, from_json(&row.text()?)?);
    Ok((tenant, TenantRecord { limits, meter, live: Live::default() }))
}

/// That a permit `p` still holds, by the job `j` that it may belong to. `$1` is now.
pub(crate) const HOLDS: &str = "p.settled_at IS NULL AND p.lapsed_at IS NULL AND (CASE WHEN p.job_id IS NULL \
    THEN p.expires_at > $1 ELSE coalesce(j.status = 'RUNNING' AND j.claims = p.token AND j.lease_until > $1, \
    FALSE) END)";

/// Counts what is in flight, and finds out which probers live.
async fn look_around(conn: &mut Conn, desk: &mut Desk, now: Timestamp) -> StoreResult<()> {
    let names = desk.upstreams.keys().map(Upstream::as_str).collect();
    for (name, live) in in_flight(conn, "upstream", names, now).await? {
        if let Some(upstream) = Upstream::parse(name).ok().and_then(|name| desk.upstreams.get_mut(&name)) {
            upstream.live = live;
        }
    }
    let names = desk.tenants.keys().map(Tenant::as_str).collect();
    for (name, live) in in_flight(conn, "tenant", names, now).await? {
        if let Some(tenant) = Tenant::parse(name).ok().and_then(|name| desk.tenants.get_mut(&name)) {
            tenant.live = live;
        }
    }
    let breakers = desk.upstreams.values().map(|upstream| &upstream.breaker).chain(desk.credentials.values());
    let probers: BTreeSet<Starter> = breakers.filter_map(Breaker::prober).collect();
    desk.living = living(conn, &probers, now).await?;
    Ok(())
}

/// What is in flight by upstream or by tenant, for those where anything is.
async fn in_flight(
    conn: &mut Conn,
    column: &str,
    names: Vec<&str>,
    now: Timestamp,
) -> StoreResult<Vec<(String, Live)>> {
    let text = format!(
        "SELECT p.{column}, count(*), CAST(sum(p.tokens) AS BIGINT), CAST(sum(p.cost_nanos) AS BIGINT) \
         FROM {{rows}} \
         JOIN permits p ON p.{column} = r.name LEFT JOIN jobs j ON j.id = p.job_id WHERE {HOLDS} \
         GROUP BY p.{column}"
    );
    let rows = names.into_iter().map(|name| vec![name.into()]).collect();
    let rows = conn.query_rows(&text, &[now.as_millis().into()], NAME, rows).await?;
    rows.into_iter()
        .map(|mut row| {
            let name = row.text()?;
            let permits = u32::try_from(row.int()?).unwrap_or(u32::MAX);
            let tokens = u64::try_from(row.int()?).unwrap_or_default();
            Ok((name, Live { permits, tokens, reserved: Money::from_nanos(row.int()?) }))
        })
        .collect()
}

/// Those of the starters whose lease or permit still holds.
async fn living(
    conn: &mut Conn,
    starters: &BTreeSet<Starter>,
    now: Timestamp,
) -> StoreResult<BTreeSet<Starter>> {
    let (mut jobs, mut permits) = (Vec::new(), Vec::new());
    for starter in starters {
        match starter {
            Starter::Job { id, token } => jobs.push(vec![id.to_string().into(), token.0.into()]),
            Starter::Permit(id) => permits.push(vec![id.to_string().into()]),
        }
    }
    let text = "SELECT j.id, j.claims FROM {rows} JOIN jobs j ON j.id = r.id WHERE j.status = 'RUNNING' \
                AND j.claims = r.token AND j.lease_until > $1";
    let columns: Columns<'_> = &[("id", Kind::Text), ("token", Kind::Int)];
    let mut found = BTreeSet::new();
    for mut row in conn.query_rows(text, &[now.as_millis().into()], columns, jobs).await? {
        let id: JobId = crate::sql::codec::job_id(&row.text()?)?;
        found.insert(Starter::Job { id, token: LeaseToken(row.int()?) });
    }
    let text = "SELECT p.id FROM {rows} JOIN permits p ON p.id = r.id WHERE p.settled_at IS NULL \
                AND p.lapsed_at IS NULL AND p.expires_at > $1";
    let columns: Columns<'_> = &[("id", Kind::Text)];
    for mut row in conn.query_rows(text, &[now.as_millis().into()], columns, permits).await? {
        found.insert(Starter::Permit(crate::sql::permits::permit_id(&row.text()?)?));
    }
    Ok(found)
}

/// Upstreams as they are, for people: all, or those of these names. Locks nothing.
pub(crate) async fn read(
    conn: &mut Conn,
    names: Option<&[Upstream]>,
    now: Timestamp,
) -> StoreResult<Vec<UpstreamNow>> {
    let text = format!(
        "SELECT {UPSTREAM_COLUMNS} FROM upstreams u {} ORDER BY u.name",
        names.map_or_else(String::new, |names| format!("WHERE u.name IN ({})", list(names.len(), 0)))
    );
    let params: Vec<Value> = names.unwrap_or_default().iter().map(|name| name.as_str().into()).collect();
    let rows = conn.query(&text, &params).await?;
    let upstreams: StoreResult<BTreeMap<_, _>> =
        rows.into_iter().map(|mut row| upstream_row(&mut row)).collect();
    let mut desk = Desk { upstreams: upstreams?, ..Desk::default() };
    if desk.upstreams.values().any(|upstream| upstream.settings.credential.is_some()) {
        for mut row in conn.query("SELECT name, breaker FROM credentials", &[]).await? {
            desk.credentials.insert(name(Credential::parse(row.text()?))?, from_json(&row.text()?)?);
        }
    }
    look_around(conn, &mut desk, now).await?;
    let Desk { upstreams, credentials, .. } = desk;
    Ok(upstreams.into_iter().map(|(name, record)| upstream_now(name, record, &credentials, now)).collect())
}

fn upstream_now(
    name: Upstream,
    UpstreamRecord { settings, breaker, meter, live }: UpstreamRecord,
    credentials: &BTreeMap<Credential, Breaker>,
    now: Timestamp,
) -> UpstreamNow {
    let credential = settings.credential.clone();
    let credential =
        credential.map(|name| (name.clone(), credentials.get(&name).cloned().unwrap_or_default()));
    UpstreamNow { name, settings, breaker, credential, meter, live, now }
}

/// All that need care, as they are. Locks nothing, and does not ask what is in flight.
pub(crate) async fn that_need_care(conn: &mut Conn) -> StoreResult<Desk> {
    let mut desk = Desk::default();
    let text = format!("SELECT {UPSTREAM_COLUMNS} FROM upstreams u WHERE {NEEDS_CARE}");
    for mut row in conn.query(&text, &[]).await? {
        let (name, record) = upstream_row(&mut row)?;
        desk.upstreams.insert(name, record);
    }
    for mut row in conn.query("SELECT name, breaker FROM credentials WHERE needs_care = 1", &[]).await? {
        desk.credentials.insert(name(Credential::parse(row.text()?))?, from_json(&row.text()?)?);
    }
    let text = "SELECT tenant, limits, meter FROM tenant_limits WHERE needs_care = 1";
    for mut row in conn.query(text, &[]).await? {
        let (tenant, record) = tenant_row(&mut row)?;
        desk.tenants.insert(tenant, record);
    }
    Ok(desk)
}

/// Whether a breaker may let through now what it did not before.
pub(crate) async fn stir(conn: &mut Conn, now: Timestamp) -> StoreResult<bool> {
    let mut desk = that_need_care(conn).await?;
    if desk == Desk::default() {
        return Ok(false);
    }
    look_around(conn, &mut desk, now).await?;
    Ok(desk.stirs(now))
}

/// Sets what an operator says about an upstream.
pub(crate) async fn set(
    conn: &mut Conn,
    upstream: &Upstream,
    settings: &UpstreamSettings,
    now: Timestamp,
) -> StoreResult<Option<UpstreamNow>> {
    make(conn, &BTreeSet::from([upstream.clone()])).await?;
    let credential = settings.credential.as_ref().map(Credential::as_str);
    let params: [Value; 3] = [upstream.as_str().into(), to_json(settings)?.into(), credential.into()];
    // Looked at by the next claim, which finds out whether its budget is spent still.
    conn.execute(
        "UPDATE upstreams SET settings = $2, credential = $3, needs_care = 1 WHERE name = $1",
        &params,
    )
    .await?;
    if let Some(name) = credential {
        let open = to_json(&Breaker::default())?;
        let text = "INSERT INTO credentials (name, breaker, needs_care) VALUES ($1, $2, 0) \
                    ON CONFLICT (name) DO NOTHING";
        conn.execute(text, &[name.into(), open.into()]).await?;
    }
    Ok(read(conn, Some(std::slice::from_ref(upstream)), now).await?.pop())
}

/// Sets a tenant's limits.
pub(crate) async fn set_tenant(
    conn: &mut Conn,
    tenant: &Tenant,
    limits: &Limits,
    now: Timestamp,
) -> StoreResult<Option<TenantNow>> {
    let params: [Value; 3] =
        [tenant.as_str().into(), to_json(limits)?.into(), to_json(&Meter::default())?.into()];
    // Looked at by the next claim: a budget of nothing is spent from the first.
    let text = "INSERT INTO tenant_limits (tenant, limits, meter, needs_care) VALUES ($1, $2, $3, 1) \
                ON CONFLICT (tenant) DO UPDATE SET limits = excluded.limits, needs_care = 1";
    conn.execute(text, &params).await?;
    self::tenant(conn, tenant, now).await
}

/// A tenant's limits as they are.
pub(crate) async fn tenant(
    conn: &mut Conn,
    tenant: &Tenant,
    now: Timestamp,
) -> StoreResult<Option<TenantNow>> {
    let text = "SELECT tenant, limits, meter FROM tenant_limits WHERE tenant = $1";
    let Some(mut row) = conn.query(text, &[tenant.as_str().into()]).await?.pop() else { return Ok(None) };
    let (name, record) = tenant_row(&mut row)?;
    let mut desk = Desk { tenants: BTreeMap::from([(name, record)]), ..Desk::default() };
    look_around(conn, &mut desk, now).await?;
    Ok(desk.tenants.pop_first().map(|(tenant, TenantRecord { limits, meter, live })| TenantNow {
        tenant,
        limits,
        meter,
        live,
        now,
    }))
}
