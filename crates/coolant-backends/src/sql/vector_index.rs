//! The index of vectors on PostgreSQL: copies of what is published, in half precision, under pgvector's
//! HNSW.
//!
//! The 32-bit vectors in `vectors` stay the truth: they are paid for, and the same in both databases. The
//! copies are made from them afterwards ([`tend`]), a few at a time, so that no publication waits for HNSW,
//! which takes milliseconds for each vector, while it holds its job. A document whose copies are not those
//! of its chunks yet is `fresh`: a search scans it exactly. So nothing is ever missing, and a database that
//! gets the extension later is one in which everything is fresh.
//!
//! Always true:
//! - `documents.fresh_since` is set in the transaction that changes a document's chunks, and taken away in
//!   one that has seen, with the document locked, a copy of every chunk's vector;
//! - copies are kept by content: a new version of a document costs as many as its contents are new;
//! - without the extension there is no table here, and everything else works.
//!
//! Elsewhere: what becomes of the nearest (`search`), who calls [`tend`] and how often (`store`).

use std::collections::BTreeMap;

use coolant_core::documents::{ChunkRef, SearchRequest};
use coolant_core::store::StoreResult;
use sha2::{Digest, Sha256};

use crate::conn::{Columns, Conn, Kind, Value};
use crate::sql::codec::hex;
use crate::sql::search::{chunk_ref, in_document, scope};
use crate::vector;

/// The longest vector that `halfvec` holds.
const MAX_DIMENSIONS: usize = 16_000;
/// The longest that HNSW takes; longer ones are compared one by one, in the server.
const MAX_HNSW_DIMENSIONS: i64 = 4000;
/// Up to this many vectors of a question's tenant, document and model are compared one by one: at that
/// size HNSW is hardly faster, and under a filter that leaves so few it would have to wander for long.
const EXACT_ROWS: i64 = 10_000;
/// From this many vectors of a model on there is an HNSW index.
const HNSW_ROWS: i64 = 10_000;

/// Whether a vector is one that the index takes.
pub(crate) fn fits(vector: &[f32]) -> bool {
    let length = vector.iter().map(|x| x * x).sum::<f32>();
    vector.len() <= MAX_DIMENSIONS && length.is_normal()
}

/// Whether this database has the index.
pub(crate) async fn exists(conn: &mut Conn) -> StoreResult<bool> {
    // The column goes with the extension, the table stays.
    let text = "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('coolant.chunk_vectors') \
                AND attname = 'embedding' AND NOT attisdropped";
    Ok(conn.query(text, &[]).await?.pop().map_or(Ok(0), |mut row| row.int())? == 1)
}

/// Candidates beyond those asked for: by the halves, two that are as good as equal may change places.
const SPARE: i64 = 10;

/// The nearest published chunks, in no order. The halves choose them; how near they are, 1 at best, is by
/// the 32-bit vectors, so that an answer does not depend on what the index has already.
pub(crate) async fn nearest(
    conn: &mut Conn,
    request: &SearchRequest,
    model: &str,
    query: &[f32],
) -> StoreResult<Vec<(ChunkRef, f32)>> {
    let dimensions = i64::try_from(query.len()).unwrap_or(i64::MAX);
    let [tenant, document, limit] = scope(request);
    let params: [Value; 5] =
        [tenant, document, limit, model.into(), literal(query).unwrap_or_default().into()];
    let in_document = in_document(request, "v.document_id");
    let few = format!(
        "SELECT count(*) FROM (SELECT 1 FROM chunk_vectors v WHERE v.tenant = $1 AND {in_document} \
         AND v.model = $3 AND v.dimensions = {dimensions} LIMIT {EXACT_ROWS} + 1) AS counted"
    );
    let [tenant, document, ..] = scope(request);
    let counted = conn.query(&few, &[tenant, document, model.into()]).await?.pop();
    let count = counted.map_or(Ok(0), |mut row| row.int())?;
    // The index is on this expression, for this model: words of the text, since a parameter matches none.
    let (which, embedding) = if count <= EXACT_ROWS || dimensions > MAX_HNSW_DIMENSIONS {
        ("v.model = $4".to_owned(), "v.embedding".to_owned())
    } else {
        tune(conn, request.candidates).await?;
        (format!("$4 <> '' AND v.model = {}", quoted(model)), format!("v.embedding::halfvec({dimensions})"))
    };
    let text = format!(
        "SELECT c.document_id, c.n, x.vector FROM ( \
             SELECT v.document_id, v.hash, {embedding} <=> $5::text::halfvec({dimensions}) AS distance \
             FROM chunk_vectors v WHERE {which} AND v.dimensions = {dimensions} AND v.tenant = $1 \
             AND {in_document} AND EXISTS (SELECT 1 FROM chunks e WHERE e.tenant = $1 \
             AND e.document_id = v.document_id AND e.hash = v.hash AND e.model = v.model) \
             ORDER BY {embedding} <=> $5::text::halfvec({dimensions}) LIMIT $3::bigint + {SPARE} \
         ) AS near JOIN chunks c ON c.tenant = $1 AND c.document_id = near.document_id \
         AND c.hash = near.hash AND c.model = $4 \
         JOIN vectors x ON x.tenant = $1 AND x.model = $4 AND x.hash = near.hash \
         ORDER BY near.distance, c.document_id, c.n LIMIT $3::bigint + {SPARE}"
    );
    let mut near = Vec::new();
    for mut row in conn.query(&text, &params).await? {
        let at = chunk_ref(&mut row)?;
        if let Some(score) = vector::similarity(query, &row.bytes()?) {
            near.push((at, score));
        }
    }
    Ok(near)
}

