//! Renders a timeline as one self-contained page, in the style of the reports.

use std::iter::successors;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::analysis::timeline::{Bar, BarKind, ThreadRow, Timeline, WaitDetail};
use crate::render::shorten;
use crate::span::{format_nanos, percent};

// All pages of this project share one style.
const STYLE: &str = include_str!("../../../../lab/report/src/style.css");
const SCRIPT: &str = include_str!("../../../../lab/report/src/script.js");
const OWN_STYLE: &str = include_str!("timeline.css");
/// The browser fetches nothing: the page contains all that it needs.
const POLICY: &str = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// Units of the drawing.
const WIDTH: f64 = 1120.0;
const LANE: f64 = 19.0;
const AXIS: f64 = 22.0;
/// Limit of bars per thread; beyond it the longest are drawn.
const BARS: usize = 5000;
/// Approximate width of a letter of a label.
const LETTER: f64 = 6.4;

const BAR_KINDS: [BarKind; 6] =
    [BarKind::Call, BarKind::Wait, BarKind::Held, BarKind::Blocked, BarKind::Descheduled, BarKind::Queued];

/// Renders the page; `command` is the recorded command.
pub fn page(timeline: &Timeline, command: &str) -> String {
    let title = format!("Request {}: {}", timeline.id, format_nanos(timeline.latency));
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="color-scheme" content="light dark";
                title { (title) " · Leeward" }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) (PreEscaped(OWN_STYLE)) }
                script { (PreEscaped(SCRIPT)) }
            }
            body {
                main {
                    header {
                        div.top {
                            p.eyebrow { "Leeward profile " code { (command) } }
                            button #theme type="button" hidden { "Dark" }
                        }
                        h1 { (title) }
                        p.lead { (lead(timeline)) }
                    }
                    (causes(timeline))
                    @if !timeline.waits.is_empty() { (waits(timeline)) }
                    section {
                        h2 { "Timeline" }
                        (legend(timeline))
                        @for row in &timeline.rows { (thread(row, timeline.latency)) }
                        @if timeline.cut { p.notice { "Not all of it is shown: there are too many entries." } }
                        @if !timeline.scheduler {
                            p.notice { "The trace has no scheduler events here: time off the CPU can't be separated from time on it." }
                        }
                    }
                }
                footer { p { "Bars show what took longer than the threshold of recording. Times count from the request's beginning." } }
            }
        }
    };
    markup.into_string()
}

fn lead(timeline: &Timeline) -> String {
    let mut text = format!("It began {} after the beginning of the trace.", format_nanos(timeline.start));
    if timeline.same_id > 1 {
        text += &format!(" The slowest of {} requests with this id.", timeline.same_id);
    }
    text
}

fn causes(timeline: &Timeline) -> Markup {
    let most = timeline.causes.first().map_or(1, |(_, nanos)| *nanos).max(1);
    html! {
        section {
            h2 { "Where the time went" }
            div.scroll { table.causes { tbody {
                @for (cause, nanos) in timeline.causes.iter().take(12) {
                    tr {
                        td.share { (percent(*nanos, timeline.latency)) }
                        td.share { (format_nanos(*nanos)) }
                        td.what {
                            (shorten(cause))
                            div.meter style=(format!("width: {:.1}%", *nanos as f64 * 100.0 / most as f64)) {}
                        }
                    }
                }
            } } }
        }
    }
}

fn waits(timeline: &Timeline) -> Markup {
    let mut longest: Vec<&WaitDetail> = timeline.waits.iter().collect();
    longest.sort_by_key(|wait| std::cmp::Reverse(wait.end - wait.start));
    html! {
        section {
            h2 { "Holders of the locks that it waited for" }
            @for wait in longest.iter().take(10) {
                div.story {
                    p { strong { (wait.thread) } " waited " strong { (format_nanos(wait.end - wait.start)) } " for the " (wait.object) ", " (shorten(&wait.place)) }
                    @if wait.holders.is_empty() { p.explain { "The holder is not in the trace." } }
                    @for holder in wait.holders.iter().take(6) {
                        p { strong { (holder.thread) } " held it for " (format_nanos(holder.nanos)) " of that, taken in " strong { (shorten(&holder.place)) } }
                        ul { @for (cause, nanos) in holder.doing.iter().take(5) { li { (percent(*nanos, holder.nanos)) " " (shorten(cause)) } } }
                    }
                }
            }
        }
    }
}

