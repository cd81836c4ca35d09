//! Several processes on one folder and one store.

use serde_json::Value;

use crate::fixtures::numbered;
use crate::kit::{Site, counts};
use crate::provider::Provider;

const DOCUMENTS: usize = 16;
const PAGES: usize = 5;
const CHUNKS: usize = DOCUMENTS * PAGES;

fn site(provider: &Provider) -> Site {
    let site = Site::paying(provider, 8);
    for at in 0..DOCUMENTS {
        site.write(format!("book{at:02}.pdf"), numbered(&format!("book{at:02}"), "first", PAGES));
    }
    site
}

async fn is_right_and_paid_once(site: &Site, provider: &Provider) {
    assert_eq!((provider.paid(), provider.distinct()), (CHUNKS, CHUNKS));
    let stats = site.run(["stats", "--json"]).await.report(0);
    assert_eq!(stats["paid_calls"].as_u64(), Some(provider.calls() as u64), "{stats}");
    let index = site.examine().await;
    assert!(index.contains(&format!("{DOCUMENTS} published with {CHUNKS} chunks")), "{index}");
}

fn is_whole(report: &Value) {
    let [new, updated, unchanged, failed, ..] = counts(report);
    assert_eq!((new + updated + unchanged, failed), (DOCUMENTS as u64, 0), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_indexings_at_once_pay_once() {
    let provider = Provider::start();
    let site = site(&provider);
    provider.hold_from(1);
    let first = site.start(["index", "docs", "--json"]);
    tokio::task::block_in_place(|| provider.wait_held());
    let mut second = site.start(["index", "docs", "--json"]);
    second.says("files read").await;
    provider.release();
    let (first, second) = tokio::join!(first.end(), second.end());
    is_whole(&first.report(0));
    is_whole(&second.report(0));
    is_right_and_paid_once(&site, &provider).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_indexing_beside_a_server_that_works_pays_once() {
    let provider = Provider::start();
    let site = site(&provider);
    let (server, client) = site.serve(&[]).await;
    let running = site.start(["index", "docs", "--json"]);
    is_whole(&running.end().await.report(0));
    let found = client.get("/search?q=book07&mode=text&k=100").await.expect(200);
    assert_eq!(found["hits"].as_array().unwrap().len(), PAGES, "{found}");
    is_right_and_paid_once(&site, &provider).await;
    server.signal(rustix::process::Signal::TERM);
    server.end().await.expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_indexing_takes_over_from_one_that_was_killed() {
    let provider = Provider::start();
    let site = site(&provider);
    provider.hold_from(20);
    let first = site.start(["index", "docs", "--json"]);
    tokio::task::block_in_place(|| provider.wait_paid(20, || false));
    let second = site.start(["index", "docs", "--json"]);
    first.kill();
    first.end().await;
    provider.release();
    is_whole(&second.end().await.report(0));
    assert_eq!(provider.distinct(), CHUNKS);
    assert!(provider.paid() <= CHUNKS + 8, "{}", provider.paid());
    site.examine().await;
}
