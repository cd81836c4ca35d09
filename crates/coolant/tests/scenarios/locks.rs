//! `coolant lock` on the real program: the lock around a command, beside servers, operators, signals and crashes.

use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::api::{SOON, text, until};
use crate::world::World;

/// Says a line, then ends with the status that it is told on a line.
const WAITS: &str = "echo started; read status; exit $status";

/// The program's `lock` on a store, or on a Redis beside it.
struct Site<'w> {
    world: &'w World,
    locks: Option<String>,
    /// What all names of locks begin with: a Redis is shared by all tests.
    own: String,
}

impl<'w> Site<'w> {
    fn new(world: &'w World) -> Self {
        Self { world, locks: None, own: String::new() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        // Before the command of `lock run`, and as good as behind all others.
        let mut all = vec!["lock"];
        if let Some(url) = &self.locks {
            all.extend(["--locks", url]);
        }
        all.extend(arguments);
        self.world.command_first(&all)
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.own)
    }

    /// Runs `sh -c script` under lock `name`, for 60 s unless the options say otherwise.
    fn run(&self, name: &str, options: &[&str], script: &str) -> Command {
        let key = self.key(name);
        let ttl: &[&str] = if options.contains(&"--ttl") { &[] } else { &["--ttl", "60s"] };
        self.command(&[&["run", &key], ttl, options, &["--", "/bin/sh", "-c", script]].concat())
    }

    async fn ran(&self, name: &str, script: &str) -> Ran {
        Ran::of(self.run(name, &[], script).output().await.unwrap())
    }

    /// Runs a command that waits, until it has said that it runs.
    async fn started(&self, name: &str, options: &[&str], script: &str) -> Running {
        let mut command = self.run(name, options, script);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut running = Running { process, lines };
        running.says("started").await;
        running
    }

    async fn show(&self, name: &str) -> Value {
        let output = self.command(&["show", &self.key(name), "--json"]).output().await.unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }
}

/// What came of a command.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// A command that runs under its lock.
struct Running {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    async fn says(&mut self, expected: &str) -> String {
        let line = tokio::time::timeout(Duration::from_secs(60), self.lines.next_line()).await;
        let line = line.expect("a command that starts").unwrap().unwrap_or_default();
        assert!(line.starts_with(expected), "{line}");
        line
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.process.id().unwrap().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Lets the command end with that status.
    async fn end(mut self, status: u8) -> Ran {
        let stdin = self.process.stdin.as_mut().unwrap();
        stdin.write_all(format!("{status}\n").as_bytes()).await.unwrap();
        self.ended().await
    }

    async fn ended(mut self) -> Ran {
        // Its input stays open: nothing but what the test does ends it.
        let _stdin = self.process.stdin.take();
        Ran::of(self.process.wait_with_output().await.unwrap())
    }
}

async fn success_frees_and_failure_cools(site: &Site<'_>) {
    let ran = site.ran("a", "test -n \"$COOLANT_LOCK_TOKEN\" && echo \"$COOLANT_LOCK_KEY\"").await;
    assert_eq!((ran.code, ran.stdout.trim()), (Some(0), site.key("a").as_str()), "{ran:?}");
    assert_eq!(site.show("a").await["state"], "free");

    let ran = site.ran("a", "exit 3").await;
    assert_eq!(ran.code, Some(3), "its own status: {ran:?}");
    assert!(ran.stderr.contains("cools down for another"), "{ran:?}");
    let refused = site.ran("a", "echo it ran").await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(75), ""), "{refused:?}");
    for part in ["cools down for another", "exit status 3", "@"] {
        assert!(refused.stderr.contains(part), "who, why and how long: {refused:?}");
    }
    let asked = site.run("a", &["--json"], "echo it ran").output().await.unwrap();
    let told: Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert_eq!((asked.status.code(), &told["state"]), (Some(75), &json!("cooling")));
    let left = told["retry_after_seconds"].as_f64().unwrap();
    assert!(left > 30.0 && left <= 60.0, "the rest of its time: {left}");

    let opened = site.command(&["open", &site.key("a"), "--reason", "repaired"]).output().await.unwrap();
    assert_eq!(opened.status.code(), Some(0), "{opened:?}");
    assert_eq!(site.ran("a", "exit 0").await.code, Some(0));
    let server = site.world.serve().await;
    let audit = server.api.0.get("/audit").await.expect(200)["items"][0].clone();
    let told = (&audit["action"], &audit["target"], &audit["reason"]);
    assert_eq!(told, (&json!("lock.opened"), &json!(site.key("a")), &json!("repaired")));
}

