//! The storm, in small: shorter times and fewer jobs, not a faster clock.

use serde_json::Value;

use crate::program::{coolant, json_of};

fn storm(arguments: &[&str]) -> Value {
    let mut command = coolant(&["storm", "--json", "--jobs", "24", "--workers", "8", "--users", "4"]);
    let folder = tempfile::tempdir().unwrap();
    command.args(["--press-every", "300ms", "--call", "100ms", "--outage-after", "150ms", "--outage", "4s"]);
    command.args(["--retry-after", "2s", "--patience", "60s"]).args(arguments).current_dir(folder.path());
    json_of(&command.output().unwrap())
}

fn number(experiment: &Value, name: &str) -> u64 {
    experiment[name].as_u64().unwrap_or_else(|| panic!("{name}: {experiment}"))
}

#[test]
fn users_who_press_retry_make_a_storm_of_naive_retries_and_of_backoff() {
    let naive = storm(&["--only", "naive"])["experiments"][0].clone();
    let backoff = storm(&["--only", "backoff"])["experiments"][0].clone();
    for one in [&naive, &backoff] {
        assert_eq!(number(one, "done"), 24, "{one}");
        // More than one for each job: they knock again and again.
        assert!(number(one, "calls_in_outage") > 24, "{one}");
        let sum: u64 =
            one["calls_by_second"].as_array().unwrap().iter().map(|calls| calls.as_u64().unwrap()).sum();
        assert_eq!(sum, number(one, "calls"));
    }
    assert!(number(&naive, "paid_calls") > 24, "pressed twice, paid twice: {naive}");
    assert_eq!(number(&backoff, "paid_calls"), 24, "{backoff}");
}
