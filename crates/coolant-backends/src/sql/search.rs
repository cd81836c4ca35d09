//! Search over what is published: by words, by vector, and what was found.
//!
//! Always true:
//! - every candidate is published in the caller's snapshot, whatever the index of vectors holds;
//! - the same state and question give the same order: equal scores go by document and place.
//!
//! Elsewhere: the index of vectors (`vector_index`), how two rankings become one (`coolant-ai`).

use std::collections::{BTreeMap, BTreeSet};

use coolant_core::documents::{ChunkRef, FoundChunk, SearchCandidates, SearchRequest, SearchTerm};
use coolant_core::names::DocumentId;
use coolant_core::store::StoreResult;

use crate::conn::{Columns, Conn, Dialect, Kind, Row, Value};
use crate::sql::codec::name;
use crate::sql::vector_index;
use crate::vector;

/// Candidates by text and by vector; the caller's snapshot makes them one state of the index.
pub(crate) async fn search(conn: &mut Conn, request: &SearchRequest) -> StoreResult<SearchCandidates> {
    let by_text = by_text(conn, request).await?;
    let by_vector = by_vector(conn, request).await?;
    let wanted: BTreeSet<&ChunkRef> = by_text.iter().chain(&by_vector).collect();
    let rows = wanted.iter().map(|at| vec![at.document_id.as_str().into(), at.chunk.into()]).collect();
    let text = "SELECT c.document_id, c.n, c.version, c.text, c.heading, c.page FROM {rows} JOIN chunks c \
                ON c.tenant = $1 AND c.document_id = r.document_id AND c.n = r.n";
    let columns = &[("document_id", Kind::Text), ("n", Kind::Int)];
    let rows = conn.query_rows(text, &[request.tenant.as_str().into()], columns, rows).await?;
    let chunks: StoreResult<Vec<FoundChunk>> = rows
        .into_iter()
        .map(|mut row| {
            Ok(FoundChunk {
                at: chunk_ref(&mut row)?,
                version: row.int()?,
                text: row.text()?,
                heading: row.maybe_text()?,
                page: row.maybe_int()?.and_then(|page| u32::try_from(page).ok()),
            })
        })
        .collect();
    Ok(SearchCandidates { by_text, by_vector, chunks: chunks? })
}

pub(crate) fn chunk_ref(row: &mut Row) -> StoreResult<ChunkRef> {
    Ok(ChunkRef { document_id: name(DocumentId::parse(row.text()?))?, chunk: row.int()? })
}

/// The condition on one document, if one is asked for. `$2` has a use either way.
pub(crate) fn in_document(request: &SearchRequest, column: &str) -> String {
    match &request.document_id {
        Some(_) => format!("{column} = $2"),
        None => "$2 = ''".into(),
    }
}

/// Tenant, document and limit: the first three parameters of every search.
pub(crate) fn scope(request: &SearchRequest) -> [Value; 3] {
    [
        request.tenant.as_str().into(),
        request.document_id.as_ref().map_or("", DocumentId::as_str).into(),
        i64::from(request.candidates).into(),
    ]
}

async fn by_text(conn: &mut Conn, request: &SearchRequest) -> StoreResult<Vec<ChunkRef>> {
    if request.terms.is_empty() {
        return Ok(Vec::new());
    }
    if conn.dialect() == Dialect::Postgres {
        return by_lexemes(conn, request).await;
    }
    let text = format!(
        "SELECT c.document_id, c.n FROM chunk_terms JOIN chunks c ON c.seq = chunk_terms.rowid \
         WHERE chunk_terms MATCH $4 AND c.tenant = $1 AND {} \
         ORDER BY bm25(chunk_terms), c.document_id, c.n LIMIT $3",
        in_document(request, "c.document_id"),
    );
    let [tenant, document, limit] = scope(request);
    let terms: Vec<String> = request.terms.iter().map(fts5_term).collect();
    let rows = conn.query(&text, &[tenant, document, limit, terms.join(" OR ").into()]).await?;
    rows.into_iter().map(|mut row| chunk_ref(&mut row)).collect()
}

/// A term is letters and digits; quoted, none of them is an operator.
fn fts5_term(SearchTerm { text, prefix }: &SearchTerm) -> String {
    format!("\"{text}\"{}", if *prefix { "*" } else { "" })
}

fn tsquery_term(SearchTerm { text, prefix }: &SearchTerm) -> String {
    format!("'{text}'{}", if *prefix { ":*" } else { "" })
}

/// Terms as rows, for PostgreSQL.
const TERM: Columns<'_> = &[("term", Kind::Int), ("word", Kind::Text)];

async fn by_lexemes(conn: &mut Conn, request: &SearchRequest) -> StoreResult<Vec<ChunkRef>> {
    let terms: Vec<Vec<Value>> =
        (0_i64..).zip(&request.terms).map(|(n, term)| vec![n.into(), tsquery_term(term).into()]).collect();
    let text = BY_LEXEMES.replace("{in_document}", &in_document(request, "c.document_id"));
    let text = text.replace("{is_document}", &in_document(request, "d.id"));
    let selective = selective(conn, request, &terms).await?;
    if (1..terms.len()).contains(&selective.len()) {
        let rows = conn.query_rows(&text, &scope(request), TERM, selective).await?;
        if rows.len() == request.candidates as usize {
            return rows.into_iter().map(|mut row| chunk_ref(&mut row)).collect();
        }
    }
    let rows = conn.query_rows(&text, &scope(request), TERM, terms).await?;
    rows.into_iter().map(|mut row| chunk_ref(&mut row)).collect()
}

/// About as many matches of a term are ranked in a fifth of a second. A term with more of them says little,
/// and is left out where the others find enough.
const FREQUENT: i64 = 20_000;

