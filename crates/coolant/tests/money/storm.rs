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

#[test]
fn with_coolant_an_outage_meets_one_call_of_each_worker_and_nothing_is_lost() {
    // `Retry-After` outlasts the outage, so that no probe meets it; flags given later win.
    let cooled =
        storm(&["--only", "coolant", "--outage", "3s", "--retry-after", "5s"])["experiments"][0].clone();
    assert!(number(&cooled, "calls_in_outage") <= 8, "one for each worker at most: {cooled}");
    assert_eq!((number(&cooled, "done"), number(&cooled, "dead_lettered")), (24, 0), "{cooled}");
    assert_eq!(number(&cooled, "paid_calls"), 24, "each is paid once: {cooled}");
    assert!(number(&cooled, "presses") > 24, "{cooled}");
    assert!(
        number(&cooled, "most_calls_of_a_job") <= 2,
        "one that met the outage, one that went well: {cooled}"
    );
    let recovery = cooled["recovery_seconds"].as_f64().unwrap();
    assert!(recovery <= 30.0, "on a busy machine, too: {cooled}");
}
