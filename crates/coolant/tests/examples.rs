//! The examples do what their readers are told: run as processes of their own, killed in the middle.

#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]
#![allow(clippy::print_stdout, reason = "a test says what it skips")]
#![allow(dead_code, unreachable_pub, reason = "the scenarios' kit, of which these tests use a part")]

#[path = "scenarios/api.rs"]
mod api;
#[path = "../../coolant-backends/tests/support/database.rs"]
mod database;
#[path = "scenarios/fleet.rs"]
mod fleet;
#[path = "money/program.rs"]
mod program;
mod support;
#[path = "scenarios/world.rs"]
mod world;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::api::{Api, SOON, until};
use crate::program::Fake;
use crate::support::client;
use crate::world::on_sqlite;

/// The Python worker; killed when it is dropped. `None`, and says so, without Python.
fn python_worker(server: &Api) -> Option<Child> {
    python("worker.py", server, &["SHOUT", "2"])
}

fn python(name: &str, server: &Api, arguments: &[&str]) -> Option<Child> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let mut command = Command::new("python3");
    command.arg(script).arg(format!("http://{}", server.0.address)).args(arguments).kill_on_drop(true);
    match command.spawn() {
        Ok(child) => Some(child),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: there is no python3 on this machine");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn shout(texts: &[&str]) -> Value {
    json!({"job_type": "SHOUT", "payload": {"texts": texts}, "max_attempts": 3, "retry_delays_seconds": [0]})
}

#[test]
fn the_python_worker_holds_its_lease_and_reports_what_went_wrong() {
    on_sqlite(async |world| {
        let server = world.serve().await;
        let api = &server.api;
        let Some(mut worker) = python_worker(api) else { return };
        // Longer than its lease of 2 s: only beats keep it.
        let long = api.create(shout(&[&"ab".repeat(20), "c"])).await;
        let job = api.until_status(&long, "SUCCEEDED").await;
        assert_eq!(job["result"], json!({"text-0": "AB".repeat(20), "text-1": "C"}));
        assert_eq!(api.history(&long).await, ["python: succeeded"]);

        let broken = api.create(json!({"job_type": "SHOUT", "payload": {}, "max_attempts": 1})).await;
        let job = api.until_status(&broken, "FAILED").await;
        assert_eq!(
            (&job["last_error_code"], &job["last_error_message"]),
            (&json!("BROKE"), &json!("KeyError('texts')"))
        );
        assert_eq!(job["last_error_class"], "handler_error");
        assert!(worker.try_wait().unwrap().is_none(), "it works on after a failure");
        worker.kill().await.unwrap();
    });
}

#[test]
fn the_python_worker_goes_on_where_a_killed_one_was() {
    on_sqlite(async |world| {
        let server = world.serve().await;
        let api = &server.api;
        let Some(mut first) = python_worker(api) else { return };
        let id = api.create(shout(&["first", &"x".repeat(600), "third"])).await;
        let steps = async || api.items(format!("/jobs/{id}/steps")).await.len();
        until(SOON, async || (steps().await == 1).then_some(())).await;
        first.kill().await.unwrap();

        // Somebody else does the long text; then the example takes over with two texts done.
        let request = json!({"wait_seconds": 20, "lease_seconds": 1});
        let claim = api.claims("helper", request).await.pop().expect("the killed worker's job");
        assert_eq!(claim.body["steps"], json!({"text-0": "FIRST"}));
        let body = json!({"lease_token": claim.token, "output": "LONG"});
        api.0.put(format!("/work/jobs/{id}/steps/text-1"), body).await.expect(200);
        api.report(&claim, "release", json!({})).await.expect(200);

        let Some(mut second) = python_worker(api) else { return };
        let job = api.until_status(&id, "SUCCEEDED").await;
        assert_eq!(job["result"], json!({"text-0": "FIRST", "text-1": "LONG", "text-2": "THIRD"}));
        let history = ["python: lost, WORKER_LOST", "helper: released", "python: succeeded"];
        assert_eq!(api.history(&id).await, history);
        second.kill().await.unwrap();
    });
}

#[test]
fn the_python_worker_waits_out_a_restart_of_the_server() {
    on_sqlite(async |world| {
        let server = world.serve().await;
        let address = server.api.0.address;
        let Some(mut worker) = python_worker(&server.api) else { return };
        let id = server.api.create(shout(&["before", &"ab".repeat(10), "after"])).await;
        let api = server.api;
        let steps = async || api.items(format!("/jobs/{id}/steps")).await.len();
        until(SOON, async || (steps().await == 1).then_some(())).await;
        server.kill().await;
        let server = world.serve_at(address).await;
        server.api.until_status(&id, "SUCCEEDED").await;
        assert!(worker.try_wait().unwrap().is_none());
        worker.kill().await.unwrap();
    });
}

