//! Housekeeping: what has to happen although nobody asks for it. Every process that has the store open for
//! work does it; together they do it no faster than one.

use std::convert::Infallible;
use std::time::Duration;

use coolant_core::retention::Retention;
use coolant_core::store::Store;

use super::redrive::Paces;
use super::schedule::{Troubles, fire_due};
use super::{Engine, EngineResult};
use crate::deaths::Deaths;

/// How often it looks. At least every second, so that a job out of attempts ends with nobody polling.
const EVERY: Duration = Duration::from_millis(250);
/// Looks between two sweeps, and between two at who has died.
const SWEEP_EVERY: u32 = 2;
/// Looks between two at the schedules: a tick becomes a job within a second.
const SCHEDULES_EVERY: u32 = 4;
/// Looks between two at the locks that nobody needs any more.
const LOCKS_EVERY: u32 = 40;
/// Jobs ended in one go; as long as there are that many, the next go follows at once.
const SWEEP_LIMIT: u32 = 500;

/// How often it looks for what was kept long enough.
const FORGET_EVERY: Duration = Duration::from_secs(60);
/// The pause between two pieces while there is more.
const FORGET_ON: Duration = Duration::from_millis(100);
/// Jobs in a piece.
const FORGET_LIMIT: u32 = 200;

/// How often it looks whether the index wants tending. Searches find the same before.
const TEND_EVERY: Duration = Duration::from_secs(2);

/// Sweeps, paces redrives, submits the ticks of schedules and tends the index until it is dropped.
pub async fn run(engine: Engine, keep: Retention) {
    // Apart, since building an index and forgetting take their time.
    tokio::join!(sweep(engine.clone()), tend(engine.clone()), forget(&**engine.store(), keep));
}

/// Forgets what was kept long enough until it is dropped: a few jobs at a time, with a pause after each piece,
/// so that nobody who submits or works waits for it.
pub(crate) async fn forget(store: &dyn Store, keep: Retention) -> Infallible {
    loop {
        let pause = match store.forget(&keep, FORGET_LIMIT).await {
            Ok(forgotten) if forgotten >= u64::from(FORGET_LIMIT) => FORGET_ON,
            Ok(_) => FORGET_EVERY,
            Err(error) => {
                tracing::debug!(%error, "nothing could be forgotten; the next look makes up for it");
                FORGET_EVERY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn tend(engine: Engine) {
    let mut failing = false;
    loop {
        match engine.tend_index().await {
            Ok(more) => {
                failing = false;
                if more {
                    continue;
                }
            }
            Err(error) if !failing => {
                tracing::warn!(%error, "the index could not be tended; searches go on without, more slowly");
                failing = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(TEND_EVERY).await;
    }
}

async fn sweep(engine: Engine) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut keeper = Keeper {
        engine,
        paces: Paces::new(),
        troubles: Troubles::new(),
        deaths: Deaths::default(),
        failing: false,
    };
    let mut tick: u32 = 0;
    loop {
        ticks.tick().await;
        keeper.tick(tick).await;
        tick = tick.wrapping_add(1);
    }
}

struct Keeper {
    engine: Engine,
    paces: Paces,
    troubles: Troubles,
    deaths: Deaths,
    failing: bool,
}

impl Keeper {
    async fn tick(&mut self, tick: u32) {
        let done = self.look(tick).await;
        // Logged when it begins and when it is over, not four times a second in between.
        match done {
            Err(error) if !self.failing => {
                tracing::warn!(%error, "housekeeping could not reach the store; it goes on trying");
                self.failing = true;
            }
            Ok(()) if self.failing => {
                tracing::info!("housekeeping reaches the store again");
                self.failing = false;
            }
            Ok(()) | Err(_) => {}
        }
    }

    async fn look(&mut self, tick: u32) -> EngineResult<()> {
        let mut more = tick.is_multiple_of(SWEEP_EVERY);
        // First: what a death ends for good is then swept at once.
        let deaths = if more { self.deaths.look(&**self.engine.store()).await } else { Ok(false) };
        if matches!(deaths, Ok(true)) {
            self.engine.bell().ring();
        }
        while more {
            let changed = self.engine.store().sweep(SWEEP_LIMIT).await?;
            if changed > 0 {
                self.engine.bell().ring();
            }
            more = changed >= SWEEP_LIMIT;
        }
        deaths?;
        // A probe that is due wakes nobody by itself.
        if tick.is_multiple_of(SWEEP_EVERY) && self.engine.store().breakers_stir().await? {
            self.engine.bell().ring();
        }
        if tick.is_multiple_of(SCHEDULES_EVERY) {
            fire_due(self.engine.store(), self.engine.bell(), &mut self.troubles).await?;
        }
        if tick.is_multiple_of(LOCKS_EVERY) {
            self.engine.store().forget_locks(SWEEP_LIMIT).await?;
        }
        self.engine.advance_redrives(&mut self.paces).await
    }
}
