//! The instants of an expression, where clocks change and calendars are odd.

use coolant::engine::EngineError;
use coolant::engine::schedule::CronTicks;
use coolant_core::schedule::Ticks;
use coolant_core::time::Timestamp;

fn at(text: &str) -> Timestamp {
    let at: jiff::Timestamp = text.parse().unwrap();
    Timestamp::from_millis(at.as_millisecond())
}

fn said(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.as_millis()).unwrap().to_string()
}

/// The next ticks after an instant, in UTC.
#[track_caller]
fn ticks(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let ticks = CronTicks::parse(cron, zone).unwrap();
    let found = std::iter::successors(ticks.after(at(after)), |tick| ticks.after(*tick));
    found.take(count).map(said).collect()
}

#[test]
fn in_berlin_a_time_that_the_clock_jumps_over_comes_once_after_it() {
    // 2026-03-29: 02:00 is followed by 03:00, at 01:00 UTC.
    let daily = ticks("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", 4);
    assert_eq!(
        daily,
        ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"]
    );
    // Two times within the gap are one tick after it, and a time at its end is that same tick.
    let twice = ticks("15,45 2,3 * * *", "Europe/Berlin", "2026-03-28T23:00:00Z", 4);
    assert_eq!(
        twice,
        ["2026-03-29T01:00:00Z", "2026-03-29T01:15:00Z", "2026-03-29T01:45:00Z", "2026-03-30T00:15:00Z"]
    );
    let several = ticks("30 2,14 * * *", "Europe/Berlin", "2026-03-28T14:00:00Z", 2);
    assert_eq!(several, ["2026-03-29T01:00:00Z", "2026-03-29T12:30:00Z"]);
    let both = ticks("0 2,3 * * *", "Europe/Berlin", "2026-03-28T23:00:00Z", 2);
    assert_eq!(both, ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]);
}

