//! Group commit: calls that wait at the same moment share a transaction.
//!
//! Whoever writes puts a request into one queue. A lane takes what waits there, runs it in one
//! transaction, and answers all after the commit. While it commits, the next group gathers by itself, so
//! that a busy store commits seldom and an idle one at once. SQLite has one lane, PostgreSQL a few.
//!
//! Always true:
//! - nobody is answered before the commit;
//! - a request that the database refuses spoils no other: the group is then run in halves of halves;
//! - one that waits for somebody else's transaction holds up no other (`stuck`);
//! - the queue is bounded, and a full one makes callers wait;
//! - every wait for a server has an end.

mod queue;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use coolant_core::lifecycle::Refusal;
use coolant_core::names::{Queue, Upstream};
use coolant_core::store::{
    Applied, AuditEntry, ClaimRequest, Claimed, Counter, JobChange, NewJob, StoreError, StoreResult,
    Submitted,
};
use coolant_core::time::Timestamp;
use coolant_core::turns::Rota;
use coolant_core::upstream::{Control, NoPermit, Permit, PermitRequest, PermitSettlement, SettledPermit};
use futures::future::BoxFuture;
use tokio::time::timeout;

use queue::Waiting;
pub(crate) use queue::{Aside, Batcher, Intake, queues};

use crate::clock::StoreClock;
use crate::conn::{Conn, Dialect, unavailable};
use crate::sql::claim::Memory;
use crate::sql::counters::Tally;
use crate::sql::permits::Asking;
use crate::sql::upstreams::{Dealings, Needs};
use crate::sql::{apply, blocked, claim, ledger, operation, permits, submit, upstreams};
use crate::stuck::Held;
use crate::{hints, postgres};

/// How long a transaction on a server may take, and one that moves a document.
const LONGEST_TRANSACTION: Duration = Duration::from_secs(15);
const LONGEST_CUSTOM: Duration = Duration::from_secs(60);
/// How long a server may take to say that it is there.
const LONGEST_GREETING: Duration = Duration::from_secs(3);

/// A write that only its caller understands. It may be run again if its group fails.
pub(crate) type Custom = Box<
    dyn for<'c> Fn(
            &'c mut Conn,
            &'c mut Dealings,
            Timestamp,
        ) -> BoxFuture<'c, StoreResult<Box<dyn Any + Send>>>
        + Send
        + Sync,
>;

/// Something to be done in a transaction.
pub(crate) enum Request {
    Submit(Vec<NewJob>),
    Apply(Vec<JobChange>),
    Claim(ClaimRequest),
    AcquirePermits(Vec<PermitRequest>),
    SettlePermits(Vec<PermitSettlement>),
    ControlUpstream(Upstream, Control, AuditEntry),
    Sweep(u32),
    Count(Vec<(Counter, Queue, i64)>),
    Custom(Custom),
    /// One that may take its time: it moves a document.
    LongCustom(Custom),
}

impl Request {
    pub(crate) fn submits(&self) -> Option<&[NewJob]> {
        if let Self::Submit(jobs) = self { Some(jobs) } else { None }
    }

    pub(crate) fn changes(&self) -> Option<&[JobChange]> {
        if let Self::Apply(changes) = self { Some(changes) } else { None }
    }

    fn settlements(&self) -> Option<&[PermitSettlement]> {
        if let Self::SettlePermits(settlements) = self { Some(settlements) } else { None }
    }

    fn permits(&self) -> Option<&[PermitRequest]> {
        if let Self::AcquirePermits(requests) = self { Some(requests) } else { None }
    }

    fn items(&self) -> usize {
        match self {
            Self::Submit(jobs) => jobs.len(),
            Self::Apply(changes) => changes.len(),
            Self::Claim(request) => request.max as usize,
            Self::AcquirePermits(requests) => requests.len(),
            Self::SettlePermits(settlements) => settlements.len(),
            Self::Sweep(limit) => *limit as usize,
            Self::Count(_) | Self::Custom(_) | Self::LongCustom(_) | Self::ControlUpstream(..) => 1,
        }
    }
}

/// What came of it.
pub(crate) enum Response {
    Submitted(Vec<Submitted>),
    Applied(Vec<Result<Applied, Refusal>>),
    Claimed(Vec<Claimed>),
    Permits(Vec<Result<Permit, NoPermit>>),
    SettledPermits(Vec<Option<SettledPermit>>),
    Swept(u32),
    Done(Box<dyn Any + Send>),
}

/// Where a lane gets its connection from.
pub(crate) enum Source {
    Own(Option<rusqlite::Connection>),
    /// The lanes' own pool, and the one for reading, which leads to the same server.
    Pool {
        writers: deadpool_postgres::Pool,
        readers: deadpool_postgres::Pool,
    },
}

