//! Documents, their published chunks, and vectors by content.
//!
//! Elsewhere: search over all of it (`search`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use coolant_core::documents::{
    ContentHash, Document, DocumentVersion, FinishedStep, HashedVector, IndexHealth, NewChunk, NewDocument,
    Publication, Published, PutOutcome, VectorBatch,
};
use coolant_core::job::{Job, JobState, LeaseToken};
use coolant_core::lifecycle::{Event, Refusal, check_lease};
use coolant_core::names::{DocumentId, Tenant};
use coolant_core::store::{JobChange, StoreError, StoreResult};
use coolant_core::time::Timestamp;
use sha2::{Digest, Sha256};

use crate::conn::{Columns, Conn, Kind, Row, Value};
use crate::sql::codec::{broken, hex, name};
use crate::sql::counters::Tally;
use crate::sql::upstreams::Dealings;
use crate::sql::{apply, jobs};
use crate::vector;

/// Keeps bytes as a new version, unless the newest version is the same.
pub(crate) async fn put(conn: &mut Conn, new: &NewDocument, now: Timestamp) -> StoreResult<PutOutcome> {
    let key: [Value; 2] = [new.tenant.as_str().into(), new.id.as_str().into()];
    conn.execute(
        "INSERT INTO documents (tenant, id, latest_version) VALUES ($1, $2, 0) ON CONFLICT (tenant, id) DO NOTHING",
        &key,
    )
    .await?;
    let text = "SELECT latest_version, deleted_at FROM documents WHERE tenant = $1 AND id = $2 {lock}";
    let mut row =
        conn.query(text, &key).await?.pop().ok_or_else(|| broken("a document that was just added"))?;
    let latest = row.int()?;
    let was_deleted = row.maybe_int()?.is_some();
    let new_document = latest == 0 || was_deleted;
    let sha256 = hex(&Sha256::digest(&new.bytes));
    if !new_document
        && let Some(version) = version(conn, &new.tenant, &new.id, latest).await?
        && version.sha256 == sha256
    {
        return Ok(PutOutcome { version, new_document: false, new_version: false });
    }
    let version = DocumentVersion {
        version: latest + 1,
        sha256,
        bytes: i64::try_from(new.bytes.len()).unwrap_or(i64::MAX),
        content_type: new.content_type.clone(),
        filename: new.filename.clone(),
        created_at: now,
    };
    let params: [Value; 9] = [
        new.tenant.as_str().into(),
        new.id.as_str().into(),
        version.version.into(),
        version.sha256.as_str().into(),
        version.bytes.into(),
        version.content_type.as_deref().into(),
        version.filename.as_deref().into(),
        now.as_millis().into(),
        new.bytes.clone().into(),
    ];
    conn.execute(
        "INSERT INTO document_versions (tenant, document_id, version, sha256, bytes, content_type, filename, \
         created_at, data) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        &params,
    )
    .await?;
    let params: [Value; 3] = [version.version.into(), new.tenant.as_str().into(), new.id.as_str().into()];
    let text = "UPDATE documents SET latest_version = $1, deleted_at = NULL WHERE tenant = $2 AND id = $3";
    conn.execute(text, &params).await?;
    Ok(PutOutcome { version, new_document, new_version: true })
}

const VERSION_COLUMNS: &str = "version, sha256, bytes, content_type, filename, created_at";

fn version_row(row: &mut Row) -> StoreResult<DocumentVersion> {
    Ok(DocumentVersion {
        version: row.int()?,
        sha256: row.text()?,
        bytes: row.int()?,
        content_type: row.maybe_text()?,
        filename: row.maybe_text()?,
        created_at: Timestamp::from_millis(row.int()?),
    })
}

async fn version(
    conn: &mut Conn,
    tenant: &Tenant,
    id: &DocumentId,
    version: i64,
) -> StoreResult<Option<DocumentVersion>> {
    let text = format!(
        "SELECT {VERSION_COLUMNS} FROM document_versions WHERE tenant = $1 AND document_id = $2 AND version = $3"
    );
    let params: [Value; 3] = [tenant.as_str().into(), id.as_str().into(), version.into()];
    conn.query(&text, &params).await?.pop().map(|mut row| version_row(&mut row)).transpose()
}

