//! What the program says it spent is what the provider counted.

use std::path::Path;

use serde_json::{Value, json};

use crate::program::{Fake, json_of, paying};

/// Three documents of different texts, and prices as the provider has them.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("docs")).unwrap();
    for name in ["a", "b", "c"] {
        let text = format!("# Report {name}\n\nThe {name} of it all is here, and nowhere else.\n");
        std::fs::write(folder.path().join("docs").join(format!("{name}.md")), text).unwrap();
    }
    std::fs::write(folder.path().join("coolant.toml"), "[prices.'*/fake-embedding']\ninput = 0.4\n").unwrap();
    folder
}

fn ledger(folder: &Path, fake: &Fake, arguments: &[&str]) -> Value {
    let mut all = vec!["ledger", "--json"];
    all.extend(arguments);
    json_of(&paying(folder, fake, &all).output().unwrap())
}

#[tokio::test]
async fn an_indexing_and_its_questions_are_booked_as_the_provider_counts_them() {
    let folder = folder();
    // One answer of no use, which is paid; one refusal, which is not.
    let fake = Fake::start("[[rule]]\nlast = 1\ndo = 'wrong'\n[[rule]]\nlast = 1\ndo = 'server_error'\n");
    let run = |arguments: &[&str]| paying(folder.path(), &fake, arguments).output().unwrap();
    let indexed = json_of(&run(&["index", "docs", "--json"]));
    assert_eq!(indexed["documents"]["new"], 3, "{indexed}");
    let found = run(&["search", "nowhere", "--json"]);
    assert!(String::from_utf8_lossy(&found.stdout).contains("Report"), "{found:?}");

    let counts = fake.counts().await;
    let sums = ledger(folder.path(), &fake, &["--by", "job_type"]);
    let of = |job_type: &str| {
        let items = sums["items"].as_array().unwrap();
        items.iter().find(|sum| sum["key"] == job_type).unwrap_or_else(|| panic!("{sums}")).clone()
    };
    let number = |value: &Value, name: &str| value[name].as_f64().unwrap();
    let both = |name: &str| number(&of("DOCUMENT_INDEX"), name) + number(&of("SEARCH"), name);
    assert_eq!(number(&of("SEARCH"), "calls"), 1.0);
    assert_eq!(both("calls"), number(&counts, "paid_calls"), "{sums} {counts}");
    assert_eq!(both("input_tokens"), number(&counts, "input_tokens"));
    let (booked, counted) = (both("cost_usd"), number(&counts, "cost_usd"));
    assert!((booked - counted).abs() < 1e-12 && booked > 0.0, "{booked} {counted}");
    assert_eq!(number(&of("DOCUMENT_INDEX"), "failed_calls"), 1.0);
    assert!(number(&of("DOCUMENT_INDEX"), "wasted_usd") > 0.0);

    let rows = ledger(folder.path(), &fake, &["--limit", "500"]);
    let text = rows.to_string();
    assert!(!text.contains("never-to-be-seen"), "no key is in the ledger");
    let price = rows["items"][0]["price"].as_str().unwrap();
    assert!(price.starts_with("own */fake-embedding in 0.4"), "{price}");
    let table = String::from_utf8(run(&["ledger", "--by", "upstream"]).stdout).unwrap();
    assert!(table.lines().next().unwrap().starts_with("upstream\tcalls"), "{table}");
}

#[tokio::test]
async fn the_same_content_under_another_name_is_counted_as_saved() {
    let folder = folder();
    let fake = Fake::with(&[]);
    let run = |arguments: &[&str]| json_of(&paying(folder.path(), &fake, arguments).output().unwrap());
    run(&["index", "docs", "--json"]);
    let paid = fake.counts().await["paid_calls"].clone();
    std::fs::copy(folder.path().join("docs/a.md"), folder.path().join("docs/d.md")).unwrap();
    assert_eq!(run(&["index", "docs", "--json"])["chunks"]["reused"], 1);
    assert_eq!(fake.counts().await["paid_calls"], paid);
    let stats = run(&["stats", "--json"]);
    assert!(stats["saved_by"]["content_usd"].as_f64().unwrap() > 0.0, "{stats}");
    assert!(stats["saved_usd"].as_f64().unwrap() >= stats["saved_by"]["content_usd"].as_f64().unwrap());
}

#[tokio::test]
async fn a_cut_answer_is_booked_as_an_estimate_that_was_for_nothing() {
    let folder = folder();
    std::fs::remove_file(folder.path().join("docs/b.md")).unwrap();
    std::fs::remove_file(folder.path().join("docs/c.md")).unwrap();
    let fake = Fake::start("[[rule]]\nlast = 1\ndo = 'cut'\n");
    json_of(&paying(folder.path(), &fake, &["index", "docs", "--json"]).output().unwrap());
    let rows = ledger(folder.path(), &fake, &[]);
    let rows = rows["items"].as_array().unwrap();
    let cut = rows.iter().find(|row| row["outcome"] == "network").unwrap_or_else(|| panic!("{rows:?}"));
    assert_eq!(
        (&cut["wasted"], &cut["estimated"], &cut["reported"]),
        (&json!(true), &json!(true), &Value::Null)
    );
    assert!(cut["cost_usd"].as_f64().unwrap() > 0.0);
    let good: Vec<_> = rows.iter().filter(|row| row["outcome"] == "ok").collect();
    assert_eq!((good.len(), &good[0]["wasted"], &good[0]["estimated"]), (1, &json!(false), &json!(false)));
}
