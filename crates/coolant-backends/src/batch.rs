//! Group commit: calls that wait at the same moment share a transaction.
//!
//! Whoever writes puts a request into one queue. A lane takes what waits there, runs it in one
//! transaction, and answers all after the commit. While it commits, the next group gathers by itself, so
//! that a busy store commits seldom and an idle one at once. SQLite has one lane, PostgreSQL a few.
//!
//! Always true:
//! - nobody is answered before the commit;
//! - a request that the database refuses spoils no other: the group is then run one by one;
//! - the queue is bounded, and a full one makes callers wait.

use std::any::Any;
use std::sync::Arc;

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
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::clock::StoreClock;
use crate::conn::{Conn, Dialect};
use crate::hints;
use crate::sql::claim::Memory;
use crate::sql::counters::Tally;
use crate::sql::permits::Asking;
use crate::sql::upstreams::{Dealings, Needs};
use crate::sql::{apply, claim, ledger, operation, permits, submit, upstreams};

/// Requests that may wait before callers do.
const QUEUE: usize = 4096;
/// Most items in a group: large enough for the commit to cost little, small enough to answer soon.
const GROUP_ITEMS: usize = 1000;

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
}

impl Request {
    fn submits(&self) -> Option<&[NewJob]> {
        if let Self::Submit(jobs) = self { Some(jobs) } else { None }
    }

    fn changes(&self) -> Option<&[JobChange]> {
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
            Self::Count(_) | Self::Custom(_) | Self::ControlUpstream(..) => 1,
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

struct Waiting {
    request: Request,
    reply: oneshot::Sender<StoreResult<Response>>,
}

/// The callers' end of the queue.
#[derive(Clone)]
pub(crate) struct Batcher(mpsc::Sender<Waiting>);

/// The lanes' end of it.
#[derive(Clone)]
pub(crate) struct Intake(Arc<Mutex<mpsc::Receiver<Waiting>>>);

/// A queue of requests.
pub(crate) fn queue() -> (Batcher, Intake) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Batcher(sender), Intake(Arc::new(Mutex::new(receiver))))
}

#[derive(Debug, thiserror::Error)]
#[error("the store is closed")]
struct Closed;

impl Batcher {
    /// Hands a request in and waits until it is committed.
    pub(crate) async fn run(&self, request: Request) -> StoreResult<Response> {
        let closed = |_| StoreError::Unavailable(Arc::new(Closed));
        let (reply, answer) = oneshot::channel();
        self.0.send(Waiting { request, reply }).await.map_err(|_| closed(()))?;
        answer.await.map_err(|_| closed(()))?
    }
}

impl Intake {
    /// Waits for work, and takes all of it that fits a group. `None` once nobody can ask any more.
    async fn group(&self) -> Option<Vec<Waiting>> {
        let mut receiver = self.0.lock().await;
        let first = receiver.recv().await?;
        let mut items = first.request.items();
        let mut group = vec![first];
        while items < GROUP_ITEMS
            && let Ok(next) = receiver.try_recv()
        {
            items += next.request.items();
            group.push(next);
        }
        Some(group)
    }
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
        Self { intake, source, clock, shard, hints, memory, rota }
    }

    pub(crate) async fn run(mut self) {
        while let Some(group) = self.intake.group().await {
            let (requests, replies): (Vec<_>, Vec<_>) =
                group.into_iter().map(|waiting| (waiting.request, waiting.reply)).unzip();
            let answers = self.answer(&requests).await;
            for (reply, answer) in replies.into_iter().zip(answers) {
                // A caller that no longer waits finds its work done when it asks again.
                let _ = reply.send(answer);
            }
        }
    }

    async fn answer(&mut self, requests: &[Request]) -> Vec<StoreResult<Response>> {
        match self.transaction(requests).await {
            Ok(responses) => responses.into_iter().map(Ok).collect(),
            Err(error @ StoreError::Unavailable(_)) if requests.len() > 1 && !self.can_connect().await => {
                requests.iter().map(|_| Err(error.clone())).collect()
            }
            Err(error) if requests.len() == 1 => vec![self.again(&requests[0], error).await],
            Err(_) => {
                let mut answers = Vec::with_capacity(requests.len());
                for request in requests {
                    let alone = self.transaction(std::slice::from_ref(request)).await;
                    answers.push(match alone {
                        Ok(mut responses) => responses.pop().ok_or_else(no_answer),
                        Err(error) => self.again(request, error).await,
                    });
                }
                answers
            }
        }
    }

    /// A deadlock or a lock that was not to be had is over the next time; an outage is not.
    async fn again(&mut self, request: &Request, error: StoreError) -> StoreResult<Response> {
        if !error.is_retryable() || !self.can_connect().await {
            return Err(error);
        }
        let mut responses = self.transaction(std::slice::from_ref(request)).await?;
        responses.pop().ok_or_else(no_answer)
    }

    async fn can_connect(&mut self) -> bool {
        match self.source.take().await {
            Ok(mut conn) => {
                let sound = conn.query("SELECT 1", &[]).await.is_ok();
                self.source.give_back(conn, sound);
                sound
            }
            Err(_) => false,
        }
    }

    async fn transaction(&mut self, requests: &[Request]) -> StoreResult<Vec<Response>> {
        let mut conn = self.source.take().await?;
        let outcome = self.in_transaction(&mut conn, requests).await;
        match &outcome {
            Ok(responses) => self.hints.committed(responses),
            Err(_) => self.memory.floors.forget(),
        }
        let is_rolled_back = outcome.is_ok() || conn.rollback().await;
        let sound = is_rolled_back && !matches!(outcome, Err(StoreError::Unavailable(_)));
        self.source.give_back(conn, sound);
        outcome
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
                    *response = Some(Response::Swept(apply::sweep(conn, *limit, now).await?));
                    permits::sweep(conn, *limit, now).await?;
                }
                Request::Count(counts) => {
                    for (counter, queue, value) in counts {
                        tally.add(*counter, queue, *value);
                    }
                    *response = Some(Response::Done(Box::new(())));
                }
                Request::Custom(custom) => {
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
