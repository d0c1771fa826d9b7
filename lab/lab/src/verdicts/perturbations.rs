//! Perturbations: worlds that differ from a scenario's own in one invented parameter, such as a
//! cost, the network or the arrivals.
//!
//! Does not contain the scenario's own values, or verdicts.

use crate::scenario::{Scenario, ServiceSpec};
use leeward_core::units::Nanos;
use leeward_sim::config::{Arrivals, ControlTiming, Costs, QueueOrder, ServerModel, Shares};
use leeward_sim::service_time::ServiceTime;

/// A world that differs in one parameter.
#[derive(Clone, Copy, Debug)]
pub struct Perturbation {
    /// Short name.
    pub name: &'static str,
    change: Change,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    /// A cost, changed to this many thousandths.
    Cost(&'static str, fn(&Costs) -> Nanos, u64),
    /// Overrides of a server of cores, unless a variant's server has them or can't have them.
    Server(&'static [&'static str], fn(&ServerModel) -> bool),
    /// A network with jitter.
    Jitter(&'static str),
    /// Another arrival process instead of Poisson.
    Spacing(&'static str),
    /// Unequal shares of the clients.
    Shares(&'static str),
    /// Short and long requests instead of one exponential service time.
    Classes,
    /// Costs of a tier's threads, multiplied by this factor.
    Threads(&'static [&'static str], f64),
}

/// A perturbation of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScenarioChange {
    /// Overrides.
    pub(super) overrides: Vec<String>,
    /// Sections appended to the scenario.
    pub(super) sections: String,
}

const fn perturbation(name: &'static str, change: Change) -> Perturbation {
    Perturbation { name, change }
}

const HALF: u64 = 500;
const TWICE: u64 = 2_000;

/// All worlds, in the order of the table's columns.
pub const PERTURBATIONS: &[Perturbation] = &[
    perturbation("a rejection costs half", Change::Cost("reject", |costs| costs.reject, HALF)),
    perturbation("a rejection costs twice", Change::Cost("reject", |costs| costs.reject, TWICE)),
    perturbation("receiving costs half", Change::Cost("receive", |costs| costs.receive, HALF)),
    perturbation("receiving costs twice", Change::Cost("receive", |costs| costs.receive, TWICE)),
    perturbation("creating a task costs half", Change::Cost("spawn", |costs| costs.spawn, HALF)),
    perturbation("creating a task costs twice", Change::Cost("spawn", |costs| costs.spawn, TWICE)),
    perturbation("sending costs half", Change::Cost("send", |costs| costs.send, HALF)),
    perturbation("sending costs twice", Change::Cost("send", |costs| costs.send, TWICE)),
    perturbation("stealing costs half", Change::Cost("steal", |costs| costs.steal, HALF)),
    perturbation("stealing costs twice", Change::Cost("steal", |costs| costs.steal, TWICE)),
    perturbation("up to 5 us of jitter each way", Change::Jitter("5us")),
    perturbation("up to 20 us of jitter each way", Change::Jitter("20us")),
    perturbation(
        "the control loop waits in the run queue",
        Change::Server(&["server.control=queued"], |own| own.control == ControlTiming::Queued),
    ),
    perturbation("a core takes one packet at a time", Change::Server(&["server.batch=1"], |own| own.batch == 1)),
    perturbation("a core takes 64 packets at a time", Change::Server(&["server.batch=64"], |own| own.batch == 64)),
    perturbation(
        "packets before tasks",
        Change::Server(&["server.order=packets-first"], |own| own.order == QueueOrder::PacketsFirst),
    ),
    perturbation(
        "deep sockets save most of a message",
        Change::Server(
            &["server.sockets.receive=150ns", "server.sockets.send=150ns", "server.sockets.together=500ns"],
            |own| own.sockets.is_some() || own.scheduling.is_some(),
        ),
    ),
    perturbation("evenly spaced requests of each client", Change::Spacing("constant")),
    perturbation("bursts of 1.5 x the demand and half of it by turns, 5 ms each", Change::Spacing("bursts:1.5:5ms")),
    perturbation("bursts of 1.8 x the demand and a fifth of it by turns, 1 ms each", Change::Spacing("bursts:1.8:1ms")),
    perturbation("closed loops: a client waits for its answer and thinks", Change::Spacing("closed")),
    perturbation("a few clients ask for most (Zipf 0.9)", Change::Shares("zipf:0.9")),
    perturbation("two classes: four fifths of half the time, a fifth of thrice", Change::Classes),
    perturbation("a thread takes twice as long to wake", Change::Threads(&["wake"], 2.0)),
    perturbation("a thread takes four times as long to wake", Change::Threads(&["wake"], 4.0)),
    perturbation("a switch of threads costs half", Change::Threads(&["switch"], 0.5)),
    perturbation("a switch of threads costs twice", Change::Threads(&["switch"], 2.0)),
    perturbation("a tier's messages cost half", Change::Threads(&["receive", "send"], 0.5)),
    perturbation("a tier's messages cost twice", Change::Threads(&["receive", "send"], 2.0)),
    perturbation("threads wait four times as long for a line of another core", Change::Threads(&["line"], 4.0)),
];

impl Perturbation {
    /// Changes that put `scenario` into this world; `None` if they change nothing, for example for
    /// a cost of zero, or for a server of cores where the costs of a tier's threads change.
    pub(super) fn change(&self, scenario: &Scenario) -> Option<ScenarioChange> {
        let has_cores = scenario.tiers.is_empty() && scenario.graph.is_none();
        let workload = &scenario.workload;
        let overrides: Vec<String> = match self.change {
            Change::Threads(costs, factor) => {
                let factors = || costs.iter().map(|cost| format!("server.threads.scale.{cost}={factor}")).collect();
                (!scenario.tiers.is_empty()).then(factors)?
            }
            _ if !has_cores => return None,
            Change::Cost(name, cost, permille) => {
                let cost = cost(&scenario.server.costs).0;
                (cost > 0).then(|| vec![format!("server.costs.{name}={}ns", cost * permille / 1_000)])?
            }
            Change::Server(overrides, is_so) => {
                let all = || overrides.iter().map(|given| (*given).to_string()).collect();
                let mut servers = scenario.controllers.iter().map(|variant| scenario.server_for(variant));
                (!servers.any(|server| is_so(&server))).then(all)?
            }
            Change::Jitter(span) => {
                (scenario.network.jitter == Nanos::ZERO).then(|| vec![format!("network.jitter={span}")])?
            }
            Change::Spacing(process) => {
                let is_possible = process != "closed" || scenario.replicas.is_none();
                let is_other = workload.arrivals == [Arrivals::Poisson] && is_possible;
                is_other.then(|| vec![format!("workload.arrivals={process}")])?
            }
            Change::Shares(shares) => {
                (workload.shares == Shares::Equal).then(|| vec![format!("workload.shares={shares}")])?
            }
            Change::Classes => return classes(scenario),
        };
        Some(ScenarioChange { overrides, sections: String::new() })
    }
}

/// Replaces an exponential service time by two kinds of requests. Mean and objective stay the same.
/// Tuned values depend on the service's name, which this changes.
fn classes(scenario: &Scenario) -> Option<ScenarioChange> {
    let [ServiceSpec { service: ServiceTime::Exponential(mean), .. }] = scenario.workload.services.as_slice() else {
        return None;
    };
    let is_tuned = scenario.controllers.iter().any(|variant| variant.tuned.iter().any(|tuned| tuned.service.is_some()));
    if !scenario.kinds.is_empty() || is_tuned {
        return None;
    }
    let long = format!("workload.service=exp:{}ns", mean.0 * 3);
    let sections = format!(
        "\n[[kind]]\nname = \"short\"\nshare = \"80%\"\nservice = \"exp:{}ns\"\n\n[[kind]]\nname = \"long\"\nshare = \"20%\"\n",
        mean.0 / 2
    );
    Some(ScenarioChange { overrides: vec![long], sections })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::RunError;
    use leeward_sim::SimError;
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    fn read(id: &str, changed: &ScenarioChange) -> Scenario {
        let builtin = crate::builtin_scenarios().iter().find(|known| known.id == id).unwrap();
        let text = format!("{}{}", builtin.text, changed.sections);
        Scenario::parse(id, &text, Path::new(""), &changed.overrides, true, &crate::registry())
            .unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn every_perturbation_of_every_scenario_is_valid_and_effective() {
        for builtin in crate::verdicts::scenarios(&[]) {
            let own = read(builtin.id, &ScenarioChange::default());
            for world in PERTURBATIONS {
                let Some(changed) = world.change(&own) else { continue };
                let other = read(builtin.id, &changed);
                let same = other.server == own.server
                    && other.network == own.network
                    && other.workload == own.workload
                    && other.tiers == own.tiers
                    && other.kinds.is_empty() == own.kinds.is_empty();
                assert!(!same, "{}: {}", builtin.id, world.name);
                if crate::execute::check_services(&own).is_ok() {
                    check_first_runs(&other, world);
                }
            }
        }
    }

    /// Each variant's first run begins: the simulator has no objection.
    fn check_first_runs(scenario: &Scenario, world: &Perturbation) {
        let registry = crate::registry();
        let mut variant = None;
        for run in &crate::plan::plan(scenario, &registry, 1).unwrap() {
            if variant.replace(&run.variant.label) == Some(&run.variant.label) {
                continue;
            }
            let result = crate::execute::simulate(run, &AtomicBool::new(true));
            let objects = |error: &RunError| matches!(error, RunError::Sim { source: SimError::Config(_), .. });
            assert!(!result.as_ref().is_err_and(objects), "{}: {result:?}", world.name);
        }
    }

    #[test]
    fn a_cost_perturbation_scales_with_the_cost_and_skips_missing_costs() {
        let overall = read("bw-overall", &ScenarioChange::default());
        assert_eq!(PERTURBATIONS[1].change(&overall).unwrap().overrides, ["server.costs.reject=100ns"]);
        assert_eq!(PERTURBATIONS[6].change(&overall).unwrap().overrides, ["server.costs.send=382ns"]);
        let without_costs = read("ca-ramp", &ScenarioChange::default());
        assert_eq!(PERTURBATIONS[1].change(&without_costs), None);
    }

    #[test]
    fn a_tier_has_costs_of_threads_and_no_others() {
        let tier = read("mt-sync", &ScenarioChange::default());
        for world in PERTURBATIONS {
            let of_threads = matches!(world.change, Change::Threads(..));
            assert_eq!(world.change(&tier).is_some(), of_threads, "{}", world.name);
        }
        let world = PERTURBATIONS.iter().find(|world| world.name == "a switch of threads costs twice").unwrap();
        let changed = read("mt-sync", &world.change(&tier).unwrap());
        assert_eq!(changed.tiers[0].tier.costs.switch.0, 2 * tier.tiers[0].tier.costs.switch.0);
    }

    #[test]
    fn splitting_into_two_classes_keeps_the_capacity_and_the_objective() {
        let own = read("bw-aggressiveness", &ScenarioChange::default());
        let world = PERTURBATIONS.iter().find(|world| matches!(world.change, Change::Classes)).unwrap();
        let other = read("bw-aggressiveness", &world.change(&own).unwrap());
        let (before, after) = (&own.workload.services[0], &other.workload.services[0]);
        assert_eq!(own.capacity_of(before), other.capacity_of(after));
        let slo = |scenario: &Scenario, service: &ServiceSpec| scenario.slo_at(&service.service, scenario.rtts[0]);
        assert_eq!(slo(&own, before), slo(&other, after));
    }
}
