//! The second run, and every later one: what did not change costs nothing.

use serde_json::{Value, json};

use crate::client::Call;
use crate::fixtures::numbered;
use crate::kit::{Site, counts, texts};
use crate::provider::Provider;

#[tokio::test]
async fn a_second_run_embeds_nothing_and_says_so() {
    let provider = Provider::start();
    let site = Site::paying(&provider, 8);
    site.write("a.pdf", numbered("alpha", "first", 3));
    site.write("deep/b.pdf", numbered("beta", "first", 2));
    site.write("c.md", "# Gamma\n\nA page about turbines.\n");
    let first = site.index().await.report(0);
    assert_eq!(counts(&first), [3, 0, 0, 0, 6, 0]);
    assert_eq!((provider.paid(), first["paid_calls"].as_u64()), (6, Some(provider.calls() as u64)));

    let second = site.index().await.report(0);
    assert_eq!(counts(&second), [0, 0, 3, 0, 0, 0]);
    assert_eq!(second["paid_calls"], 0);
    let third = site.run(["index", "docs"]).await.expect(0);
    assert_eq!(
        third.stdout,
        format!(
            "documents: 0 new, 0 updated, 3 unchanged, 0 failed\nchunks: 0 embedded, 0 reused\n\
             paid: 0 calls ({}/fake-1)\n",
            provider.address
        )
    );
    assert_eq!(third.stderr.lines().filter(|line| line.contains("unchanged docs/")).count(), 3);
    assert_eq!(provider.paid(), 6);
}

#[tokio::test]
async fn one_changed_file_embeds_its_changed_chunks_alone() {
    let provider = Provider::start();
    let site = Site::paying(&provider, 8);
    let pages =
        |third: &str| crate::made::pdf_of(&["one is steady", "two is steady", third, "four is steady"]);
    site.write("a.pdf", pages("three was so"));
    site.write("b.pdf", numbered("beta", "first", 3));
    site.index().await.report(0);
    assert_eq!(provider.paid(), 7);

    site.write("a.pdf", pages("three became different"));
    let report = site.index().await.report(0);
    assert_eq!(counts(&report), [0, 1, 1, 0, 1, 3]);
    assert_eq!(provider.paid_since(7), ["three became different"]);
    let hits = site.search(&["three", "--mode", "text", "--document", "docs/a.pdf"]).await;
    assert!(texts(&hits).contains("three became different"), "{hits:?}");
    assert!(hits.iter().all(|hit| hit["version"] == 2), "{hits:?}");

    // Back to what it was: a third version, whose vectors are all known.
    site.write("a.pdf", pages("three was so"));
    let report = site.index().await.report(0);
    assert_eq!(counts(&report), [0, 1, 1, 0, 0, 4]);
    assert_eq!(provider.paid(), 8);
    let hits = site.search(&["three", "--mode", "text"]).await;
    assert!(texts(&hits).contains("three was so"), "{hits:?}");
    assert!(!texts(&hits).contains("became"), "{hits:?}");
    site.examine().await;
}

#[tokio::test]
async fn a_moved_or_copied_file_costs_nothing() {
    let provider = Provider::start();
    let site = Site::paying(&provider, 8);
    site.write("a.pdf", numbered("alpha", "first", 5));
    site.index().await.report(0);
    std::fs::copy(site.docs().join("a.pdf"), site.docs().join("copy.pdf")).unwrap();
    std::fs::rename(site.docs().join("a.pdf"), site.docs().join("moved.pdf")).unwrap();
    let report = site.index().await.report(0);
    assert_eq!(counts(&report), [2, 0, 0, 0, 0, 10]);
    assert_eq!(provider.paid(), 5);
}