impl Source {
    async fn take(&mut self) -> StoreResult<Conn> {
        match self {
            Self::Own(conn) => conn
                .take()
                .map(Conn::Sqlite)
                .ok_or_else(|| StoreError::Broken("the writer's connection is gone".into())),
            Self::Pool { writers, .. } => {
                writers.get().await.map(Conn::Postgres).map_err(crate::postgres::pool_error)
            }
        }
    }

    fn give_back(&mut self, conn: Conn, sound: bool) {
        match (self, conn) {
            (Self::Own(place), Conn::Sqlite(conn)) => *place = Some(conn),
            // A connection in an unknown state is closed, not shared. After a failover it leads to a server
            // that takes no writes any more, and so do those that idle.
            (Self::Pool { writers, readers }, Conn::Postgres(client)) if !sound => {
                drop(deadpool_postgres::Object::take(client));
                writers.retain(|_, _| false);
                readers.retain(|_, _| false);
            }
            _ => {}
        }
    }
}

/// One lane: runs groups until nobody can ask any more.
pub(crate) struct Lane {
    intake: Intake,
    source: Source,
    clock: StoreClock,
    /// Its own place in counters, so that no two lanes wait for a row.
    shard: i64,
    hints: Arc<hints::Wire>,
    memory: Memory,
    rota: Arc<std::sync::Mutex<Rota>>,
    role: Role,
}

/// What to do about requests whose transaction failed.
enum Next {
    Refuse,
    Once,
    Halve,
}

/// What a lane does with a request that waits for somebody else's transaction.
enum Role {
    /// Waits as long as the database does: where there is one writer.
    Alone,
    Swift(Aside),
    Patient(Arc<Held>),
}

impl Lane {
    pub(crate) fn new(
        intake: Intake,
        source: Source,
        clock: StoreClock,
        hints: Arc<hints::Wire>,
        rota: Arc<std::sync::Mutex<Rota>>,
    ) -> Self {
        let memory = Memory::of_a_lane(match source {
            Source::Own(_) => Dialect::Sqlite,
            Source::Pool { .. } => Dialect::Postgres,
        });
        // Another number for each lane of each process.
        let shard = (uuid::Uuid::now_v7().as_u128() & 0x7fff_ffff) as i64;
        let role = Role::Alone;
        Self { intake, source, clock, shard, hints, memory, rota, role }
    }

    /// Hands requests that wait for others on to a patient lane.
    pub(crate) fn with_aside(self, aside: Aside) -> Self {
        Self { role: Role::Swift(aside), ..self }
    }

    /// Waits for others itself.
    pub(crate) fn patient(self, aside: Aside) -> Self {
        Self { role: Role::Patient(aside.held), ..self }
    }

    pub(crate) async fn run(mut self) {
        while let Some(group) = self.intake.group().await {
            self.serve(group).await;
        }
    }

    /// Runs a group, or if it fails its halves and their halves, until what failed is alone.
    async fn serve(&mut self, group: Vec<Waiting>) {
        let mut left = vec![group];
        let mut is_whole = true;
        while let Some(part) = left.pop() {
            let mut part = if is_whole { part } else { self.without_stuck(part) };
            let Err(error) = self.transaction(&mut part, !is_whole).await else { continue };
            match self.what_next(&error, part.len()).await {
                Next::Refuse => part.into_iter().for_each(|waiting| self.answer(waiting, Err(error.clone()))),
                Next::Once => {
                    if let Err(error) = self.transaction(&mut part, true).await {
                        part.into_iter().for_each(|waiting| self.answer(waiting, Err(error.clone())));
                    }
                }
                Next::Halve => {
                    is_whole = false;
                    let second = part.split_off(part.len() / 2);
                    left.extend([second, part]);
                }
            }
        }
    }

    async fn what_next(&mut self, error: &StoreError, requests: usize) -> Next {
        let (retryable, is_locked_out) = (error.is_retryable(), postgres::is_locked_out(error));
        let is_hopeless = match self.role {
            // A file that another process holds is held for all of them.
            Role::Alone => retryable,
            // They have waited long enough.
            Role::Patient(_) => is_locked_out,
            Role::Swift(_) => false,
        };
        if is_hopeless || (retryable && !is_locked_out && !self.can_connect().await) {
            return Next::Refuse;
        }
        match requests {
            // A deadlock is over the next time, and so is an outage that has just ended.
            1 if retryable && !is_locked_out => Next::Once,
            0 | 1 => Next::Refuse,
            _ => Next::Halve,
        }
    }

    /// Sets aside what is known by now to wait for others.
    fn without_stuck(&self, part: Vec<Waiting>) -> Vec<Waiting> {
        let Role::Swift(aside) = &self.role else { return part };
        let (stuck, part): (Vec<_>, Vec<_>) =
            part.into_iter().partition(|waiting: &Waiting| aside.held.concerns(&waiting.request));
        stuck.into_iter().for_each(|waiting| aside.take(waiting));
        part
    }

