//! Which verdicts hang on costs and shapes that are invented: the same claims under half and twice of each. Never here: the defaults, which are
//! the simulator's.

use leeward_outcome::results::Verdict;
use leeward_outcome::verdicts::Judged;
use std::fmt::Write;

/// A change of the simulated world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Perturbation {
    /// Name in the table.
    pub name: &'static str,
    /// Overrides of every scenario.
    pub overrides: &'static [&'static str],
}

const fn change(name: &'static str, overrides: &'static [&'static str]) -> Perturbation {
    Perturbation { name, overrides }
}

/// Half and twice each cost that is invented, and other networks, arrivals and clients.
pub const PERTURBATIONS: &[Perturbation] = &[
    change("a rejection costs half (25 ns)", &["server.costs.reject=25ns"]),
    change("a rejection costs twice (100 ns)", &["server.costs.reject=100ns"]),
    change("receiving costs half (375 ns)", &["server.costs.receive=375ns"]),
    change("receiving costs twice (1,500 ns)", &["server.costs.receive=1500ns"]),
    change("creating a task costs half (125 ns)", &["server.costs.spawn=125ns"]),
    change("creating a task costs twice (500 ns)", &["server.costs.spawn=500ns"]),
    change("sending costs half (382 ns)", &["server.costs.send=382ns"]),
    change("sending costs twice (1,530 ns)", &["server.costs.send=1530ns"]),
    change("stealing costs half (50 ns)", &["server.costs.steal=50ns"]),
    change("stealing costs twice (200 ns)", &["server.costs.steal=200ns"]),
    change("up to 5 us of jitter each way", &["network.jitter=5us"]),
    change("up to 20 us of jitter each way", &["network.jitter=20us"]),
    change("a core takes one packet at a time", &["server.batch=1"]),
    change("a core takes 64 packets at a time", &["server.batch=64"]),
    change("packets before tasks", &["server.order=packets-first"]),
    change("evenly spaced arrivals of each client", &["workload.arrivals=constant"]),
    change("bursts: 1.5 x the demand and half of it by turns, 5 ms each", &["workload.arrivals=bursts:1.5:5ms"]),
    change("bursts: 1.8 x the demand and a fifth of it by turns, 1 ms each", &["workload.arrivals=bursts:1.8:1ms"]),
    change("the control loop waits in the run queue", &["server.control=queued"]),
    change(
        "deep sockets save most of a message",
        &["server.sockets.receive=150ns", "server.sockets.send=150ns", "server.sockets.together=500ns"],
    ),
    change("a few clients ask for most", &["workload.shares=zipf:0.9"]),
];

/// Verdicts under one change.
pub struct Changed<'a> {
    /// The change.
    pub perturbation: &'a Perturbation,
    /// Scenarios under it.
    pub judged: Vec<Judged>,
}

/// `docs/sensitivity.md`: for each change the claims whose verdicts differ from those without.
pub fn sensitivity(command: &str, base: &[Judged], changed: &[Changed<'_>]) -> String {
    let scenarios: Vec<String> = base.iter().map(|judged| format!("`{}`", judged.id)).collect();
    let claims: usize = base.iter().map(|judged| judged.claims.len()).sum();
    let mut text = format!(
        "# How verdicts hang on what is invented\n\nMade by `{command}`: do not edit. The division of a request's CPU time among receiving, creating a task and \
         sending, the cost of a\nrejection and of stealing are our assumptions (`crates/sim/src/config.rs`). Here {claims} claims of {} are judged again under each \
         change.\n\n| change | verdicts that differ | reproduced becomes not reproduced, or back | which |\n|---|---|---|---|\n",
        scenarios.join(", ")
    );
    for one in changed {
        let flips = flips(base, &one.judged);
        let hard = flips.iter().filter(|flip| flip.is_hard()).count();
        let which: Vec<String> = flips.iter().map(Flip::words).collect();
        let which = if which.is_empty() { "none".into() } else { which.join("; ") };
        let _ = writeln!(text, "| {} | {} | {hard} | {which} |", one.perturbation.name, flips.len());
    }
    text
}

struct Flip {
    scenario: String,
    claim: String,
    then: Verdict,
    now: Verdict,
}

impl Flip {
    fn is_hard(&self) -> bool {
        self.then != Verdict::Undecided && self.now != Verdict::Undecided
    }

    fn words(&self) -> String {
        format!("`{} {}` is {}", self.scenario, self.claim, self.now.words())
    }
}

fn flips(base: &[Judged], now: &[Judged]) -> Vec<Flip> {
    let mut flips = Vec::new();
    for (then, now) in base.iter().zip(now) {
        for (before, after) in then.claims.iter().zip(&now.claims) {
            if before.verdict() != after.verdict() {
                flips.push(Flip {
                    scenario: then.id.clone(),
                    claim: before.published.id.clone(),
                    then: before.verdict(),
                    now: after.verdict(),
                });
            }
        }
    }
    flips
}
