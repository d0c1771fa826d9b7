//! Benchmark cases drawn from a seed: random services, machines, demands, locks and allocators, for
//! which no controller is tuned.
//!
//! Each case is the text of a scenario, which can be shown and run by itself.

use super::cases::{BenchmarkCase, default_variants};
use crate::scenario::{Scenario, ScenarioError};
use leeward_core::registry::Registry;
use leeward_sim::config::LockModel;
use leeward_sim::rng::{Purpose, Rng};
use std::fmt::Write;
use std::path::Path;

/// Approximate number of requests that a case with a changing demand measures at capacity.
const REQUESTS: f64 = 40_000.0;
/// Requests of a client before the demand changes: client halves adapt to the responses of their
/// own client.
const REQUESTS_PER_CLIENT: f64 = 200.0;
/// Largest factor by which a run is longer because of a resource that serves less than the cores.
const MOST_LONGER: f64 = 8.0;
/// Limit of the warm-up with a steady demand, in spans of [`REQUESTS`].
const SETTLE_SPANS: f64 = 50.0;

/// Distribution of service times.
#[derive(Clone, Copy)]
enum ServiceShape {
    Constant,
    Exponential,
    LogNormal,
    Bimodal,
}

/// Demand over time.
#[derive(Clone, Copy)]
enum DemandTimeline {
    Steady,
    /// A burst that ends.
    Burst,
    /// A lasting rise.
    Rise,
}

/// Bottleneck besides the cores, if any.
#[derive(Clone, Copy)]
enum Bottleneck {
    Cores,
    /// A lock that some requests take for a part of their work.
    OneLock,
    /// Two locks; each request takes one of them for all of its work.
    TwoLocks,
    /// A disk that serves one after the other, for which every request waits without a core.
    Disk,
    /// Cores under an allocator.
    Allocator,
}

fn choose<T: Copy>(rng: &mut Rng, among: &[T]) -> T {
    among[rng.below(among.len() as u64) as usize]
}