    /// Answers a caller, or lets the patient do so.
    fn answer(&self, waiting: Waiting, answer: StoreResult<Response>) {
        match (&self.role, answer) {
            (Role::Swift(aside), Err(error)) if postgres::is_locked_out(&error) => aside.take(waiting),
            (role, answer) => {
                if let Role::Patient(held) = role {
                    held.remove(&waiting.request);
                }
                // A caller that no longer waits finds its work done when it asks again.
                let _ = waiting.reply.send(answer);
            }
        }
    }

    async fn can_connect(&mut self) -> bool {
        match self.source.take().await {
            Ok(mut conn) => {
                let sound =
                    within(&mut conn, LONGEST_GREETING, async |conn| conn.query("SELECT 1", &[]).await);
                let sound = sound.await.is_ok();
                self.source.give_back(conn, sound);
                sound
            }
            Err(_) => false,
        }
    }

    /// Makes requests one transaction and answers them, unless it fails: then they are left.
    async fn transaction(&mut self, part: &mut Vec<Waiting>, hurry: bool) -> StoreResult<()> {
        if part.is_empty() {
            return Ok(());
        }
        let mut conn = self.source.take().await?;
        let (requests, replies): (Vec<_>, Vec<_>) =
            part.drain(..).map(|waiting| (waiting.request, waiting.reply)).unzip();
        let is_long = |request: &Request| matches!(request, Request::LongCustom(_));
        let limit = if requests.iter().any(is_long) { LONGEST_CUSTOM } else { LONGEST_TRANSACTION };
        let outcome = within(&mut conn, limit, async |conn| {
            if hurry {
                conn.hurry(true).await?;
            }
            self.in_transaction(conn, &requests).await
        });
        let outcome = outcome.await;
        match &outcome {
            Ok(responses) => self.hints.committed(responses),
            Err(_) => self.memory.forget_floors(),
        }
        let sound = settle_down(&mut conn, outcome.as_ref().err(), hurry).await;
        self.source.give_back(conn, sound);
        let waiting = requests.into_iter().zip(replies).map(|(request, reply)| Waiting { request, reply });
        match outcome {
            Ok(responses) => {
                waiting.zip(responses).for_each(|(waiting, response)| self.answer(waiting, Ok(response)));
                Ok(())
            }
            Err(error) => {
                part.extend(waiting);
                Err(error)
            }
        }
    }

    async fn in_transaction(&mut self, conn: &mut Conn, requests: &[Request]) -> StoreResult<Vec<Response>> {
        let now = self.clock.begin(conn).await?;
        let (mut tally, mut dealings) = (Tally::default(), Dealings::default());
        let mut responses: Vec<Option<Response>> = requests.iter().map(|_| None).collect();
        // All submits as one, then all changes as one.
        let jobs = gathered(requests, Request::submits);
        let answers = submit::submit(conn, &jobs, now, &mut tally).await?;
        deal(requests, &mut responses, Request::submits, answers, Response::Submitted);
        let settlements = gathered(requests, Request::settlements);
        let settling = permits::settle(conn, &settlements, now, &mut dealings).await?;
        let settled_alone = dealings.settled.len();
        let mut changes = gathered(requests, Request::changes);
        let asked = changes.len();
        changes.extend(&settling.payments);
        let mut answers = apply::apply(conn, &changes, now, &mut tally, &mut dealings).await?;
        answers.truncate(asked);
        deal(requests, &mut responses, Request::changes, answers, Response::Applied);
        ledger::book(conn, &settling.loose, now).await?;
        for (request, response) in requests.iter().zip(&mut responses) {
            match request {
                Request::Sweep(limit) => {
                    let ended = apply::sweep(conn, *limit, now).await?;
                    let waited_out = blocked::sweep(conn, limit.saturating_sub(ended), now).await?;
                    *response = Some(Response::Swept(ended + waited_out));
                    permits::sweep(conn, *limit, now).await?;
                }
                Request::Count(counts) => {
                    for (counter, queue, value) in counts {
                        tally.add(*counter, queue, *value);
                    }
                    *response = Some(Response::Done(Box::new(())));
                }
                Request::Custom(custom) | Request::LongCustom(custom) => {
                    *response = Some(Response::Done(custom(conn, &mut dealings, now).await?));
                }
                _ => {}
            }
        }
        let mut told = Vec::new();
        let upstreams = UpstreamWork { requests, dealings, now };
        let claimer = (&mut self.memory, &*self.rota);
        let answers = upstreams.run(conn, &mut responses, &mut told, claimer, &mut tally).await;
        answers?;
        let answers = settling.answers(&mut told.into_iter().take(settled_alone));
        deal(requests, &mut responses, Request::settlements, answers, Response::SettledPermits);
        tally.save(conn, self.shard, now).await?;
        conn.commit().await?;
        responses.into_iter().map(|response| response.ok_or_else(no_answer)).collect()
    }
}

