//! What people are told while they wait, in their language: the one place with these sentences.
//!
//! A sentence is a value until somebody reads it. Codes and names of fields are no sentences and never
//! change. No sentence needs a plural, and Korean ones need no particle that depends on a name.
//!
//! Elsewhere: which language a call is answered in (`coolant::language`).

mod language;

use std::time::Duration;

use crate::upstream::Denial;
pub use language::Language;

/// What somebody is told who waits, or whose work does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sentence {
    /// The wait after a failure is over, and Coolant goes on by itself.
    RetryStarts,
    /// Somebody may retry it.
    RetryPossible,
    /// Coolant retries it by itself.
    RetriesIn(Duration),
    /// Somebody may retry it then.
    RetryPossibleIn(Duration),
    /// A call was refused for the cooldown of its job.
    JobCools(Duration),
    /// A redrive passes over a job in its cooldown.
    CoolsStill(Duration),
    /// A lock has a holder.
    LockHeld {
        /// Who, where known.
        holder: Option<String>,
        /// How long at most, where known.
        left: Option<Duration>,
    },
    /// A lock stays after a failure.
    LockCools {
        /// Who failed, where known.
        holder: Option<String>,
        /// At what, where known.
        reason: Option<String>,
        /// How long.
        left: Duration,
    },
    /// A lock stays until an operator opens it.
    LockClosed {
        /// Who failed, where known.
        holder: Option<String>,
        /// At what, where known.
        reason: Option<String>,
    },
    /// A lock is to be had.
    LockFree,
    /// A search needs what is away.
    SearchAway {
        /// What, in the words of whoever is away.
        reason: String,
    },
    /// The store does not answer at the moment.
    StoreAway,
    /// A job's submitter asked for a later start.
    StartsLater,
    /// A job waits after a failure.
    WaitsAfterFailure,
    /// A job failed, and nobody may retry it yet.
    FailedAndCools,
    /// Another job has a job's lock key.
    LockKeyHeld {
        /// Its id.
        job: String,
    },
    /// Others are before a job.
    JobsAhead {
        /// How many.
        count: i64,
        /// Where.
        queue: String,
    },
    /// Nobody works on a type in a queue.
    NoWorker {
        /// Which.
        job_type: String,
        /// Where.
        queue: String,
        /// For how long nobody has asked.
        since: Duration,
    },
    /// An upstream of a job is closed.
    UpstreamClosed {
        /// Its name.
        name: String,
        /// Why, in the words of whoever closed it.
        reason: String,
    },
    /// An upstream of a job has spent its money of today.
    UpstreamOutOfMoney {
        /// Its name.
        name: String,
    },
    /// A job's tenant has spent its money of today.
    TenantOutOfMoney {
        /// Its name.
        name: String,
    },
    /// A paid call may not begin.
    NoPermit {
        /// Which limit is in the way.
        denial: Denial,
        /// When to ask again, where that helps.
        left: Option<Duration>,
        /// The particulars, as the rule wrote them.
        reason: String,
    },
    /// Nothing holds a job up.
    NothingInTheWay,
    /// Words of somebody else, such as a provider: as they are.
    Theirs(String),
}

impl Sentence {
    /// The sentence in a language.
    #[must_use]
    pub fn say(&self, language: Language) -> String {
        match language {
            Language::English => self.english(),
            Language::Korean => self.korean(),
        }
    }