/// Documents by name, after that name.
pub(crate) async fn list(
    conn: &mut Conn,
    tenant: &Tenant,
    from: Option<&DocumentId>,
    limit: u32,
    exactly: bool,
) -> StoreResult<Vec<Document>> {
    let compare = if exactly { "=" } else { ">" };
    let text = format!(
        "SELECT d.id, d.published_version, d.pipeline, d.chunks, d.published_at FROM documents d \
         WHERE d.tenant = $1 AND d.id {compare} $2 AND d.deleted_at IS NULL ORDER BY d.id LIMIT $3"
    );
    let from = from.map_or("", DocumentId::as_str);
    let params: [Value; 3] = [tenant.as_str().into(), from.into(), i64::from(limit).into()];
    let mut documents = Vec::new();
    for mut row in conn.query(&text, &params).await? {
        let id = name(DocumentId::parse(row.text()?))?;
        let published = (row.maybe_int()?, row.maybe_text()?, row.maybe_int()?, row.maybe_int()?);
        let searchable = match published {
            (Some(version), Some(pipeline), Some(chunks), Some(at)) => {
                Some(Published { version, pipeline, chunks, at: Timestamp::from_millis(at) })
            }
            _ => None,
        };
        documents.push(Document { id, versions: Vec::new(), searchable });
    }
    let rows = documents.iter().map(|document| vec![document.id.as_str().into()]).collect();
    let text = format!(
        "SELECT v.document_id, {VERSION_COLUMNS} FROM {{rows}} JOIN document_versions v \
         ON v.tenant = $1 AND v.document_id = r.name ORDER BY v.document_id, v.version DESC"
    );
    let rows = conn.query_rows(&text, &[tenant.as_str().into()], &[("name", Kind::Text)], rows).await?;
    let mut versions: BTreeMap<String, Vec<DocumentVersion>> = BTreeMap::new();
    for mut row in rows {
        let id = row.text()?;
        versions.entry(id).or_default().push(version_row(&mut row)?);
    }
    for document in &mut documents {
        document.versions = versions.remove(document.id.as_str()).unwrap_or_default();
    }
    Ok(documents)
}

/// Removes a document everywhere but in the cache of vectors, which is its tenant's. Its name keeps the
/// number of its last version.
pub(crate) async fn delete(
    conn: &mut Conn,
    tenant: &Tenant,
    id: &DocumentId,
    now: Timestamp,
) -> StoreResult<bool> {
    let params: [Value; 3] = [now.as_millis().into(), tenant.as_str().into(), id.as_str().into()];
    let text = "UPDATE documents SET deleted_at = $1, published_version = NULL, pipeline = NULL, model = NULL, \
                chunks = NULL, published_at = NULL, fresh_since = $1 WHERE tenant = $2 AND id = $3 AND deleted_at IS NULL";
    let there = conn.execute(text, &params).await? > 0;
    for table in ["chunks", "document_versions"] {
        let text = format!("DELETE FROM {table} WHERE tenant = $1 AND document_id = $2");
        conn.execute(&text, &params[1..]).await?;
    }
    Ok(there)
}

pub(crate) async fn source(
    conn: &mut Conn,
    tenant: &Tenant,
    id: &DocumentId,
    version: i64,
) -> StoreResult<Option<(DocumentVersion, Vec<u8>)>> {
    let text = format!(
        "SELECT {VERSION_COLUMNS}, data FROM document_versions \
         WHERE tenant = $1 AND document_id = $2 AND version = $3"
    );
    let params: [Value; 3] = [tenant.as_str().into(), id.as_str().into(), version.into()];
    let row = conn.query(&text, &params).await?.pop();
    row.map(|mut row| Ok((version_row(&mut row)?, row.bytes()?))).transpose()
}

const HASH: Columns<'_> = &[("hash", Kind::Bytes)];

