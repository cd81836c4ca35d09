//! Schedules on real processes: several of them, one job a tick.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{Api, SOON, text, until};
use crate::world::World;

/// The ticks of a schedule that became jobs, in seconds since 1970, oldest first.
async fn ticks(api: &Api, name: &str) -> Vec<i64> {
    let jobs = api.items(format!("/jobs?limit=500&tag=schedule:{name}")).await;
    let tick = |job: &Value| {
        let key = text(&job["idempotency_key"]);
        let at: jiff::Timestamp = key.strip_prefix(&format!("schedule:{name}:")).unwrap().parse().unwrap();
        at.as_second()
    };
    let mut ticks: Vec<_> = jobs.iter().map(tick).collect();
    ticks.sort_unstable();
    ticks
}

pub(crate) async fn each_tick_of_a_schedule_is_one_job_on_two_servers(world: &World) {
    let first = world.serve().await;
    let second = world.serve().await;
    let body = json!({"cron": "* * * * * *", "job": {"job_type": "PAID"}});
    first.api.0.put("/schedules/each-second", body).await.expect(201);
    let enough = async || Some(ticks(&second.api, "each-second").await).filter(|ticks| ticks.len() >= 5);
    until(SOON, enough).await;
    // One of them dies, and the other goes on.
    first.kill().await;
    let before = ticks(&second.api, "each-second").await.len();
    let more = async || Some(ticks(&second.api, "each-second").await).filter(|t| t.len() >= before + 3);
    until(SOON, more).await;
    second.api.0.post("/schedules/each-second/pause", json!({})).await.expect(200);

    let all = ticks(&second.api, "each-second").await;
    let expected: Vec<_> = (all[0]..).take(all.len()).collect();
    assert_eq!(all, expected, "none twice, none missed");
    let last = second.api.0.get("/schedules/each-second").await.expect(200)["last_at"].clone();
    let last: jiff::Timestamp = text(&last).parse().unwrap();
    assert_eq!(last.as_second(), *all.last().unwrap());
    assert_eq!(second.api.stat("duplicate_request_count").await, 0.0);
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert_eq!(ticks(&second.api, "each-second").await.len(), all.len(), "a rest is a rest");
}

/// Runs `coolant schedules …`; gives its exit code and what it said.
async fn command(world: &World, arguments: &[&str]) -> (Option<i32>, String) {
    let output = world.command(&[&["schedules"], arguments].concat()).output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code(), said.into_owned())
}

pub(crate) async fn an_operator_keeps_schedules_by_command(world: &World) {
    let set =
        ["set", "nightly", "--cron", "0 3 * * MON-FRI", "--time-zone", "Asia/Seoul", "--job-type", "PAID"];
    let more = ["--payload", r#"{"a": 1}"#, "--queue", "slow", "--catch-up", "skip", "--json"];
    let (code, said) = command(world, &[&set[..], &more[..]].concat()).await;
    let shown: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!((code, &shown["catch_up"], &shown["job"]["queue"]), (Some(0), &json!("skip"), &json!("slow")));
    assert_eq!((&shown["job"]["payload"], &shown["time_zone"]), (&json!({"a": 1}), &json!("Asia/Seoul")));
    assert_eq!(shown["next_ticks"].as_array().unwrap().len(), 5);
    let (_, listed) = command(world, &["list"]).await;
    assert!(listed.contains("nightly\t0 3 * * MON-FRI\tAsia/Seoul\tPAID\t20"), "{listed}");
    let (_, listed) = command(world, &["list", "--json"]).await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["items"], json!([shown]));
    let (_, said) = command(world, &["pause", "nightly"]).await;
    assert!(said.contains("next paused"), "{said}");
    let (_, said) = command(world, &["run", "nightly", "--key", "1"]).await;
    assert!(said.contains("PAID waiting"), "{said}");
    let (_, said) = command(world, &["resume", "nightly"]).await;
    assert_eq!(said.matches("  next 20").count(), 5, "{said}");
    assert_eq!(command(world, &["show", "nightly"]).await.1, said);
    assert_eq!(command(world, &["list", "--tenant", "acme", "--json"]).await.1.trim(), r#"{"items":[]}"#);

    let wrong = ["set", "x", "--cron", "61 * * * *", "--job-type", "PAID"];
    let (code, said) = command(world, &wrong).await;
    assert!(code == Some(2) && said.contains("`cron`") && said.contains("five fields"), "{said}");
    assert_eq!(command(world, &["delete", "nightly"]).await.0, Some(0));
    let (code, said) = command(world, &["show", "nightly"]).await;
    assert!(code == Some(1) && said.contains("there is no such schedule"), "{said}");
}
