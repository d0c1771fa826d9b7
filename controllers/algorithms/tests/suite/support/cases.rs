//! Combinations of algorithms and parameters, and the guarantees of each.

use leeward_controllers::{breakwater, published};
use leeward_core::params::{Params, RawParam};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::units::Nanos;

use super::checker::Guarantees;

/// An algorithm with parameters.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) algorithm: Algorithm,
    pub(crate) params: Params,
    pub(crate) environment: Environment,
    pub(crate) guarantees: Guarantees,
}

/// Small bounds, reached in few steps.
const QUEUE: usize = 4;
const MAX_OUTSTANDING: u32 = 12;

/// Algorithms whose clients send by window.
const BY_CREDITS: [&str; 3] = ["breakwater", "efficiency", "auto"];

/// Three cores and the 10 µs workload of the papers: RTT 10 µs, SLO 200 µs.
pub(crate) fn environment() -> Environment {
    Environment::new(3, Nanos::from_micros(10), Nanos::from_micros(200))
}

impl Case {
    /// Creates a case of `algorithm` with `pairs` on top of the small bounds. If clients send by
    /// window, every window is below `max_window`.
    pub(crate) fn new(algorithm: &Algorithm, pairs: &[(&str, &str)], max_window: Option<u32>) -> Self {
        let bounds = [
            ("client_queue", RawParam::Integer(QUEUE as i64)),
            ("max_outstanding", RawParam::Integer(MAX_OUTSTANDING.into())),
        ];
        let all: Vec<(&str, RawParam)> = bounds
            .into_iter()
            .filter(|(name, _)| algorithm.params.iter().any(|spec| spec.name == *name))
            .chain(pairs.iter().map(|(name, value)| (*name, RawParam::Text((*value).into()))))
            .collect();
        let settings: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let environment = environment();
        Case {
            name: [&[algorithm.name.to_owned()], settings.as_slice()].concat().join(" "),
            params: algorithm.params(&all).expect("the case's parameters are declared"),
            algorithm: algorithm.clone(),
            guarantees: Guarantees {
                max_window,
                min_pool: environment.cores.into(),
                queue: QUEUE,
                max_outstanding: MAX_OUTSTANDING,
            },
            environment,
        }
    }

    /// A case for Breakwater and its defective variants.
    pub(crate) fn breakwater_like(algorithm: &Algorithm) -> Self {
        Case::new(algorithm, &[("alpha", "20%")], Some(64))
    }
}

/// Every algorithm of the crate with its defaults, and variants with small bounds.
pub(crate) fn every_algorithm() -> Vec<Case> {
    let registry = leeward_controllers::builtin();
    let mut cases: Vec<Case> = registry
        .algorithms()
        .map(|algorithm| Case::new(algorithm, &[], BY_CREDITS.contains(&algorithm.name).then_some(64)))
        .collect();
    let find = |name| registry.find(name).expect("built in");
    for law in ["threshold", "sqrt"] {
        cases.push(Case::new(find("codel"), &[("law", law), ("interval", "30us"), ("target", "10us")], None));
    }
    cases.push(Case::new(find("gradient"), &[("max_limit", "3"), ("probe", "1ms"), ("period", "10us")], None));
    // A pool that moves fast, in both of its forms, with rejections as of some locks.
    for name in ["efficiency", "auto"] {
        for decrease in ["multiplicative", "additive"] {
            for demand in ["speculation", "synchronization"] {
                let laws = [("decrease", decrease), ("demand", demand), ("iteration", "2"), ("alpha", "20%")];
                let pairs = [laws.as_slice(), &[("max_window", "5"), ("beta", "30%"), ("max_pool", "20")]].concat();
                cases.push(Case::new(find(name), &pairs, Some(5)));
            }
        }
        cases.push(Case::new(find(name), &[("credits", "off"), ("drop_threshold", "0")], None));
    }
    cases.push(Case::new(find("window"), &[("max_window", "2")], None));
    cases.push(Case::new(find("seda"), &[("responses", "3"), ("adj_i", "1000")], None));
    // Accounting must be right without Leeward's additions, too. DAGOR and the efficiency signal
    // are left out: their additions prevent a permanent lock-out, which can happen as published. A
    // client above its threshold never learns that the threshold has risen, and a session keeps its
    // last credit.
    let locks_out = ["dagor", "efficiency"];
    let is_case = |name| published::additions(name).is_some() && !locks_out.contains(&name);
    for algorithm in registry.algorithms().filter(|algorithm| is_case(algorithm.name)) {
        let by_credits = BY_CREDITS.contains(&algorithm.name).then_some(64);
        cases.push(Case::new(algorithm, &[(published::SWITCH, "on")], by_credits));
    }
    cases
}

/// All combinations of Breakwater's switches, with a small window and a pool that moves fast.
/// Without credits only AQM can be switched.
pub(crate) fn every_switch_of_breakwater() -> Vec<Case> {
    let mut cases = Vec::new();
    for aqm in ["on", "off"] {
        cases.push(Case::new(&breakwater::ALGORITHM, &[("credits", "off"), ("aqm", aqm)], None));
        for additive in ["carried", "at_least_one"] {
            for waking in ["fifo", "random"] {
                for demand in ["speculation", "synchronization"] {
                    let switches = [("aqm", aqm), ("additive", additive), ("waking", waking), ("demand", demand)];
                    let pairs = [switches.as_slice(), &[("max_window", "5"), ("alpha", "20%")]].concat();
                    cases.push(Case::new(&breakwater::ALGORITHM, &pairs, Some(5)));
                }
            }
        }
    }
    cases
}