#[test]
fn the_python_worker_that_pays_asks_first_and_reports_what_it_was_told() {
    on_sqlite(async |world| {
        let server = world.serve().await;
        let api = &server.api;
        let provider = Fake::start("[[rule]]\nlast = 1\ndo = \"rate_limit\"\nretry_after = \"1s\"");
        let Some(mut worker) = python("paid_worker.py", api, &[&provider.base_url()]) else { return };
        let messages = json!({"messages": [{"role": "user", "content": "say it"}]});
        let job = |key: &str| json!({"job_type": "ASK", "payload": messages, "idempotency_key": key, "upstreams": ["openai/gpt-4.1-mini"]});
        let first = api.create(job("first")).await;
        let done = api.until_status(&first, "SUCCEEDED").await;
        assert!(done["result"].as_str().unwrap().len() > 20, "{done}");
        assert_eq!(api.history(&first).await, ["python: deferred, LLM_RATE_LIMIT", "python: succeeded"]);
        assert_eq!((&done["usage"]["calls"], &done["attempt_count"]), (&json!(1), &json!(1)), "{done}");

        // A limit that is used up: the worker is told when to ask again, and so are those who ask why.
        let limits = json!({"requests_per_minute": 1});
        api.0.put("/upstreams/openai%2Fgpt-4.1-mini", limits).await.expect(200);
        let second = api.create(job("second")).await;
        api.until_status(&second, "SUCCEEDED").await;
        let third = api.create(job("third")).await;
        let why = until(SOON, async || {
            let why = api.0.get(format!("/jobs/{third}/explain")).await.expect(200);
            (why["reasons"][0]["reason"] == "rate_limited").then_some(why)
        });
        let why = why.await;
        assert!(why["earliest_at"].is_string(), "{why}");
        assert_eq!(provider.counts().await["calls"], 3);
        assert!(worker.try_wait().unwrap().is_none(), "it works on");
        worker.kill().await.unwrap();
    });
}

/// The example of that name, if it is built.
fn example(name: &str) -> Option<PathBuf> {
    let tests = std::env::current_exe().unwrap();
    let example = tests.parent().unwrap().parent().unwrap().join("examples").join(name);
    if !example.exists() {
        println!("skipped: the example is not built (`cargo build --examples`, or a run of all tests)");
        return None;
    }
    Some(example)
}

/// What an example says that ends well.
async fn said(command: &mut Command) -> String {
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn the_embedded_example_pays_once_however_often_it_is_run() {
    let Some(example) = example("embedded") else { return };
    let folder = tempfile::tempdir().unwrap();
    let run = async || said(Command::new(&example).current_dir(folder.path())).await;
    assert_eq!(run().await, "a paid call\nHello, Ada!\n");
    assert_eq!(run().await, "Hello, Ada!\n");
}

#[tokio::test]
async fn the_example_of_a_paid_call_waits_for_its_provider_and_pays_once() {
    let Some(example) = example("paid_call") else { return };
    let busy = "[[rule]]\nlast = 1\ndo = \"rate_limit\"\nretry_after = \"1s\"";
    let provider = Fake::start(busy);
    let folder = tempfile::tempdir().unwrap();
    let run = async || said(Command::new(&example).arg(provider.base_url()).current_dir(folder.path())).await;

    let first = run().await;
    let summary = first.strip_prefix("a paid call\na paid call\n").expect("a refusal, then an answer");
    assert!(summary.len() > 20, "{first}");
    assert_eq!(run().await, summary);
    let counts = provider.counts().await;
    assert_eq!((&counts["calls"], &counts["paid_calls"]), (&json!(2), &json!(1)));

    // The ledger knows it to the nano-dollar, and the refusal not at all.
    let mut ledger = program::coolant(&["ledger", "--json", "--store", "sqlite:coolant-data/summaries.db"]);
    let ledger = program::json_of(&ledger.current_dir(folder.path()).output().unwrap());
    let [row] = &ledger["items"].as_array().unwrap()[..] else { panic!("not one row: {ledger}") };
    assert_eq!((&row["step"], &row["outcome"]), (&json!("summary"), &json!("ok")), "{row}");
    let cost =
        row["input_tokens"].as_f64().unwrap() * 400.0 + row["output_tokens"].as_f64().unwrap() * 1600.0;
    assert_eq!((row["cost_usd"].as_f64().unwrap() * 1e9).round(), cost, "{row}");
}