/// Sets how far HNSW looks, for this transaction.
async fn tune(conn: &mut Conn, candidates: u32) -> StoreResult<()> {
    let text = "SELECT set_config('hnsw.ef_search', $1, true), \
                set_config('hnsw.iterative_scan', 'relaxed_order', true), \
                set_config('hnsw.max_scan_tuples', '100000', true), \
                set_config('hnsw.scan_mem_multiplier', '4', true)";
    let wide = candidates.saturating_mul(4).clamp(200, 1000).to_string();
    conn.query(text, &[wide.into()]).await.map(|_| ())
}

/// A vector of length 1 as pgvector reads it, since halves end at 65504 and only the angle counts. `None`
/// for one that has no direction or is too long.
fn literal(vector: &[f32]) -> Option<String> {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    let numbers: Vec<String> = vector.iter().map(|x| (x / length).to_string()).collect();
    fits(vector).then(|| format!("[{}]", numbers.join(",")))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Makes the place for the index, if there is none; everything published is fresh then.
pub(crate) async fn create(conn: &mut Conn, now_ms: i64) -> StoreResult<()> {
    // Rows up to a page stay in it: out of line, each comparison of an exact search would fetch its vector.
    conn.script(
        "DROP TABLE IF EXISTS chunk_vectors; \
         CREATE TABLE chunk_vectors (tenant TEXT NOT NULL, document_id TEXT NOT NULL, model TEXT NOT NULL, \
         hash BYTEA NOT NULL, dimensions BIGINT NOT NULL, embedding halfvec, \
         PRIMARY KEY (tenant, document_id, model, hash)) WITH (toast_tuple_target = 8160); \
         CREATE INDEX chunk_vectors_kind ON chunk_vectors (model, dimensions, tenant)",
    )
    .await?;
    let text = "UPDATE documents SET fresh_since = $1 WHERE published_version IS NOT NULL";
    conn.execute(text, &[now_ms.into()]).await.map(|_| ())
}

/// Documents that a round takes on.
const ROUND_DOCUMENTS: i64 = 100;
/// Chunks looked at in one go.
const ROUND_CHUNKS: i64 = 200;
/// One process tends at a time: "vectors" in ASCII.
const ADVISORY_KEY: i64 = 0x0076_6563_746f_7273;

const DOCUMENT: Columns<'_> = &[("tenant", Kind::Text), ("id", Kind::Text)];

/// Brings copies and index closer to what is published. Outside of any transaction, for it makes many
/// short ones. Gives whether there is more to do at once.
pub(crate) async fn tend(conn: &mut Conn) -> StoreResult<bool> {
    if !exists(conn).await? {
        return Ok(false);
    }
    let locked = conn.query("SELECT pg_try_advisory_lock($1)::int", &[ADVISORY_KEY.into()]).await?.pop();
    if locked.map_or(Ok(0), |mut row| row.int())? == 0 {
        return Ok(false);
    }
    let more = tend_locked(conn).await?;
    // After an error the caller closes the connection, and the lock goes with it.
    conn.query("SELECT pg_advisory_unlock($1)::int", &[ADVISORY_KEY.into()]).await?;
    Ok(more)
}

async fn tend_locked(conn: &mut Conn) -> StoreResult<bool> {
    let text = "SELECT tenant, id FROM documents WHERE fresh_since IS NOT NULL ORDER BY fresh_since LIMIT $1";
    let mut documents = Vec::new();
    for mut row in conn.query(text, &[ROUND_DOCUMENTS.into()]).await? {
        documents.push(vec![row.text()?.into(), row.text()?.into()]);
    }
    if !documents.is_empty() {
        refresh_statistics(conn).await?;
    }
    let is_full = documents.len() as i64 == ROUND_DOCUMENTS;
    let mut settled = 0;
    for documents in documents.chunks(10) {
        copy(conn, documents).await?;
        settled += settle(conn, documents).await?;
    }
    if is_full && settled > 0 {
        // First the rest: a document without its copies makes searches slower than a missing HNSW index.
        return Ok(true);
    }
    build(conn).await?;
    refresh_statistics(conn).await?;
    Ok(false)
}

/// Tables that searches and copies read and that have outgrown what the planner knows of them: more than
/// twice the pages it counted last, or, over a megabyte or so, no statistics at all.
const OUTGROWN: &str = "\
    SELECT c.relname::text FROM pg_class c \
    WHERE c.oid = ANY (ARRAY[to_regclass('coolant.chunks'), to_regclass('coolant.vectors'), \
        to_regclass('coolant.chunk_vectors')]::oid[]) \
    AND pg_relation_size(c.oid) / current_setting('block_size')::bigint > 100 \
    AND (pg_relation_size(c.oid) / current_setting('block_size')::bigint > 2 * c.relpages::bigint \
        OR NOT EXISTS (SELECT 1 FROM pg_stats s WHERE s.schemaname = 'coolant' AND s.tablename = c.relname))";

/// After a bulk of documents the server's own `ANALYZE` comes up to a minute later, and not at all where it
/// is switched off; until then plans are made for a table that was small, and take minutes for seconds.
async fn refresh_statistics(conn: &mut Conn) -> StoreResult<()> {
    let mut tables: Vec<String> = Vec::new();
    for mut row in conn.query(OUTGROWN, &[]).await? {
        tables.push(row.text()?);
    }
    for table in tables {
        conn.script(&format!("ANALYZE coolant.{table}")).await?;
    }
    Ok(())
}

const COPY: Columns<'_> = &[
    ("tenant", Kind::Text),
    ("document_id", Kind::Text),
    ("model", Kind::Text),
    ("hash", Kind::Bytes),
    ("dimensions", Kind::Int),
    ("embedding", Kind::Text),
];

