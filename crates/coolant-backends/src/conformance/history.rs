//! Random histories: the same calls on the store and on the model give the same answers.

use coolant_core::failure::{Failure, FailureClass};
use coolant_core::job::{JobId, Policy};
use coolant_core::lifecycle::Event;
use coolant_core::model::ModelStore;
use coolant_core::names::{JobType, LockKey, Upstream};
use coolant_core::process::{Process, ProcessId, ProcessStore};
use coolant_core::store::{
    AuditEntry, ClaimRequest, IfFailed, JobChange, JobFilter, NewJob, Page, Start, Stats, Store,
};
use coolant_core::time::Timestamp;
use coolant_core::view::Phase;
use serde_json::json;

use super::Subject;
use super::kit::*;

const MOVES: u32 = 600;

pub(super) async fn a_random_history_agrees_with_the_model_1(s: Subject) {
    history(s, 1).await;
}

pub(super) async fn a_random_history_agrees_with_the_model_2(s: Subject) {
    history(s, 2).await;
}

pub(super) async fn a_random_history_agrees_with_the_model_3(s: Subject) {
    history(s, 3).await;
}

pub(super) async fn a_random_history_agrees_with_the_model_4(s: Subject) {
    history(s, 4).await;
}

async fn history(s: Subject, seed: u64) {
    let model = ModelStore::new(s.clock.reader());
    let mut pair = Pair { s, model, dice: Dice(seed), known: Vec::new(), log: Vec::new() };
    for _ in 0..MOVES {
        pair.one_move().await;
    }
    pair.compare_everything().await;
}

/// A small generator, so that a history is the same on every machine.
struct Dice(u64);

impl Dice {
    /// 0 to `sides` - 1.
    fn roll(&mut self, sides: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((z ^ (z >> 31)) % u64::from(sides)).unwrap()
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.roll(100) < percent
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(u32::try_from(of.len()).unwrap()) as usize]
    }
}

/// The lines in which two texts differ, 40 at most, each with its number.
fn differing_lines(store: &str, model: &str) -> String {
    let (store, model): (Vec<_>, Vec<_>) = (store.lines().collect(), model.lines().collect());
    let pairs = (0..store.len().max(model.len())).map(|n| (n, store.get(n), model.get(n)));
    let differing = pairs.filter(|(_, store, model)| store != model).take(20);
    differing.map(|(n, store, model)| format!("{n}: - {store:?}\n{n}: + {model:?}\n")).collect()
}

const PROCESS: ProcessId = ProcessId(uuid::Uuid::from_u128(1));

struct Pair {
    s: Subject,
    model: ModelStore,
    dice: Dice,
    known: Vec<JobId>,
    log: Vec<String>,
}

