//! Documents on PostgreSQL: the extension that comes late, searches and publications that overlap, and the
//! index of vectors at a size where it is used.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::collections::BTreeSet;
use std::time::Instant;

use coolant_backends::{Condition, Finding, Options, SqlStore};
use coolant_core::documents::{DocumentStore, SearchRequest};
use coolant_core::names::Tenant;
use support::database::{Database, Raw};
use support::documents::{Documents, id, nearest, places, random_vectors};
use support::{beside_another, run};

const EAST: &[f32] = &[1.0, 0.0];
const NORTH: &[f32] = &[0.0, 1.0];

fn with(case: impl AsyncFnOnce(Documents, Raw)) {
    beside_another(Options::default(), async |store, raw| {
        case(Documents { store, tenant: Tenant::default() }, raw).await;
    });
}

async fn vectors_finding(store: &SqlStore) -> Finding {
    let findings = store.examine().await.unwrap();
    findings.into_iter().find(|finding| finding.what == "vectors").unwrap()
}

#[test]
fn a_database_gets_the_extension_later() {
    run(async {
        let Some(database) = Database::create().await else { return };
        let address = database.restricted().await;
        let store = SqlStore::open(&address, Options::default()).await.unwrap();
        let documents = Documents { store, tenant: Tenant::default() };
        documents.add("a", &[("lease", EAST), ("token", NORTH)]).await;
        documents.add("b", &[("lease", EAST)]).await;
        let finding = vectors_finding(&documents.store).await;
        assert_eq!(finding.condition, Condition::Warning);
        assert!(finding.detail.contains("CREATE EXTENSION vector"), "{}", finding.detail);
        let before = documents.by_vector(EAST).await;
        assert_eq!(SqlStore::migrate(&address).await.unwrap(), 0, "it goes on without the extension");

        let raw = database.connect().await;
        raw.say("CREATE SCHEMA elsewhere; CREATE EXTENSION vector SCHEMA elsewhere").await;
        let finding = vectors_finding(&documents.store).await;
        assert!(finding.detail.contains("SET SCHEMA public"), "{}", finding.detail);
        raw.say("ALTER EXTENSION vector SET SCHEMA public").await;
        let finding = vectors_finding(&documents.store).await;
        assert!(finding.detail.contains("run `coolant migrate`"), "{}", finding.detail);
        assert_eq!(documents.by_vector(EAST).await, before);

        SqlStore::migrate(&address).await.unwrap();
        let finding = vectors_finding(&documents.store).await;
        assert!(finding.detail.contains("2 documents are not in the index"), "{}", finding.detail);
        assert_eq!(documents.by_vector(EAST).await, before);
        assert_eq!(raw.number("SELECT count(*) FROM chunk_vectors").await, 3);
        assert_eq!(vectors_finding(&documents.store).await.condition, Condition::Good);

        raw.say("DROP EXTENSION vector CASCADE").await;
        assert_eq!(documents.by_vector(EAST).await, before);
        documents.add("c", &[("lease", EAST)]).await;
        raw.say("CREATE EXTENSION vector SCHEMA public").await;
        SqlStore::migrate(&address).await.unwrap();
        assert_eq!(documents.by_vector(EAST).await, ["a:0", "b:0", "c:0", "a:1"]);
        assert_eq!(raw.number("SELECT count(*) FROM chunk_vectors").await, 4);
        database.drop_it().await;
    });
}

#[test]
fn a_search_beside_a_publication_sees_the_old_version_whole_then_the_new() {
    with(async |documents, raw| {
        documents.add("d", &[("old", EAST)]).await;
        documents.put("d", "new").await;
        let texts: &[(&str, &[f32])] = &[("new", NORTH), ("newer", NORTH)];
        documents.store.save_vectors(documents.batch(texts, None)).await.unwrap().unwrap();
        // Somebody has the place of its second chunk: the publication stops there, the first already written.
        raw.say(
            "BEGIN; INSERT INTO chunks (tenant, document_id, version, model, n, hash, text, terms) \
             VALUES ('default', 'd', 9, 'm', 1, '', 'foreign', 'foreign')",
        )
        .await;
        let publishing = tokio::spawn({
            let documents = documents.clone();
            async move { documents.publish("d", 2, &[("new", NORTH), ("newer", NORTH)]).await }
        });
        raw.until_somebody_waits().await;
        for _ in 0..2 {
            let found = documents.request(&["old", "new", "newer"], Some(NORTH));
            let found = documents.store.search(found).await.unwrap();
            assert_eq!(
                (places(&found.by_text), places(&found.by_vector)),
                (vec!["d:0".into()], vec!["d:0".into()])
            );
            assert_eq!(found.chunks[0].version, 1);
            // The index is tended around the document that is being published.
            documents.store.tend_index().await.unwrap();
        }
        raw.say("ROLLBACK").await;
        publishing.await.unwrap().unwrap();
        let found = documents.search(documents.request(&["old", "new", "newer"], Some(NORTH))).await;
        assert_eq!(places(&found.by_vector), ["d:0", "d:1"]);
        assert!(found.chunks.iter().all(|chunk| chunk.version == 2));
        assert_eq!(raw.number("SELECT count(*) FROM chunk_vectors").await, 2, "the old copy is gone");
    });
}

