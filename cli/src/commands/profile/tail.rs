//! `leeward profile tail`: explains how the slowest requests differ from the others.

use leeward_profile::analysis::tail::{self, Finding, Tail};
use leeward_profile::span::format_nanos;
use serde_json::json;

use super::args::TailArgs;
use super::read::{OpenTrace, failure};
use crate::failure::Failure;
use crate::stdout::{self, sanitize};
use crate::table::{Align, Table, WIDTH, wrap};

/// Least share of the difference that a finding must explain to be shown, in percent.
const EXPLAINED_MIN: f64 = 1.0;
/// Maximum of labels whose slowest requests are explained, besides the table of all labels.
const LABELS_MAX: usize = 5;

/// Runs the command.
pub(super) fn tail(args: &TailArgs) -> Result<(), Failure> {
    let mut reading = OpenTrace::open(&args.source.trace, &args.source.symbols)?;
    let selection = reading.selection(&args.what)?;
    let mut watch = reading.progress("comparing requests");
    let share = args.slowest / 100.0;
    if args.by.is_some() {
        let found = tail::by_label(&reading.trace, &mut reading.symbols, &selection, share, &mut watch);
        return by_label(args, &mut reading, found.map_err(failure)?);
    }
    let compared = tail::tail(&reading.trace, &mut reading.symbols, &selection, share, &mut watch);
    let mut tail = compared.map_err(failure)?;
    if tail.requests == 0 {
        return Err(reading.selection_failure(&args.what, tail.unfinished));
    }
    reading.warn_of_symbols();
    if args.source.json {
        tail.findings.truncate(args.limit);
        let mut value = serde_json::to_value(&tail).map_err(|error| Failure::Runtime(error.into()))?;
        value["missing"] = json!(reading.missing);
        return stdout::print(&value.to_string());
    }
    let out = text(&reading, &tail, args, args.limit) + &closing_notes(&reading, tail.weighted);
    stdout::print(&out)
}

/// Describes a comparison.
fn text(reading: &OpenTrace, tail: &Tail, args: &TailArgs, limit: usize) -> String {
    let mut out = format!(
        "{} of {} {} took {} or longer: {} on average, the others {}.\n",
        tail.slow,
        tail.requests,
        reading.describe_requests(&args.what),
        format_nanos(tail.threshold),
        format_nanos(tail.slow_mean),
        format_nanos(tail.rest_mean)
    );
    out += &reading.coverage_note(&args.what);
    if tail.slow == tail.requests {
        out += "All of them are about equally slow: there is no tail.\n";
    }
    if let Some(culprit) = &tail.culprit {
        out += &format!("\n{}", wrap(&sanitize(&culprit.text), 0, WIDTH));
    }
    let shown = tail.findings.iter().filter(|finding| finding.explains >= EXPLAINED_MIN).take(limit);
    // Findings about the program come first, since it can be changed; those about the machine
    // follow, whatever their share.
    let (of_machine, of_program): (Vec<&Finding>, Vec<&Finding>) = shown.partition(|finding| finding.of_machine);
    for (index, finding) in of_program.into_iter().enumerate() {
        let head = format!("{}. {:.0} % of the difference.", index + 1, finding.explains);
        out += &format!("\n{head}\n{}", wrap(&sanitize(&finding.text), 3, WIDTH));
    }
    for finding in of_machine {
        let head = format!("The machine: {:.0} % of the difference.", finding.explains);
        out += &format!("\n{head}\n{}", wrap(&sanitize(&finding.text), 3, WIDTH));
    }
    if tail.incomplete > 0 {
        out += &format!("\nOf {} slow requests some events were left out: there are too many.\n", tail.incomplete);
    }
    out
}

/// Notes on the whole trace.
fn closing_notes(reading: &OpenTrace, weighted: bool) -> String {
    let mut out = String::new();
    if reading.is_sampled() {
        let interval = format_nanos(reading.trace.resolution());
        let text =
            format!("Functions are estimated from samples {interval} apart; requests and time off the CPU are exact.");
        out += &format!("\n{}", wrap(&text, 0, WIDTH));
    }
    if weighted {
        out += &reading.kept_note();
    }
    if reading.trace.counts().scheduler == 0 {
        out += "\nThe trace has no scheduler events: time in a function may be time off the CPU.\n";
    }
    out
}

fn by_label(args: &TailArgs, reading: &mut OpenTrace, tails: Vec<(String, Tail)>) -> Result<(), Failure> {
    let requests: u64 = tails.iter().map(|(_, tail)| tail.requests).sum();
    if requests == 0 {
        return Err(reading.selection_failure(&args.what, tails.first().map_or(0, |(_, tail)| tail.unfinished)));
    }
    if tails.iter().all(|(label, _)| label.is_empty()) {
        return Err(Failure::Input(anyhow::anyhow!(
            "no request has a label: the program gives them with leeward_req_label, or is built with --leeward-request-fn=NAME:N:L \
             (docs/profile-build.md, \"Requests\")"
        )));
    }
    reading.warn_of_symbols();
    if args.source.json {
        let labels = tails.into_iter().map(|(label, mut tail)| {
            tail.findings.truncate(args.limit);
            json!({"label": label, "tail": tail})
        });
        let value = json!({"labels": labels.collect::<Vec<_>>(), "missing": reading.missing});
        return stdout::print(&value.to_string());
    }
    let right = Align::Right;
    let mut table = Table::new(&[
        ("label", Align::Left),
        ("requests", right),
        ("p50", right),
        ("p99", right),
        ("max", right),
        ("culprit", Align::Left),
    ]);
    let name = |label: &str| if label.is_empty() { "(none)".into() } else { sanitize(label) };
    for (label, tail) in &tails {
        let culprit = tail.culprit.as_ref().map_or(String::new(), |culprit| sanitize(&culprit.function));
        table.row(vec![
            name(label),
            tail.requests.to_string(),
            format_nanos(tail.p50),
            format_nanos(tail.p99),
            format_nanos(tail.max),
            culprit,
        ]);
    }
    let mut out = format!("{table}");
    for (label, tail) in tails.iter().take(LABELS_MAX) {
        out += &format!("\n{}\n{}", name(label), text(reading, tail, args, args.limit.min(2)));
    }
    let weighted = tails.iter().any(|(_, tail)| tail.weighted);
    stdout::print(&(out + &closing_notes(reading, weighted)))
}
