//! Renders a timeline for the terminal: one line per bar.

use std::collections::HashMap;
use std::fmt::Write;

use crate::analysis::timeline::{Bar, BarKind, ThreadRow, Timeline};
use crate::render::shorten;
use crate::span::{format_nanos, percent};

/// Characters of the drawing.
const WIDTH: usize = 40;
/// Limit of lines per thread; beyond it the longest are shown.
const LINES: usize = 40;
/// Reciprocal of the share of the latency below which a cause gets no line.
const NEGLIGIBLE: u64 = 2000;
/// Number of similar bars from which they share a line.
const MANY: usize = 4;

/// Renders the timeline as text.
pub fn timeline(timeline: &Timeline) -> String {
    let mut out = String::new();
    let line = |out: &mut String, text: &str| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    let begins = format_nanos(timeline.start);
    line(
        &mut out,
        &format!(
            "Request {} took {}, from {begins} after the beginning of the trace.",
            timeline.id,
            format_nanos(timeline.latency)
        ),
    );
    if timeline.same_id > 1 {
        line(&mut out, &format!("The slowest of {} requests with this id.", timeline.same_id));
    }
    for (cause, nanos) in
        timeline.causes.iter().take(6).filter(|(_, nanos)| nanos.saturating_mul(NEGLIGIBLE) >= timeline.latency)
    {
        line(
            &mut out,
            &format!("  {:>6}  {:>8}  {}", percent(*nanos, timeline.latency), format_nanos(*nanos), shorten(cause)),
        );
    }
    for wait in
        timeline.waits.iter().filter(|wait| (wait.end - wait.start).saturating_mul(50) >= timeline.latency).take(8)
    {
        line(&mut out, "");
        line(
            &mut out,
            &format!(
                "{} waited {} for the {}, {}",
                wait.thread,
                format_nanos(wait.end - wait.start),
                wait.object,
                shorten(&wait.place)
            ),
        );
        if wait.holders.is_empty() {
            line(&mut out, "  the holder is not in the trace");
        }
        for holder in wait.holders.iter().take(5) {
            line(
                &mut out,
                &format!(
                    "  {} held it for {} of that, taken in {}",
                    holder.thread,
                    format_nanos(holder.nanos),
                    shorten(&holder.place)
                ),
            );
            for (cause, nanos) in holder.doing.iter().take(4).filter(|(cause, _)| cause != "outside recorded calls") {
                line(
                    &mut out,
                    &format!(
                        "    {:>6}  {:>8}  {}",
                        percent(*nanos, holder.nanos),
                        format_nanos(*nanos),
                        shorten(cause)
                    ),
                );
            }
        }
    }
    for row in &timeline.rows {
        line(&mut out, "");
        line(&mut out, &format!("{}{}", row.thread, if row.own { "" } else { ", which held the lock it waited for" }));
        rows(&mut out, row, timeline.latency);
    }
    if !timeline.scheduler {
        line(&mut out, "\nNo scheduler events here: time off the CPU can't be separated from time on it.");
    }
    if timeline.cut {
        line(&mut out, "\nNot all of it is shown: there are too many entries.");
    }
    out
}

/// Similar bars that are drawn in one line.
struct Line<'a> {
    first: &'a Bar,
    count: usize,
    /// Total duration in nanoseconds.
    total: u64,
    /// Filled characters of the drawing.
    cells: [bool; WIDTH],
}

/// Creates the lines of a thread: many similar bars, such as short times off the CPU, share one.
fn lines(bars: &[Bar], latency: u64) -> Vec<Line<'_>> {
    let mut alike: HashMap<(usize, BarKind, &str), usize> = HashMap::new();
    for bar in bars {
        *alike.entry((bar.depth, bar.look, &bar.name)).or_default() += 1;
    }
    let mut indices: HashMap<(usize, BarKind, &str), usize> = HashMap::new();
    let mut lines: Vec<Line<'_>> = Vec::new();
    for bar in bars {
        let key = (bar.depth, bar.look, bar.name.as_str());
        let many = alike.get(&key).is_some_and(|count| *count >= MANY);
        let known = if many { indices.get(&key).copied() } else { None };
        let at = known.unwrap_or_else(|| {
            lines.push(Line { first: bar, count: 0, total: 0, cells: [false; WIDTH] });
            lines.len() - 1
        });
        indices.insert(key, at);
        let line = &mut lines[at];
        line.count += 1;
        line.total += bar.end - bar.start;
        let (from, to) = cells(bar, latency);
        line.cells[from..to].fill(true);
    }
    lines
}

fn rows(out: &mut String, row: &ThreadRow, latency: u64) {
    let lines = lines(&row.bars, latency);
    let mut lengths: Vec<u64> = lines.iter().map(|line| line.total).collect();
    lengths.sort_unstable();
    let least = lengths.len().checked_sub(LINES).and_then(|at| lengths.get(at)).copied().unwrap_or(0);
    let _ = writeln!(out, "  {:>8}  {:>8}", "from", "took");
    let mut count = 0;
    for line in lines.iter().filter(|line| line.total >= least).take(LINES) {
        count += line.count;
        let bar = line.first;
        let indent = "  ".repeat(bar.depth.saturating_sub(1).min(20));
        let detail = match (line.count, bar.detail.as_str()) {
            (1, "") => String::new(),
            (1, detail) => format!("  ({})", shorten(detail)),
            (times, _) => format!("  ({times} times)"),
        };
        let (start, span, name) = (format_nanos(bar.start), format_nanos(line.total), shorten(&bar.name));
        let _ = writeln!(out, "  {start:>8}  {span:>8}  {}  {indent}{name}{detail}", drawn(line));
    }
    if count < row.bars.len() {
        let _ = writeln!(out, "  and {} shorter ones", row.bars.len() - count);
    }
}

/// Returns the range of characters that a bar fills: at least one.
fn cells(bar: &Bar, latency: u64) -> (usize, usize) {
    let column = |time: u64| (u128::from(time) * WIDTH as u128 / u128::from(latency.max(1))) as usize;
    let from = column(bar.start).min(WIDTH - 1);
    (from, column(bar.end).clamp(from + 1, WIDTH))
}

fn drawn(line: &Line<'_>) -> String {
    let letter = match line.first.look {
        BarKind::Call => '█',
        BarKind::Wait => '▒',
        BarKind::Held => '▓',
        BarKind::Blocked => '·',
        BarKind::Descheduled => '×',
        BarKind::Queued => '~',
    };
    let picture = line.cells.iter().map(|filled| if *filled { letter } else { ' ' });
    format!("│{}│", picture.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(start: u64, end: u64, depth: usize, look: BarKind, name: &str) -> Bar {
        Bar { start, end, depth, look, name: name.into(), detail: String::new() }
    }

    #[test]
    fn many_similar_bars_share_a_line_and_few_do_not() {
        let mut bars = vec![bar(0, 1000, 1, BarKind::Call, "handle")];
        bars.extend((0..10).map(|n| bar(n * 100, n * 100 + 10, 2, BarKind::Descheduled, "off")));
        bars.extend((0..2).map(|n| bar(n * 500, n * 500 + 50, 2, BarKind::Call, "parse")));
        let lines = lines(&bars, 1000);
        let summary: Vec<_> = lines.iter().map(|line| (line.first.name.as_str(), line.count, line.total)).collect();
        assert_eq!(summary, [("handle", 1, 1000), ("off", 10, 100), ("parse", 1, 50), ("parse", 1, 50)]);
        assert_eq!(lines[1].cells.iter().filter(|filled| **filled).count(), 10);
    }
}