/// The last part of a transaction: all that concerns upstreams, and claims, which have to ask them.
struct UpstreamWork<'r> {
    requests: &'r [Request],
    dealings: Dealings,
    now: Timestamp,
}

impl UpstreamWork<'_> {
    /// Leaves what was told to settled calls in `told`.
    async fn run(
        self,
        conn: &mut Conn,
        responses: &mut [Option<Response>],
        told: &mut Vec<SettledPermit>,
        (memory, rota): (&mut Memory, &std::sync::Mutex<Rota>),
        tally: &mut Tally,
    ) -> StoreResult<()> {
        let Self { requests, dealings, now } = self;
        let claims = requests.iter().any(|request| matches!(request, Request::Claim(_)));
        let controls = requests.iter().filter_map(|request| match request {
            Request::ControlUpstream(name, control, audit) => Some((name, control, audit)),
            _ => None,
        });
        let asked = gathered(requests, Request::permits);
        if !claims && asked.is_empty() && dealings.is_empty() && controls.clone().next().is_none() {
            return Ok(());
        }
        let mut needs = Needs::of(&dealings);
        needs.all_that_need_care |= claims;
        needs.upstreams.extend(controls.clone().map(|(name, ..)| name.clone()));
        let asking = Asking::read(conn, asked).await?;
        asking.need(&mut needs);
        let mut loaded = upstreams::load(conn, &needs, now).await?;
        told.extend(dealings.tell(&mut loaded.desk, now));
        let mut audit = Vec::new();
        for (name, control, entry) in controls {
            loaded.desk.control(name, control, now);
            audit.push(AuditEntry { at: now, ..entry.clone() });
        }
        operation::write_audit(conn, audit).await?;
        let answers = asking.answer(conn, &mut loaded.desk, now, tally).await?;
        deal(requests, responses, Request::permits, answers, Response::Permits);
        for (request, response) in requests.iter().zip(responses) {
            match request {
                Request::Claim(request) => {
                    let claimed = claim::claim(conn, request, now, (memory, rota), &mut loaded.desk).await?;
                    *response = Some(Response::Claimed(claimed));
                }
                Request::ControlUpstream(..) => *response = Some(Response::Done(Box::new(()))),
                _ => {}
            }
        }
        upstreams::save(conn, loaded, now).await
    }
}

/// Leaves a connection as it was before a transaction. Gives whether it can be used again.
async fn settle_down(conn: &mut Conn, error: Option<&StoreError>, hurry: bool) -> bool {
    // A server that does not answer is asked nothing more: the connection's end ends the transaction.
    let is_away = |error: &StoreError| error.is_retryable() && !postgres::is_locked_out(error);
    if conn.dialect() == Dialect::Postgres && error.is_some_and(is_away) {
        return false;
    }
    let settled = within(conn, LONGEST_GREETING, async |conn| {
        let sound = error.is_none() || conn.rollback().await;
        if sound && hurry {
            conn.hurry(false).await?;
        }
        Ok(sound)
    });
    settled.await.unwrap_or(false)
}

/// The outcome of what is said to a server, if it comes in time. SQLite has its own limits.
async fn within<T>(
    conn: &mut Conn,
    limit: Duration,
    say: impl AsyncFnOnce(&mut Conn) -> StoreResult<T>,
) -> StoreResult<T> {
    match conn.dialect() {
        Dialect::Sqlite => say(conn).await,
        Dialect::Postgres => timeout(limit, say(conn)).await.map_err(unavailable).flatten(),
    }
}

fn no_answer() -> StoreError {
    StoreError::Broken("a request was left without an answer".into())
}

/// The items of one kind in a group, as one list.
fn gathered<'r, T>(requests: &'r [Request], of_kind: impl Fn(&'r Request) -> Option<&'r [T]>) -> Vec<&'r T> {
    requests.iter().filter_map(of_kind).flatten().collect()
}

/// Gives each request of one kind its part of the answers.
fn deal<T, A>(
    requests: &[Request],
    responses: &mut [Option<Response>],
    of_kind: impl Fn(&Request) -> Option<&[T]>,
    answers: Vec<A>,
    response: impl Fn(Vec<A>) -> Response,
) {
    let mut answers = answers.into_iter();
    for (request, place) in requests.iter().zip(responses) {
        if let Some(items) = of_kind(request) {
            *place = Some(response(answers.by_ref().take(items.len()).collect()));
        }
    }
}
