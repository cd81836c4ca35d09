//! A provider that is slow, full, wrong or gone.

use rustix::process::Signal;
use serde_json::Value;

use crate::fixtures::numbered;
use crate::kit::{KEY, Site, counts, failed};
use crate::provider::{Provider, Reply, refusal};

async fn only_job(site: &Site) -> Value {
    let jobs = site.run(["jobs", "list", "--json"]).await.report(0);
    let jobs = jobs["items"].as_array().unwrap();
    assert_eq!(jobs.len(), 1);
    jobs[0].clone()
}

fn site(provider: &Provider, pages: usize) -> Site {
    let site = Site::paying(provider, 8);
    site.write("a.pdf", numbered("alpha", "first", pages));
    site
}

#[tokio::test]
async fn a_rate_limit_defers_and_uses_up_no_attempt() {
    let provider = Provider::start();
    let site = site(&provider, 3);
    let body =
        r#"{"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}"#;
    provider.plan([Reply::Refuse(429, vec![("retry-after", "1".into())], body.into())]);
    let report = site.index().await.report(0);
    assert_eq!(counts(&report), [1, 0, 0, 0, 3, 0]);
    assert_eq!((provider.refused(), provider.calls(), provider.paid()), (1, 1, 3));
    let job = only_job(&site).await;
    assert_eq!((job["attempt_count"].as_u64(), job["deferred_count"].as_u64()), (Some(1), Some(1)), "{job}");
}

#[tokio::test]
async fn a_fault_of_the_provider_is_tried_again() {
    let provider = Provider::start();
    let site = site(&provider, 3);
    provider.plan([refusal(500, "The server had an error while processing your request")]);
    let report = site.index().await.report(0);
    assert_eq!(counts(&report), [1, 0, 0, 0, 3, 0]);
    assert_eq!((provider.refused(), provider.calls()), (1, 1));
    let job = only_job(&site).await;
    assert_eq!((job["attempt_count"].as_u64(), job["deferred_count"].as_u64()), (Some(2), Some(0)), "{job}");
}

#[tokio::test]
async fn a_cut_answer_is_asked_for_again_and_nothing_of_it_is_kept() {
    let provider = Provider::start();
    let site = site(&provider, 3);
    provider.plan([Reply::Cut]);
    let report = site.index().await.report(0);
    assert_eq!(counts(&report), [1, 0, 0, 0, 3, 0]);
    // The provider has billed the first call all the same.
    assert_eq!((provider.paid(), provider.distinct()), (6, 3));
    site.examine().await;
}

#[tokio::test]
async fn too_few_vectors_store_nothing_and_fail_by_their_name() {
    let provider = Provider::start();
    let site = site(&provider, 3);
    provider.always(Reply::TooFew);
    let ran = site.index().await;
    let report = ran.report(1);
    assert_eq!(failed(&report), [("docs/a.pdf".into(), "EMBEDDING_INVALID_OUTPUT".into())]);
    assert_eq!(provider.calls(), 3, "two more tries, each of them paid");
    assert_eq!(report["paid_calls"], 3);
    let index = site.examine().await;
    assert!(index.contains("0 published with 0 chunks; 0 vectors"), "{index}");
    assert_eq!(site.search(&["alpha", "--mode", "text"]).await.len(), 0);
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_split() {
    let provider = Provider::start();
    provider.take_at_most(2);
    let site = site(&provider, 13);
    let report = site.index().await.report(0);
    assert_eq!(counts(&report), [1, 0, 0, 0, 13, 0]);
    assert_eq!(provider.paid(), 13);
    let job = only_job(&site).await;
    assert_eq!(job["attempt_count"], 1, "{job}");
}

#[tokio::test]
async fn a_wrong_key_waits_for_somebody_and_is_never_shown() {
    let provider = Provider::start();
    let site = site(&provider, 3);
    let said =
        format!("Incorrect API key provided: {KEY}. You can find your API key at https://example.org.");
    let refused =
        r#"{"error": {"message": "SAID", "type": "invalid_request_error", "code": "invalid_api_key"}}"#;
    provider.always(Reply::Refuse(401, Vec::new(), refused.replace("SAID", &said)));
    let ran = site.run(["index", "docs", "--json", "--log", "trace"]).await;
    let report = ran.report(75);
    assert_eq!(counts(&report)[..4], [0, 0, 0, 0]);
    assert!(ran.stderr.contains("1 document waits"), "{ran:#?}");
    assert!(ran.stderr.contains("EMBEDDING_AUTH"), "{ran:#?}");
    assert_eq!(provider.refused(), 1);
    assert_eq!(provider.keys(), [format!("Bearer {KEY}")].into());

    // Again before the hour is over: no call, the same answer.
    let again = site.run(["index", "docs"]).await.expect(75);
    assert!(again.stderr.contains("EMBEDDING_AUTH"), "{again:#?}");
    assert_eq!(provider.refused(), 1);
    let show = site.run(["jobs", "list", "--json"]).await.expect(0);
    let doctor = site.run(["doctor", "--index"]).await;
    for text in
        [&ran.stdout, &ran.stderr, &again.stdout, &again.stderr, &show.stdout, &doctor.stdout, &doctor.stderr]
    {
        assert!(!text.contains(KEY), "{text}");
    }
    for entry in walkdir::WalkDir::new(site.path().join("coolant-data")) {
        let entry = entry.unwrap();
        if entry.file_type().is_file() {
            let bytes = std::fs::read(entry.path()).unwrap();
            let holds_it = bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
            assert!(!holds_it, "{}", entry.path().display());
        }
    }
}

#[tokio::test]
async fn a_provider_that_is_away_is_named_while_the_command_waits() {
    let away = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let site = Site::new()
        .env("COOLANT_EMBEDDING_BASE_URL", format!("http://{away}/v1"))
        .env("COOLANT_EMBEDDING_MODEL", "fake-1");
    site.write("a.pdf", numbered("alpha", "first", 3));
    let mut running = site.start(["index", "docs", "--json"]);
    running.says("waiting: docs/a.pdf: EMBEDDING_NETWORK").await;
    running.signal(Signal::INT);
    let ran = running.end().await;
    ran.report(75);
    let job = only_job(&site).await;
    assert_eq!(job["phase"], "cooling", "{job}");
    // Words alone are searched where the question cannot be embedded.
    assert_eq!(site.search(&["alpha"]).await.len(), 0);
    let ran = site.run(["search", "alpha", "--mode", "vector"]).await.expect(75);
    assert!(ran.stderr.contains("no answer from the provider"), "{ran:#?}");
}
