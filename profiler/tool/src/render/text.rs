//! A timeline in the terminal: one line per bar.

use std::fmt::Write;

use crate::analysis::timeline::{Bar, Look, Row, Timeline};
use crate::span::{percent, show};

/// Characters of the drawing.
const WIDTH: usize = 40;
/// Bars of one thread that are shown; of more, the longest.
const BARS: usize = 40;

/// The timeline as text.
pub fn timeline(timeline: &Timeline) -> String {
    let mut out = String::new();
    let line = |out: &mut String, text: &str| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    let begins = show(timeline.start);
    line(
        &mut out,
        &format!(
            "Request {} took {}, from {begins} after the beginning of the trace.",
            timeline.id,
            show(timeline.latency)
        ),
    );
    if timeline.same_id > 1 {
        line(&mut out, &format!("The slowest of {} requests with this id.", timeline.same_id));
    }
    for (cause, nanos) in timeline.causes.iter().take(6) {
        line(&mut out, &format!("  {:>6}  {:>8}  {cause}", percent(*nanos, timeline.latency), show(*nanos)));
    }
    for story in timeline.waits.iter().filter(|story| (story.end - story.start) * 50 >= timeline.latency).take(8) {
        line(&mut out, "");
        line(
            &mut out,
            &format!(
                "{} waited {} for the {}, {}",
                story.thread,
                show(story.end - story.start),
                story.object,
                story.place
            ),
        );
        if story.holders.is_empty() {
            line(&mut out, "  who held it is not in the trace");
        }
        for holder in story.holders.iter().take(5) {
            line(
                &mut out,
                &format!("  {} held it for {} of that, taken in {}", holder.thread, show(holder.nanos), holder.place),
            );
            for (cause, nanos) in holder.doing.iter().take(4).filter(|(cause, _)| cause != "outside recorded calls") {
                line(&mut out, &format!("    {:>6}  {:>8}  {cause}", percent(*nanos, holder.nanos), show(*nanos)));
            }
        }
    }
    for row in &timeline.rows {
        line(&mut out, "");
        line(
            &mut out,
            &format!("{}{}", row.thread, if row.own { "" } else { ", which held what the request waited for" }),
        );
        rows(&mut out, row, timeline.latency);
    }
    if !timeline.scheduler {
        line(&mut out, "\nNo scheduler events here: time off the CPU is not told apart from time on it.");
    }
    if timeline.cut {
        line(&mut out, "\nThere was too much to show all of it.");
    }
    out
}

fn rows(out: &mut String, row: &Row, latency: u64) {
    let mut lengths: Vec<u64> = row.bars.iter().map(|bar| bar.end - bar.start).collect();
    lengths.sort_unstable();
    let least = lengths.len().checked_sub(BARS).and_then(|at| lengths.get(at)).copied().unwrap_or(0);
    let shown = row.bars.iter().filter(|bar| bar.end - bar.start >= least).take(BARS);
    let _ = writeln!(out, "  {:>8}  {:>8}", "from", "took");
    let mut count = 0;
    for bar in shown {
        count += 1;
        let indent = "  ".repeat(bar.depth.saturating_sub(1).min(20));
        let detail = if bar.detail.is_empty() { String::new() } else { format!("  ({})", bar.detail) };
        let span = show(bar.end - bar.start);
        let _ =
            writeln!(out, "  {:>8}  {span:>8}  {}  {indent}{}{detail}", show(bar.start), drawn(bar, latency), bar.name);
    }
    if count < row.bars.len() {
        let _ = writeln!(out, "  and {} shorter ones", row.bars.len() - count);
    }
}

fn drawn(bar: &Bar, latency: u64) -> String {
    let letter = match bar.look {
        Look::Call => '█',
        Look::Wait => '▒',
        Look::Held => '▓',
        Look::Blocked => '·',
        Look::Descheduled => '×',
        Look::Queued => '~',
    };
    let place = |time: u64| (u128::from(time) * WIDTH as u128 / u128::from(latency.max(1))) as usize;
    let from = place(bar.start).min(WIDTH - 1);
    let to = place(bar.end).clamp(from + 1, WIDTH);
    let picture = (0..WIDTH).map(|at| if at >= from && at < to { letter } else { ' ' });
    format!("│{}│", picture.collect::<String>())
}
