//! Verdict on an attack's results: what the issue of each is, in a line, and whether that is as it should be.

use crate::honest::ClientReport;
use crate::target::Port;
use crate::trial::{Plan, Trial};

/// How far the second port may be below memcached.
const BELOW: f64 = 0.05;
/// Memory that may be left over, in MB: the allocator's caches.
const LEFTOVER_MAX: u64 = 24;
/// Memory during an attack, in MB above that before: one bound for what is received (64 MB), the connections' own buffers
/// (32 KiB each), and what waits for peers that don't read.
const DURING: u64 = 200;

pub(crate) const HEADING: &str = "\
port      attack          good without   beside   kept  memcached   p99 beside   good after   MB before > during > after   fds   rounds, late";

/// Result of an attack.
pub(crate) struct Verdict {
    pub(crate) line: String,
    pub(crate) judgement: Judgement,
}

/// An attack's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    Passed,
    Failed,
    /// The client was late itself in so many rounds that none is left.
    Unmeasured,
}

/// Judges.
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
    let of_memcached = memcached.map(|trial| median(trial, |(_, beside)| beside.goodput));
    let mut problems = Vec::new();
    let mut check = |holds: bool, problem: &str| {
        if !holds {
            problems.push(problem.to_string());
        }
    };
    // What is left of the second port's goodput depends on its protocol: memcached says how much can be left.
    match of_memcached {
        Some(theirs) => check(beside >= theirs - BELOW, "less than memcached"),
        None => check(
            kept >= if trial.is_on(Port::Memcached) { plan.goodput_min.min(0.5) } else { plan.goodput_min },
            "goodput lost",
        ),
    }
    check(p99 <= trial.objective().as_secs_f64() || !plan.checks_latency, "answers beyond the objective");
    let all = trial.rounds.iter().flat_map(|(without, beside)| [without, beside]).chain([&trial.recovery]);
    check(all.map(|experience: &ClientReport| experience.wrong).sum::<u64>() == 0, "wrong values");
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
        of_memcached.map_or("-".into(), |theirs| format!("{theirs:.3}")),
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
