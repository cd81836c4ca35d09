//! The queues in which requests wait for a lane.

use std::sync::Arc;

use coolant_core::store::{StoreError, StoreResult};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::{Request, Response};
use crate::conn::unavailable;
use crate::stuck::Held;

/// Requests that may wait before callers do.
const QUEUE: usize = 4096;
/// Requests that may wait for transactions of others before more are refused.
const ASIDE: usize = 256;
/// Most items in a group: large enough for the commit to cost little, small enough to answer soon.
const GROUP_ITEMS: usize = 1000;

/// A request and who waits for its answer.
pub(super) struct Waiting {
    pub(super) request: Request,
    pub(super) reply: oneshot::Sender<StoreResult<Response>>,
}

/// The callers' end of the queues.
#[derive(Clone)]
pub(crate) struct Batcher {
    lanes: mpsc::Sender<Waiting>,
    aside: Aside,
}

/// Where requests go that wait for somebody else's transaction.
#[derive(Clone)]
pub(crate) struct Aside {
    patient: mpsc::Sender<Waiting>,
    pub(super) held: Arc<Held>,
}

/// The lanes' end of it.
#[derive(Clone)]
pub(crate) struct Intake(Arc<Mutex<mpsc::Receiver<Waiting>>>);

/// A queue of requests for the lanes, and one for a patient lane.
pub(crate) fn queues() -> (Batcher, Intake, Intake) {
    let intake = |receiver| Intake(Arc::new(Mutex::new(receiver)));
    let (lanes, for_lanes) = mpsc::channel(QUEUE);
    let (patient, for_the_patient) = mpsc::channel(ASIDE);
    let aside = Aside { patient, held: Arc::default() };
    (Batcher { lanes, aside }, intake(for_lanes), intake(for_the_patient))
}

#[derive(Debug, thiserror::Error)]
#[error("the store is closed")]
struct Closed;

#[derive(Debug, thiserror::Error)]
#[error("too many wait for transactions of others")]
struct TooManyAside;

impl Batcher {
    /// Hands a request in and waits until it is committed.
    pub(crate) async fn run(&self, request: Request) -> StoreResult<Response> {
        let closed = |_| StoreError::Unavailable(Arc::new(Closed));
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting { request, reply };
        if self.aside.held.concerns(&waiting.request) {
            self.aside.take(waiting);
        } else {
            self.lanes.send(waiting).await.map_err(|_| closed(()))?;
        }
        answer.await.map_err(|_| closed(()))?
    }

    /// For lanes that may meet transactions of others.
    pub(crate) fn aside(&self) -> Aside {
        self.aside.clone()
    }
}

impl Aside {
    /// Lets a request wait, or answers it at once where too many do.
    pub(super) fn take(&self, waiting: Waiting) {
        self.held.add(&waiting.request);
        if let Err(full) = self.patient.try_send(waiting) {
            let Waiting { request, reply } = full.into_inner();
            self.held.remove(&request);
            let _ = reply.send(Err(unavailable(TooManyAside)));
        }
    }
}

impl Intake {
    /// Waits for work, and takes all of it that fits a group. `None` once nobody can ask any more.
    pub(super) async fn group(&self) -> Option<Vec<Waiting>> {
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