    fn english(&self) -> String {
        let wait = |wait: &Duration| Language::English.wait(*wait);
        let by = |holder: &Option<String>| match holder {
            Some(holder) => format!("`{holder}`"),
            None => "another program".to_owned(),
        };
        let why =
            |reason: &Option<String>| reason.clone().unwrap_or_else(|| "the reason is not known".into());
        match self {
            Self::RetryStarts => "retry starts with the next free worker".into(),
            Self::RetryPossible => "retry possible now".into(),
            Self::RetriesIn(left) => format!("automatic retry in {}", wait(left)),
            Self::RetryPossibleIn(left) => format!("retry possible in {}", wait(left)),
            Self::JobCools(left) => format!("the job is cooling down; retry possible in {}", wait(left)),
            Self::CoolsStill(left) => format!("cooling down; retry possible in {}", wait(left)),
            Self::LockHeld { holder, left: Some(left) } => {
                format!("{} holds the lock for another {}", by(holder), wait(left))
            }
            Self::LockHeld { holder, left: None } => format!("{} holds the lock", by(holder)),
            Self::LockCools { holder, reason, left } => {
                let (by, why) = (by(holder), why(reason));
                format!("the lock cools down for another {} after {by} failed: {why}", wait(left))
            }
            Self::LockClosed { holder, reason } => {
                let (by, why) = (by(holder), why(reason));
                format!("the lock is closed until an operator opens it, since {by} failed for good: {why}")
            }
            Self::LockFree => "the lock is free".into(),
            Self::SearchAway { reason } => format!("the search is not possible at the moment: {reason}"),
            Self::StoreAway => "the store is not available".into(),
            Self::StartsLater => "its start lies ahead".into(),
            Self::WaitsAfterFailure => "it waits after a failure".into(),
            Self::FailedAndCools => "it failed; nobody may retry it before then".into(),
            Self::LockKeyHeld { job } => format!("job {job} holds its lock key"),
            Self::JobsAhead { count, queue } => format!("jobs ahead of it in queue `{queue}`: {count}"),
            Self::NoWorker { job_type, queue, since } => {
                let since = since.as_secs();
                format!("no worker has asked for `{job_type}` jobs in queue `{queue}` within {since} s")
            }
            Self::UpstreamClosed { name, reason } => format!("upstream `{name}` is closed: {reason}"),
            Self::UpstreamOutOfMoney { name } => format!("upstream `{name}` has spent its money of today"),
            Self::TenantOutOfMoney { name } => format!("tenant `{name}` has spent its money of today"),
            Self::NoPermit { reason, .. } => reason.clone(),
            Self::NothingInTheWay => "nothing holds it up".into(),
            Self::Theirs(words) => words.clone(),
        }
    }

    fn korean(&self) -> String {
        let wait = |wait: &Duration| Language::Korean.wait(*wait);
        let by = |holder: &Option<String>| match holder {
            Some(holder) => format!("`{holder}`"),
            None => "다른 프로그램".to_owned(),
        };
        let why = |reason: &Option<String>| reason.clone().unwrap_or_else(|| "알 수 없음".into());
        match self {
            Self::RetryStarts => "다음에 비는 워커가 바로 재시도합니다".into(),
            Self::RetryPossible => "지금 다시 시도할 수 있습니다".into(),
            Self::RetriesIn(left) => format!("{} 후 자동으로 재시도합니다", wait(left)),
            Self::RetryPossibleIn(left) => format!("{} 후 다시 시도할 수 있습니다", wait(left)),
            Self::JobCools(left) => {
                format!("실패한 작업의 대기 시간이 남아 있습니다. {} 후 다시 시도할 수 있습니다", wait(left))
            }
            Self::CoolsStill(left) => format!("대기 시간이 남음: {} 후 다시 시도할 수 있습니다", wait(left)),
            Self::LockHeld { holder, left: Some(left) } => {
                let by = by(holder);
                format!("{by}에서 잠금을 사용 중입니다. 갱신하지 않으면 {} 후 풀립니다", wait(left))
            }
            Self::LockHeld { holder, left: None } => {
                format!("{}에서 잠금을 사용 중이며 언제 풀릴지 알 수 없습니다", by(holder))
            }
            Self::LockCools { holder, reason, left } => {
                let (by, why) = (by(holder), why(reason));
                format!("{by}에서 실패하여 잠금이 대기 중입니다. {} 후 풀립니다. 이유: {why}", wait(left))
            }
            Self::LockClosed { holder, reason } => {
                let (by, why) = (by(holder), why(reason));
                format!("{by}에서 영구적으로 실패하여 운영자가 열 때까지 잠금이 닫혀 있습니다. 이유: {why}")
            }
            Self::LockFree => "잠금을 사용할 수 있습니다".into(),
            Self::SearchAway { reason } => format!("지금은 검색할 수 없습니다: {reason}"),
            Self::StoreAway => "지금은 저장소를 사용할 수 없습니다".into(),
            Self::StartsLater => "예약된 시작 시각이 아직 되지 않았습니다".into(),
            Self::WaitsAfterFailure => "실패한 뒤 재시도를 기다리고 있습니다".into(),
            Self::FailedAndCools => "실패했으며, 대기 시간이 끝나기 전에는 다시 시도할 수 없습니다".into(),
            Self::LockKeyHeld { job } => format!("작업 {job}에서 같은 잠금 키를 사용 중입니다"),
            Self::JobsAhead { count, queue } => format!("큐 `{queue}`에서 먼저 실행될 작업: {count}개"),
            Self::NoWorker { job_type, queue, since } => {
                let since = since.as_secs();
                format!("최근 {since}초 동안 큐 `{queue}`에서 `{job_type}` 작업을 요청한 워커가 없습니다")
            }
            Self::UpstreamClosed { name, reason } => {
                format!("업스트림 `{name}` 사용이 중단되었습니다. 이유: {reason}")
            }
            Self::UpstreamOutOfMoney { name } => format!("업스트림 `{name}`의 오늘 예산을 모두 사용했습니다"),
            Self::TenantOutOfMoney { name } => format!("테넌트 `{name}`의 오늘 예산을 모두 사용했습니다"),
            Self::NoPermit { denial, left, reason } => {
                let left = left.map(|left| format!(". {} 후 다시 시도할 수 있습니다", wait(&left)));
                format!("{}{} ({reason})", korean_denial(*denial), left.unwrap_or_default())
            }
            Self::NothingInTheWay => "시작을 막는 것이 없습니다".into(),
            Self::Theirs(words) => words.clone(),
        }
    }
}

