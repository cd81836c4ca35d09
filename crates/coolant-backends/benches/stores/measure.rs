//! Rates and latencies.

use std::future::Future;
use std::time::{Duration, Instant};

/// Times taken of one operation at most.
pub(crate) const MOST: usize = 1000;

/// Runs an operation from that many callers at once, again and again; gives what was done per second. The
/// operation says how much it did.
pub(crate) async fn rate<F, Fut>(span: Duration, callers: usize, operation: F) -> f64
where
    F: Fn() -> Fut + Clone + Send + 'static,
    Fut: Future<Output = usize> + Send,
{
    let began = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let operation = operation.clone();
            tokio::spawn(async move {
                let mut done = 0;
                while began.elapsed() < span {
                    done += operation().await;
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.unwrap();
    }
    done as f64 / began.elapsed().as_secs_f64()
}

/// How long an operation takes, each time it is done by one caller. What it returns is the time to count.
pub(crate) async fn latencies<F, Fut>(span: Duration, operation: F) -> Latencies
where
    F: Fn() -> Fut,
    Fut: Future<Output = Duration>,
{
    let began = Instant::now();
    let mut all = Vec::new();
    while all.is_empty() || (began.elapsed() < span && all.len() < MOST) {
        all.push(operation().await);
    }
    all.sort_unstable();
    Latencies(all)
}

/// Times, shortest first.
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    fn percentile(&self, percent: usize) -> Duration {
        self.0[(self.0.len() * percent).div_ceil(100) - 1]
    }

    pub(crate) fn p50(&self) -> Duration {
        self.percentile(50)
    }

    pub(crate) fn p99(&self) -> Duration {
        self.percentile(99)
    }
}

/// Runs it and says how long that took.
pub(crate) async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    let value = future.await;
    (value, began.elapsed())
}

/// How busy the machine is: its load averages over 1, 5 and 15 minutes.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

pub(crate) fn load_of_a_minute() -> String {
    load().split(' ').next().unwrap_or_default().to_owned()
}

pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(0, std::num::NonZero::get)
}
