//! The ledger over HTTP.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::server::Server;

/// A job that succeeded and reported this usage.
async fn paid(server: &Server, tenant: &str, usage: Value) -> String {
    let id = server.submit(json!({"job_type": "T", "tenant": tenant})).await;
    let (_, token) = server.claim().await;
    let body = json!({"lease_token": token, "usage": usage});
    server.client.post(format!("/work/jobs/{id}/succeed"), body).await.expect(200);
    id
}

async fn calls(server: &Server, query: &str) -> Vec<Value> {
    let answer = server.client.get(format!("/ledger{query}")).await.expect(200);
    answer["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_providers_own_words_are_read_and_priced() {
    let server = Server::start().await;
    let reported = json!({"prompt_tokens": 1000, "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 600}, "completion_tokens_details": {"reasoning_tokens": 4}});
    let usage = json!({"upstream": "openai/gpt-4.1-mini", "model": "gpt-4.1-mini-2025-04-14",
        "credential": "team key", "reported": reported});
    let id = paid(&server, "t", usage).await;
    let row = &calls(&server, "").await[0];
    assert_eq!(row["job_id"], json!(id));
    assert_eq!((&row["tenant"], &row["job_type"], &row["attempt"]), (&json!("t"), &json!("T"), &json!(1)));
    let tokens =
        ["input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens"].map(|name| row[name].clone());
    assert_eq!(tokens, [json!(1000), json!(600), json!(10), json!(4)]);
    assert_eq!(row["cost_usd"], json!(0.000_236), "400 at 0.40, 600 at 0.10, 10 at 1.60 a million");
    assert!(row["price"].as_str().unwrap().contains("gpt-4.1-mini"), "{row}");
    assert_eq!(
        (&row["outcome"], &row["wasted"], &row["estimated"]),
        (&json!("ok"), &json!(false), &json!(false))
    );
    assert_eq!((&row["credential"], &row["reported"]), (&json!("team key"), &reported));
    let job = server.client.get(format!("/jobs/{id}")).await.expect(200);
    assert_eq!(job["usage"]["cost_usd"], json!(0.000_236));
}

#[tokio::test]
async fn a_stated_cost_wins_and_an_unknown_one_is_null_not_nothing() {
    let server = Server::start().await;
    let usage = json!({"upstream": "openai/gpt-4.1", "input_tokens": 10, "cost_usd": 0.5});
    paid(&server, "t", usage).await;
    server.clock.advance(Duration::from_secs(1));
    paid(&server, "t", json!({"upstream": "nobody/knows", "input_tokens": 10, "estimated": true})).await;
    let rows = calls(&server, "").await;
    assert_eq!((&rows[0]["cost_usd"], &rows[0]["price"]), (&Value::Null, &Value::Null));
    assert_eq!((&rows[1]["cost_usd"], &rows[1]["price"]), (&json!(0.5), &Value::Null));
    let sums = server.client.get("/ledger/summary?by=tenant").await.expect(200);
    let sum = &sums["items"][0];
    assert_eq!((&sum["key"], &sum["calls"], &sum["cost_usd"]), (&json!("t"), &json!(2), &json!(0.5)));
    assert_eq!((&sum["unpriced_calls"], &sum["estimated_calls"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn an_answer_of_no_use_is_wasted_and_says_why() {
    let server = Server::start().await;
    let usage = json!({"upstream": "u", "cost_usd": 0.25, "outcome": "invalid_output"});
    paid(&server, "t", usage).await;
    let row = &calls(&server, "?upstream=u").await[0];
    assert_eq!((&row["outcome"], &row["wasted"]), (&json!("invalid_output"), &json!(true)));
    let stats = server.client.get("/stats").await.expect(200);
    assert_eq!((&stats["spent_usd"], &stats["wasted_usd"]), (&json!(0.25), &json!(0.25)));
    let sums = server.client.get("/ledger/summary?by=upstream").await.expect(200);
    assert_eq!(
        (&sums["items"][0]["failed_calls"], &sums["items"][0]["wasted_usd"]),
        (&json!(1), &json!(0.25))
    );
}

#[tokio::test]
async fn the_ledger_is_filtered_and_comes_in_pages() {
    let server = Server::start().await;
    let mut ids = Vec::new();
    for (n, tenant) in ["a", "a", "b"].into_iter().enumerate() {
        ids.push(paid(&server, tenant, json!({"upstream": format!("u/{n}"), "cost_usd": 1.0})).await);
        server.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(calls(&server, "?tenant=a").await.len(), 2);
    assert_eq!(calls(&server, "?upstream=u%2F2").await[0]["job_id"], json!(ids[2]));
    assert_eq!(calls(&server, &format!("?job_id={}", ids[1])).await.len(), 1);
    let day = calls(&server, "").await[0]["at"].as_str().unwrap()[..10].to_owned();
    assert_eq!(calls(&server, &format!("?day={day}")).await.len(), 3);
    assert_eq!(calls(&server, "?day=1999-01-01").await.len(), 0);
    let first = server.client.get("/ledger?limit=2").await.expect(200);
    let second = format!("/ledger?limit=2&cursor={}", first["next_cursor"].as_str().unwrap());
    let second = server.client.get(second).await.expect(200);
    assert_eq!((second["items"][0]["job_id"].clone(), &second["next_cursor"]), (json!(ids[0]), &Value::Null));
    let days = server.client.get("/ledger/summary?by=day").await.expect(200);
    assert_eq!((&days["items"][0]["key"], &days["items"][0]["cost_usd"]), (&json!(day), &json!(3.0)));
    let types = server.client.get("/ledger/summary?by=job_type&tenant=b").await.expect(200);
    assert_eq!((&types["items"][0]["key"], &types["items"][0]["calls"]), (&json!("T"), &json!(1)));
}

#[tokio::test]
async fn a_report_that_contradicts_itself_is_refused() {
    let server = Server::start().await;
    let id = server.submit(json!({"job_type": "T"})).await;
    let (_, token) = server.claim().await;
    for (usage, field) in [
        (json!({"input_tokens": 5, "cached_tokens": 6}), "usage.input_tokens"),
        (json!({"output_tokens": 5, "reasoning_tokens": 6}), "usage.output_tokens"),
        (json!({"outcome": "so-so"}), "usage.outcome"),
        (json!({"reported": [1]}), "usage.reported"),
        (json!({"reported": {"noise": "n".repeat(5000)}}), "usage.reported"),
        (json!({"credential": ""}), "usage.credential"),
    ] {
        let body = json!({"lease_token": token, "usage": usage});
        let refused = server.client.post(format!("/work/jobs/{id}/succeed"), body).await.expect(400);
        assert_eq!(
            (&refused["code"], &refused["field"]),
            (&json!("INVALID_FIELD"), &json!(field)),
            "{refused}"
        );
    }
    assert_eq!(calls(&server, "").await.len(), 0);
}
