//! Each tick becomes one job: on SQLite and on PostgreSQL, by two processes that race, over crashes, outages,
//! jumps of the clock and changes of the schedule. Two engines with handles of their own stand for two
//! processes; time is a value.

use std::sync::Arc;
use std::time::Duration;

use coolant::engine::schedule::{ScheduleRequest, Troubles, fire_due};
use coolant::engine::submit::SubmitRequest;
use coolant::engine::{Caller, Engine};
use coolant_backends::{Address, Options, SqlStore};
use coolant_core::model::ManualClock;
use coolant_core::names::{ScheduleName, Tenant};
use coolant_core::schedule::{CatchUp, Schedule, ScheduleStore};
use coolant_core::store::{JobFilter, Page, Store};
use coolant_core::time::Timestamp;
use tokio::sync::Barrier;

use crate::database::Database;
use crate::support::memory::{Fault, FaultyStore, engine_over};

/// 2026-01-01T00:00:00.300Z: no tick of anything.
const START: i64 = 1_767_225_600_300;

/// One process: an engine with a store of its own, which can be made to fail.
struct Process {
    engine: Engine,
    store: Arc<FaultyStore>,
    troubles: Troubles,
}

impl Process {
    fn on(store: Arc<SqlStore>) -> Self {
        let store = Arc::new(FaultyStore::new(store));
        let engine = engine_over(store.clone());
        Self { engine, store, troubles: Troubles::new() }
    }

    /// Looks for due schedules, as housekeeping does.
    async fn look(&mut self) -> Result<(), String> {
        let looked = fire_due(self.engine.store(), self.engine.bell(), &mut self.troubles).await;
        looked.map_err(|error| error.to_string())
    }

    async fn set(&self, name: &str, cron: &str, catch_up: CatchUp) {
        let job = SubmitRequest { job_type: "T".into(), ..SubmitRequest::default() };
        let request = ScheduleRequest { cron: cron.into(), job, catch_up, ..ScheduleRequest::default() };
        self.engine.put_schedule(&Caller::local(), name, request).await.unwrap();
    }

    /// The ticks of a schedule that became jobs, oldest first, as the hours, minutes and seconds of its keys.
    async fn ticks(&self, name: &str) -> Vec<String> {
        let page = Page { limit: 1000, before: None };
        let jobs = self.store.list(&JobFilter::default(), page).await.unwrap();
        let prefix = format!("schedule:{name}:");
        let keys = jobs.iter().filter_map(|record| record.job.spec.idempotency_key.as_ref());
        let of_name = keys.filter_map(|key| key.as_str().strip_prefix(&prefix));
        let mut ticks: Vec<_> = of_name.map(|tick| tick[8..].trim_end_matches('Z').to_owned()).collect();
        ticks.sort();
        ticks
    }
}

/// Two processes on one store, and its time.
struct World {
    a: Process,
    b: Process,
    clock: Arc<ManualClock>,
}

impl World {
    async fn open(address: &Address) -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(START));
        let options = Options { clock: Some(clock.reader()), ..Options::default() };
        let a = Process::on(SqlStore::open(address, options.clone()).await.unwrap());
        let b = Process::on(SqlStore::open(address, options).await.unwrap());
        Self { a, b, clock }
    }

    fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    async fn kept(&self, name: &str) -> Schedule {
        let name = ScheduleName::parse(name).unwrap();
        self.a.store.schedule(&Tenant::default(), &name).await.unwrap().unwrap()
    }
}

/// Runs a case on a new SQLite file and on a new PostgreSQL database.
fn on_each_store(case: impl AsyncFn(World)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        case(World::open(&Address::Sqlite(folder.path().join("coolant.db"))).await).await;
        let Some(database) = Database::create().await else { return };
        case(World::open(&database.address()).await).await;
        database.drop_it().await;
    });
}

#[test]
fn of_two_processes_that_race_for_a_tick_one_makes_its_job() {
    on_each_store(async |mut world| {
        world.a.set("s", "* * * * * *", CatchUp::Latest).await;
        // Neither saves before both are about to: each round is a race.
        let barrier = Some(Arc::new(Barrier::new(2)));
        world.a.store.meet(barrier.clone());
        world.b.store.meet(barrier);
        for _ in 0..10 {
            world.advance(1);
            let (a, b) = tokio::join!(world.a.look(), world.b.look());
            a.unwrap();
            b.unwrap();
        }
        let expected: Vec<_> = (1..=10).map(|second| format!("T00:00:{second:02}")).collect();
        assert_eq!(world.a.ticks("s").await.iter().map(|t| &t[2..]).collect::<Vec<_>>(), expected);
        let stats = world.a.store.stats(None, Duration::from_secs(3600)).await.unwrap();
        assert_eq!((stats.queue_depth, stats.duplicate_request_count), (10, 0));
    });
}

