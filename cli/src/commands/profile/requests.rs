//! `leeward profile requests`: lists the slowest requests.

use leeward_profile::analysis::slowest::slowest;
use leeward_profile::span::{format_nanos, percent};
use serde_json::json;

use super::args::RequestsArgs;
use super::read::{OpenTrace, failure};
use crate::failure::Failure;
use crate::stdout::{self, sanitize};

/// Runs the command.
pub(super) fn requests(args: &RequestsArgs) -> Result<(), Failure> {
    let mut reading = OpenTrace::open(&args.source.trace, &args.source.symbols)?;
    let selection = reading.selection(&args.what)?;
    let mut watch = reading.progress("following requests");
    let most = usize::from(args.limit);
    let found = slowest(&reading.trace, &mut reading.symbols, &selection, most, &mut watch).map_err(failure)?;
    if found.latencies.count() == 0 {
        return Err(reading.selection_failure(&args.what, found.unfinished));
    }
    reading.warn_of_symbols();
    let latencies = &found.latencies;
    let known = |nanos: u64| (nanos > 0).then_some(nanos);
    let at = |percent| known(latencies.percentile(percent));
    let describe = |percent| at(percent).map_or("unknown".into(), format_nanos);
    if args.source.json {
        let value = json!({
            "requests": found.requests, "weighted": found.weighted, "unfinished": found.unfinished, "mean_ns": at(0.0).map(|_| latencies.mean()),
            "p50_ns": at(50.0), "p99_ns": at(99.0), "p99.9_ns": at(99.9), "p99.99_ns": at(99.99), "max_ns": latencies.max(),
            "slowest": found.slowest, "missing": reading.missing,
        });
        return stdout::print(&value.to_string());
    }
    let mut out = format!(
        "{} {}: p50 {}, p99 {}, p99.9 {}, p99.99 {}, slowest {}",
        found.requests,
        reading.describe_requests(&args.what),
        describe(50.0),
        describe(99.0),
        describe(99.9),
        describe(99.99),
        format_nanos(latencies.max())
    );
    if found.unfinished > 0 {
        out += &format!("; {} are unfinished", found.unfinished);
    }
    out.push('\n');
    out += &reading.coverage_note(&args.what);
    if found.weighted {
        out += &reading.kept_note();
    }
    for slow in &found.slowest {
        let threads = sanitize(&slow.threads.join(", "));
        let label = slow.label.as_ref().map_or(String::new(), |label| format!(" ({})", sanitize(label)));
        out += &format!(
            "\n{}  request {}{label}, after {}, {threads}\n",
            format_nanos(slow.latency),
            slow.id,
            format_nanos(slow.start)
        );
        for (cause, nanos) in slow.causes.iter().take(4) {
            out += &format!("  {:>6}  {}\n", percent(*nanos, slow.latency), sanitize(cause));
        }
        if slow.incomplete {
            out += "  some of its events were left out here: `timeline` may show more\n";
        }
    }
    stdout::print(&out)
}