#[test]
fn a_search_that_began_before_a_publication_ends_in_the_state_it_began_with() {
    with(async |documents, raw| {
        documents.add("d", &[("old", EAST), ("older", NORTH)]).await;
        documents.tend().await;
        documents.put("d", "new").await;
        let texts: &[(&str, &[f32])] = &[("new", NORTH)];
        documents.store.save_vectors(documents.batch(texts, None)).await.unwrap().unwrap();
        // The search has its words and waits for the vectors; a publication does not touch those.
        raw.say("BEGIN; LOCK TABLE chunk_vectors, vectors IN ACCESS EXCLUSIVE MODE").await;
        let searching = tokio::spawn({
            let documents = documents.clone();
            let request = documents.request(&["old", "new"], Some(EAST));
            async move { documents.store.search(request).await.unwrap() }
        });
        raw.until_somebody_waits().await;
        documents.publish("d", 2, texts).await.unwrap();
        raw.say("COMMIT").await;
        let found = searching.await.unwrap();
        assert_eq!(places(&found.by_text), ["d:0"]);
        assert_eq!(places(&found.by_vector), ["d:0", "d:1"]);
        assert_eq!(found.chunks.len(), 2);
        assert!(found.chunks.iter().all(|chunk| chunk.version == 1));
        assert_eq!(documents.by_vector(EAST).await, ["d:0"]);
    });
}

#[test]
fn processes_tend_one_at_a_time_and_unchanged_content_keeps_its_copy() {
    with(async |documents, raw| {
        for n in 0..30 {
            documents.add(&format!("d{n}"), &[("lease", EAST), ("token", NORTH)]).await;
        }
        let all = (0..4).map(|_| documents.tend());
        futures::future::join_all(all).await;
        documents.tend().await;
        assert_eq!(raw.number("SELECT count(*) FROM chunk_vectors").await, 60);
        assert_eq!(raw.number("SELECT count(*) FROM documents WHERE fresh_since IS NOT NULL").await, 0);
        let newest = "SELECT max(xmin::text::bigint) FROM chunk_vectors WHERE document_id = 'd7'";
        let before = raw.number(newest).await;
        documents.add("d7", &[("token", NORTH), ("lease", EAST)]).await;
        documents.tend().await;
        assert_eq!(raw.number(newest).await, before, "nothing was written anew");
        documents.add("d7", &[("token", NORTH)]).await;
        documents.store.delete_document(&documents.tenant, &id("d8")).await.unwrap();
        documents.tend().await;
        assert_eq!(raw.number("SELECT count(*) FROM chunk_vectors").await, 57);
    });
}

/// Chunks of the large test: over the size from which there is an HNSW index and it is used.
const MANY: usize = 12_000;
/// HNSW misses some; of vectors without any pattern, the hardest there are, at most this share.
const LEAST_RECALL: f64 = 0.95;