/// Copies the vectors of these documents' chunks that have no copy yet. A vector without direction gets a
/// row without one: no search finds it, and it is not looked at again.
async fn copy(conn: &mut Conn, documents: &[Vec<Value>]) -> StoreResult<()> {
    let missing = "SELECT c.seq, c.tenant, c.document_id, c.model, c.hash, v.vector FROM {rows} \
                   JOIN chunks c ON c.tenant = r.tenant AND c.document_id = r.id \
                   JOIN vectors v ON v.tenant = c.tenant AND v.model = c.model AND v.hash = c.hash \
                   WHERE c.seq > $1 AND NOT EXISTS (SELECT 1 FROM chunk_vectors x WHERE x.tenant = c.tenant \
                   AND x.document_id = c.document_id AND x.model = c.model AND x.hash = c.hash) \
                   ORDER BY c.seq LIMIT $2";
    let insert = "INSERT INTO chunk_vectors (tenant, document_id, model, hash, dimensions, embedding) \
                  SELECT tenant, document_id, model, hash, dimensions, embedding::halfvec FROM {rows} \
                  ON CONFLICT DO NOTHING";
    let mut last = i64::MIN;
    loop {
        let params = [last.into(), ROUND_CHUNKS.into()];
        let rows = conn.query_rows(missing, &params, DOCUMENT, documents.to_vec()).await?;
        let is_last = (rows.len() as i64) < ROUND_CHUNKS;
        // Each once, in one order for all.
        let mut copies = BTreeMap::new();
        for mut row in rows {
            last = row.int()?;
            let key = (row.text()?, row.text()?, row.text()?, row.bytes()?);
            copies.insert(key, vector::from_bytes(&row.bytes()?));
        }
        let rows = copies.into_iter().map(|((tenant, document, model, hash), vector)| {
            let text = literal(&vector);
            let dimensions = text.as_ref().map_or(0, |_| vector.len() as i64);
            vec![tenant.into(), document.into(), model.into(), hash.into(), dimensions.into(), text.into()]
        });
        conn.execute_rows(insert, &[], COPY, rows.collect()).await?;
        if is_last {
            return Ok(());
        }
    }
}

/// Ends the freshness of those of these documents whose chunks all have their copies, and drops copies
/// that no chunk has any longer. A document that somebody is just publishing is left for another time.
async fn settle(conn: &mut Conn, documents: &[Vec<Value>]) -> StoreResult<u64> {
    conn.begin().await?;
    let outcome = settle_in_transaction(conn, documents).await;
    match outcome {
        Ok(settled) => conn.commit().await.map(|()| settled),
        Err(error) => {
            conn.rollback().await;
            Err(error)
        }
    }
}

