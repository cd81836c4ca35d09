//! What an operator says about a provider holds for the calls of the built-in job and of searches, in all processes.

use crate::fixtures::numbered;
use crate::kit::{Site, counts};
use crate::provider::Provider;

const DOCUMENTS: usize = 6;

fn site(provider: &Provider) -> Site {
    let site = Site::paying(provider, 8);
    for at in 0..DOCUMENTS {
        site.write(format!("book{at}.pdf"), numbered(&format!("book{at}"), "first", 3));
    }
    site
}

fn upstream(provider: &Provider) -> String {
    format!("{}/fake-1", provider.address)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_embedding_calls_are_in_flight_than_the_upstream_takes() {
    let provider = Provider::start();
    let site = site(&provider);
    site.run(["upstreams", "set", &upstream(&provider), "--max-concurrent", "1"]).await.expect(0);
    provider.hold_from(1);
    let first = site.start(["index", "docs", "--json"]);
    tokio::task::block_in_place(|| provider.wait_held());
    let mut second = site.start(["index", "docs", "--json"]);
    // Another job gives up its slot, since the only call takes so long.
    second.says("CONCURRENCY_LIMITED: ").await;
    provider.release();
    let (first, second) = tokio::join!(first.end(), second.end());
    for report in [first.report(0), second.report(0)] {
        let [new, updated, unchanged, failed, ..] = counts(&report);
        assert_eq!((new + updated + unchanged, failed), (DOCUMENTS as u64, 0), "{report}");
    }
    assert_eq!(provider.most_at_once(), 1);
    assert_eq!((provider.paid(), provider.distinct()), (DOCUMENTS * 3, DOCUMENTS * 3));
    let stats = site.run(["stats", "--json"]).await.report(0);
    assert_eq!(stats["paid_calls"].as_u64(), Some(provider.calls() as u64), "{stats}");
}

#[tokio::test]
async fn a_search_asks_no_provider_that_is_closed_and_answers_by_words() {
    let provider = Provider::start();
    let site = site(&provider);
    site.index().await.report(0);
    let calls = provider.calls();
    let close = ["upstreams", "close", &upstream(&provider), "--seconds", "600", "--reason", "moving house"];
    site.run(close).await.expect(0);
    assert_ne!(site.search(&["book3"]).await.len(), 0);
    let ran = site.run(["search", "book3", "--mode", "vector"]).await.expect(75);
    assert!(ran.stderr.contains("moving house"), "{ran:#?}");
    assert_eq!(provider.calls(), calls);
}
