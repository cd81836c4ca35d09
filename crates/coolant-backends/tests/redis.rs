//! Leaky locks in Redis beside others who use it, and over its crashes.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where it goes wrong, and says why")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use coolant_backends::RedisLocks;
use coolant_core::lock::{Cooldown, LockAnswer, LockEvent, LockRefusal, LockState, LockStore, LockToken};
use coolant_core::names::LockName;
use coolant_core::store::StoreError;

/// What a variable of the test's surroundings says; `None`, and says so, where it is not set.
fn given(variable: &str) -> Option<String> {
    let value = std::env::var(variable).ok();
    if value.is_none() {
        println!("skipped: redis ({variable} is not set; `scripts/test` sets it)");
    }
    value
}

fn unique(name: &str) -> LockName {
    LockName::parse(format!("{name}-{}", uuid::Uuid::now_v7().simple())).unwrap()
}

async fn acquire(locks: &RedisLocks, key: &LockName) -> LockAnswer {
    let event = LockEvent::Acquire { holder: "coolant".into(), ttl: Duration::from_secs(300) };
    locks.change_lock(key, event).await.unwrap()
}

fn is_taken(answer: &LockAnswer) -> bool {
    matches!(answer, Err(LockRefusal::Taken(_)))
}

/// The other program.
struct Python(Child, BufReader<std::process::ChildStdout>);