fn content_hash(bytes: Vec<u8>) -> StoreResult<ContentHash> {
    bytes.try_into().map_err(|_| StoreError::Broken("a content hash has 32 bytes".into()))
}

pub(crate) async fn known_vectors(
    conn: &mut Conn,
    tenant: &Tenant,
    model: &str,
    hashes: &[ContentHash],
) -> StoreResult<Vec<ContentHash>> {
    let rows = hashes.iter().map(|hash| vec![hash.to_vec().into()]).collect();
    let text =
        "SELECT v.hash FROM {rows} JOIN vectors v ON v.tenant = $1 AND v.model = $2 AND v.hash = r.hash";
    let rows = conn.query_rows(text, &[tenant.as_str().into(), model.into()], HASH, rows).await?;
    rows.into_iter().map(|mut row| content_hash(row.bytes()?)).collect()
}

/// The vector of one content.
pub(crate) async fn vector(
    conn: &mut Conn,
    tenant: &Tenant,
    model: &str,
    hash: &ContentHash,
) -> StoreResult<Option<Vec<f32>>> {
    let text = "SELECT vector FROM vectors WHERE tenant = $1 AND model = $2 AND hash = $3";
    let params: [Value; 3] = [tenant.as_str().into(), model.into(), hash.to_vec().into()];
    let row = conn.query(text, &params).await?.pop();
    row.map(|mut row| Ok(vector::from_bytes(&row.bytes()?))).transpose()
}

/// Keeps vectors and the step that made them.
pub(crate) async fn save_vectors(
    conn: &mut Conn,
    batch: &VectorBatch,
    now: Timestamp,
    dealings: &mut Dealings,
) -> StoreResult<Result<(), Refusal>> {
    let VectorBatch { tenant, model, vectors, step } = batch;
    // In one order for all writers, and each content once.
    let sorted: BTreeMap<ContentHash, &[f32]> =
        vectors.iter().map(|HashedVector { hash, vector }| (*hash, vector.as_slice())).collect();
    let rows = sorted
        .into_iter()
        .map(|(hash, vector)| vec![hash.to_vec().into(), vector::to_bytes(vector).into()])
        .collect();
    let text = "INSERT INTO vectors (tenant, model, hash, vector) SELECT $1, $2, hash, vector FROM {rows} \
                WHERE true ON CONFLICT (tenant, model, hash) DO NOTHING RETURNING model";
    let columns = &[("hash", Kind::Bytes), ("vector", Kind::Bytes)];
    conn.query_rows(text, &[tenant.as_str().into(), model.as_str().into()], columns, rows).await?;
    let Some(FinishedStep { lease: (job_id, token), name, output, usage }) = step.clone() else {
        return Ok(Ok(()));
    };
    let change = JobChange::new(job_id, Event::SaveStep { token, name, output, usage });
    let answers = apply::apply(conn, &[&change], now, &mut Tally::default(), dealings).await?;
    let answer = answers.into_iter().next();
    answer.map_or(Ok(Err(Refusal::NotFound)), |answer| Ok(answer.map(|_| ())))
}

const CHUNK: Columns<'_> = &[
    ("n", Kind::Int),
    ("hash", Kind::Bytes),
    ("body", Kind::Text),
    ("terms", Kind::Text),
    ("heading", Kind::Text),
    ("page", Kind::Int),
];