#[test]
fn a_process_that_dies_at_a_tick_costs_neither_the_tick_nor_a_second_job() {
    on_each_store(async |mut world| {
        world.a.set("s", "*/10 * * * * *", CatchUp::Latest).await;
        world.advance(10);
        // It dies before it has saved: nobody else comes to the barrier.
        world.a.store.meet(Some(Arc::new(Barrier::new(2))));
        let look = world.a.look();
        assert!(tokio::time::timeout(Duration::from_millis(300), look).await.is_err(), "it waits there");
        world.b.look().await.unwrap();
        assert_eq!(world.b.ticks("s").await, ["01T00:00:10"]);

        // It dies after it has saved: it never hears the answer.
        world.advance(10);
        world.a.store.meet(None);
        world.a.store.fail(Fault::LoseAnswer);
        world.a.look().await.unwrap_err();
        world.b.look().await.unwrap();
        world.a.store.fail(Fault::None);
        world.a.look().await.unwrap();
        assert_eq!(world.b.ticks("s").await, ["01T00:00:10", "01T00:00:20"]);
    });
}

#[test]
fn a_schedule_put_back_to_an_earlier_tick_makes_no_second_job() {
    on_each_store(async |mut world| {
        world.a.set("s", "*/10 * * * * *", CatchUp::All).await;
        let before = world.kept("s").await;
        world.advance(30);
        world.a.look().await.unwrap();
        assert_eq!(world.a.ticks("s").await.len(), 3);
        // As an older backup would, or a program that submitted and died before it had saved.
        let now = world.kept("s").await;
        let back = Schedule { version: now.version, ..before };
        assert!(world.a.store.save_schedule(back, Vec::new()).await.unwrap());
        world.b.look().await.unwrap();
        assert_eq!(world.a.ticks("s").await.len(), 3);
        let stats = world.a.store.stats(None, Duration::from_secs(3600)).await.unwrap();
        assert_eq!(stats.duplicate_request_count, 0, "nobody asked twice");
        assert_eq!(world.kept("s").await.next_at, now.next_at);
    });
}

#[test]
fn ticks_that_nobody_looked_at_are_caught_up_as_the_policy_says() {
    on_each_store(async |mut world| {
        for (name, policy) in [("skip", CatchUp::Skip), ("latest", CatchUp::Latest), ("all", CatchUp::All)] {
            world.a.set(name, "0 * * * *", policy).await;
        }
        world.a.set("often", "*/30 * * * * *", CatchUp::All).await;
        world.advance(4 * 3600 + 1200);
        let (a, b) = tokio::join!(world.a.look(), world.b.look());
        a.unwrap();
        b.unwrap();
        assert!(world.a.ticks("skip").await.is_empty());
        assert_eq!(world.a.ticks("latest").await, ["01T04:00:00"]);
        assert_eq!(world.a.ticks("all").await, [1, 2, 3, 4].map(|hour| format!("01T0{hour}:00:00")));
        let often = world.a.ticks("often").await;
        assert_eq!((often.len(), often[99].as_str()), (100, "01T04:20:00"), "bounded, and the newest");

        world.advance(40 * 60);
        world.a.look().await.unwrap();
        assert_eq!(world.a.ticks("skip").await, ["01T05:00:00"], "it goes on");
    });
}

#[test]
fn no_tick_comes_twice_when_the_clock_goes_back() {
    on_each_store(async |mut world| {
        world.a.set("s", "*/10 * * * * *", CatchUp::All).await;
        world.advance(30);
        world.a.look().await.unwrap();
        world.clock.set(Timestamp::from_millis(START));
        for _ in 0..3 {
            world.advance(10);
            world.a.look().await.unwrap();
            world.b.look().await.unwrap();
        }
        assert_eq!(world.a.ticks("s").await.len(), 3);
        // Also when somebody sets it while the clock is behind.
        world.clock.set(Timestamp::from_millis(START));
        world.b.set("s", "*/5 * * * * *", CatchUp::All).await;
        world.advance(35);
        world.b.look().await.unwrap();
        let ticks = world.a.ticks("s").await;
        assert_eq!(ticks, ["01T00:00:10", "01T00:00:20", "01T00:00:30", "01T00:00:35"]);
        // Or removes it and makes it again: the keys remember.
        let caller = Caller::local();
        world.a.engine.delete_schedule(&caller, "s").await.unwrap();
        world.clock.set(Timestamp::from_millis(START));
        world.a.set("s", "*/10 * * * * *", CatchUp::All).await;
        world.advance(30);
        world.a.look().await.unwrap();
        assert_eq!(world.a.ticks("s").await, ticks);
    });
}

