//! What the stores can do, beside the raw limits of the same database in the same run.
//!
//! `scripts/services run -- cargo bench -p coolant-backends --bench stores`
//!
//! Prints Markdown tables. `docs/performance.md` says what they mean. Options follow `--`:
//! `--store sqlite|postgres`, `--queued N`, `--finished N`, `--seconds N` (of each measurement), `--quick`. In place
//! of all that, one thing alone:
//! - `--states`: the rates of an empty and of a full store, in `--rounds N`;
//! - `--tenants`: how long a claim takes, by how many tenants have jobs waiting;
//! - `--heartbeats`: what beats leave behind in PostgreSQL's tables in `--seconds N`.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "a program that prints")]
#![allow(missing_docs, reason = "nobody calls it")]

mod heartbeats;
mod measure;
mod place;
mod raw;
mod stage;
mod states;
mod table;
mod tenants;
mod work;

use std::sync::Arc;
use std::time::Duration;

use coolant_backends::SqlStore;

use crate::place::Place;
use crate::table::Table;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Stages,
    States,
    Tenants,
    Heartbeats,
}

/// What is measured, and how long.
#[derive(Debug, Clone)]
struct Settings {
    sqlite: bool,
    postgres: bool,
    queued: usize,
    finished: usize,
    seconds: u64,
    part: Part,
    rounds: usize,
}

impl Settings {
    fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut settings = Self {
            sqlite: true,
            postgres: true,
            queued: 100_000,
            finished: 1_000_000,
            seconds: 5,
            part: Part::Stages,
            rounds: 5,
        };
        let mut args = args;
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("`{arg}` needs a value"));
            let number = |text: String| text.parse::<usize>().map_err(|_| format!("`{text}` is no number"));
            match arg.as_str() {
                // Cargo says so to every bench.
                "--bench" => {}
                "--quick" => {
                    (settings.queued, settings.finished, settings.seconds) = (5_000, 20_000, 1);
                }
                "--store" => {
                    let store = value()?;
                    (settings.sqlite, settings.postgres) = (store == "sqlite", store == "postgres");
                    if !settings.sqlite && !settings.postgres {
                        return Err(format!("`{store}` is no store: sqlite or postgres"));
                    }
                }
                "--queued" => settings.queued = number(value()?)?,
                "--finished" => settings.finished = number(value()?)?,
                "--states" => settings.part = Part::States,
                "--tenants" => settings.part = Part::Tenants,
                "--heartbeats" => settings.part = Part::Heartbeats,
                "--rounds" => settings.rounds = number(value()?)?.max(1),
                "--seconds" => settings.seconds = number(value()?)? as u64,
                other => return Err(format!("`{other}` is no option")),
            }
        }
        Ok(settings)
    }

    const fn span(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

fn main() {
    let settings = match Settings::parse(std::env::args().skip(1)) {
        Ok(settings) => settings,
        Err(problem) => {
            eprintln!("{problem}");
            std::process::exit(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(run(&settings));
}

async fn run(settings: &Settings) {
    println!("{} processors; load before: {}\n", measure::processors(), measure::load());
    if settings.sqlite {
        on_sqlite(settings).await;
    }
    if settings.postgres {
        match std::env::var("COOLANT_TEST_POSTGRES") {
            Ok(url) => on_postgres(settings, &url).await,
            Err(_) => println!("PostgreSQL: skipped, COOLANT_TEST_POSTGRES names no server"),
        }
    }
    println!("Load after: {}", measure::load());
}

async fn on_sqlite(settings: &Settings) {
    if settings.part == Part::Heartbeats {
        return println!("SQLite: skipped, its rows are changed where they are");
    }
    // Below the target folder: on a disk, which a temporary folder need not be.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    println!("{}", raw::sqlite(folder.path(), settings.span()));
    let place = Place::in_folder(folder.path().to_owned());
    on_place("SQLite", place, settings).await;
}

async fn on_postgres(settings: &Settings, url: &str) {
    // Beats are given a pace, which no limit of the database changes.
    if settings.part != Part::Heartbeats {
        let database = raw::Database::create(url).await;
        println!("{}", database.limits(settings.span()).await);
        database.drop_it().await;
    }
    on_place("PostgreSQL", Place::on_server(url.to_owned()), settings).await;
}

async fn on_place(name: &str, mut place: Place, settings: &Settings) {
    match settings.part {
        Part::Stages => on_store(name, &place.store().await.0, settings).await,
        Part::States => states::compare(name, &mut place, settings).await,
        Part::Tenants => tenants::compare(name, &mut place, settings).await,
        Part::Heartbeats => heartbeats::watch(&mut place, settings).await,
    }
    place.clear().await;
}

async fn on_store(name: &str, store: &Arc<SqlStore>, settings: &Settings) {
    let mut table = Table::new(&format!("### Coolant on {name}"));
    table.column("empty at first");
    stage::measure(store, settings, &mut table).await;
    table.column(&format!("{} queued", table::grouped(settings.queued as f64)));
    work::queue_up_to(store, settings.queued).await;
    stage::measure(store, settings, &mut table).await;
    let finished = table::grouped(settings.finished as f64);
    table.column(&format!("{finished} finished, {} queued", table::grouped(settings.queued as f64)));
    let filling = work::finish_up_to(store, settings.finished).await;
    work::queue_up_to(store, settings.queued).await;
    stage::measure(store, settings, &mut table).await;
    println!("{table}");
    println!("{finished} jobs were submitted, claimed and settled in {} s for it.\n", filling.as_secs());
}
