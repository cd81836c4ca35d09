//! What every store of documents has to answer: one list of cases, run on SQLite, on PostgreSQL with
//! pgvector, and on PostgreSQL without it. Where there is an index of vectors, each search is asked twice,
//! before and after the index was brought up to date.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

mod support;

use std::future::Future;

use coolant_backends::{Address, Options, SqlStore};
use coolant_core::documents::{DocumentStore, FinishedStep, IndexHealth, SearchCandidates};
use coolant_core::job::LeaseToken;
use coolant_core::lifecycle::Refusal;
use coolant_core::names::Tenant;
use coolant_core::store::Store;
use serde_json::json;
use support::database::Database;
use support::documents::{Documents, MODEL, hash, id, nearest, places, random_vectors};

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Sqlite,
    Pgvector,
    PlainPostgres,
}

fn run<F: Future<Output = ()>>(kind: Kind, case: impl FnOnce(Documents) -> F) {
    let open = async |address: &Address| Documents {
        store: SqlStore::open(address, Options::default()).await.unwrap(),
        tenant: Tenant::default(),
    };
    support::run(async {
        if kind == Kind::Sqlite {
            let folder = tempfile::tempdir().unwrap();
            case(open(&Address::Sqlite(folder.path().join("coolant.db"))).await).await;
            return;
        }
        let Some(database) = Database::create().await else { return };
        let address = match kind {
            Kind::PlainPostgres => database.restricted().await,
            Kind::Sqlite | Kind::Pgvector => database.address(),
        };
        case(open(&address).await).await;
        let tables = "SELECT count(*) FROM pg_class WHERE relname = 'chunk_vectors'";
        let has_index = database.connect().await.number(tables).await == 1;
        assert_eq!(has_index, kind == Kind::Pgvector, "the case ran on what it should run on");
        database.drop_it().await;
    });
}

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        mod sqlite { $(#[test] fn $name() { super::run(super::Kind::Sqlite, super::$name); })* }
        mod pgvector { $(#[test] fn $name() { super::run(super::Kind::Pgvector, super::$name); })* }
        mod plain_postgres { $(#[test] fn $name() { super::run(super::Kind::PlainPostgres, super::$name); })* }
    };
}

cases! {
    the_same_bytes_are_no_new_version,
    a_deleted_document_is_found_no_more_and_its_versions_go_on_counting,
    a_stale_lease_publishes_nothing,
    an_older_version_does_not_replace_a_newer,
    a_new_version_replaces_the_old_whole,
    vectors_are_known_by_tenant_model_and_content,
    vectors_are_kept_although_the_lease_of_their_step_is_lost,
    korean_japanese_chinese_and_english_are_found,
    a_word_is_found_in_its_other_forms,
    a_rare_word_counts_more_than_a_frequent_one,
    words_that_look_like_operators_or_numbers_are_words,
    tenants_find_only_their_own,
    one_document_alone_can_be_searched,
    health_counts_what_is_there_and_what_is_missing,
    the_nearest_are_those_of_an_exact_comparison,
    fewer_candidates_are_the_first_of_more,
    equal_chunks_come_in_one_order,
    vectors_that_cannot_be_compared_are_not_found,
}

const EAST: &[f32] = &[1.0, 0.0];
const NORTH: &[f32] = &[0.0, 1.0];
const NORTH_EAST: &[f32] = &[0.8, 0.6];

async fn the_same_bytes_are_no_new_version(documents: Documents) {
    let first = documents.put("d", "one").await;
    assert!(first.new_document && first.new_version && first.version.version == 1);
    let same = documents.put("d", "one").await;
    assert!(!same.new_document && !same.new_version && same.version == first.version);
    let other = documents.put("d", "two").await;
    assert!(!other.new_document && other.new_version && other.version.version == 2);
    let back = documents.put("d", "one").await;
    assert!(back.new_version && back.version.version == 3, "it is the newest that counts");
    let (version, bytes) = documents.store.source(&documents.tenant, &id("d"), 2).await.unwrap().unwrap();
    assert_eq!((version, bytes.as_slice()), (other.version, b"two".as_slice()));
}

async fn a_deleted_document_is_found_no_more_and_its_versions_go_on_counting(documents: Documents) {
    documents.add("d", &[("lease", EAST)]).await;
    documents.add("other", &[("lease", NORTH)]).await;
    assert_eq!(documents.by_vector(EAST).await, ["d:0", "other:0"]);
    let Documents { store, tenant, .. } = &documents;
    assert!(store.delete_document(tenant, &id("d")).await.unwrap());
    assert!(!store.delete_document(tenant, &id("d")).await.unwrap());
    assert!(store.document(tenant, &id("d")).await.unwrap().is_none());
    assert_eq!(documents.by_vector(EAST).await, ["other:0"]);
    assert_eq!(documents.by_words(&["lease"]).await, ["other:0"]);
    // A job of the time before may still come.
    documents.publish("d", 1, &[("lease", EAST)]).await.unwrap();
    assert_eq!(documents.by_vector(EAST).await, ["other:0"]);
    assert_eq!(documents.add("d", &[("lease", EAST)]).await, 2);
    assert_eq!(documents.by_vector(EAST).await, ["d:0", "other:0"]);
}

async fn a_stale_lease_publishes_nothing(documents: Documents) {
    documents.add("d", &[("old", EAST)]).await;
    documents.put("d", "new").await;
    let (job, LeaseToken(token)) = documents.lease().await;
    let stale = documents.publication("d", 2, &[("new", EAST)], (job, LeaseToken(token + 1)));
    assert_eq!(documents.store.publish(stale).await.unwrap(), Err(Refusal::LeaseLost));
    assert_eq!(documents.by_words(&["new"]).await, [""; 0]);
    assert_eq!(documents.by_words(&["old"]).await, ["d:0"]);
}

async fn an_older_version_does_not_replace_a_newer(documents: Documents) {
    documents.put("d", "one").await;
    documents.add("d", &[("second", EAST)]).await;
    documents.publish("d", 1, &[("first", EAST)]).await.unwrap();
    assert_eq!(documents.by_words(&["first"]).await, [""; 0]);
    assert_eq!(documents.by_words(&["second"]).await, ["d:0"]);
    let found = documents.store.document(&documents.tenant, &id("d")).await.unwrap().unwrap();
    assert_eq!(found.searchable.unwrap().version, 2);
}

async fn a_new_version_replaces_the_old_whole(documents: Documents) {
    documents.add("d", &[("alpha", EAST), ("beta", NORTH), ("gamma", NORTH_EAST)]).await;
    assert_eq!(documents.by_vector(EAST).await, ["d:0", "d:2", "d:1"]);
    documents.add("d", &[("beta", NORTH), ("delta", EAST)]).await;
    let found = documents.search(documents.request(&["alpha", "beta"], Some(EAST))).await;
    assert_eq!(
        (places(&found.by_text), places(&found.by_vector)),
        (vec!["d:0".into()], vec!["d:1".into(), "d:0".into()])
    );
    assert!(found.chunks.iter().all(|chunk| chunk.version == 2 && chunk.text.starts_with("d v2: ")));
    assert_eq!(found.chunks[0].heading.as_deref(), Some("Guide"));
}

async fn vectors_are_known_by_tenant_model_and_content(documents: Documents) {
    documents.store.save_vectors(documents.batch(&[("a", EAST), ("b", NORTH)], None)).await.unwrap().unwrap();
    // What is there stays: it may be in use already.
    documents.store.save_vectors(documents.batch(&[("a", NORTH)], None)).await.unwrap().unwrap();
    let Documents { store, tenant, .. } = &documents;
    let asked = [hash("c"), hash("b"), hash("a")];
    let mut known = store.known_vectors(tenant, MODEL, &asked).await.unwrap();
    known.sort_unstable();
    assert_eq!(known, [hash("a"), hash("b")]);
    assert_eq!(store.vector(tenant, MODEL, &hash("a")).await.unwrap().as_deref(), Some(EAST));
    assert_eq!(store.known_vectors(tenant, "other", &asked).await.unwrap(), [[0; 32]; 0]);
    let other = Tenant::parse("other").unwrap();
    assert_eq!(store.known_vectors(&other, MODEL, &asked).await.unwrap(), [[0; 32]; 0]);
}

async fn vectors_are_kept_although_the_lease_of_their_step_is_lost(documents: Documents) {
    let (job, LeaseToken(token)) = documents.lease().await;
    let step = |token, name: &str| FinishedStep {
        lease: (job, LeaseToken(token)),
        name: name.into(),
        output: json!("done"),
        usage: Vec::new(),
    };
    let batch = documents.batch(&[("a", EAST)], Some(step(token, "one")));
    assert_eq!(documents.store.save_vectors(batch).await.unwrap(), Ok(()));
    let batch = documents.batch(&[("b", EAST)], Some(step(token + 1, "two")));
    assert_eq!(documents.store.save_vectors(batch).await.unwrap(), Err(Refusal::LeaseLost));
    let Documents { store, tenant, .. } = &documents;
    assert!(store.vector(tenant, MODEL, &hash("b")).await.unwrap().is_some());
    let steps = store.steps(job).await.unwrap();
    assert_eq!(steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>(), ["one"]);
}

async fn korean_japanese_chinese_and_english_are_found(documents: Documents) {
    // As `coolant-ai` makes them: words, and pairs of characters where no spaces are written.
    documents.add("ko", &[("임대 대는 끝난 난다", EAST), ("물 한 잔", EAST), ("모델 v2", EAST)]).await;
    documents.add("ja", &[("東京 京タ タワ ワー ーへ へ行 行く", EAST)]).await;
    documents.add("zh", &[("数据 据库", EAST)]).await;
    documents.add("en", &[("the lease is renewed 4o 2026 5mhz", EAST)]).await;
    documents.add("de", &[("straße naïve ünal", EAST)]).await;
    for (terms, found) in [
        (vec!["임대"], vec!["ko:0"]),
        (vec!["임대", "대를"], vec!["ko:0"]),
        (vec!["물*"], vec!["ko:1"]),
        (vec!["모*"], vec!["ko:2"]),
        (vec!["東京"], vec!["ja:0"]),
        (vec!["タワ", "ワー"], vec!["ja:0"]),
        (vec!["数据", "据库"], vec!["zh:0"]),
        (vec!["库"], vec![]),
        (vec!["straße"], vec!["de:0"]),
        (vec!["4o"], vec!["en:0"]),
        (vec!["5mhz"], vec!["en:0"]),
        (vec!["v2"], vec!["ko:2"]),
        (vec!["absent"], vec![]),
    ] {
        assert_eq!(documents.by_words(&terms).await, found, "{terms:?}");
    }
}

async fn a_word_is_found_in_its_other_forms(documents: Documents) {
    documents
        .add("d", &[("leases were renewed", EAST), ("a running embedding", EAST), ("the or", EAST)])
        .await;
    for (term, found) in [
        ("lease", vec!["d:0"]),
        ("leases", vec!["d:0"]),
        ("renewing", vec!["d:0"]),
        ("run", vec!["d:1"]),
        ("embeddings", vec!["d:1"]),
        ("the", vec!["d:2"]),
        ("or", vec!["d:2"]),
        ("embed*", vec!["d:1"]),
    ] {
        assert_eq!(documents.by_words(&[term]).await, found, "{term}");
    }
}

async fn a_rare_word_counts_more_than_a_frequent_one(documents: Documents) {
    let common: Vec<String> = (0..20).map(|n| format!("the state of the job the {n} the")).collect();
    let texts: Vec<_> = common.iter().map(|text| (text.as_str(), EAST)).collect();
    documents.add("common", &texts).await;
    documents.add("rare", &[("a fencing token is of use", EAST), ("fencing", EAST)]).await;
    let mut found = documents.by_words(&["the", "state", "of", "fencing"]).await;
    found[..2].sort();
    assert_eq!(found[..2], ["rare:0", "rare:1"]);
    assert_eq!(documents.by_words(&["fencing"]).await, ["rare:1", "rare:0"], "the shorter is more about it");
    let (twice, once) = ("token and token", "token and thing");
    documents.add("times", &[(once, EAST), (twice, EAST)]).await;
    assert_eq!(documents.by_words(&["token"]).await[0], "times:1", "twice is more than once");
}

async fn words_that_look_like_operators_or_numbers_are_words(documents: Documents) {
    let texts = ["and", "or", "not", "near", "1e5", "007", "3d", "0x1f", "null", "x"];
    documents.add("d", &texts.map(|text| (text, EAST))).await;
    for (n, text) in texts.iter().enumerate() {
        assert_eq!(documents.by_words(&[text]).await, [format!("d:{n}")], "{text}");
    }
}

async fn tenants_find_only_their_own(documents: Documents) {
    let names = ["o'neil", "back\\slash", "d", " d", "나"];
    for (n, name) in names.iter().enumerate() {
        documents.of(name).add(&format!("of{n}"), &[("lease", EAST)]).await;
    }
    for (n, name) in names.iter().enumerate() {
        let own = documents.of(name);
        assert_eq!(own.by_words(&["lease"]).await, [format!("of{n}:0")]);
        assert_eq!(own.by_vector(EAST).await, [format!("of{n}:0")]);
    }
    assert_eq!(documents.of("d").by_words(&["d"]).await, [""; 0], "a tenant's name is no word");
    assert_eq!(documents.by_vector(EAST).await, [""; 0]);
}

async fn one_document_alone_can_be_searched(documents: Documents) {
    documents.add("a", &[("lease", EAST), ("token", NORTH)]).await;
    documents.add("b", &[("lease", EAST)]).await;
    let alone = |name: &str| {
        let mut request = documents.request(&["lease"], Some(EAST));
        request.document_id = Some(id(name));
        documents.search(request)
    };
    let found = alone("a").await;
    assert_eq!(places(&found.by_text), ["a:0"]);
    assert_eq!(places(&found.by_vector), ["a:0", "a:1"]);
    assert_eq!(alone("c").await, SearchCandidates::default());
}

async fn health_counts_what_is_there_and_what_is_missing(documents: Documents) {
    documents.add("a", &[("lease", EAST), ("token", NORTH)]).await;
    documents.put("b", "only kept").await;
    documents.put("c", "no vector").await;
    documents.publish("c", 1, &[("", EAST)]).await.unwrap();
    documents.tend().await;
    let health = documents.store.index_health().await.unwrap();
    let expected = IndexHealth {
        documents: 3,
        published: 2,
        chunks: 3,
        vectors: 2,
        chunks_without_vector: 1,
        chunks_without_terms: 1,
    };
    assert_eq!(health, expected);
}

async fn the_nearest_are_those_of_an_exact_comparison(documents: Documents) {
    let vectors = random_vectors(3, 420, 24);
    let (questions, vectors) = vectors.split_at(20);
    let names: Vec<String> = (0..vectors.len()).map(|n| format!("w{n}")).collect();
    let texts: Vec<_> = names.iter().map(String::as_str).zip(vectors.iter().map(Vec::as_slice)).collect();
    for (n, texts) in texts.chunks(100).enumerate() {
        documents.add(&format!("{n}"), texts).await;
    }
    documents.tend().await;
    for question in questions {
        let expected = nearest(vectors, question, 10);
        let found = documents.store.search(documents.request(&[], Some(question))).await.unwrap().by_vector;
        let found = found
            .iter()
            .map(|at| at.document_id.as_str().parse::<usize>().unwrap() * 100 + at.chunk as usize);
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}

async fn fewer_candidates_are_the_first_of_more(documents: Documents) {
    let vectors = random_vectors(5, 60, 8);
    let texts: Vec<_> = vectors.iter().map(|vector| ("some words", vector.as_slice())).collect();
    for (n, text) in texts.iter().enumerate() {
        let own = format!("some words {n}");
        documents.add(&format!("d{n}"), &[(own.as_str(), text.1)]).await;
    }
    let ask = async |candidates| {
        let mut request = documents.request(&["words"], Some(&vectors[0]));
        request.candidates = candidates;
        let found = documents.search(request).await;
        (found.by_text, found.by_vector)
    };
    let (all_by_text, all_by_vector) = ask(60).await;
    assert_eq!((all_by_text.len(), all_by_vector.len()), (60, 60));
    for candidates in [1, 7, 59] {
        let (by_text, by_vector) = ask(candidates).await;
        assert_eq!(by_text, all_by_text[..candidates as usize]);
        assert_eq!(by_vector, all_by_vector[..candidates as usize]);
    }
}

async fn equal_chunks_come_in_one_order(documents: Documents) {
    for name in ["b", "a", "c"] {
        documents.add(name, &[("lease", EAST), ("token", NORTH), ("lease", EAST)]).await;
    }
    let order = ["a:0", "a:2", "b:0", "b:2", "c:0", "c:2"];
    assert_eq!(documents.by_words(&["lease"]).await, order);
    assert_eq!(documents.by_vector(EAST).await[..6], order);
}

async fn vectors_that_cannot_be_compared_are_not_found(documents: Documents) {
    let texts: &[(&str, &[f32])] =
        &[("zero", &[0.0, 0.0]), ("long", &[1.0, 0.0, 0.0]), ("huge", &[9e4, 1e5])];
    documents.add("d", texts).await;
    assert_eq!(documents.by_vector(NORTH_EAST).await, ["d:2"], "of one direction and dimension");
    assert_eq!(documents.by_vector(&[0.0, 0.0]).await, [""; 0]);
    assert_eq!(documents.by_vector(&[1.0, 1.0, 1.0]).await, ["d:1"]);
    let waiting = documents.store.examine().await.unwrap();
    assert!(!waiting.iter().any(|finding| finding.detail.contains("not in the index of vectors yet")));
}