#[test]
fn at_size_searches_go_through_the_indexes_and_find_nearly_all_of_an_exact_search() {
    with(async |documents, raw| {
        // A search does not depend on whether a vacuum has come by.
        raw.say("ALTER TABLE chunks SET (autovacuum_enabled = off)").await;
        raw.say("ALTER TABLE vectors SET (autovacuum_enabled = off)").await;
        raw.say("ALTER TABLE chunk_vectors SET (autovacuum_enabled = off)").await;
        let vectors = random_vectors(1, MANY, 24);
        let names: Vec<String> = (0..MANY).map(|n| format!("w{n} all s{}", n % 100)).collect();
        let texts: Vec<_> = names.iter().map(String::as_str).zip(vectors.iter().map(Vec::as_slice)).collect();
        documents.store.save_vectors(documents.batch(&texts[..10_000], None)).await.unwrap().unwrap();
        documents.put("large", "large").await;
        let began = Instant::now();
        documents.publish("large", 1, &texts[..10_000]).await.unwrap();
        println!("publishing 10000 chunks: {:?}", began.elapsed());
        documents.add("rest", &texts[10_000..]).await;
        let small = documents.of("small");
        small.add("small", &texts[..50]).await;
        let began = Instant::now();
        documents.tend().await;
        println!("copying {MANY} vectors and building their index: {:?}", began.elapsed());
        let valid = "SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
                     WHERE c.relname LIKE 'chunk_vectors_hnsw_24_%' AND i.indisvalid";
        assert_eq!(raw.number(valid).await, 1);

        let questions = random_vectors(2, 50, 24);
        let check = recall(&documents, &vectors, &questions).await;
        println!("recall@10 over {MANY} vectors without pattern: {check:.3}");
        assert!(check >= LEAST_RECALL, "{check}");
        for question in &questions[..5] {
            let found = small.by_vector(question).await;
            let exact: Vec<_> =
                nearest(&vectors[..50], question, 10).iter().map(|n| format!("small:{n}")).collect();
            assert_eq!(found, exact, "a small tenant is searched exactly");
            let mut request = documents.request(&[], Some(question));
            request.document_id = Some(id("rest"));
            let found = documents.store.search(request).await.unwrap().by_vector;
            let exact: Vec<_> =
                nearest(&vectors[10_000..], question, 10).iter().map(|n| format!("rest:{n}")).collect();
            assert_eq!(places(&found), exact, "and so is a document");
        }
        assert_eq!(documents.by_words(&["w11999"]).await, ["rest:1999"]);
        assert_eq!(small.by_words(&["all", "s7"]).await[0], "small:7");
        is_used(&raw, "relname = 'chunks' AND indexrelname = 'chunks_lexemes'").await;
        is_used(&raw, "indexrelname LIKE 'chunk_vectors_hnsw_24_%'").await;

        // What a build that was cut short leaves behind.
        raw.say(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid IN \
             (SELECT oid FROM pg_class WHERE relname LIKE 'chunk_vectors_hnsw_24_%')",
        )
        .await;
        assert_eq!(vectors_finding(&documents.store).await.condition, Condition::Warning);
        documents.tend().await;
        assert_eq!(raw.number(valid).await, 1);
        assert_eq!(vectors_finding(&documents.store).await.condition, Condition::Good);
    });
}

async fn recall(documents: &Documents, vectors: &[Vec<f32>], questions: &[Vec<f32>]) -> f64 {
    let mut hits = 0;
    for question in questions {
        let request = documents.request(&[], Some(question));
        let found = documents.store.search(request).await.unwrap().by_vector;
        let found: BTreeSet<usize> = found
            .iter()
            .map(|at| at.chunk as usize + if at.document_id == id("rest") { 10_000 } else { 0 })
            .collect();
        hits += nearest(vectors, question, 10).iter().filter(|n| found.contains(n)).count();
    }
    hits as f64 / (questions.len() * 10) as f64
}

/// Waits until the server's statistics, which come a little late, know of a use of that index.
async fn is_used(raw: &Raw, which: &str) {
    raw.until(&format!("SELECT coalesce(sum(idx_scan), 0) > 0 FROM pg_stat_user_indexes WHERE {which}"))
        .await;
}

#[test]
fn a_word_of_every_chunk_neither_slows_a_search_nor_hides_what_it_finds() {
    with(async |documents, raw| {
        let names: Vec<String> = (0..21_000).map(|n| format!("all w{n} s{}", n % 100)).collect();
        let texts: Vec<_> = names.iter().map(|name| (name.as_str(), EAST)).collect();
        documents.put("d", "d").await;
        documents.publish("d", 1, &texts).await.unwrap();
        raw.say("ANALYZE chunks").await;
        let search = async |terms: &[&str], candidates| {
            let request = SearchRequest { candidates, ..documents.request(terms, None) };
            places(&documents.store.search(request).await.unwrap().by_text)
        };
        assert_eq!(search(&["all", "w7"], 1).await, ["d:7"]);
        let found = search(&["all", "w7"], 10).await;
        assert_eq!((found.len(), found[0].as_str()), (10, "d:7"), "the rest has the other word");
        assert_eq!(search(&["all"], 10).await.len(), 10);
        let found = search(&["all", "s5", "absent"], 50).await;
        assert!(found.len() == 50 && found.iter().all(|place| place.ends_with('5')), "{found:?}");
    });
}

#[test]
fn a_model_of_any_name_and_long_vectors_are_indexed_beside_others() {
    with(async |documents, raw| {
        let long = random_vectors(4, 3, 5000);
        let texts: Vec<_> = ["a", "b", "c"].into_iter().zip(long.iter().map(Vec::as_slice)).collect();
        documents.add("long", &texts).await;
        documents.add("short", &[("east", EAST)]).await;
        assert_eq!(documents.by_vector(&long[1]).await[0], "long:1");
        assert_eq!(documents.by_vector(EAST).await, ["short:0"]);
        let kinds = "SELECT count(DISTINCT (model, dimensions)) FROM chunk_vectors";
        assert_eq!(raw.number(kinds).await, 2);
    });
}
