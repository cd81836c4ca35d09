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
use coolant_core::names::Queue;
use coolant_core::store::{
    Applied, ClaimRequest, Claimed, Counter, JobChange, NewJob, StoreError, StoreResult, Submitted,
};
use coolant_core::time::Timestamp;
use futures::future::BoxFuture;
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::clock::StoreClock;
use crate::conn::Conn;
use crate::hints;
use crate::sql::counters::Tally;
use crate::sql::{apply, claim, submit};

/// Requests that may wait before callers do.
const QUEUE: usize = 4096;
/// Most items in a group: large enough for the commit to cost little, small enough to answer soon.
const GROUP_ITEMS: usize = 1000;

/// A write that only its caller understands. It may be run again if its group fails.
pub(crate) type Custom = Box<
    dyn for<'c> Fn(&'c mut Conn, Timestamp) -> BoxFuture<'c, StoreResult<Box<dyn Any + Send>>> + Send + Sync,
>;

/// Something to be done in a transaction.
pub(crate) enum Request {
    Submit(Vec<NewJob>),
    Apply(Vec<JobChange>),
    Claim(ClaimRequest),
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

    fn items(&self) -> usize {
        match self {
            Self::Submit(jobs) => jobs.len(),
            Self::Apply(changes) => changes.len(),
            Self::Claim(request) => request.max as usize,
            Self::Sweep(limit) => *limit as usize,
            Self::Count(_) | Self::Custom(_) => 1,
        }
    }
}

/// What came of it.
pub(crate) enum Response {
    Submitted(Vec<Submitted>),
    Applied(Vec<Result<Applied, Refusal>>),
    Claimed(Vec<Claimed>),
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
    pub(crate) intake: Intake,
    pub(crate) source: Source,
    pub(crate) clock: StoreClock,
    /// Its own place in counters, so that no two lanes wait for a row.
    pub(crate) shard: i64,
    pub(crate) hints: Arc<hints::Wire>,
}

impl Lane {
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
        if let Ok(responses) = &outcome {
            self.hints.committed(responses);
        }
        let is_rolled_back = outcome.is_ok() || conn.rollback().await;
        let sound = is_rolled_back && !matches!(outcome, Err(StoreError::Unavailable(_)));
        self.source.give_back(conn, sound);
        outcome
    }

    async fn in_transaction(&mut self, conn: &mut Conn, requests: &[Request]) -> StoreResult<Vec<Response>> {
        let now = self.clock.begin(conn).await?;
        let mut tally = Tally::default();
        let mut responses: Vec<Option<Response>> = requests.iter().map(|_| None).collect();
        // All submits as one, then all changes as one.
        let jobs = gathered(requests, Request::submits);
        let answers = submit::submit(conn, &jobs, now, &mut tally).await?;
        deal(requests, &mut responses, Request::submits, answers, Response::Submitted);
        let changes = gathered(requests, Request::changes);
        let answers = apply::apply(conn, &changes, now, &mut tally).await?;
        deal(requests, &mut responses, Request::changes, answers, Response::Applied);
        for (request, response) in requests.iter().zip(&mut responses) {
            match request {
                Request::Submit(_) | Request::Apply(_) => {}
                Request::Claim(request) => {
                    *response = Some(Response::Claimed(claim::claim(conn, request, now).await?));
                }
                Request::Sweep(limit) => {
                    *response = Some(Response::Swept(apply::sweep(conn, *limit, now).await?));
                }
                Request::Count(counts) => {
                    for (counter, queue, value) in counts {
                        tally.add(*counter, queue, *value);
                    }
                    *response = Some(Response::Done(Box::new(())));
                }
                Request::Custom(custom) => *response = Some(Response::Done(custom(conn, now).await?)),
            }
        }
        tally.save(conn, self.shard, now).await?;
        conn.commit().await?;
        responses.into_iter().map(|response| response.ok_or_else(no_answer)).collect()
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