const fn korean_denial(denial: Denial) -> &'static str {
    match denial {
        Denial::UpstreamClosed => "업스트림 사용이 중단되었습니다",
        Denial::RateLimited => "현재 사용 한도에 도달했습니다",
        Denial::ConcurrencyLimited => "동시 호출 한도에 도달했습니다",
        Denial::BudgetExhausted => "오늘 예산을 모두 사용했습니다",
        Denial::PaidCallLimit => "이 작업에 허용된 유료 호출을 모두 사용했습니다",
        Denial::AboveLimit => "예상 사용량이 한도보다 큽니다",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(sentence: &Sentence) -> [String; 2] {
        Language::ALL.map(|language| sentence.say(language))
    }

    const LEFT: Duration = Duration::from_millis(251_100);

    fn somebody() -> Option<String> {
        Some("me@host:7".into())
    }

    #[test]
    #[rustfmt::skip]
    fn every_sentence_about_waiting_is_said_in_both_languages() {
        use Sentence as S;
        let said = [
            (S::RetryStarts, "retry starts with the next free worker", "다음에 비는 워커가 바로 재시도합니다"),
            (S::RetryPossible, "retry possible now", "지금 다시 시도할 수 있습니다"),
            (S::RetriesIn(LEFT), "automatic retry in 4 min 12 s", "4분 12초 후 자동으로 재시도합니다"),
            (S::RetryPossibleIn(LEFT), "retry possible in 4 min 12 s", "4분 12초 후 다시 시도할 수 있습니다"),
            (S::JobCools(LEFT), "the job is cooling down; retry possible in 4 min 12 s",
             "실패한 작업의 대기 시간이 남아 있습니다. 4분 12초 후 다시 시도할 수 있습니다"),
            (S::CoolsStill(LEFT), "cooling down; retry possible in 4 min 12 s",
             "대기 시간이 남음: 4분 12초 후 다시 시도할 수 있습니다"),
            (S::SearchAway { reason: "429".into() }, "the search is not possible at the moment: 429",
             "지금은 검색할 수 없습니다: 429"),
            (S::StoreAway, "the store is not available", "지금은 저장소를 사용할 수 없습니다"),
            (S::StartsLater, "its start lies ahead", "예약된 시작 시각이 아직 되지 않았습니다"),
            (S::WaitsAfterFailure, "it waits after a failure", "실패한 뒤 재시도를 기다리고 있습니다"),
            (S::FailedAndCools, "it failed; nobody may retry it before then",
             "실패했으며, 대기 시간이 끝나기 전에는 다시 시도할 수 없습니다"),
            (S::LockKeyHeld { job: "7".into() }, "job 7 holds its lock key", "작업 7에서 같은 잠금 키를 사용 중입니다"),
            (S::JobsAhead { count: 1, queue: "q".into() }, "jobs ahead of it in queue `q`: 1",
             "큐 `q`에서 먼저 실행될 작업: 1개"),
            (S::NoWorker { job_type: "T".into(), queue: "q".into(), since: Duration::from_secs(30) },
             "no worker has asked for `T` jobs in queue `q` within 30 s",
             "최근 30초 동안 큐 `q`에서 `T` 작업을 요청한 워커가 없습니다"),
            (S::NothingInTheWay, "nothing holds it up", "시작을 막는 것이 없습니다"),
            (S::Theirs("한도 초과, limit".into()), "한도 초과, limit", "한도 초과, limit"),
        ];
        for (sentence, english, korean) in said {
            assert_eq!(both(&sentence), [english, korean]);
        }
    }

    #[test]
    #[rustfmt::skip]
    fn every_sentence_about_locks_is_said_in_both_languages() {
        use Sentence as S;
        let said = [
            (S::LockFree, "the lock is free", "잠금을 사용할 수 있습니다"),
            (S::LockHeld { holder: somebody(), left: Some(LEFT) },
             "`me@host:7` holds the lock for another 4 min 12 s",
             "`me@host:7`에서 잠금을 사용 중입니다. 갱신하지 않으면 4분 12초 후 풀립니다"),
            (S::LockHeld { holder: None, left: None }, "another program holds the lock",
             "다른 프로그램에서 잠금을 사용 중이며 언제 풀릴지 알 수 없습니다"),
            (S::LockCools { holder: somebody(), reason: Some("exit status 3".into()), left: LEFT },
             "the lock cools down for another 4 min 12 s after `me@host:7` failed: exit status 3",
             "`me@host:7`에서 실패하여 잠금이 대기 중입니다. 4분 12초 후 풀립니다. 이유: exit status 3"),
            (S::LockCools { holder: None, reason: None, left: LEFT },
             "the lock cools down for another 4 min 12 s after another program failed: the reason is not known",
             "다른 프로그램에서 실패하여 잠금이 대기 중입니다. 4분 12초 후 풀립니다. 이유: 알 수 없음"),
            (S::LockClosed { holder: somebody(), reason: Some("no paper".into()) },
             "the lock is closed until an operator opens it, since `me@host:7` failed for good: no paper",
             "`me@host:7`에서 영구적으로 실패하여 운영자가 열 때까지 잠금이 닫혀 있습니다. 이유: no paper"),
        ];
        for (sentence, english, korean) in said {
            assert_eq!(both(&sentence), [english, korean]);
        }
    }

    #[test]
    #[rustfmt::skip]
    fn every_sentence_about_upstreams_is_said_in_both_languages() {
        use Sentence as S;
        let said = [
            (S::UpstreamClosed { name: "u".into(), reason: "429".into() }, "upstream `u` is closed: 429",
             "업스트림 `u` 사용이 중단되었습니다. 이유: 429"),
            (S::UpstreamOutOfMoney { name: "u".into() }, "upstream `u` has spent its money of today",
             "업스트림 `u`의 오늘 예산을 모두 사용했습니다"),
            (S::TenantOutOfMoney { name: "t".into() }, "tenant `t` has spent its money of today",
             "테넌트 `t`의 오늘 예산을 모두 사용했습니다"),
        ];
        for (sentence, english, korean) in said {
            assert_eq!(both(&sentence), [english, korean]);
        }
        let denials = [
            (Denial::UpstreamClosed, Some(LEFT), "업스트림 사용이 중단되었습니다. 4분 12초 후 다시 시도할 수 있습니다 (why)"),
            (Denial::RateLimited, Some(LEFT), "현재 사용 한도에 도달했습니다. 4분 12초 후 다시 시도할 수 있습니다 (why)"),
            (Denial::ConcurrencyLimited, Some(LEFT), "동시 호출 한도에 도달했습니다. 4분 12초 후 다시 시도할 수 있습니다 (why)"),
            (Denial::BudgetExhausted, Some(LEFT), "오늘 예산을 모두 사용했습니다. 4분 12초 후 다시 시도할 수 있습니다 (why)"),
            (Denial::PaidCallLimit, None, "이 작업에 허용된 유료 호출을 모두 사용했습니다 (why)"),
            (Denial::AboveLimit, None, "예상 사용량이 한도보다 큽니다 (why)"),
        ];
        assert_eq!(denials.map(|(denial, ..)| denial), Denial::ALL);
        for (denial, left, korean) in denials {
            assert_eq!(both(&S::NoPermit { denial, left, reason: "why".into() }), ["why", korean]);
        }
    }
}