/// Six documents in the hands of six handlers, each with its text read, while the provider answers nobody.
async fn all_at_once(site: &Site, provider: &Provider) -> Value {
    provider.hold_from(1);
    let (server, client) = site.serve(&["--no-work"]).await;
    let running = site.start(["index", "docs", "--json", "--concurrency", "6"]);
    // The last thing that is seen of a job before it goes to the provider is that its text is read.
    loop {
        let jobs = client.get("/jobs").await.expect(200);
        let mut read = 0;
        for job in jobs["items"].as_array().unwrap() {
            let steps = client.get(format!("/jobs/{}/steps", job["job_id"].as_str().unwrap())).await;
            let steps = steps.expect(200);
            read +=
                usize::from(steps["items"].as_array().unwrap().iter().any(|step| step["name"] == "parse"));
        }
        if read == 6 {
            break;
        }
    }
    // A second look at everything: time for whoever would go to the provider although he must not.
    client.get("/jobs").await.expect(200);
    site.examine().await;
    assert!(provider.paid() <= 8, "{} inputs at the provider, and a batch holds 8", provider.paid());
    provider.release();
    let report = running.end().await.report(0);
    server.kill();
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_are_indexed_at_the_same_time_are_paid_once() {
    let provider = Provider::start();
    let site = Site::paying(&provider, 8);
    for copy in 0..6 {
        site.write(format!("copy{copy}.pdf"), numbered("alpha", "first", 3));
    }
    let report = all_at_once(&site, &provider).await;
    assert_eq!(provider.paid(), 3);
    assert_eq!(counts(&report), [6, 0, 0, 0, 3, 15]);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_documents_together_have_no_more_than_one_batch_at_the_provider() {
    let provider = Provider::start();
    let site = Site::paying(&provider, 8);
    for at in 0..6 {
        site.write(format!("book{at}.pdf"), numbered(&format!("book{at}"), "first", 5));
    }
    let report = all_at_once(&site, &provider).await;
    assert_eq!(provider.paid(), 30);
    assert_eq!(counts(&report), [6, 0, 0, 0, 30, 0]);
}

#[tokio::test]
async fn a_document_deleted_over_http_comes_back_for_nothing() {
    let provider = Provider::start();
    let site = Site::paying(&provider, 8);
    site.write("a.pdf", numbered("alpha", "first", 4));
    site.index().await.report(0);
    let (server, client) = site.serve(&[]).await;
    assert_eq!(client.delete("/documents/docs%2Fa.pdf").await.status, 204);
    let found = client.get("/search?q=alpha&mode=text").await.expect(200);
    assert_eq!(found["hits"], json!([]));

    let report = site.index().await.report(0);
    assert_eq!(counts(&report)[4..], [0, 4]);
    let found = client.get("/search?q=alpha&mode=text").await.expect(200);
    assert_eq!(found["hits"].as_array().unwrap().len(), 4, "{found}");

    // The same through the API alone.
    assert_eq!(client.delete("/documents/docs%2Fa.pdf").await.status, 204);
    let put = Call::new("PUT", "/documents/docs%2Fa.pdf").body(numbered("alpha", "first", 4));
    client.send(put).await.expect(201);
    let job = client.post("/documents/docs%2Fa.pdf/index", json!({})).await.expect(202);
    site.run(["jobs", "watch", job["job_id"].as_str().unwrap()]).await.expect(0);
    let found = client.get("/search?q=alpha&mode=text").await.expect(200);
    assert_eq!(found["hits"].as_array().unwrap().len(), 4, "{found}");
    assert_eq!(provider.paid(), 4);
    server.signal(rustix::process::Signal::TERM);
    server.end().await.expect(0);
}

#[tokio::test]
async fn going_back_to_the_first_embedder_makes_its_index_again() {
    let provider = Provider::start();
    let local = Site::new();
    local.write("a.pdf", numbered("alpha", "first", 4));
    local.index().await.report(0);
    // The same folder and store with another embedder, and then with the first again.
    let paying = Site::paying(&provider, 8).beside(&local);
    assert_eq!(counts(&paying.index().await.report(0))[4..], [4, 0]);
    assert_eq!(paying.search(&["alpha", "--mode", "vector"]).await.len(), 4);
    for _ in 0..2 {
        local.index().await.report(0);
        assert_eq!(local.search(&["alpha", "--mode", "vector"]).await.len(), 4);
        paying.index().await.report(0);
        assert_eq!(paying.search(&["alpha", "--mode", "vector"]).await.len(), 4);
    }
    // Four chunks, and the question once.
    assert_eq!(provider.paid(), 5);
}