async fn statuses_are_the_commands_own(site: &Site<'_>) {
    let ends = [
        ("exit 0", 0, "free"),
        ("exit 75", 1, "cooling"),
        ("exit 127", 127, "cooling"),
        ("kill -9 $$", 137, "cooling"),
    ];
    for (n, (script, code, state)) in ends.into_iter().enumerate() {
        let name = format!("s{n}");
        let ran = site.ran(&name, script).await;
        assert_eq!(ran.code, Some(code), "{script}: {ran:?}");
        assert_eq!(site.show(&name).await["state"], state, "{script}");
    }
    let key = site.key("none");
    let missing = ["run", &key, "--ttl", "60s", "--", "/no/such/program"];
    let ran = Ran::of(site.command(&missing).output().await.unwrap());
    assert_eq!(ran.code, Some(127), "{ran:?}");
    assert!(ran.stderr.contains("cannot start `/no/such/program`"), "{ran:?}");
    assert_eq!(site.show("none").await["state"], "free", "nothing was done");
    let key = site.key("own");
    let own = ["run", &key, "--ttl", "60s", "--cooldown", "2h", "--holder", "the deploy", "--", "/bin/false"];
    assert_eq!(site.command(&own).output().await.unwrap().status.code(), Some(1));
    let shown = site.show("own").await;
    assert_eq!((&shown["holder"], &shown["reason"]), (&json!("the deploy"), &json!("exit status 1")));
    assert!(shown["retry_after_seconds"].as_f64().unwrap() > 7000.0, "{shown}");
    for wrong in [&["run", "k", "--ttl", "1d", "--", "true"][..], &["run", "k", "--ttl", "5m"], &["show", ""]]
    {
        assert_eq!(site.command(wrong).output().await.unwrap().status.code(), Some(2), "{wrong:?}");
    }
}