/// Terms without those that the server's statistics know as frequent; few chunks have none.
async fn selective(
    conn: &mut Conn,
    request: &SearchRequest,
    terms: &[Vec<Value>],
) -> StoreResult<Vec<Vec<Value>>> {
    let text = format!(
        "SELECT coalesce(sum(d.chunks), 0)::bigint FROM documents d WHERE d.tenant = $1 AND {}",
        in_document(request, "d.id")
    );
    let [tenant, document, _] = scope(request);
    let chunks = conn.query(&text, &[tenant, document]).await?.pop().map_or(Ok(0), |mut row| row.int())?;
    if chunks <= FREQUENT {
        return Ok(terms.to_vec());
    }
    let text = "WITH frequent AS MATERIALIZED ( \
                    SELECT array_to_tsvector(ARRAY[e.lexeme]) AS lexeme FROM pg_stats s, \
                    unnest(s.most_common_elems::text::text[], s.most_common_elem_freqs) AS e(lexeme, share) \
                    WHERE s.schemaname = 'coolant' AND s.tablename = 'chunks' AND s.attname = 'lexemes' \
                    AND e.lexeme IS NOT NULL AND e.share * $1::bigint > $2::bigint \
                ) SELECT r.term, r.word FROM {rows} WHERE NOT EXISTS ( \
                    SELECT 1 FROM frequent f WHERE f.lexeme @@ to_tsquery('coolant.words', r.word))";
    let rows = conn.query_rows(text, &[chunks.into(), FREQUENT.into()], TERM, terms.to_vec()).await?;
    rows.into_iter().map(|mut row| Ok(vec![row.int()?.into(), row.text()?.into()])).collect()
}

/// What BM25 does with what PostgreSQL has: a match counts more in a short chunk, each further one of the
/// same term counts less (`ts_rank` of a single term), and a rare term counts more than a frequent one.
/// Each term goes through the index by itself, together with the tenant, which is a word too.
const BY_LEXEMES: &str = "\
    WITH terms AS MATERIALIZED ( \
        SELECT r.term, to_tsquery('coolant.words', r.word) AS query FROM {rows} \
    ), hits AS MATERIALIZED ( \
        SELECT t.term, c.document_id, c.n, ts_rank(c.lexemes, t.query, 1) AS rank \
        FROM terms t JOIN chunks c ON c.lexemes @@ (t.query && \
            concat('''', ' ', replace(replace($1, '\\', '\\\\'), '''', ''''''), '''')::tsquery) \
        WHERE numnode(t.query) > 0 AND c.tenant = $1 AND {in_document} \
    ), published AS MATERIALIZED ( \
        SELECT coalesce(sum(d.chunks), 0)::float8 AS total FROM documents d \
        WHERE d.tenant = $1 AND {is_document} \
    ), weights AS ( \
        SELECT h.term, ln(1 + (greatest(p.total - count(*), 0) + 0.5) / (count(*) + 0.5)) AS weight \
        FROM hits h CROSS JOIN published p GROUP BY h.term, p.total \
    ) \
    SELECT h.document_id, h.n FROM hits h JOIN weights w ON w.term = h.term \
    GROUP BY h.document_id, h.n \
    ORDER BY sum(h.rank * w.weight ORDER BY h.term) DESC, h.document_id, h.n LIMIT $3";

/// By the index where there is one, exactly where the index does not reach.
async fn by_vector(conn: &mut Conn, request: &SearchRequest) -> StoreResult<Vec<ChunkRef>> {
    let Some((model, query)) = &request.vector else { return Ok(Vec::new()) };
    let mut scores: BTreeMap<ChunkRef, f32> = BTreeMap::new();
    let mut what = Scan::Everything;
    if conn.dialect() == Dialect::Postgres && vector_index::fits(query) && vector_index::exists(conn).await? {
        scores.extend(vector_index::nearest(conn, request, model, query).await?);
        what = Scan::Fresh;
    }
    scores.extend(scan(conn, request, model, query, what).await?);
    let mut best = vector::Best::new(request.candidates as usize);
    for (at, score) in scores {
        best.offer(score, at);
    }
    Ok(best.into_sorted().into_iter().map(|(_, at)| at).collect())
}

/// Which documents a scan reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scan {
    Everything,
    /// Those that the index of vectors does not have as they are.
    Fresh,
}

/// The best of the tenant's published chunks of that model, exactly.
async fn scan(
    conn: &mut Conn,
    request: &SearchRequest,
    model: &str,
    query: &[f32],
    what: Scan,
) -> StoreResult<Vec<(ChunkRef, f32)>> {
    let fresh = match what {
        Scan::Everything => "",
        Scan::Fresh => {
            "AND EXISTS (SELECT 1 FROM documents d WHERE d.tenant = c.tenant AND d.id = c.document_id \
             AND d.fresh_since IS NOT NULL)"
        }
    };
    let text = format!(
        "SELECT c.document_id, c.n, v.vector FROM chunks c \
         JOIN vectors v ON v.tenant = c.tenant AND v.model = c.model AND v.hash = c.hash \
         WHERE c.tenant = $1 AND {} AND c.model = $3 {fresh}",
        in_document(request, "c.document_id"),
    );
    let [tenant, document, _] = scope(request);
    let mut best = vector::Best::new(request.candidates as usize);
    let offer = |mut row: Row| {
        let at = chunk_ref(&mut row)?;
        if let Some(score) = vector::similarity(query, &row.bytes()?) {
            best.offer(score, at);
        }
        Ok(())
    };
    conn.each_row(&text, &[tenant, document, model.into()], offer).await?;
    Ok(best.into_sorted().into_iter().map(|(score, at)| (at, score)).collect())
}
