//! Queues as they are often built: a list of executions, workers that take them, a button.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Ended, StormArgs, Upstream, text_of};

/// How a failed call is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Habit {
    /// At once, three times; then whoever presses retry starts the job once more, whatever else runs.
    Naive,
    /// Later and later; a press starts a waiting job at once, and does nothing to one that runs.
    Backoff,
}

/// Tries in a row before a naive job fails.
const NAIVE_TRIES: u32 = 3;
/// Wait between them.
const NAIVE_PAUSE: Duration = Duration::from_millis(200);
/// Tries before a job with backoff is dead.
const BACKOFF_TRIES: u32 = 10;
/// Its longest wait.
const BACKOFF_LONGEST: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Queued,
    Running,
    Waiting,
    Failed,
    Done,
}

#[derive(Debug, Clone, Copy, Default)]
struct Job {
    state: State,
    tries: u32,
    /// Grows with every wait, so that a timer of before does nothing.
    wait: u64,
}

struct Board {
    jobs: Vec<Job>,
    queue: VecDeque<u32>,
    ended: Ended,
}

#[derive(Clone)]
struct Queue {
    habit: Habit,
    board: Arc<Mutex<Board>>,
    changed: Arc<Notify>,
}

/// Runs all jobs; ends when they are done or patience is over.
pub(super) async fn run(habit: Habit, args: &StormArgs, upstream: &Upstream) -> Ended {
    let jobs = vec![Job::default(); args.jobs as usize];
    let board = Board { jobs, queue: (0..args.jobs).collect(), ended: Ended::default() };
    let queue = Queue { habit, board: Arc::new(Mutex::new(board)), changed: Arc::default() };
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..args.workers {
        tasks.spawn(queue.clone().work(upstream.provider.clone(), Arc::clone(&upstream.embedder)));
    }
    for user in 0..args.users.min(args.jobs) {
        tasks.spawn(queue.clone().press(user, args.clone()));
    }
    let end = Instant::now() + args.outage_after + args.outage + args.patience;
    // Until what was started is over, too: naive executions of jobs that are done are paid all the same.
    while Instant::now() < end && !queue.is_over() {
        let _ = tokio::time::timeout(Duration::from_millis(200), queue.changed.notified()).await;
    }
    tasks.shutdown().await;
    let board = queue.board();
    let dead = board.jobs.iter().filter(|job| job.state == State::Failed).count();
    Ended { dead: u32::try_from(dead).unwrap_or(u32::MAX), ..board.ended }
}

impl Queue {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        let board = self.board();
        let all_done = board.jobs.iter().all(|job| job.state == State::Done);
        all_done && board.queue.is_empty()
    }

    async fn work(
        self,
        provider: crate::cli::fake_provider::FakeProvider,
        embedder: Arc<dyn coolant_ai::embed::Embedder>,
    ) {
        loop {
            let next = self.board().queue.pop_front();
            let Some(job) = next else {
                let _ = tokio::time::timeout(Duration::from_millis(50), self.changed.notified()).await;
                continue;
            };
            self.start(job);
            let mut gone_well = embedder.embed(&[text_of(job)]).await.is_ok();
            if self.habit == Habit::Naive {
                for _ in 1..NAIVE_TRIES {
                    if gone_well {
                        break;
                    }
                    tokio::time::sleep(NAIVE_PAUSE).await;
                    gone_well = embedder.embed(&[text_of(job)]).await.is_ok();
                }
            }
            self.settle(job, gone_well, provider.age());
        }
    }

    fn start(&self, job: u32) {
        let mut board = self.board();
        let job = &mut board.jobs[job as usize];
        if job.state != State::Done {
            job.state = State::Running;
        }
        job.tries += 1;
    }

    fn settle(&self, number: u32, gone_well: bool, age: Duration) {
        let mut board = self.board();
        let job = &mut board.jobs[number as usize];
        match (job.state, gone_well) {
            (State::Done, _) => {}
            (_, true) => {
                job.state = State::Done;
                board.ended.done += 1;
                board.ended.last_done = Some(age);
            }
            (_, false) if self.habit == Habit::Naive || job.tries >= BACKOFF_TRIES => {
                job.state = State::Failed;
            }
            (_, false) => {
                job.state = State::Waiting;
                job.wait += 1;
                let (wait, timer) = (job.wait, backoff(job.tries));
                let queue = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(timer).await;
                    queue.wake(number, Some(wait));
                });
            }
        }
        drop(board);
        self.changed.notify_waiters();
    }

    /// Queues a waiting job; one whose wait is another by now is left alone.
    fn wake(&self, number: u32, wait: Option<u64>) {
        let mut board = self.board();
        let job = &mut board.jobs[number as usize];
        if job.state == State::Waiting && wait.is_none_or(|wait| wait == job.wait) {
            job.state = State::Queued;
            board.queue.push_back(number);
            drop(board);
            self.changed.notify_waiters();
        }
    }

    /// A user presses retry on each of their jobs that is not done.
    async fn press(self, user: u32, args: StormArgs) {
        // Users do not press in step.
        tokio::time::sleep(args.press_every.mul_f64(f64::from(user) / f64::from(args.users))).await;
        loop {
            tokio::time::sleep(args.press_every).await;
            for job in (user..args.jobs).step_by(args.users as usize) {
                self.press_one(job);
            }
        }
    }

    fn press_one(&self, number: u32) {
        let mut board = self.board();
        if board.jobs[number as usize].state == State::Done {
            return;
        }
        board.ended.presses += 1;
        match self.habit {
            Habit::Naive => board.queue.push_back(number),
            Habit::Backoff => {
                let job = &mut board.jobs[number as usize];
                if job.state == State::Failed {
                    (job.state, job.tries) = (State::Waiting, 0);
                }
                drop(board);
                return self.wake(number, None);
            }
        }
        drop(board);
        self.changed.notify_waiters();
    }
}

/// A second, doubling, with up to a fifth more.
fn backoff(tries: u32) -> Duration {
    let wait =
        Duration::from_secs(1).saturating_mul(1 << tries.saturating_sub(1).min(10)).min(BACKOFF_LONGEST);
    wait.mul_f64(1.0 + rand::random::<f64>() / 5.0)
}
