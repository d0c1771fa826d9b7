//! Verdicts on attacks: one line per attack, and whether its results meet the requirements.

use crate::honest::ClientReport;
use crate::target::Port;
use crate::trial::{Plan, Trial};

/// Accepted difference of goodput between memcached and the second port.
const BELOW: f64 = 0.05;
/// Memory that may remain after an attack, in MB: the allocator's caches.
const LEFTOVER_MAX: u64 = 24;
/// Additional memory during an attack, in MB.
///
/// It covers the receive budget (64 MB), the connections' own buffers (32 KiB each), and output for
/// peers that don't read.
const DURING: u64 = 200;

pub(crate) const HEADING: &str = "\
port      attack          good without   beside   kept  memcached   p99 beside   good after   MB before > during > after   fds   rounds, late";

/// Result of an attack.
pub(crate) struct Verdict {
    pub(crate) line: String,
    pub(crate) judgement: Judgement,
}

/// Outcome of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    Passed,
    Failed,
    /// The client itself was late in too many rounds; none is left.
    Unmeasured,
}

/// Judges a trial.
pub(crate) fn judge(trial: &Trial, memcached: Option<&Trial>, plan: &Plan) -> Verdict {
    if trial.rounds.is_empty() {
        let (port, name) = (trial.attack.port.name(), trial.attack.name);
        let line =
            format!("{port:9} {name:14} not measured: the honest client was late itself in {} rounds", trial.late);
        return Verdict { line, judgement: Judgement::Unmeasured };
    }
    let without = median(trial, |(without, _)| without.goodput);
    let beside = median(trial, |(_, beside)| beside.goodput);
    let p99 = median(trial, |(_, beside)| beside.p99.as_secs_f64());
    let kept = beside / without.max(1e-9);
    let memcached_goodput = memcached.map(|trial| median(trial, |(_, beside)| beside.goodput));
    let mut problems = Vec::new();
    let mut check = |holds: bool, problem: &str| {
        if !holds {
            problems.push(problem.to_string());
        }
    };
    // The possible goodput on the second port depends on its protocol, so memcached is the
    // reference.
    match memcached_goodput {
        Some(theirs) => check(beside >= theirs - BELOW, "less than memcached"),
        None => check(
            kept >= if trial.is_on(Port::Memcached) { plan.goodput_min.min(0.5) } else { plan.goodput_min },
            "goodput lost",
        ),
    }
    check(p99 <= trial.objective().as_secs_f64() || !plan.checks_latency, "answers beyond the objective");
    let all = trial.rounds.iter().flat_map(|(without, beside)| [without, beside]).chain([&trial.recovery]);
    check(all.map(|report: &ClientReport| report.wrong).sum::<u64>() == 0, "wrong values");
    check(trial.rounds.iter().all(|(_, beside)| beside.answered > 0.0), "nobody was answered");
    check(trial.recovery.answered > 0.5, "no recovery");
    check(trial.resources_after.memory <= trial.resources_before.memory + LEFTOVER_MAX, "memory left over");
    check(trial.resources_peak.memory <= trial.resources_before.memory + DURING, "memory without bound");
    check(trial.resources_after.descriptors <= trial.resources_before.descriptors, "descriptors left over");
    check(trial.resources_after.threads <= trial.resources_before.threads, "threads left over");
    let line = format!(
        "{:9} {:14} {without:13.3} {beside:8.3} {kept:6.2} {:>10} {:9.2} ms {:12.3} {:11} > {} > {} {:>6} > {} > {} {:>6}, {}{}{}",
        trial.attack.port.name(),
        trial.attack.name,
        memcached_goodput.map_or("-".into(), |theirs| format!("{theirs:.3}")),
        p99 * 1e3,
        trial.recovery.goodput,
        trial.resources_before.memory,
        trial.resources_peak.memory,
        trial.resources_after.memory,
        trial.resources_before.descriptors,
        trial.resources_peak.descriptors,
        trial.resources_after.descriptors,
        trial.rounds.len(),
        trial.late,
        if problems.is_empty() { "" } else { "   " },
        problems.join(", "),
    );
    let judgement = if problems.is_empty() { Judgement::Passed } else { Judgement::Failed };
    Verdict { line, judgement }
}

fn median(trial: &Trial, of: impl Fn(&(ClientReport, ClientReport)) -> f64) -> f64 {
    let mut values: Vec<f64> = trial.rounds.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
