//! `kill -9` at random points: what it costs, and what a search shows meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use crate::client::Client;
use crate::database::Database;
use crate::kit::{Site, counts, failed, postgres_url};
use crate::made::pdf_of;
use crate::provider::Provider;

const DOCUMENTS: usize = 40;
const KILLS: usize = 10;
const BATCH: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_kills_cost_at_most_a_batch_each() {
    Killing::new(None, BATCH).await.first_indexing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_kills_during_an_update_leave_the_old_version_searchable() {
    Killing::new(None, BATCH).await.update().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_ten_kills_cost_at_most_a_batch_each() {
    let Some(database) = Database::create().await else { return };
    Killing::new(Some(postgres_url(&database)), BATCH).await.first_indexing().await;
    database.drop_it().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_ten_kills_during_an_update_leave_the_old_version_searchable() {
    let Some(database) = Database::create().await else { return };
    Killing::new(Some(postgres_url(&database)), BATCH).await.update().await;
    database.drop_it().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_document_goes_on_where_it_was_killed() {
    const PAGES: usize = 96;
    let provider = Provider::start();
    let site = Site::paying(&provider, BATCH);
    let texts: Vec<String> = (1..=PAGES).map(|at| page("book", "first", at)).collect();
    site.write("book.pdf", pdf_of(&texts));
    for kill in 1..=5 {
        let target = provider.paid() + 2 * BATCH;
        provider.hold_from(target);
        let mut running = site.start(["index", "docs", "--json"]);
        let is_paid = tokio::task::block_in_place(|| provider.wait_paid(target, || running.has_ended()));
        assert!(is_paid, "{:#?}", running.end().await);
        running.kill();
        running.end().await;
        provider.release();
        // One batch was kept, one was lost on its way back.
        assert_eq!((provider.paid(), provider.distinct()), (2 * BATCH * kill, BATCH * (kill + 1)));
        assert!(site.search(&["book", "--mode", "text"]).await.is_empty());
    }
    let report = site.index().await.report(0);
    assert_eq!(counts(&report), [1, 0, 0, 0, PAGES as u64, 0]);
    assert_eq!((provider.paid(), provider.distinct()), (PAGES + 5 * BATCH, PAGES));
    site.examine().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_whose_worker_is_killed_every_time_is_indexed_by_the_next_run_all_the_same() {
    let provider = Provider::start();
    let site = Site::paying(&provider, BATCH);
    site.write("book.pdf", pdf_of(&["one", "two", "three"]));
    for lost in 1..=4 {
        provider.hold_from(3 * lost);
        let mut running = site.start(["index", "docs", "--json"]);
        // From the third loss on it is dead-lettered, and reopened by whoever runs the command again.
        let is_paid = tokio::task::block_in_place(|| provider.wait_paid(3 * lost, || running.has_ended()));
        assert!(is_paid, "{:#?}", running.end().await);
        running.kill();
        running.end().await;
        provider.release();
    }
    let report = site.index().await.report(0);
    assert_eq!(counts(&report), [1, 0, 0, 0, 3, 0]);
    assert_eq!(provider.paid(), 3 * 5);
}

/// The documents of one edition: how many pages each has. Every other page changes with the edition.
type Library = BTreeMap<String, usize>;

struct Killing {
    site: Arc<Site>,
    provider: Provider,
    rng: StdRng,
    library: Library,
    pages: usize,
}

fn page(document: &str, edition: &str, page: usize) -> String {
    let edition = if page % 2 == 1 { edition } else { "unchanged" };
    format!("{document} {edition} page{page} speaks of machines that cool")
}

impl Killing {
    async fn new(store: Option<String>, batch: usize) -> Self {
        let seed = std::env::var("COOLANT_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(rand::random::<u64>);
        println!("COOLANT_TEST_SEED={seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let provider = Provider::start();
        let site = Arc::new(Site::paying(&provider, batch).store(store));
        site.run(["migrate"]).await.expect(0);
        let library: Library =
            (0..DOCUMENTS).map(|at| (format!("book{at:02}"), rng.random_range(2..=12))).collect();
        let pages = library.values().sum();
        Self { site, provider, rng, library, pages }
    }

    async fn first_indexing(mut self) {
        self.write("first");
        let (server, client) = self.site.serve(&["--no-work"]).await;
        let watch = Watch::start(client, self.library.clone(), false);
        self.kill_again_and_again(&watch).await;
        self.finish("first", self.pages).await;
        watch.end("first").await;
        server.kill();
    }

    async fn update(mut self) {
        self.write("first");
        self.site.index().await.report(0);
        assert_eq!(self.provider.paid(), self.pages);
        self.write("second");
        let changed: usize = self.library.values().map(|count| count.div_ceil(2)).sum();
        let (server, client) = self.site.serve(&["--no-work"]).await;
        let watch = Watch::start(client, self.library.clone(), true);
        self.kill_again_and_again(&watch).await;
        self.finish("second", self.pages + changed).await;
        watch.end("second").await;
        server.kill();
    }

    fn write(&self, edition: &str) {
        for (name, &count) in &self.library {
            let texts: Vec<String> = (1..=count).map(|at| page(name, edition, at)).collect();
            self.site.write(format!("{name}.pdf"), pdf_of(&texts));
        }
    }

    /// Kills the whole process group once a random number of inputs was paid in its run. Every other time
    /// the answer to that batch is held back, so that a batch is surely lost.
    async fn kill_again_and_again(&mut self, watch: &Watch) {
        for kill in 0..KILLS {
            let paid = self.provider.paid();
            let target = paid + self.rng.random_range(1..=12);
            if kill % 2 == 0 {
                self.provider.hold_from(target);
            }
            let mut running = self.site.start(["index", "docs", "--json"]);
            let reached =
                tokio::task::block_in_place(|| self.provider.wait_paid(target, || running.has_ended()));
            if !reached {
                panic!("kill {kill}: it ended before its kill: {:#?}", running.end().await);
            }
            running.kill();
            self.provider.release();
            let ran = running.end().await;
            assert_eq!(ran.status.code(), None, "{ran:#?}");
            println!(
                "kill {kill}: {} inputs paid, {} of them different",
                self.provider.paid(),
                self.provider.distinct()
            );
            watch.has_seen_more().await;
            self.site.examine().await;
        }
    }

    async fn finish(&self, edition: &str, total: usize) {
        let report = self.site.index().await.report(0);
        assert_eq!(failed(&report), []);
        let (paid, distinct) = (self.provider.paid(), self.provider.distinct());
        println!("{edition}: {paid} inputs paid for {total} chunks and {KILLS} kills of at most {BATCH}");
        assert_eq!(distinct, total);
        assert!(paid <= total + KILLS * BATCH, "{paid} inputs paid for {total} chunks");
        assert_eq!(counts(&self.site.index().await.report(0)), [0, 0, DOCUMENTS as u64, 0, 0, 0]);
        assert_eq!(self.provider.paid(), paid);
        let index = self.site.examine().await;
        assert!(index.contains(&format!("{DOCUMENTS} published with {} chunks", self.pages)), "{index}");
    }
}

/// Searches for every document over and over, while it is indexed, and holds what it sees against what
/// there may be.
struct Watch {
    rounds: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    changed: Arc<tokio::sync::Notify>,
    watching: tokio::task::JoinHandle<BTreeMap<String, &'static str>>,
}

impl Watch {
    fn start(client: Client, library: Library, is_update: bool) -> Self {
        let (rounds, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let changed = Arc::new(tokio::sync::Notify::new());
        let (counting, stopping, telling) = (Arc::clone(&rounds), Arc::clone(&stop), Arc::clone(&changed));
        let watching = tokio::spawn(async move {
            let mut seen = BTreeMap::new();
            loop {
                let is_last = stopping.load(Ordering::SeqCst);
                for (name, &count) in &library {
                    let edition = look(client, name, count).await;
                    let before = seen.insert(name.clone(), edition).unwrap_or("nothing");
                    let is_forward = matches!(
                        (before, edition),
                        ("nothing", "nothing" | "first")
                            | ("first", "first" | "second")
                            | ("second", "second")
                    );
                    let is_fresh = is_update && before == "nothing" && edition == "first";
                    assert!(
                        is_fresh || (is_forward && !(is_update && edition == "nothing")),
                        "{name}: {before}, then {edition}"
                    );
                }
                counting.fetch_add(1, Ordering::SeqCst);
                telling.notify_waiters();
                if is_last {
                    return seen;
                }
            }
        });
        Self { rounds, stop, changed, watching }
    }

    /// Waits until every document was looked at from now on.
    async fn has_seen_more(&self) {
        let rounds = self.rounds.load(Ordering::SeqCst);
        loop {
            let changed = self.changed.notified();
            if self.rounds.load(Ordering::SeqCst) >= rounds + 2 {
                return;
            }
            assert!(!self.watching.is_finished(), "the search showed what it must not: see above");
            let _ = tokio::time::timeout(std::time::Duration::from_millis(100), changed).await;
        }
    }

    async fn end(self, edition: &str) {
        self.stop.store(true, Ordering::SeqCst);
        let seen = self.watching.await.unwrap();
        println!("{} rounds of searches over {} documents", self.rounds.load(Ordering::SeqCst), seen.len());
        assert!(seen.values().all(|seen| *seen == edition), "{seen:?}");
    }
}

/// Which edition of a document a search shows: a whole one, or nothing.
async fn look(client: Client, name: &str, count: usize) -> &'static str {
    let found = client.get(format!("/search?q={name}&mode=text&k=100&document_id=docs%2F{name}.pdf")).await;
    let found = found.expect(200);
    let hits = found["hits"].as_array().unwrap();
    let mut texts: Vec<&str> = hits.iter().map(|hit| hit["text"].as_str().unwrap()).collect();
    texts.sort_unstable();
    let all_of = |edition: &str| {
        let mut all: Vec<String> = (1..=count).map(|at| page(name, edition, at)).collect();
        all.sort_unstable();
        texts == all
    };
    let version = |version: i64| hits.iter().all(|hit: &Value| hit["version"] == version);
    match () {
        () if hits.is_empty() => "nothing",
        () if all_of("first") && version(1) => "first",
        () if all_of("second") && version(2) => "second",
        () => panic!("neither edition of {name}: {found}"),
    }
}
