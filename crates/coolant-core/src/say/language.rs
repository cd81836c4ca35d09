//! Languages: which one is meant, and how waits are said in it.

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

#[cfg(test)]
mod tests {
    use super::*;

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
