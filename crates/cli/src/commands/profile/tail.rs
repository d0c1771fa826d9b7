//! `leeward profile tail`: what the slowest requests do that the others don't.

use leeward_profile::analysis::tail;
use leeward_profile::span::show;

use super::args::TailArgs;
use super::read::{Reading, failure};
use crate::failure::Failure;
use crate::stdout::{self, plain};
use crate::table::{WIDTH, folded};

/// Differences that explain less are not shown, in per cent.
const LEAST: f64 = 1.0;

/// The command.
pub(super) fn tail(args: &TailArgs) -> Result<(), Failure> {
    let mut reading = Reading::open(&args.source.trace, &args.source.symbols)?;
    let selection = reading.selection(&args.what)?;
    let mut watch = reading.watch("comparing requests");
    let compared = tail::tail(&reading.trace, &mut reading.symbols, &selection, args.slowest / 100.0, &mut watch);
    let mut tail = compared.map_err(failure)?;
    reading.missing_symbols();
    if args.source.json {
        tail.findings.truncate(args.limit);
        return stdout::print(&serde_json::to_string(&tail).map_err(|error| Failure::Runtime(error.into()))?);
    }
    let mut out = format!(
        "{} of {} requests took {} or longer: {} on average, the others {}.\n",
        tail.slow,
        tail.requests,
        show(tail.threshold),
        show(tail.slow_mean),
        show(tail.rest_mean)
    );
    if tail.requests == 0 {
        out += "There is nothing to compare.\n";
    } else if tail.slow == tail.requests {
        out += "All of them are about equally slow: there is no tail.\n";
    }
    let shown = tail.findings.iter().filter(|finding| finding.explains >= LEAST).take(args.limit);
    for (index, finding) in shown.enumerate() {
        let head = format!("{}. {:.0} % of the difference.", index + 1, finding.explains);
        out += &format!("\n{head}\n{}", folded(&plain(&finding.text), 3, WIDTH));
    }
    if reading.trace.counts().scheduler == 0 {
        out += "\nThe trace has no scheduler events: time in a function may be time off the CPU.\n";
    }
    if tail.incomplete > 0 {
        out += &format!("\nOf {} slow requests the beginning had been forgotten.\n", tail.incomplete);
    }
    stdout::print(&out)
}