async fn of_two_that_race_one_runs(site: &Site<'_>) {
    let racers: Vec<_> = (0..6)
        .map(|n| {
            let mut command =
                site.run("race", &["--holder", &format!("racer {n}")], "read status; exit $status");
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    // All but the one whose command waits have ended by themselves.
    let mut racers: Vec<Option<Child>> = racers.into_iter().map(Some).collect();
    let mut refused = Vec::new();
    let five_ended = async {
        while refused.len() < 5 {
            for racer in &mut racers {
                let ended = racer.as_mut().is_some_and(|racer| racer.try_wait().unwrap().is_some());
                if ended && let Some(racer) = racer.take() {
                    refused.push(Ran::of(racer.wait_with_output().await.unwrap()));
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), five_ended).await.expect("five are refused");
    for ran in &refused {
        assert_eq!(ran.code, Some(75), "{ran:?}");
        assert!(ran.stderr.contains("`racer "), "who has it: {ran:?}");
    }
    let mut winner = racers.into_iter().flatten().next().unwrap();
    assert_eq!(site.show("race").await["state"], "held");
    winner.stdin.as_mut().unwrap().write_all(b"0\n").await.unwrap();
    assert!(winner.wait().await.unwrap().success());
    assert_eq!(site.show("race").await["state"], "free");
}

async fn signals_are_passed_on_and_count_as_failure(site: &Site<'_>) {
    let stopped = site.started("term", &[], "echo started; read status").await;
    stopped.signal(Signal::TERM);
    let ran = stopped.ended().await;
    assert_eq!(ran.code, Some(143), "{ran:?}");
    let shown = site.show("term").await;
    assert_eq!((&shown["state"], &shown["reason"]), (&json!("cooling"), &json!("ended by signal 15")));

    let polite = "trap 'echo bye; exit 0' TERM; echo started; while :; do read status; done";
    let polite = site.started("polite", &[], polite).await;
    polite.signal(Signal::TERM);
    let ran = polite.ended().await;
    assert_eq!(ran.code, Some(143), "what was told to stop is not done: {ran:?}");
    let shown = site.show("polite").await;
    assert_eq!((&shown["state"], &shown["reason"]), (&json!("cooling"), &json!("signal 15, exit status 0")));

    let stubborn = "trap 'echo no' INT; echo started; while :; do read status; done";
    let mut stubborn = site.started("stubborn", &[], stubborn).await;
    stubborn.signal(Signal::INT);
    stubborn.says("no").await;
    stubborn.signal(Signal::INT);
    assert_eq!(stubborn.ended().await.code, Some(137), "a second Ctrl-C does not ask any more");
    assert_eq!(site.show("stubborn").await["state"], "cooling");
}

async fn a_killed_holder_takes_its_command_along_and_the_lock_leaks_until_its_time_ends(site: &Site<'_>) {
    let options = ["--holder", "who was killed", "--ttl", "8s"];
    let mut command = site.run("leak", &options, "echo started $$; read status");
    let mut process =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut running = Running { process, lines };
    let line = running.says("started").await;
    let command_pid = Pid::from_raw(line.split(' ').nth(1).unwrap().parse().unwrap()).unwrap();
    running.process.kill().await.unwrap();
    let gone = async || test_kill_process(command_pid).is_err().then_some(());
    until(SOON, gone).await;
    let refused = site.ran("leak", "echo it ran").await;
    assert_eq!(refused.code, Some(75), "{refused:?}");
    assert!(refused.stderr.contains("`who was killed` holds the lock for another"), "{refused:?}");
    let ran = async || Some(site.ran("leak", "echo it ran").await).filter(|ran| ran.code == Some(0));
    assert_eq!(until(SOON, ran).await.stdout.trim(), "it ran");
}

async fn a_running_command_keeps_its_lock_over_many_ttls(site: &Site<'_>) {
    let running = site.started("long", &["--ttl", "3s"], WAITS).await;
    let end = async || text(&site.show("long").await["until"]).parse::<jiff::Timestamp>().unwrap();
    let first = end().await;
    // The lock's end has moved by two of its times.
    let moved = async || {
        let moved = end().await.as_millisecond() - first.as_millisecond();
        (moved > 6000).then_some(())
    };
    until(SOON, moved).await;
    let ran = running.end(0).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(site.show("long").await["state"], "free");
}

async fn a_command_whose_lock_is_opened_is_stopped(site: &Site<'_>) {
    let running = site.started("opened", &["--ttl", "3s"], WAITS).await;
    assert!(site.command(&["open", &site.key("opened")]).output().await.unwrap().status.success());
    let ran = running.ended().await;
    assert_eq!(ran.code, Some(143), "{ran:?}");
    assert!(ran.stderr.contains("the lock is lost"), "{ran:?}");
    assert_eq!(site.show("opened").await["state"], "free", "it is no failure of whoever lost it");
}

async fn a_server_and_the_command_see_one_lock(site: &Site<'_>) {
    let server = match &site.locks {
        None => site.world.serve().await,
        Some(url) => site.world.serve_with(&["--locks", url]).await,
    };
    let path = format!("/locks/{}", site.key("both"));
    let running = site.started("both", &["--holder", "the command"], WAITS).await;
    let body = json!({"ttl_seconds": 60, "holder": "the server's"});
    let refused = server.api.0.post(format!("{path}/acquire"), body.clone()).await.expect(423);
    assert_eq!((&refused["code"], &refused["holder"]), (&json!("LOCK_HELD"), &json!("the command")));
    assert_eq!(running.end(0).await.code, Some(0));
    let token = server.api.0.post(format!("{path}/acquire"), body).await.expect(200)["token"].clone();
    let refused = site.ran("both", "exit 0").await;
    assert!(refused.code == Some(75) && refused.stderr.contains("the server's"), "{refused:?}");
    let fail = json!({"token": token, "reason": "no paper", "permanent": true});
    server.api.0.post(format!("{path}/fail"), fail).await.expect(200);
    let refused = site.ran("both", "exit 0").await;
    assert!(refused.code == Some(75) && refused.stderr.contains("no paper"), "{refused:?}");
    server.api.0.delete(path).await.expect(204);
    assert_eq!(site.ran("both", "exit 0").await.code, Some(0));
}

async fn a_command_speaks_korean(site: &Site<'_>) {
    assert_eq!(site.ran("ko", "exit 3").await.code, Some(3));
    for (variable, locale, part) in [
        ("LANG", "ko_KR.UTF-8", "후 풀립니다. 이유: exit status 3"),
        ("LC_ALL", "ko_KR.UTF-8", "실패하여 잠금이 대기 중입니다"),
        ("LC_ALL", "C", "cools down for another"),
        ("LANG", "ko_KR.EUC-KR", "cools down for another"),
    ] {
        let output = site.run("ko", &[], "echo it ran").env(variable, locale).output().await.unwrap();
        let refused = Ran::of(output);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(75), ""), "{refused:?}");
        assert!(refused.stderr.contains(part), "{locale}: {refused:?}");
    }
    let mut show = site.command(&["show", &site.key("ko"), "--json"]);
    let shown = Ran::of(show.env("LC_ALL", "ko_KR.UTF-8").output().await.unwrap());
    assert!(shown.stdout.contains(r#""state":"cooling""#), "what programs read is the same: {shown:?}");
}

/// A Redis that is not there is told, and nothing is run without its lock.
pub(crate) async fn locks_that_are_away_run_nothing(world: &World) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let site = Site { world, locks: Some(format!("redis://:secret@127.0.0.1:{port}")), own: String::new() };
    let refused = site.ran("a", "echo it ran").await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(75), ""), "{refused:?}");
    let url = site.locks.as_deref().unwrap();
    let doctor = Ran::of(world.command(&["doctor", "--locks", url]).output().await.unwrap());
    assert!(
        doctor.code == Some(1) && doctor.stdout.contains("locks\tthe store is not available"),
        "{doctor:?}"
    );
    let wrong = Ran::of(world.command(&["doctor", "--locks", "http://:secret@h"]).output().await.unwrap());
    assert!(wrong.code == Some(2) && wrong.stderr.contains("`locks` is wrong"), "{wrong:?}");
    for said in [&refused, &doctor, &wrong] {
        assert!(!format!("{said:?}").contains("secret"), "{said:?}");
    }
}

macro_rules! everywhere {
    ($($scenario:ident as $name:ident),+ $(,)?) => {
        $(pub(crate) async fn $name(world: &World) {
            $scenario(&Site::new(world)).await;
        })+

        /// The same with the locks in Redis.
        mod redis {
            $(#[test] fn $name() {
                let Ok(url) = std::env::var("COOLANT_TEST_REDIS") else {
                    println!("skipped: redis (COOLANT_TEST_REDIS names no server; `scripts/test` starts one)");
                    return;
                };
                crate::world::on_sqlite(async |world| {
                    let own = format!("{}:", uuid::Uuid::now_v7().simple());
                    super::$scenario(&super::Site { world, locks: Some(url), own }).await;
                });
            })+
        }
    };
}

everywhere! {
    success_frees_and_failure_cools as a_command_that_succeeds_frees_its_lock_and_one_that_fails_leaves_it_cooling,
    statuses_are_the_commands_own as a_command_under_a_lock_ends_with_its_own_status,
    of_two_that_race_one_runs as of_commands_that_race_for_a_lock_one_runs,
    signals_are_passed_on_and_count_as_failure as signals_reach_the_command_and_count_as_its_failure,
    a_killed_holder_takes_its_command_along_and_the_lock_leaks_until_its_time_ends
        as a_killed_lock_run_leaks_its_lock_until_its_ttl,
    a_running_command_keeps_its_lock_over_many_ttls as a_lock_is_renewed_while_its_command_runs,
    a_command_whose_lock_is_opened_is_stopped as a_command_that_lost_its_lock_is_stopped,
    a_server_and_the_command_see_one_lock as a_server_and_a_command_share_a_lock,
    a_command_speaks_korean as a_command_speaks_the_language_of_its_locale,
}
