//! The figures of the five papers, with the scenarios that judge each, or the reason for none. Does
//! not contain the verdicts.

use super::panels::panel_figures;
use leeward_outcome::verdicts::FigureNote;

/// A figure of a paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The paper.
    pub paper: &'static str,
    /// Number of the figure.
    pub number: &'static str,
    /// Scenarios that judge it; if empty, [`Figure::reason`] explains it.
    pub scenarios: &'static [&'static str],
    /// Reason for no scenario, or the parts that are out of reach.
    pub reason: &'static str,
}

const DIAGRAM: &str = "a diagram or a listing: nothing is measured";
const PROFILED: &str = "needs the papers' memcached, Lucene and qperf under the profiler on their machines: `profiler/experiments` runs its counterpart \
                        here, and judges what the thesis states in numbers (Fig. 3.17, 3.19, 3.20)";

const LUCENE: &str = "Lucene's locks are held for times that differ by query a hundredfold, which a simulated path cannot say; `lk-search` runs \
                      the counterpart on the real plant, for a machine with CPUs to spare";

const fn judged(paper: &'static str, number: &'static str, scenarios: &'static [&'static str]) -> Figure {
    Figure { paper, number, scenarios, reason: "" }
}

const fn not_judged(paper: &'static str, number: &'static str, reason: &'static str) -> Figure {
    Figure { paper, number, scenarios: &[], reason }
}

const B: &str = "Breakwater";
const T: &str = "Thesis";
const H: &str = "Hoover";
const P: &str = "Poster";
const U: &str = "µTune";

/// All figures, paper by paper.
pub fn figures() -> &'static [Figure] {
    FIGURES
}

/// Notes on all figures: drawn, or the reason for not drawing.
pub fn figure_notes() -> Vec<FigureNote> {
    let note = |figure: &Figure| {
        let is_drawn = panel_figures().any(|(scenario, named)| {
            let mut numbers =
                named.split([',', ' ', '(', ')']).filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
            figure.scenarios.contains(&scenario) && numbers.any(|number| number == figure.number)
        });
        let reason = match (is_drawn, figure.scenarios) {
            (true, _) => "",
            (false, []) => figure.reason,
            (false, _) => "its text gives ratios, limits and words, which are the claims, and no coordinate of a curve",
        };
        FigureNote {
            figure: format!("{}, Fig. {}", figure.paper, figure.number),
            scenarios: figure.scenarios.iter().map(|id| (*id).to_string()).collect(),
            reason: reason.into(),
        }
    };
    FIGURES.iter().map(note).collect()
}

const FIGURES: &[Figure] = &[
    judged(B, "1", &["bw-motivation"]),
    not_judged(B, "2", DIAGRAM),
    judged(B, "3", &["bw-overall"]),
    judged(B, "4", &["bw-distribution"]),
    judged(B, "5", &["bw-service-time"]),
    judged(B, "6", &["bw-clients"]),
    judged(B, "7", &["bw-shift"]),
    judged(B, "8", &["bw-speculation"]),
    judged(B, "9", &["bw-breakdown"]),
    judged(B, "10", &["bw-aggressiveness"]),
    judged(B, "11", &["bw-sensitivity"]),
    judged(B, "12", &["bw-memcached-usr"]),
    judged(T, "2.1", &["bw-motivation"]),
    not_judged(T, "2.2", DIAGRAM),
    not_judged(
        T,
        "2.3",
        "gRPC's server, whose thread pool and HTTP/2 are not modelled; its message, that a lock hides overload from the CPU, is lk-one-mutex",
    ),
    judged(T, "2.4", &["lk-trylock"]),
    not_judged(T, "2.5", DIAGRAM),
    judged(T, "2.6", &["lk-phases"]),
    judged(T, "2.7", &["bw-overall"]),
    judged(T, "2.8", &["bw-distribution"]),
    judged(T, "2.9", &["bw-service-time"]),
    judged(T, "2.10", &["bw-clients"]),
    judged(T, "2.11", &["bw-shift"]),
    judged(T, "2.12", &["bw-speculation"]),
    judged(T, "2.13", &["bw-breakdown"]),
    judged(T, "2.14", &["bw-aggressiveness"]),
    judged(T, "2.15", &["bw-sensitivity"]),
    judged(T, "2.16", &["bw-memcached-usr"]),
    not_judged(T, "2.17", LUCENE),
    judged(T, "2.18", &["lk-var"]),
    judged(T, "2.19", &["lk-replicas"]),
    judged(T, "2.20", &["lk-two-mutex"]),
    judged(T, "2.21", &["lk-breakdown"]),
    judged(T, "2.22", &["lk-te"]),
    judged(T, "2.23", &["lk-mismatch"]),
    not_judged(T, "3.1", DIAGRAM),
    not_judged(T, "3.2", PROFILED),
    not_judged(T, "3.3", PROFILED),
    not_judged(T, "3.4", PROFILED),
    not_judged(T, "3.5", DIAGRAM),
    not_judged(T, "3.6", DIAGRAM),
    not_judged(T, "3.7", DIAGRAM),
    not_judged(
        T,
        "3.8",
        "a table of the papers' applications: lines of code and peak throughput of programs that are not here",
    ),
    not_judged(T, "3.9", PROFILED),
    not_judged(T, "3.10", PROFILED),
    not_judged(T, "3.11", PROFILED),
    not_judged(T, "3.12", PROFILED),
    not_judged(T, "3.13", "patches of memcached and Lucene, which are not part of this project"),
    not_judged(T, "3.14", "qperf, a QUIC benchmark that is not part of this project"),
    not_judged(T, "3.15", "qperf, a QUIC benchmark that is not part of this project"),
    not_judged(T, "3.16", DIAGRAM),
    not_judged(T, "3.17", PROFILED),
    not_judged(T, "3.18", "three generations of CPUs, one of them with Intel PT"),
    not_judged(T, "3.19", PROFILED),
    not_judged(T, "3.20", PROFILED),
    not_judged(T, "3.21", PROFILED),
    judged(H, "1", &["lk-one-mutex"]),
    judged(H, "2", &["lk-one-mutex"]),
    not_judged(H, "3", DIAGRAM),
    judged(H, "4", &["lk-phases"]),
    judged(H, "5", &["lk-hoover"]),
    judged(H, "6", &["lk-lock-ratio"]),
    judged(H, "7", &["lk-var"]),
    judged(H, "8", &["lk-mismatch"]),
    not_judged(H, "9", LUCENE),
    judged(H, "10", &["lk-hoover-te"]),
    judged(P, "1", &["ca-ramp"]),
    judged(P, "2", &["ca-collapse"]),
    not_judged(U, "1", DIAGRAM),
    judged(U, "2", &["mt-motivation"]),
    not_judged(U, "3", DIAGRAM),
    not_judged(U, "4", DIAGRAM),
    not_judged(U, "5", DIAGRAM),
    judged(U, "6", &["mt-saturation"]),
    judged(U, "7", &["mt-sync-async"]),
    judged(U, "8", &["mt-sync"]),
    judged(U, "9", &["mt-wakeups"]),
    judged(U, "10", &["mt-contention"]),
    judged(U, "11", &["mt-async"]),
    judged(U, "12", &["mt-pools"]),
    not_judged(U, "13", "counters of cache misses and true sharing, which the simulated tier does not have"),
    judged(U, "14", &["mt-steady"]),
    judged(U, "15", &["mt-overhead"]),
];
