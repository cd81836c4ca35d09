//! What people are told while they wait, in their language: the one place with these sentences.
//!
//! A sentence is a value until somebody reads it. Codes and names of fields are no sentences and never
//! change. No sentence needs a plural, and Korean ones need no particle that depends on a name.
//!
//! Elsewhere: which language a call is answered in (`coolant::language`).

use std::time::Duration;

use crate::time::spoken;

/// A language that people are told things in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Language {
    /// For everybody who asks for nothing that is here.
    #[default]
    English,
    /// Korean.
    Korean,
}

impl Language {
    /// Every language.
    pub const ALL: [Self; 2] = [Self::English, Self::Korean];

    /// Its tag (BCP 47): `en`, `ko`.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Korean => "ko",
        }
    }

    /// The best of what an `Accept-Language` asks for (RFC 9110): by weight, at equal weights the first. What is
    /// no language range is passed over; English, if nothing else is left.
    #[must_use]
    pub fn accepted(header: &str) -> Self {
        let ranges: Vec<(&str, u16)> = header.split(',').filter_map(range).collect();
        let weight = |language: Self| {
            let own = ranges.iter().position(|(range, _)| is_of(range, language));
            let any = || ranges.iter().position(|(range, _)| *range == "*");
            own.or_else(any).map(|place| (ranges[place].1, usize::MAX - place)).filter(|(q, _)| *q > 0)
        };
        // Of equals `max_by_key` takes the last, and English is to be it.
        let best = Self::ALL.into_iter().rev().max_by_key(|language| weight(*language));
        best.unwrap_or_default()
    }

    /// The language of a POSIX locale: `ko_KR.UTF-8`. Texts are UTF-8: a locale of another encoding gets
    /// English, which reads the same in all.
    #[must_use]
    pub fn of_locale(locale: &str) -> Self {
        let locale = locale.split('@').next().unwrap_or_default();
        let (name, encoding) = locale.split_once('.').unwrap_or((locale, "UTF-8"));
        let readable = encoding.eq_ignore_ascii_case("UTF-8") || encoding.eq_ignore_ascii_case("utf8");
        let language = name.split('_').next().unwrap_or_default();
        let own = Self::ALL.into_iter().find(|known| known.tag() == language);
        own.filter(|_| readable).unwrap_or_default()
    }

    /// The title of a problem that passes by itself, by its HTTP status; `None` where there is none.
    #[must_use]
    pub const fn title(self, status: u16) -> Option<&'static str> {
        match (self, status) {
            (Self::English, 423) => Some("Locked"),
            (Self::English, 429) => Some("Too Many Requests"),
            (Self::English, 503) => Some("Service Unavailable"),
            (Self::Korean, 423) => Some("잠겨 있음"),
            (Self::Korean, 429) => Some("요청이 너무 많음"),
            (Self::Korean, 503) => Some("일시적으로 사용할 수 없음"),
            _ => None,
        }
    }

    /// A wait, in whole units rounded up: `4 min 12 s`, `4분 12초`.
    #[must_use]
    pub fn wait(self, wait: Duration) -> String {
        let english = spoken(wait);
        match self {
            Self::English => english,
            Self::Korean => {
                let mut words = english.split(' ');
                let mut parts = Vec::new();
                while let (Some(number), Some(unit)) = (words.next(), words.next()) {
                    parts.push(format!("{number}{}", korean_unit(unit)));
                }
                parts.join(" ")
            }
        }
    }
}

fn korean_unit(unit: &str) -> &'static str {
    match unit {
        "d" => "일",
        "h" => "시간",
        "min" => "분",
        _ => "초",
    }
}

/// A language range and its weight in thousandths; `None` if it is none.
fn range(text: &str) -> Option<(&str, u16)> {
    let mut parts = text.split(';').map(str::trim);
    let range = parts.next().filter(|range| !range.is_empty())?;
    let weight = match parts.next() {
        None => 1000,
        Some(parameter) => thousandths(parameter.strip_prefix("q=").or(parameter.strip_prefix("Q="))?)?,
    };
    parts.next().is_none().then_some((range, weight))
}