impl Python {
    /// Starts it; `None`, and says so, where there is none with redis-py.
    fn start(url: &str) -> Option<Self> {
        let python = given("COOLANT_TEST_PYTHON")?;
        if !Command::new(&python).args(["-c", "import redis"]).status().unwrap().success() {
            println!("skipped: redis-py (COOLANT_TEST_PYTHON has none)");
            return None;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis_client.py");
        let mut child = Command::new(python)
            .args([script.as_os_str(), url.as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Some(Self(child, answers))
    }

    fn say(&mut self, what: &str, key: &LockName) -> String {
        writeln!(self.0.stdin.as_mut().unwrap(), "{what} {key}").unwrap();
        let mut answer = String::new();
        self.1.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn programs_with_the_convention_of_their_own_and_coolant_exclude_one_another() {
    let Some(url) = given("COOLANT_TEST_REDIS") else { return };
    let Some(mut python) = Python::start(&url) else { return };
    let locks = RedisLocks::open(&url, "").unwrap();
    for (take, leave) in [("set", "delete"), ("lock", "unlock")] {
        let key = unique("both");
        assert_eq!(python.say(take, &key), "True");
        let refused = acquire(&locks, &key).await;
        let Err(LockRefusal::Taken(seen)) = &refused else { panic!("both have it: {refused:?}") };
        assert!(matches!(seen.state, LockState::Held { holder: None, until: Some(_) }), "{seen:?}");
        let left = seen.left().unwrap();
        assert!(left > Duration::from_secs(200) && left <= Duration::from_secs(300), "{left:?}");
        python.say(leave, &key);

        let token = acquire(&locks, &key).await.unwrap().token;
        assert_eq!(python.say("get", &key), token.0.to_string(), "the key is the lock, its value the token");
        let refused = python.say(take, &key);
        assert!(["None", "False"].contains(&refused.as_str()), "both have it: {refused}");
        let reason = "exit status 3".into();
        let failed = LockEvent::Fail { token, reason, cooldown: Cooldown::RestOfTtl };
        locks.change_lock(&key, failed).await.unwrap().unwrap();
        assert_ne!(python.say(take, &key), "True", "cooling keeps it, too");
        locks.change_lock(&key, LockEvent::Open).await.unwrap().unwrap();
        assert_eq!(python.say(take, &key), "True");
        python.say(leave, &key);
    }
}

#[tokio::test]
async fn a_key_without_an_end_is_held_by_somebody_until_an_operator_opens_it() {
    let Some(url) = given("COOLANT_TEST_REDIS") else { return };
    let Some(mut python) = Python::start(&url) else { return };
    let (locks, key) = (RedisLocks::open(&url, "").unwrap(), unique("forever"));
    assert_eq!(python.say("forever", &key), "True");
    let seen = locks.lock(&key).await.unwrap();
    assert_eq!((seen.state.clone(), seen.left()), (LockState::Held { holder: None, until: None }, None));
    assert!(is_taken(&acquire(&locks, &key).await));
    let guessed = LockEvent::Succeed { token: LockToken(1) };
    let answer = locks.change_lock(&key, guessed).await.unwrap();
    assert_eq!(answer, Err(LockRefusal::Lost), "the value is 1, but no token of ours");
    locks.change_lock(&key, LockEvent::Open).await.unwrap().unwrap();
    assert_eq!(python.say("get", &key), "None");
}

/// A Redis of a test's own, in a folder that outlives it.
struct Own {
    process: Child,
    url: String,
}

impl Own {
    fn start(program: &str, folder: &Path, port: u16) -> Self {
        let process = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
            .arg(folder)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, url: format!("redis://127.0.0.1:{port}/0") }
    }
}

impl Drop for Own {
    /// As a crash does.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Asks until the server answers.
async fn until_there(locks: &RedisLocks, key: &LockName) -> LockState {
    let asking = async {
        loop {
            match locks.lock(key).await {
                Ok(seen) => return seen.state,
                Err(StoreError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asking).await.expect("a server that starts")
}

fn program() -> Option<(String, tempfile::TempDir, u16)> {
    let program = given("COOLANT_TEST_REDIS_BIN")?;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    Some((program, tempfile::tempdir().unwrap(), port))
}

#[tokio::test]
async fn a_lock_outlives_a_crash_of_a_redis_that_writes_everything_down() {
    let Some((program, folder, port)) = program() else { return };
    let server = Own::start(&program, folder.path(), port);
    let locks = RedisLocks::open(&server.url, "app:").unwrap();
    let (held, cooling, closed) = (unique("held"), unique("cooling"), unique("closed"));
    until_there(&locks, &held).await;
    let token = acquire(&locks, &held).await.unwrap().token;
    for (key, cooldown) in [(&cooling, Cooldown::RestOfTtl), (&closed, Cooldown::Permanent)] {
        let token = acquire(&locks, key).await.unwrap().token;
        let event = LockEvent::Fail { token, reason: "no paper".into(), cooldown };
        locks.change_lock(key, event).await.unwrap().unwrap();
    }
    drop(server);
    let away = locks.change_lock(&held, LockEvent::Succeed { token }).await;
    assert!(matches!(away, Err(StoreError::Unavailable(_))), "{away:?}");

    let _server = Own::start(&program, folder.path(), port);
    let state = until_there(&locks, &held).await;
    assert_eq!((state.as_str(), state.holder()), ("held", Some("coolant")));
    for (key, name) in [(&cooling, "cooling"), (&closed, "closed")] {
        let state = locks.lock(key).await.unwrap().state;
        assert_eq!((state.as_str(), state.reason()), (name, Some("no paper")));
        assert!(is_taken(&acquire(&locks, key).await));
    }
    locks.change_lock(&held, LockEvent::Succeed { token }).await.unwrap().unwrap();
    assert!(acquire(&locks, &held).await.unwrap().token > token);
}

#[tokio::test]
async fn a_holder_whose_lock_a_redis_forgot_is_told_and_its_token_stays_the_smaller_one() {
    let Some((program, folder, port)) = program() else { return };
    let server = Own::start(&program, folder.path(), port);
    let locks = RedisLocks::open(&server.url, "").unwrap();
    let key = unique("forgotten");
    until_there(&locks, &key).await;
    let old = acquire(&locks, &key).await.unwrap().token;
    drop(server);
    // As after a failover to a replica that had not heard of it.
    let empty: PathBuf = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let _server = Own::start(&program, &empty, port);
    assert_eq!(until_there(&locks, &key).await, LockState::Free);
    let new = acquire(&locks, &key).await.unwrap().token;
    assert!(new > old, "what is guarded can tell {old:?} from {new:?}");
    for late in [
        LockEvent::Renew { token: old, ttl: Duration::from_secs(300) },
        LockEvent::Succeed { token: old },
        LockEvent::Fail { token: old, reason: "no".into(), cooldown: Cooldown::Permanent },
    ] {
        assert_eq!(locks.change_lock(&key, late).await.unwrap(), Err(LockRefusal::Lost));
    }
    assert_eq!(locks.lock(&key).await.unwrap().state.holder(), Some("coolant"));
}

#[tokio::test]
async fn tokens_grow_over_a_clock_that_was_set_back() {
    let Some(url) = given("COOLANT_TEST_REDIS") else { return };
    let prefix = format!("t{}:", uuid::Uuid::now_v7().simple());
    let (locks, key) = (RedisLocks::open(&url, &prefix).unwrap(), unique("clock"));
    let first = acquire(&locks, &key).await.unwrap();
    assert_eq!(first.token.0, first.now.as_millis(), "the first one is the time");
    locks.change_lock(&key, LockEvent::Succeed { token: first.token }).await.unwrap().unwrap();
    // What the last token is that was given out while the clock was a year ahead.
    let ahead = first.token.0 + 365 * 86_400_000;
    let client = redis::Client::open(url.as_str()).unwrap();
    let mut raw = client.get_multiplexed_async_connection().await.unwrap();
    let set = redis::cmd("SET")
        .arg(format!("{prefix}coolant:lock-token"))
        .arg(ahead)
        .query_async::<()>(&mut raw)
        .await;
    set.unwrap();
    for n in 1..=3 {
        let token = acquire(&locks, &key).await.unwrap().token;
        assert_eq!(token.0, ahead + n);
        locks.change_lock(&key, LockEvent::Succeed { token }).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_redis_that_is_not_there_is_away_and_an_address_that_is_none_is_wrong() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let locks = RedisLocks::open(&format!("redis://:secret@127.0.0.1:{port}"), "").unwrap();
    let away = locks.lock(&unique("a")).await.unwrap_err();
    assert!(matches!(away, StoreError::Unavailable(_)), "{away:?}");
    assert!(!format!("{away:?} {locks:?}").contains("secret"));
    for wrong in ["", "redis://", "http://:secret@h", "redis://:secret@h:port"] {
        let error = RedisLocks::open(wrong, "").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