#[test]
fn in_berlin_a_time_that_comes_twice_is_taken_the_first_time() {
    // 2026-10-25: 03:00 is followed by 02:00, at 01:00 UTC.
    let daily = ticks("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
    assert_eq!(daily, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    // So is one of several, and a part of the hour.
    let several = ticks("30 2,14 * * *", "Europe/Berlin", "2026-10-24T13:00:00Z", 3);
    assert_eq!(several, ["2026-10-25T00:30:00Z", "2026-10-25T13:30:00Z", "2026-10-26T01:30:00Z"]);
    let quarters = ticks("*/30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 3);
    assert_eq!(quarters, ["2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:00:00Z"]);
    // Looked at between the two.
    let between = ticks("30 2 * * *", "Europe/Berlin", "2026-10-25T00:45:00Z", 1);
    assert_eq!(between, ["2026-10-26T01:30:00Z"]);
    let ticks = CronTicks::parse("50 2 * * *", "Europe/Berlin").unwrap();
    assert_eq!(ticks.at_or_before(at("2026-10-25T01:05:00Z")), Some(at("2026-10-25T00:50:00Z")));
}

#[test]
fn an_expression_that_goes_on_through_the_hours_goes_on() {
    let spring = ticks("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:15:00Z", 3);
    assert_eq!(spring, ["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"]);
    for hourly in ["0 * * * *", "0 0-23 * * *", "@hourly"] {
        let autumn = ticks(hourly, "Europe/Berlin", "2026-10-24T23:30:00Z", 3);
        assert_eq!(autumn, ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"]);
    }
    let even = ticks("0 */2 * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", 3);
    assert_eq!(even, ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T03:00:00Z"]);
}

#[test]
fn new_york_has_its_own_days_of_change() {
    // 2026-03-08: 02:00 is followed by 03:00, at 07:00 UTC; 2026-11-01: 02:00 by 01:00, at 06:00 UTC.
    let spring = ticks("30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", 2);
    assert_eq!(spring, ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]);
    let autumn = ticks("30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", 2);
    assert_eq!(autumn, ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]);
    let nine = ticks("0 9 * * MON-FRI", "America/New_York", "2026-03-06T15:00:00Z", 2);
    assert_eq!(nine, ["2026-03-09T13:00:00Z", "2026-03-10T13:00:00Z"], "nine is nine on both sides");
}

#[test]
fn seoul_has_no_change_and_half_hours_are_zones_too() {
    let seoul = ticks("0 3 * * *", "Asia/Seoul", "2026-03-28T20:00:00Z", 2);
    assert_eq!(seoul, ["2026-03-29T18:00:00Z", "2026-03-30T18:00:00Z"]);
    assert_eq!(ticks("0 3 * * *", "Asia/Kolkata", "2026-01-01T00:00:00Z", 1), ["2026-01-01T21:30:00Z"]);
    // A change of half an hour.
    // A day that was never there: the clock of Samoa went from 29 to 31 December 2011.
    let apia = ticks("0 9 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", 3);
    assert_eq!(apia, ["2011-12-29T19:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T19:00:00Z"]);
    let lord_howe = ticks("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", 2);
    assert_eq!(lord_howe, ["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"]);
}

#[test]
fn leap_days_and_ends_of_months_come_where_they_are() {
    let leap = ticks("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", 2);
    assert_eq!(leap, ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]);
    assert_eq!(ticks("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", 1), ["2104-02-29T00:00:00Z"]);
    let last = ticks("0 0 L * *", "UTC", "2026-01-15T00:00:00Z", 3);
    assert_eq!(last, ["2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"]);
    let thirty_first = ticks("0 0 31 * *", "UTC", "2026-01-01T00:00:00Z", 3);
    assert_eq!(thirty_first, ["2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z"]);
    let quarter = ticks("0 12 15W * *", "UTC", "2026-08-01T00:00:00Z", 1);
    assert_eq!(quarter, ["2026-08-14T12:00:00Z"], "15 August 2026 is a Saturday");
    let weekdays = ticks("0 12 * * 5L,1#2", "UTC", "2026-08-01T00:00:00Z", 2);
    assert_eq!(weekdays, ["2026-08-10T12:00:00Z", "2026-08-28T12:00:00Z"]);
    let either = ticks("0 12 15 * MON", "UTC", "2026-08-11T00:00:00Z", 2);
    assert_eq!(either, ["2026-08-15T12:00:00Z", "2026-08-17T12:00:00Z"], "the day or the weekday");
    let year = ticks("59 59 23 31 12 *", "UTC", "2026-12-31T23:59:59Z", 1);
    assert_eq!(year, ["2027-12-31T23:59:59Z"]);
}

#[test]
fn five_and_six_fields_are_read_and_a_part_of_a_second_is_none() {
    let after = "2026-01-01T00:00:00.500Z";
    assert_eq!(ticks("* * * * *", "UTC", after, 2), ["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]);
    assert_eq!(ticks("* * * * * *", "UTC", after, 2), ["2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"]);
    assert_eq!(ticks("@hourly", "utc", after, 1), ["2026-01-01T01:00:00Z"]);
    assert_eq!(ticks("0 12 * jan,jul sun", "UTC", after, 1), ["2026-01-04T12:00:00Z"]);
    let ticks = CronTicks::parse("* * * * * *", "UTC").unwrap();
    assert_eq!(ticks.at_or_before(at(after)), Some(at("2026-01-01T00:00:00Z")));
    assert_eq!(ticks.at_or_before(at("2026-01-01T00:00:00Z")), Some(at("2026-01-01T00:00:00Z")));
}

#[test]
fn what_cannot_be_read_is_refused_and_the_field_named() {
    let refused = |cron: &str, zone: &str| match CronTicks::parse(cron, zone).unwrap_err() {
        EngineError::InvalidField { field, reason } => (field, reason),
        other => panic!("{other}"),
    };
    let long = "0,".repeat(200) + "0 * * * *";
    for wrong in [
        "",
        " ",
        "hello",
        "* * * *",
        "* * * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "5-1 * * * *",
        "a * * * *",
        "* * * * MON-XYZ",
        "1,,2 * * * *",
        "-1 * * * *",
        "1.5 * * * *",
        "@never",
        "* * * * *\0",
        "0 0 ３ * *",
        &long,
    ] {
        let (field, reason) = refused(wrong, "UTC");
        assert_eq!(field, "cron", "{wrong}");
        assert!(reason.contains("five fields"), "{reason}");
    }
    for wrong in ["", "Europe/Atlantis", "+09:00", "../etc/passwd", "Local", "Asia/Seoul "] {
        let (field, reason) = refused("* * * * *", wrong);
        assert_eq!(field, "time_zone", "{wrong}");
        assert!(reason.contains("IANA"), "{reason}");
    }
}

#[test]
fn an_instant_that_never_comes_is_found_out_quickly() {
    let started = std::time::Instant::now();
    for never in ["0 0 30 2 *", "0 0 31 4,6 *", "0 0 0 30 2 *"] {
        let ticks = CronTicks::parse(never, "Europe/Berlin").unwrap();
        assert_eq!(ticks.after(at("2026-01-01T00:00:00Z")), None);
        assert_eq!(ticks.at_or_before(at("2026-01-01T00:00:00Z")), None);
    }
    assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
}

/// Walking back finds the ticks that walking on finds, also over every change of the clock in a year: that
/// is how missed ticks are found again.
#[test]
fn the_ticks_are_the_same_in_both_directions() {
    let zones = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Seoul", "Australia/Lord_Howe"];
    let crons = [
        "30 2 * * *",
        "*/20 1-3 * * *",
        "0 2,3 * * *",
        "15,45 */2 * * SUN",
        "0 0 L * *",
        "7 * * * *",
        "5,55 0-3,22 * * *",
    ];
    for zone in zones {
        for cron in crons {
            let ticks = CronTicks::parse(cron, zone).unwrap();
            let (start, end) = (at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"));
            let on = std::iter::successors(ticks.after(start), |tick| ticks.after(*tick));
            let on: Vec<_> = on.take_while(|tick| *tick <= end).collect();
            let before = |tick: Timestamp| ticks.at_or_before(Timestamp::from_millis(tick.as_millis() - 1));
            let back = std::iter::successors(ticks.at_or_before(end), |tick| before(*tick));
            let mut back: Vec<_> = back.take_while(|tick| *tick > start).collect();
            back.reverse();
            let odd = on.iter().find(|tick| !back.contains(tick)).or(back.iter().find(|t| !on.contains(t)));
            assert_eq!(odd.copied().map(said), None, "`{cron}` in {zone}");
            assert!(on.is_sorted_by(|a, b| a < b), "`{cron}` in {zone}");
        }
    }
}