/// `0` to `1` with three digits at most behind the point.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, digits) = text.split_once('.').unwrap_or((text, ""));
    if digits.len() > 3 || !digits.bytes().all(|b| b.is_ascii_digit()) || !matches!(whole, "0" | "1") {
        return None;
    }
    let part: u16 = format!("{digits:0<3}").parse().ok()?;
    let weight = if whole == "1" { 1000 + part } else { part };
    (weight <= 1000).then_some(weight)
}

/// Whether a range is of a language: `ko`, `ko-KR`.
fn is_of(range: &str, language: Language) -> bool {
    range.split('-').next().is_some_and(|primary| primary.eq_ignore_ascii_case(language.tag()))
}

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
            Self::NothingInTheWay => "시작을 막는 것이 없습니다".into(),
            Self::Theirs(words) => words.clone(),
        }
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
    fn a_wait_is_said_in_both_languages() {
        let said = |seconds| Language::ALL.map(|language| language.wait(Duration::from_secs(seconds)));
        assert_eq!(said(0), ["0 s", "0초"]);
        assert_eq!(said(240), ["4 min", "4분"]);
        assert_eq!(said(7500), ["2 h 5 min", "2시간 5분"]);
        assert_eq!(said(86_400 * 3 + 1), ["3 d 1 h", "3일 1시간"]);
        for status in [423, 429, 503] {
            assert!(Language::ALL.iter().all(|language| language.title(status).is_some()));
        }
    }

    #[test]
    fn the_best_language_of_a_header_is_taken() {
        use Language::{English, Korean};
        for (header, best) in [
            ("ko", Korean),
            ("ko-KR", Korean),
            ("KO-kr-x-private", Korean),
            ("ko-KR,ko;q=0.9,en-US;q=0.8,en;q=0.7", Korean),
            ("en-US,en;q=0.9,ko;q=0.8", English),
            ("fr, ko;q=0.1", Korean),
            ("en;q=0.3, ko;q=0.301", Korean),
            ("ko;q=0.5,en;q=0.5", Korean),
            ("en;q=0.5,ko;q=0.5", English),
            ("*", English),
            ("*, en;q=0", Korean),
            ("ko;q=0, *", English),
            ("*;q=0.5, ko;q=0.6", Korean),
            ("ko;q=0", English),
            ("en;q=0, ko;q=0", English),
            ("", English),
            ("fr-CH, de", English),
            ("korean, kor, k-o", English),
        ] {
            assert_eq!(Language::accepted(header), best, "{header}");
        }
    }

    #[test]
    fn garbage_in_a_header_is_passed_over() {
        for garbage in [
            "ko;q=2",
            "ko;q=",
            "ko;q=0.1234",
            "ko;q=-1",
            "ko;q=1.001",
            "ko;level=1",
            "ko;q=1;q=1",
            ";q=1",
            ",,;",
            "\u{1F600}",
        ] {
            assert_eq!(Language::accepted(garbage), Language::English, "{garbage}");
            let beside = format!("{garbage}, ko ; q=0.5");
            assert_eq!(Language::accepted(&beside), Language::Korean, "{beside}");
        }
        assert_eq!(Language::accepted(&"ko,".repeat(10_000)), Language::Korean);
    }

    #[test]
    fn a_locale_names_a_language() {
        for korean in ["ko_KR.UTF-8", "ko_KR.utf8", "ko", "ko_KR", "ko_KP.UTF-8@x"] {
            assert_eq!(Language::of_locale(korean), Language::Korean, "{korean}");
        }
        for english in ["", "C", "POSIX", "C.UTF-8", "en_US.UTF-8", "kok_IN.UTF-8", "ko_KR.EUC-KR", "."] {
            assert_eq!(Language::of_locale(english), Language::English, "{english}");
        }
    }
}