impl Pair {
    /// Both gave the same; if not, the last moves that led there.
    #[track_caller]
    fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: String, store: &T, model: &T) {
        self.log.push(what);
        if store != model {
            let last = self.log.split_off(self.log.len().saturating_sub(12));
            let lines = differing_lines(&format!("{store:#?}"), &format!("{model:#?}"));
            panic!("after {last:#?}\nthe store (-) answers otherwise than the model (+):\n{lines}");
        }
    }

    async fn one_move(&mut self) {
        match self.dice.roll(100) {
            0..25 => self.submit().await,
            25..40 => self.claim().await,
            40..80 => self.change().await,
            80..92 => {
                let millis = self.dice.pick(&[0, 1, 999, 5_000, 30_000, 31_000, 300_000]);
                self.s.clock.advance(std::time::Duration::from_millis(millis));
                self.log.push(format!("{millis} ms pass"));
            }
            92..94 => self.sweep().await,
            94 => self.bury().await,
            _ => self.look().await,
        }
    }

    fn new_job(&mut self, n: u32) -> NewJob {
        let dice = &mut self.dice;
        let policy = Policy {
            max_attempts: 1 + dice.roll(3),
            max_lost: 1 + dice.roll(3),
            max_releases: 1 + dice.roll(4),
            max_wait: secs(100),
            timeout: secs(100),
            ..Policy::default()
        };
        let expires = dice.chance(15).then(|| self.s.clock.now().plus(secs(u64::from(dice.roll(100)))));
        let mut new = job_with(n, |spec| {
            spec.policy = policy;
            spec.queue = queue(dice.pick(&["q", "r"]));
            spec.tenant = tenant(dice.pick(&["t", "t", "u", "Ä", "v"]));
            spec.job_type = JobType::parse(dice.pick(&["A", "A", "B"])).unwrap();
            spec.priority = i8::try_from(dice.roll(3)).unwrap() - 1;
            spec.upstreams =
                Upstream::parse(dice.pick(&["u", "v"])).into_iter().filter(|_| dice.chance(30)).collect();
            spec.lock_key = dice.chance(40).then(|| LockKey::parse(dice.pick(&["L", "M"])).unwrap());
            spec.idempotency_key = dice.chance(60).then(|| key(dice.pick(&["1", "2", "3", "4", "5", "6"])));
            spec.expires_at = expires;
        });
        new.payload = json!({ "n": u32::from(dice.chance(10)) });
        if dice.chance(20) {
            new.start = Start::After(secs(u64::from(dice.roll(40))));
        }
        new
    }

    async fn submit(&mut self) {
        let mut jobs = Vec::new();
        for _ in 0..=self.dice.roll(3) {
            let n = u32::try_from(self.known.len()).unwrap() + 1;
            jobs.push(self.new_job(n));
            self.known.push(id(n));
        }
        if self.dice.chance(50) {
            // One of a call at most: two that meet the same cooldown may count as one refusal.
            jobs[0].if_failed = IfFailed::Retry;
        }
        let store = self.s.store.submit(jobs.clone()).await.unwrap();
        let model = self.model.submit(jobs.clone()).await.unwrap();
        self.same(format!("submit {jobs:?}"), &store, &model);
    }

    async fn sweep(&mut self) {
        let store = self.s.store.sweep(1000).await.unwrap();
        let model = self.model.sweep(1000).await.unwrap();
        self.same("sweep".into(), &store, &model);
    }

    /// Some of the claims were made by a process that is dead.
    async fn bury(&mut self) {
        let process = Process { id: PROCESS, renewed_at: self.s.clock.now() };
        let store = self.s.store.bury_process(process, 1000).await.unwrap();
        let model = self.model.bury_process(process, 1000).await.unwrap();
        self.same("bury".into(), &store, &model);
    }

    async fn claim(&mut self) {
        // Without jobs that the claim itself would end, its answer is the same on every store.
        self.sweep().await;
        let request = ClaimRequest {
            worker: "w".into(),
            queues: self.dice.pick(&[&["q"][..], &["q", "r"]]).iter().map(|name| queue(name)).collect(),
            job_types: self
                .dice
                .pick(&[&[][..], &["A"]])
                .iter()
                .map(|name| JobType::parse(*name).unwrap())
                .collect(),
            max: 1 + self.dice.roll(4),
            lease: self.dice.chance(20).then(|| secs(5)),
            process: self.dice.chance(50).then_some(PROCESS),
        };
        let store = self.s.store.claim(request.clone()).await.unwrap();
        let model = self.model.claim(request.clone()).await.unwrap();
        self.same(format!("claim {request:?}"), &store, &model);
    }

    async fn change(&mut self) {
        let mut changes = Vec::new();
        for _ in 0..=self.dice.roll(4) {
            if let Some(change) = self.any_change().await {
                changes.push(change);
            }
        }
        let store = self.s.store.apply(changes.clone()).await.unwrap();
        let model = self.model.apply(changes.clone()).await.unwrap();
        self.same(format!("apply {changes:?}"), &store, &model);
    }

    async fn any_change(&mut self) -> Option<JobChange> {
        let running = JobFilter { phase: Some(Phase::Running), ..JobFilter::default() };
        let running = ids(&self.model.list(&running, Page { limit: 1000, before: None }).await.unwrap());
        let from = if running.is_empty() || self.dice.chance(40) { self.known.clone() } else { running };
        if from.is_empty() {
            return None;
        }
        let id = self.dice.pick(&from);
        let newest = self.model.jobs(&[id]).await.unwrap()[0].as_ref().map_or(0, |r| r.job.counters.claims);
        let token = newest - i64::from(self.dice.chance(15));
        let event = self.event(token);
        let audit = self.dice.chance(20).then(|| AuditEntry {
            at: Timestamp::default(),
            actor: "a".into(),
            action: "b".into(),
            target: id.to_string(),
            reason: "c".into(),
        });
        Some(JobChange { audit, ..JobChange::new(id, event) })
    }

    fn event(&mut self, n: i64) -> Event {
        let dice = &mut self.dice;
        let usage = (0..dice.roll(3)).map(|cost| paid(i64::from(cost))).collect();
        match dice.roll(18) {
            0..3 => renew(n),
            3..6 => Event::SaveStep {
                token: token(n),
                name: dice.pick(&["a", "b", "c"]).into(),
                output: json!([n]),
                usage,
            },
            6 | 7 => Event::Succeed { token: token(n), result: json!(n), usage },
            8..11 => {
                let class = dice.pick(&FailureClass::ALL);
                let stated = dice.chance(30).then(|| secs(u64::from(dice.roll(90))));
                let upstream = dice.chance(50).then(|| dice.pick(&["openai/gpt", "u", "v"]).to_owned());
                let failure = Failure::new(class, "CODE", "it failed").with_retry_after(stated);
                let failure = failure.with_upstream(upstream);
                Event::Fail { token: token(n), failure, jitter: f64::from(dice.roll(100)) / 99.0, usage }
            }
            11 => defer(n, u64::from(dice.roll(60))),
            12 => release(n),
            13 => Event::Cancel,
            14 => Event::Reopen { force: dice.chance(30) },
            15 | 16 => {
                let step = dice.chance(70).then(|| dice.pick(&["a", "b", "c"]).to_owned());
                Event::Pay { token: token(n), step, usage }
            }
            _ => Event::Discard,
        }
    }

    async fn look(&mut self) {
        let filters = [
            JobFilter::default(),
            JobFilter { phase: Some(self.dice.pick(&Phase::ALL)), ..JobFilter::default() },
            JobFilter { queue: Some("q".into()), tenant: Some("t".into()), ..JobFilter::default() },
        ];
        let page = Page { limit: 1 + self.dice.roll(20), before: Some(id(1 + self.dice.roll(40))) };
        for filter in filters {
            let store = self.s.store.list(&filter, page).await.unwrap();
            let model = self.model.list(&filter, page).await.unwrap();
            self.same(format!("list {filter:?} {page:?}"), &store, &model);
        }
        for of in [None, Some(queue("q"))] {
            let store = self.s.store.stats(of.as_ref(), secs(3600)).await.unwrap();
            let model = self.model.stats(of.as_ref(), secs(3600)).await.unwrap();
            let bare =
                |stats: Stats| Stats { job_failure_rate: (stats.job_failure_rate * 1e9).round(), ..stats };
            self.same(format!("stats {of:?}"), &bare(store), &bare(model));
        }
    }

    async fn compare_everything(&mut self) {
        for id in self.known.clone() {
            let store = self.s.store.jobs(&[id]).await.unwrap();
            let model = self.model.jobs(&[id]).await.unwrap();
            self.same(format!("job {id}"), &store, &model);
            let store = self.s.store.attempts(id).await.unwrap();
            let model = self.model.attempts(id).await.unwrap();
            self.same(format!("attempts of {id}"), &store, &model);
            let store = self.s.store.ledger(id).await.unwrap();
            let model = self.model.ledger(id).await.unwrap();
            self.same(format!("ledger of {id}"), &store, &model);
            for name in ["a", "b", "c"] {
                let store = self.s.store.step(id, name).await.unwrap();
                let model = self.model.step(id, name).await.unwrap();
                self.same(format!("step {name} of {id}"), &store, &model);
            }
            if let Some(record) = &self.model.jobs(&[id]).await.unwrap()[0] {
                let store = self.s.store.ahead_of(&record.job).await.unwrap();
                let model = self.model.ahead_of(&record.job).await.unwrap();
                self.same(format!("ahead of {id}"), &store, &model);
            }
        }
        let (store, model) = (self.s.store.audit(1000).await.unwrap(), self.model.audit(1000).await.unwrap());
        self.same("audit".into(), &store, &model);
        self.look().await;
    }
}