#[test]
fn a_paused_a_changed_and_a_deleted_schedule_do_what_they_say() {
    on_each_store(async |mut world| {
        let caller = Caller::local();
        world.a.set("s", "*/10 * * * * *", CatchUp::All).await;
        world.a.engine.pause_schedule(&caller, "s", true).await.unwrap();
        world.advance(60);
        world.b.look().await.unwrap();
        assert!(world.a.ticks("s").await.is_empty());
        let resumed = world.b.engine.pause_schedule(&caller, "s", false).await.unwrap();
        assert_eq!(resumed.next.len(), 5);
        world.b.look().await.unwrap();
        assert!(world.a.ticks("s").await.is_empty(), "the ticks of a rest never were");
        world.advance(10);
        world.b.look().await.unwrap();
        assert_eq!(world.a.ticks("s").await, ["01T00:01:10"]);

        // A change of the job leaves a tick that has come where it is; one of the expression begins anew.
        world.advance(10);
        world.a.set("s", "*/10 * * * * *", CatchUp::Latest).await;
        world.b.look().await.unwrap();
        assert_eq!(world.a.ticks("s").await, ["01T00:01:10", "01T00:01:20"]);
        world.advance(10);
        world.a.set("s", "0 * * * * *", CatchUp::Latest).await;
        world.b.look().await.unwrap();
        assert_eq!(world.a.ticks("s").await.len(), 2);
        world.advance(30);
        world.b.look().await.unwrap();
        assert_eq!(world.a.ticks("s").await[2..], ["01T00:02:00"]);

        world.advance(60);
        world.a.engine.delete_schedule(&caller, "s").await.unwrap();
        world.b.look().await.unwrap();
        assert_eq!(world.a.ticks("s").await.len(), 3);
    });
}

#[test]
fn a_store_that_was_away_costs_no_tick_that_is_on_time() {
    on_each_store(async |mut world| {
        world.a.set("s", "* * * * * *", CatchUp::Skip).await;
        world.a.store.fail(Fault::Away);
        for _ in 0..5 {
            world.advance(1);
            world.a.look().await.unwrap_err();
        }
        world.a.store.fail(Fault::None);
        world.a.look().await.unwrap();
        assert_eq!(world.a.ticks("s").await.len(), 5);
    });
}

#[test]
fn a_schedule_that_cannot_be_carried_out_keeps_no_other_from_its_ticks() {
    on_each_store(async |mut world| {
        world.a.set("good", "*/10 * * * * *", CatchUp::Latest).await;
        world.a.set("bad", "*/10 * * * * *", CatchUp::Latest).await;
        let bad = Schedule {
            time_zone: "Mars/Olympus".into(),
            next_at: Some(world.clock.now()),
            ..world.kept("bad").await
        };
        assert!(world.a.store.save_schedule(bad.clone(), Vec::new()).await.unwrap());
        for _ in 0..2 {
            world.advance(10);
            world.a.look().await.unwrap();
        }
        assert_eq!(world.a.ticks("good").await.len(), 2);
        assert!(world.a.ticks("bad").await.is_empty());
        assert_eq!(world.a.troubles.iter().collect::<Vec<_>>(), [&bad.id], "it is reported, once");
        // Setting it right is enough.
        world.a.set("bad", "*/10 * * * * *", CatchUp::Latest).await;
        world.advance(10);
        world.a.look().await.unwrap();
        assert_eq!((world.a.ticks("bad").await.len(), world.a.troubles.len()), (1, 0));
    });
}

#[test]
fn more_schedules_than_one_go_takes_are_all_carried_out() {
    on_each_store(async |mut world| {
        for n in 0..130 {
            world.a.set(&format!("s{n}"), "*/10 * * * * *", CatchUp::Latest).await;
        }
        world.advance(10);
        let (a, b) = tokio::join!(world.a.look(), world.b.look());
        a.unwrap();
        b.unwrap();
        let stats = world.a.store.stats(None, Duration::from_secs(3600)).await.unwrap();
        assert_eq!(stats.queue_depth, 130);
    });
}

#[tokio::test]
async fn a_program_that_works_through_the_library_carries_schedules_out_too() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(&Address::Sqlite(folder.path().join("coolant.db"))).await;
    world.a.set("s", "*/10 * * * * *", CatchUp::Latest).await;
    let coolant = coolant::Coolant::with_store(world.b.store.clone());
    let running = coolant.start(coolant.worker().handler(Nothing)).unwrap();
    world.advance(10);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while world.a.ticks("s").await.is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "the tick becomes a job");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    running.stop().await.unwrap();
}

/// Takes jobs of schedules and does nothing with them.
struct Nothing;

#[coolant::async_trait]
impl coolant::Handler for Nothing {
    type Payload = serde_json::Value;
    type Output = ();

    fn job_type(&self) -> &str {
        "T"
    }

    async fn run(&self, _: &coolant::Context, _: serde_json::Value) -> Result<(), coolant::HandlerError> {
        Ok(())
    }
}
