//! The text that `leeward profile join` prints. Does not compute what it prints.

use leeward_profile::join::{ClockSource, Joined, JoinedTail, PartKind, RequestNode, Step};
use leeward_profile::span::format_nanos;
use leeward_profile::trace::Trace;

use crate::stdout::sanitize;
use crate::table::{Align, Table, WIDTH, wrap};

/// Least share of the difference that a finding must explain to be shown, in percent.
const EXPLAINED_MIN: f64 = 1.0;
/// Limit of lines of a tree.
const LINES_MAX: usize = 40;

/// Describes the comparison: the way to the slow process, and the difference there.
pub(super) fn tail(tail: &JoinedTail, limit: usize) -> String {
    let mut out = format!(
        "{} of {} requests of {} took {} or longer: {} on average, the others {}.\n",
        tail.slow,
        tail.requests,
        sanitize(&tail.front),
        format_nanos(tail.threshold),
        format_nanos(tail.slow_mean),
        format_nanos(tail.rest_mean)
    );
    if tail.slow_mean <= tail.rest_mean || tail.slow == tail.requests {
        return out + "All of them are about equally slow: there is no tail.\n";
    }
    for step in &tail.steps {
        if let Some(part) = step.parts.first() {
            out += &format!("\n{}", wrap(&sanitize(&part.text), 0, WIDTH));
            if part.kind == PartKind::Transit {
                out += &wrap(
                    "That is the network, and the time until the other process takes the request: \
                     `leeward watch` shows requests that wait in its sockets.",
                    0,
                    WIDTH,
                );
            }
        }
        out += &format!("\n{}", parts(step));
    }
    let Some((found, last)) = tail.tail.as_ref().zip(tail.steps.last()) else { return out };
    let [slow, rest] = last.requests;
    out += &format!("\nIn {}, {slow} requests of the slowest beside {rest} of the others:\n", sanitize(&last.process));
    if let Some(culprit) = &found.culprit {
        out += &wrap(&sanitize(&culprit.text), 0, WIDTH);
    }
    let shown = found.findings.iter().filter(|finding| finding.explains >= EXPLAINED_MIN).take(limit);
    for (index, finding) in shown.enumerate() {
        out += &format!("\n{}. {:.0} % of the difference.\n", index + 1, finding.explains);
        out += &wrap(&sanitize(&finding.text), 3, WIDTH);
    }
    if found.incomplete > 0 {
        out += &format!("\nOf {} slow requests some events were left out: there are too many.\n", found.incomplete);
    }
    out
}

/// Lists the parts of the requests' time at one process.
fn parts(step: &Step) -> String {
    let right = Align::Right;
    let mut table =
        Table::new(&[("where", Align::Left), ("slowest", right), ("others", right), ("of the difference", right)]);
    for part in &step.parts {
        table.row(vec![
            sanitize(&part.describe()),
            format_nanos(part.slow),
            format_nanos(part.rest),
            format!("{:.0} %", part.explains),
        ]);
    }
    table.to_string()
}

/// Draws the requests of one trace.
pub(super) fn tree(tree: &RequestNode, is_chosen: bool) -> String {
    let which = if is_chosen { "The trace" } else { "The slowest, trace" };
    let right = Align::Right;
    let mut table = Table::new(&[
        ("request", Align::Left),
        ("from", right),
        ("took", right),
        ("itself", right),
        ("in transit", right),
    ]);
    let (mut lines, mut left_out) = (0, 0);
    tree.each(&mut |node, depth| {
        if lines == LINES_MAX {
            left_out += 1 + node.unrecorded.len();
            return;
        }
        lines += 1;
        let label = node.label.as_deref().map(|label| format!(" {label}")).unwrap_or_default();
        let indent = "  ".repeat(depth.min(16));
        let from = format_nanos(node.start.unsigned_abs());
        let sign = if node.start < 0 { "−" } else { "" };
        table.row(vec![
            format!("{indent}{}", sanitize(&format!("{} {}{label}", node.process, node.id))),
            format!("{sign}{from}{}", if node.is_aligned { "" } else { " ?" }),
            format_nanos(node.latency),
            format_nanos(node.own),
            node.call.map_or(String::new(), |call| format_nanos(call.saturating_sub(node.latency))),
        ]);
        let shown = node.unrecorded.len().min(LINES_MAX - lines);
        for (peer, nanos) in &node.unrecorded[..shown] {
            let name = format!("{indent}  {}, not recorded", sanitize(peer));
            table.row(vec![name, String::new(), format_nanos(*nanos), String::new(), String::new()]);
        }
        lines += shown;
        left_out += node.unrecorded.len() - shown;
    });
    let mut out = format!("\n{which} {}:\n{table}", tree.trace);
    if left_out > 0 {
        out += &format!("and {left_out} more request{}\n", if left_out == 1 { "" } else { "s" });
    }
    out
}

/// Says how the clocks of other hosts were aligned; empty if all processes ran on one.
pub(super) fn clocks(joined: &Joined<'_>) -> String {
    let mut out = String::new();
    for (name, _, clock) in joined.processes().filter(|(_, _, clock)| clock.source == ClockSource::Calls) {
        out += &format!(
            "\nThe clock of {} was aligned by {} calls, to within {}.\n",
            sanitize(name),
            clock.calls,
            format_nanos(clock.uncertainty)
        );
    }
    out
}

/// Returns the command lines of all processes.
pub(super) fn commands(traces: &[Trace]) -> String {
    let commands: Vec<&str> = traces.iter().map(|trace| trace.header().command.as_str()).collect();
    commands.join(" · ")
}