async fn settle_in_transaction(conn: &mut Conn, documents: &[Vec<Value>]) -> StoreResult<u64> {
    let text = "SELECT d.tenant, d.id FROM {rows} JOIN documents d ON d.tenant = r.tenant AND d.id = r.id \
                FOR UPDATE OF d SKIP LOCKED";
    let mut locked = Vec::new();
    for mut row in conn.query_rows(text, &[], DOCUMENT, documents.to_vec()).await? {
        locked.push(vec![row.text()?.into(), row.text()?.into()]);
    }
    let text = "DELETE FROM chunk_vectors x USING {rows} WHERE x.tenant = r.tenant AND x.document_id = r.id \
                AND NOT EXISTS (SELECT 1 FROM chunks c WHERE c.tenant = x.tenant \
                AND c.document_id = x.document_id AND c.hash = x.hash AND c.model = x.model)";
    conn.execute_rows(text, &[], DOCUMENT, locked.clone()).await?;
    let text = "UPDATE documents d SET fresh_since = NULL FROM {rows} WHERE d.tenant = r.tenant \
                AND d.id = r.id AND NOT EXISTS (SELECT 1 FROM chunks c JOIN vectors v ON v.tenant = c.tenant \
                AND v.model = c.model AND v.hash = c.hash WHERE c.tenant = d.tenant AND c.document_id = d.id \
                AND NOT EXISTS (SELECT 1 FROM chunk_vectors x WHERE x.tenant = c.tenant \
                AND x.document_id = c.document_id AND x.model = c.model AND x.hash = c.hash))";
    conn.execute_rows(text, &[], DOCUMENT, locked).await
}

/// The models of the copies, each found by a step through the index and not by reading all of it.
const MODELS: &str = "\
    WITH RECURSIVE kinds AS ( \
        (SELECT model, dimensions FROM chunk_vectors ORDER BY model, dimensions LIMIT 1) \
        UNION ALL \
        SELECT next.model, next.dimensions FROM kinds k CROSS JOIN LATERAL ( \
            SELECT model, dimensions FROM chunk_vectors WHERE (model, dimensions) > (k.model, k.dimensions) \
            ORDER BY model, dimensions LIMIT 1 \
        ) AS next \
    ) \
    SELECT model, dimensions FROM kinds WHERE dimensions BETWEEN 1 AND $1";

/// An HNSW index that a model should have by now.
pub(crate) struct Lacking {
    model: String,
    dimensions: i64,
    name: String,
    /// What a build that was cut short left behind: it is kept up to date, and used by nobody.
    is_broken: bool,
}

/// Large models without their HNSW index.
pub(crate) async fn lacking(conn: &mut Conn) -> StoreResult<Vec<Lacking>> {
    let mut lacking = Vec::new();
    for mut row in conn.query(MODELS, &[MAX_HNSW_DIMENSIONS.into()]).await? {
        let (model, dimensions) = (row.text()?, row.int()?);
        let name = index_name(&model, dimensions);
        let text = "SELECT indisvalid::int FROM pg_index WHERE indexrelid = to_regclass($1)";
        let found = conn.query(text, &[format!("coolant.{name}").into()]).await?.pop();
        let is_valid = found.map(|mut row| row.int()).transpose()?;
        let text = "SELECT count(*) FROM (SELECT 1 FROM chunk_vectors WHERE model = $1 AND dimensions = $2 \
                    LIMIT $3) AS counted";
        let params: [Value; 3] = [model.as_str().into(), dimensions.into(), HNSW_ROWS.into()];
        let is_large = async |conn: &mut Conn| -> StoreResult<bool> {
            let counted = conn.query(text, &params).await?.pop();
            Ok(counted.map_or(Ok(0), |mut row| row.int())? == HNSW_ROWS)
        };
        if is_valid != Some(1) && is_large(conn).await? {
            lacking.push(Lacking { model, dimensions, name, is_broken: is_valid.is_some() });
        }
    }
    Ok(lacking)
}

/// Builds the HNSW index of models that have become large, while others go on reading and writing.
async fn build(conn: &mut Conn) -> StoreResult<()> {
    for Lacking { model, dimensions, name, is_broken } in lacking(conn).await? {
        tracing::info!(dimensions, index = name, "building the index of a model's vectors");
        if is_broken {
            conn.script(&format!("DROP INDEX CONCURRENTLY IF EXISTS {name}")).await?;
        }
        conn.script(&format!(
            "CREATE INDEX CONCURRENTLY {name} ON chunk_vectors \
             USING hnsw ((embedding::halfvec({dimensions})) halfvec_cosine_ops) \
             WHERE model = {} AND dimensions = {dimensions}",
            quoted(&model)
        ))
        .await?;
    }
    Ok(())
}

/// The model's name may be anything, and long.
fn index_name(model: &str, dimensions: i64) -> String {
    format!("chunk_vectors_hnsw_{dimensions}_{}", &hex(&Sha256::digest(model))[..16])
}