/// Text of the scenario that a seed draws.
pub(super) fn scenario_text(seed: u64) -> String {
    use {Bottleneck::*, DemandTimeline::*, ServiceShape::*};
    let rng = &mut Rng::new(seed, Purpose::Data);
    let mean = choose(rng, &[1.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
    let shape = choose(rng, &[Constant, Exponential, Exponential, LogNormal, Bimodal]);
    let cores = choose(rng, &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
    let clients = choose(rng, &[1, 10, 50, 100, 500, 1_000]);
    let rtt = choose(rng, &[5.0, 10.0, 20.0, 50.0, 100.0, 500.0]);
    // From 2: where the round trip and the service leave no more than themselves for queues.
    let patience = choose(rng, &[2.0, 3.0, 5.0, 10.0, 10.0, 20.0, 50.0]);
    let demand = choose(rng, &[0.5, 0.8, 0.95, 1.2, 1.5, 2.0, 3.0]);
    let course = choose(rng, &[Steady, Steady, Burst, Rise]);
    let bottleneck = choose(rng, &[Cores, Cores, OneLock, OneLock, TwoLocks, Disk, Allocator]);
    let (share, held) = (choose(rng, &[0.1, 0.2, 0.5, 0.8]), choose(rng, &[0.1, 0.3, 0.7, 1.0]));
    let service = match shape {
        Constant => format!("const:{mean}us"),
        Exponential => format!("exp:{mean}us"),
        LogNormal => format!("lognormal:{mean}us:1"),
        Bimodal => format!("bimodal:{mean}us"),
    };
    let capacity = cores / ((mean + 1.765) * 1e-6);
    // What the resource besides the cores serves, if that is less: the run then takes longer, or
    // most of its requests would be those of the beginning.
    let busy = match bottleneck {
        OneLock => share * held,
        TwoLocks => f64::max(share, 1.0 - share),
        Disk => held,
        Cores | Allocator => 0.0,
    };
    let longer = (capacity * busy * mean * 1e-6).clamp(1.0, MOST_LONGER);
    let span = longer * REQUESTS / capacity * 1e3; // ms
    let mut text = format!(
        "id = \"random-{seed}\"\ntitle = \"Drawn from seed {seed}\"\nsource = \"leeward league\"\n\n[server]\ncores = {cores}\n"
    );
    let policy = if matches!(bottleneck, Allocator) { "[server.allocator]\npolicy = \"delay\"\n" } else { "" };
    let slo = patience * (mean + rtt);
    let _ = write!(text, "{policy}\n[network]\nrtt = \"{rtt}us\"\n\n[workload]\nservice = \"{service}\"\n");
    let _ = write!(text, "clients = {clients}\nslo = \"{slo}us\"\n");
    let levels: &[(f64, f64)] = match course {
        Steady => &[],
        Burst => &[(0.0, 0.5), (0.4, 1.0), (0.7, 0.5)],
        Rise => &[(0.0, 0.3), (0.5, 1.0)],
    };
    let first = levels.first().map_or(1.0, |(_, part)| part * demand);
    let adapted = REQUESTS_PER_CLIENT * f64::from(clients) / (capacity * first) * 1e3;
    let warmup = adapted.max(span * 0.5);
    if levels.is_empty() {
        let _ = writeln!(text, "demand = \"{demand}x\"");
    }
    let locks = match bottleneck {
        OneLock => "locks = [\"slow\"]\n",
        TwoLocks => "locks = [\"first\", \"second\"]\n",
        Disk => "locks = [\"disk\"]\n",
        Cores | Allocator => "",
    };
    text += locks;
    for (at, part) in levels {
        let at = if *at == 0.0 { 0.0 } else { warmup + span * at };
        let _ = write!(text, "\n[[workload.shift]]\nat = \"{at:.3}ms\"\ndemand = \"{:.3}x\"\n", demand * part);
    }
    let mut path = |share: f64, steps: &str| {
        let _ = write!(text, "\n[[workload.path]]\nshare = \"{:.0}%\"\nsteps = [{steps}]\n", share * 100.0);
    };
    match bottleneck {
        OneLock => {
            let (free, locked) = ((1.0 - held) * 100.0, held * 100.0);
            path(share, &format!("\"work {free:.0}%\", \"lock slow\", \"work {locked:.0}%\", \"unlock slow\""));
            path(1.0 - share, "\"work 100%\"");
        }
        TwoLocks => {
            path(share, "\"lock first\", \"work 100%\", \"unlock first\"");
            path(1.0 - share, "\"lock second\", \"work 100%\", \"unlock second\"");
        }
        Disk => {
            let (computed, waited) = ((1.0 - held) * 50.0, held * 100.0);
            path(
                1.0,
                &format!(
                    "\"work {computed:.0}%\", \"lock disk\", \"wait {waited:.0}%\", \"unlock disk\", \"work {computed:.0}%\""
                ),
            );
        }
        Cores | Allocator => {}
    }
    let run = if levels.is_empty() {
        format!("settle = \"{:.3}ms\"\nprecision = 0.03", span * SETTLE_SPANS)
    } else {
        format!("warmup = \"{warmup:.3}ms\"\nduration = \"{:.3}ms\"", warmup + span)
    };
    let _ = write!(text, "\n[run]\n{run}\nseeds = 1\n");
    text + "\n[[controller]]\nname = \"none\"\n"
}

/// Prefix of a case's name, before its seed.
const NAME_PREFIX: &str = "random-";

/// Text of the scenario of the case `name`, with the default controllers; `None` if the name is not
/// a random case.
pub fn random_scenario_text(name: &str, registry: &Registry) -> Option<String> {
    let seed = name.strip_prefix(NAME_PREFIX)?.parse().ok()?;
    let mut text = scenario_text(seed);
    text.truncate(text.rfind("\n[[controller]]").unwrap_or(text.len()));
    for name in registry.names() {
        let _ = write!(text, "\n[[controller]]\nname = \"{name}\"\n");
    }
    Some(text)
}

/// The case that a seed draws.
///
/// # Errors
/// A text that the scenario reader rejects, which would be a defect of this module.
pub fn random_case(seed: u64, registry: &Registry) -> Result<BenchmarkCase, ScenarioError> {
    let name = format!("{NAME_PREFIX}{seed}");
    let mut scenario = Scenario::parse(&name, &scenario_text(seed), Path::new(""), &[], false, registry)?;
    // The cores are scheduled as in the text, so that `leeward run` has the same results.
    let scheduling = scenario.controllers.first().map(|variant| variant.scheduling.clone()).unwrap_or_default();
    scenario.controllers = default_variants(registry, LockModel::default(), &scheduling);
    Ok(BenchmarkCase { name, scenario })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_draws_a_distinct_valid_scenario() {
        let registry = leeward_sim::oracle::registry();
        let mut texts: Vec<String> = (0..300)
            .map(|seed| {
                random_case(seed, &registry).unwrap_or_else(|error| panic!("{error}\n{}", scenario_text(seed)));
                scenario_text(seed).lines().skip(3).collect()
            })
            .collect();
        texts.sort();
        texts.dedup();
        assert!(texts.len() > 290, "{} are different", texts.len());
    }

    #[test]
    fn a_case_runs_as_its_text_does() {
        let registry = leeward_sim::oracle::registry();
        for seed in 0..60 {
            let case = random_case(seed, &registry).unwrap();
            let text = random_scenario_text(&case.name, &registry).unwrap();
            let written = Scenario::parse("text", &text, Path::new(""), &[], false, &registry).unwrap();
            let of = |scenario: &Scenario| {
                scenario.controllers.iter().map(|variant| variant.scheduling.clone()).collect::<Vec<_>>()
            };
            assert_eq!(of(&case.scenario), of(&written), "{seed}");
        }
    }

    #[test]
    fn a_random_scenario_is_found_by_its_name() {
        let registry = leeward_sim::oracle::registry();
        let text = random_scenario_text("random-91", &registry).expect("a scene");
        let scenario = Scenario::parse("random-91", &text, Path::new(""), &[], false, &registry).expect("a scenario");
        let names: Vec<&str> = scenario.controllers.iter().map(|variant| variant.controller.as_str()).collect();
        assert_eq!(names, registry.names().collect::<Vec<_>>());
        for name in ["random-", "random-x", "random--1", "random-1.toml", "lk-te"] {
            assert_eq!(random_scenario_text(name, &registry), None, "{name}");
        }
    }
}