fn legend(timeline: &Timeline) -> Markup {
    let used = |kind: &BarKind| timeline.rows.iter().any(|row| row.bars.iter().any(|bar| bar.look == *kind));
    html! {
        p.key { @for kind in BAR_KINDS.into_iter().filter(used) { span.(class(kind)) { span.dot {} (kind.description()) } } }
    }
}

fn class(kind: BarKind) -> &'static str {
    match kind {
        BarKind::Call => "c1",
        BarKind::Wait => "c7",
        BarKind::Held => "c2",
        BarKind::Blocked => "c0",
        BarKind::Descheduled => "c4",
        BarKind::Queued => "c6",
    }
}

fn thread(row: &ThreadRow, latency: u64) -> Markup {
    let mut bars: Vec<&Bar> = row.bars.iter().collect();
    let all = bars.len();
    if all > BARS {
        bars.sort_by_key(|bar| std::cmp::Reverse(bar.end - bar.start));
        bars.truncate(BARS);
    }
    // Empty lanes, such as the lane of held locks, take no space.
    let mut depths: Vec<usize> = bars.iter().map(|bar| bar.depth).collect();
    depths.sort_unstable();
    depths.dedup();
    let lane = |depth: usize| depths.binary_search(&depth).unwrap_or(0) as f64;
    let height = AXIS + depths.len() as f64 * LANE + 2.0;
    let scale = WIDTH / latency.max(1) as f64;
    html! {
        figure.thread {
            figcaption {
                strong { (row.thread) }
                @if !row.own { span.soft { " held the lock that the request waited for" } }
                @if all > bars.len() { span.soft { " the longest " (bars.len()) " of " (all) } }
            }
            svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label=(format!("What {} did", row.thread)) {
                (axis(latency, scale, height))
                @for bar in bars {
                    @let (x, y) = (bar.start as f64 * scale, AXIS + lane(bar.depth) * LANE);
                    @let width = ((bar.end - bar.start) as f64 * scale).max(0.7);
                    @let letters = ((width - 8.0) / LETTER) as usize;
                    g.hit.(class(bar.look)) {
                        title { (bar.name) "\n" (format_nanos(bar.end - bar.start)) ", from " (format_nanos(bar.start)) @if !bar.detail.is_empty() { "\n" (bar.detail) } }
                        rect.span.(format!("look-{}", class(bar.look))) x=(format!("{x:.2}")) y=(format!("{y:.1}")) width=(format!("{width:.2}")) height="17" rx="2" {}
                        @if letters >= 3 {
                            text.label x=(format!("{:.2}", x + 4.0)) y=(format!("{:.1}", y + 12.5)) { (truncate(&shorten(&bar.name), letters)) }
                        }
                    }
                }
            }
        }
    }
}

fn axis(latency: u64, scale: f64, height: f64) -> Markup {
    let step = step(latency);
    let ticks = successors(Some(0_u64), |time| time.checked_add(step)).take_while(|time| *time <= latency);
    html! {
        @for time in ticks {
            @let x = time as f64 * scale;
            line.grid x1=(format!("{x:.1}")) x2=(format!("{x:.1}")) y1="16" y2=(format!("{height:.1}")) {}
            text.tick x=(format!("{x:.1}")) y="11" text-anchor=(anchor(x)) { (if time == 0 { "0".into() } else { format_nanos(time) }) }
        }
    }
}

fn anchor(x: f64) -> &'static str {
    if x < 20.0 {
        "start"
    } else if x > WIDTH - 30.0 {
        "end"
    } else {
        "middle"
    }
}

/// Returns the distance of ticks: 1, 2 or 5 times a power of ten, with at most eight ticks.
fn step(latency: u64) -> u64 {
    let least = (latency / 8).max(1);
    let power = 10_u64.pow(least.ilog10());
    [1, 2, 5, 10].into_iter().map(|times| power.saturating_mul(times)).find(|step| *step >= least).unwrap_or(power)
}

fn truncate(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_string();
    }
    text.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_ticks_are_round_and_few() {
        for latency in [1, 7, 999, 12_345, 1_000_000, u64::MAX] {
            let step = step(latency);
            assert!(latency / step <= 8, "{latency}: {step}");
            let digits = step.to_string();
            assert!(matches!(digits.trim_end_matches('0'), "1" | "2" | "5"), "{step}");
        }
    }
}