/// Swaps the published version, under the lease of the job that made the new one.
pub(crate) async fn publish(
    conn: &mut Conn,
    publication: &Publication,
    now: Timestamp,
) -> StoreResult<Result<(), Refusal>> {
    let began = Instant::now();
    let (job_id, token) = publication.lease;
    let found = jobs::load_locked(conn, &BTreeSet::from([job_id])).await?;
    let Some(job) = found.get(&job_id) else { return Ok(Err(Refusal::NotFound)) };
    if let Err(refusal) = check_lease(job, token) {
        return Ok(Err(refusal));
    }
    let Publication { tenant, id, version, pipeline, model, chunks, .. } = publication;
    let params: [Value; 7] = [
        (*version).into(),
        pipeline.as_str().into(),
        model.as_str().into(),
        i64::try_from(chunks.len()).unwrap_or(i64::MAX).into(),
        now.as_millis().into(),
        tenant.as_str().into(),
        id.as_str().into(),
    ];
    let text = "UPDATE documents SET published_version = $1, pipeline = $2, model = $3, chunks = $4, \
                published_at = $5, fresh_since = $5 WHERE tenant = $6 AND id = $7 AND deleted_at IS NULL \
                AND (published_version IS NULL OR published_version <= $1) AND EXISTS (SELECT 1 \
                FROM document_versions v WHERE v.tenant = $6 AND v.document_id = $7 AND v.version = $1)";
    let newest = conn.execute(text, &params).await? == 1;
    if !newest {
        // Deleted, also if another came under its name since, or overtaken by a newer version: history.
        return Ok(Ok(()));
    }
    let key: [Value; 2] = [tenant.as_str().into(), id.as_str().into()];
    conn.execute("DELETE FROM chunks WHERE tenant = $1 AND document_id = $2", &key).await?;
    let rows = chunks.iter().enumerate().map(|(n, chunk)| chunk_row(n, chunk)).collect();
    let text = "INSERT INTO chunks (tenant, document_id, version, model, n, hash, text, terms, heading, page) \
                SELECT $1, $2, $3, $4, n, hash, body, terms, heading, page FROM {rows} RETURNING n";
    let params: [Value; 4] =
        [tenant.as_str().into(), id.as_str().into(), (*version).into(), model.as_str().into()];
    conn.query_rows(text, &params, CHUNK, rows).await?;
    renew(conn, job, token, now.plus(began.elapsed())).await?;
    Ok(Ok(()))
}

/// Gives the lease its whole length again. A large document takes longer to publish than a short lease
/// lasts, and no heartbeat gets past this transaction meanwhile: whoever claims next would find the lease
/// run out, take the job, and do it all again.
async fn renew(conn: &mut Conn, job: &Job, token: LeaseToken, now: Timestamp) -> StoreResult<()> {
    let JobState::Running { lease, cancel_requested: false } = &job.state else { return Ok(()) };
    if lease.deadline > now {
        let change = JobChange::new(job.id, Event::Renew { token, progress: None });
        // Refused by nothing: the lease was checked, and its row is locked since.
        let (mut tally, mut dealings) = (Tally::default(), Dealings::default());
        let _ = apply::apply(conn, &[&change], now, &mut tally, &mut dealings).await?;
    }
    Ok(())
}

fn chunk_row(n: usize, chunk: &NewChunk) -> Vec<Value> {
    vec![
        i64::try_from(n).unwrap_or(i64::MAX).into(),
        chunk.hash.to_vec().into(),
        chunk.text.as_str().into(),
        chunk.terms.as_str().into(),
        chunk.heading.as_deref().into(),
        chunk.page.map(i64::from).into(),
    ]
}

/// Counts the index, and what in it does not agree.
pub(crate) async fn health(conn: &mut Conn) -> StoreResult<IndexHealth> {
    let mut count = async |text: &str| -> StoreResult<i64> {
        conn.query(text, &[]).await?.pop().map_or(Ok(0), |mut row| row.int())
    };
    Ok(IndexHealth {
        documents: count("SELECT count(*) FROM documents WHERE deleted_at IS NULL").await?,
        published: count("SELECT count(*) FROM documents WHERE published_version IS NOT NULL").await?,
        chunks: count("SELECT count(*) FROM chunks").await?,
        vectors: count("SELECT count(*) FROM vectors").await?,
        chunks_without_vector: count(
            "SELECT count(*) FROM chunks c WHERE NOT EXISTS (SELECT 1 FROM vectors v \
             WHERE v.tenant = c.tenant AND v.model = c.model AND v.hash = c.hash)",
        )
        .await?,
        chunks_without_terms: count("SELECT count(*) FROM chunks WHERE terms = ''").await?,
    })
}
