//! The picture of a storm: calls over time, one row for each way, on one scale.

use std::fmt::Write as _;
use std::time::Duration;

use super::Measured;

/// Columns of the chart on a terminal.
const COLUMNS: usize = 72;
/// From nothing to full.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The seconds that all experiments together took.
fn seconds(measured: &[Measured]) -> usize {
    measured.iter().map(|one| one.calls_by_second.len()).max().unwrap_or(0).max(1)
}

/// Calls of the busiest second of all.
fn peak(measured: &[Measured]) -> u32 {
    measured.iter().flat_map(|one| &one.calls_by_second).copied().max().unwrap_or(0).max(1)
}

/// Roots, so that one call can be seen beside three hundred.
fn height(calls: f64, peak: f64) -> f64 {
    (calls / peak).sqrt().clamp(0.0, 1.0)
}

/// For a terminal.
pub(super) fn lines(measured: &[Measured], from: Duration, outage: Duration) -> Vec<String> {
    let step = seconds(measured).div_ceil(COLUMNS);
    let columns = seconds(measured).div_ceil(step);
    let peak = f64::from(peak(measured));
    let mut lines = Vec::new();
    for one in measured {
        let bars = (0..columns).map(|column| {
            let bucket = one.calls_by_second.iter().skip(column * step).take(step);
            let calls = bucket.copied().max().unwrap_or(0);
            let full = height(f64::from(calls), peak) * 8.0;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 8")]
            let level = if calls > 0 { (full.round() as usize).max(1) } else { 0 };
            BARS[level.min(8)]
        });
        let most = one.calls_by_second.iter().max().copied().unwrap_or(0);
        lines.push(format!("{:>14} │{}│ {most} calls/s at most", one.way.as_str(), bars.collect::<String>()));
    }
    let inside = |column: usize| {
        let middle = Duration::from_secs((column * step) as u64);
        middle + Duration::from_secs(step as u64) > from && middle < from + outage
    };
    let away: String = (0..columns).map(|column| if inside(column) { '═' } else { ' ' }).collect();
    lines.push(format!("{:>14} │{away}│ one column is {step} s; heights by square roots", "outage"));
    lines
}

/// Width of the picture in points.
const WIDTH: f64 = 860.0;
/// Left edge of the bars.
const LEFT: f64 = 130.0;
/// Height of a row.
const ROW: f64 = 110.0;
/// Room above the first row.
const TOP: f64 = 34.0;

/// For a page.
pub(super) fn svg(measured: &[Measured], from: Duration, outage: Duration) -> String {
    let all = seconds(measured) as f64;
    let peak = f64::from(peak(measured));
    let unit = (WIDTH - LEFT - 20.0) / all;
    let bottom = TOP + ROW * measured.len() as f64;
    let x = |second: f64| LEFT + second * unit;
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {:.0}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <rect x=\"{:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#fde2e2\"/>\n\
         <text x=\"{:.1}\" y=\"22\" fill=\"#b33\">outage, {} s</text>\n",
        bottom + 34.0,
        x(from.as_secs_f64()),
        outage.as_secs_f64() * unit,
        bottom - TOP,
        x(from.as_secs_f64()) + 4.0,
        outage.as_secs()
    );
    for (row, one) in measured.iter().enumerate() {
        let base = TOP + ROW * (row as f64 + 1.0);
        let colour = ["#c0504d", "#d99036", "#2a7fb8"][row % 3];
        let _ = write!(
            svg,
            "<text x=\"8\" y=\"{:.1}\" font-weight=\"bold\">{}</text>\n\
             <text x=\"8\" y=\"{:.1}\" fill=\"#555\">{} calls</text>\n\
             <text x=\"8\" y=\"{:.1}\" fill=\"#555\">{} in the outage</text>\n\
             <line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{base}\" y2=\"{base}\" stroke=\"#999\"/>\n",
            base - 62.0,
            one.way.as_str(),
            base - 44.0,
            one.calls,
            base - 26.0,
            one.calls_in_outage,
            WIDTH - 20.0
        );
        for (second, calls) in one.calls_by_second.iter().enumerate().filter(|(_, calls)| **calls > 0) {
            let tall = height(f64::from(*calls), peak) * (ROW - 18.0);
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{tall:.1}\" fill=\"{colour}\"/>",
                x(second as f64),
                base - tall,
                (unit - 0.5).max(0.5)
            );
        }
    }
    let _ = write!(
        svg,
        "<text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#555\">calls a second over {all:.0} s; heights by square roots, \
         the tallest is {peak:.0}</text>\n</svg>\n",
        bottom + 22.0
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::super::Way;
    use super::*;

    fn measured(way: Way, calls_by_second: Vec<u32>) -> Measured {
        Measured {
            way,
            calls: 0,
            calls_in_outage: 0,
            paid_calls: 0,
            cost_usd: 0.0,
            most_calls_of_a_job: 0,
            presses: 0,
            done: 0,
            dead_lettered: 0,
            recovery_seconds: None,
            calls_by_second,
        }
    }

    #[test]
    fn a_single_call_can_be_seen_beside_hundreds() {
        let storm = [measured(Way::Naive, vec![0, 400, 100]), measured(Way::Coolant, vec![0, 1])];
        let lines = lines(&storm, Duration::from_secs(1), Duration::from_secs(1));
        assert!(lines[0].contains("│ █▄│ 400 calls/s"), "{lines:?}");
        assert!(lines[1].contains("│ ▁ │ 1 calls/s"), "{lines:?}");
        assert!(lines[2].contains("│ ═ │"), "{lines:?}");
        let svg = svg(&storm, Duration::from_secs(1), Duration::from_secs(1));
        assert_eq!(svg.matches("<rect").count(), 2 + 3, "{svg}");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    }
}
