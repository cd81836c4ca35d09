//! Ctrl-C, SIGTERM, and whoever stops listening.

use rustix::process::Signal;

use crate::fixtures::numbered;
use crate::kit::{Ran, Running, Site, counts};
use crate::provider::Provider;

fn site(provider: &Provider) -> Site {
    let site = Site::paying(provider, 4);
    for document in ["a", "b", "c", "d", "e", "f"] {
        site.write(format!("{document}.pdf"), numbered(document, "first", 6));
    }
    site
}

/// Runs until the first batch is at the provider.
fn running(site: &Site, provider: &Provider) -> Running {
    provider.hold_from(1);
    let running = site.start(["index", "docs", "--json"]);
    tokio::task::block_in_place(|| provider.wait_held());
    running
}

async fn stops_and_goes_on(signal: Signal) {
    let provider = Provider::start();
    let site = site(&provider);
    let mut running = running(&site, &provider);
    running.signal(signal);
    running.says("stopping").await;
    provider.release();
    let ran = running.end().await;
    let report = ran.report(75);
    let [done, 0, 0, 0, embedded, 0] = counts(&report) else { panic!("{report}") };
    let left = format!("stopped with {} documents left; run the same command again to go on", 6 - done);
    assert!(ran.stderr.contains(&left), "{ran:#?}");
    // What was under way was finished, counted, and nothing else begun.
    assert_eq!((embedded, provider.paid() as u64), (6 * done, 6 * done));
    assert!((1..6).contains(&done), "{report}");

    let report = site.index().await.report(0);
    assert_eq!(counts(&report)[..4], [6 - done, 0, done, 0]);
    assert_eq!(provider.paid(), 36, "nothing was paid twice");
    site.examine().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_stops_cleanly_and_the_next_run_goes_on() {
    stops_and_goes_on(Signal::INT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_stops_cleanly_and_the_next_run_goes_on() {
    stops_and_goes_on(Signal::TERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_ctrl_c_stops_at_once() {
    let provider = Provider::start();
    let site = site(&provider);
    let mut running = running(&site, &provider);
    running.signal(Signal::INT);
    running.says("stopping").await;
    running.signal(Signal::INT);
    // The provider still holds its answer: the command does not wait for it.
    let ran = running.end().await;
    ran.report(75);
    let paid = provider.paid();
    assert!((1..=4).contains(&paid), "{paid}");
    provider.release();
    let report = site.index().await.report(0);
    assert_eq!(counts(&report)[3], 0);
    assert!(provider.paid() <= 36 + 4, "{}", provider.paid());
    let jobs = site.run(["jobs", "list", "--json"]).await.report(0);
    for job in jobs["items"].as_array().unwrap() {
        assert_eq!((&job["status"], &job["lost_count"]), (&"SUCCEEDED".into(), &0.into()), "{job}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_stops_reading_does_not_stop_the_work() {
    let provider = Provider::start();
    for with_json in [true, false] {
        let site = site(&provider);
        let mut running = site.start(["index", "docs"].into_iter().chain(with_json.then_some("--json")));
        running.hang_up();
        let ran: Ran = running.end().await;
        assert_eq!(ran.status.code(), Some(0), "{ran:#?}");
        let index = site.examine().await;
        assert!(index.contains("6 published with 36 chunks"), "{index}");
    }
}

#[tokio::test]
async fn a_result_that_cannot_be_written_is_no_success() {
    let site = Site::new();
    site.write("a.txt", "Words.");
    let mut command = site.command(["index", "docs", "--json"]);
    command.stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let ran = Running::new(command).end().await;
    assert_eq!(ran.status.code(), Some(1), "{ran:#?}");
    assert!(ran.stderr.contains("cannot write"), "{ran:#?}");
}
