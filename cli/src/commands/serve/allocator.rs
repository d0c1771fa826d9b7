//! How many cores `leeward serve` has and who decides that: the flags, and what is said of it at the end.

use anyhow::anyhow;
use leeward_allocation::CoreLimits;
use leeward_allocation::registry::{AllocationPolicy, find};
use leeward_core::params::Params;
use leeward_core::registry::Environment;
use leeward_rpc::server::{Builder, allocation};
use leeward_runtime::CoreUsage;
use std::collections::BTreeSet;

use super::args::ServeArgs;
use crate::admission::parse_pair;
use crate::failure::Failure;

/// The policy where cores may come and go and none is named.
const DEFAULT: &str = "delay";

/// Default behaviour of cores without work: they spin where each has a CPU of its own, and sleep soon where they would
/// take it from others.
const IDLE_PINNED: &str = "spin";
const IDLE_SHARED: &str = "50us";

/// A policy with its parameters, as `--allocator` has it.
pub(crate) struct Allocator {
    policy: &'static AllocationPolicy,
    params: Params,
    limits: CoreLimits,
}

impl Allocator {
    /// The one that was asked for, if cores are to come and go.
    pub(crate) fn from_args(args: &ServeArgs) -> Result<Option<Allocator>, Failure> {
        let Some(text) = args.allocator.as_deref().or(args.cores.min.map(|_| DEFAULT)) else { return Ok(None) };
        let limits = CoreLimits::new(args.cores.min.unwrap_or(1).into(), args.cores.max.into());
        let (policy, params) = parse(text).map_err(|problem| Failure::Input(anyhow!("--allocator: {problem}")))?;
        Ok(Some(Allocator { policy, params, limits }))
    }

    /// Lets it decide over the server's cores.
    pub(crate) fn apply(&self, builder: Builder) -> Builder {
        builder.allocator(self.policy, self.params.clone(), self.limits.min as usize)
    }

    /// Refuses parameters that can't stand together.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let built = allocation::build(self.policy, &self.params, self.limits);
        built.map(drop).map_err(|error| Failure::Input(anyhow!("--allocator: {error}")))
    }

    /// The policy's name.
    pub(crate) fn name(&self) -> &'static str {
        self.policy.name
    }
}

/// A policy's name and its parameters: `delay`, or `delay:threshold=20us,search=1ms`.
pub(crate) fn parse(text: &str) -> Result<(&'static AllocationPolicy, Params), String> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let policy = find(name).map_err(|error| error.to_string())?;
    let pairs = rest.split(',').filter(|pair| !pair.is_empty());
    let pairs =
        pairs.map(|text| parse_pair(text).map_err(|_| format!("`{text}` is not name=value, such as threshold=20us")));
    let pairs = pairs.collect::<Result<Vec<_>, String>>()?;
    Ok((policy, policy.params(&pairs).map_err(|error| error.to_string())?))
}

/// Behaviour of a core without work, as `--idle` says, or the default.
pub(crate) fn idle(args: &ServeArgs) -> &str {
    let comes_and_goes = args.allocator.is_some() || args.cores.min.is_some();
    let own = args.cpus.iter().collect::<BTreeSet<_>>().len();
    let has_own = own >= usize::from(args.cores.max) * args.service.ports();
    args.idle.as_deref().unwrap_or(if has_own && !comes_and_goes { IDLE_PINNED } else { IDLE_SHARED })
}

/// Environment for the controller: the server's surroundings.
pub(crate) fn environment(args: &ServeArgs, environment: Environment) -> Environment {
    if args.allocator.is_some() || args.cores.min.is_some() { environment.with_allocator() } else { environment }
}

/// Warning about more cores than CPUs to run them, if there are.
pub(crate) fn oversubscription(args: &ServeArgs) -> Option<String> {
    let there = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
    let named: BTreeSet<usize> = args.cpus.iter().copied().collect();
    let cpus = if named.is_empty() { there } else { named.len() };
    let cores = usize::from(args.cores.max);
    let plural = if cpus == 1 { "" } else { "s" };
    (cores > cpus).then(|| format!("{cores} cores on {cpus} CPU{plural} take turns: latencies will show it"))
}

/// The line about the cores at the end.
pub(crate) fn describe(usage: &CoreUsage, policy: &str) -> String {
    let parked: Vec<String> = usage.parked.iter().map(|span| format!("{:.1}", span.0 as f64 / 1e9)).collect();
    format!(
        "cores: {:.2} of {} held on average by {policy}; {} granted, {} given back ({:.1} and {:.1} per second); \
         parked for {} of {:.1} s",
        usage.mean_cores(),
        usage.parked.len(),
        usage.grants,
        usage.parks,
        usage.grants_per_second(),
        usage.parks_per_second(),
        parked.join(", "),
        usage.span.0 as f64 / 1e9,
    )
}

/// The same for programs.
pub(crate) fn json(usage: &CoreUsage, policy: &str) -> serde_json::Value {
    serde_json::json!({
        "allocator": policy,
        "most": usage.parked.len(),
        "mean": usage.mean_cores(),
        "grants": usage.grants,
        "parks": usage.parks,
        "grants_per_s": usage.grants_per_second(),
        "parks_per_s": usage.parks_per_second(),
        "span_ns": usage.span.0,
        "parked_ns": usage.parked.iter().map(|span| span.0).collect::<Vec<u64>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_core::units::Nanos;

    #[test]
    fn policies_are_read_with_their_parameters() {
        let (policy, params) = parse("delay:threshold=20us,search=1ms").unwrap();
        assert_eq!((policy.name, params.duration("search", Nanos(0))), ("delay", Nanos::from_millis(1)));
        assert_eq!(parse("buffer:min=2").unwrap().1.count("min", 0), 2);
        assert!(parse("static").is_ok() && parse("delay:").is_ok());
        for (wrong, part) in [
            ("fast", "unknown allocator `fast`"),
            ("delay:threshold", "`threshold` is not name=value"),
            ("delay:limit=3us", "unknown parameter `limit`"),
            ("delay:threshold=often", "can't be `often`"),
        ] {
            let problem = parse(wrong).err().unwrap();
            assert!(problem.contains(part), "{problem}");
        }
    }

    #[test]
    fn what_became_of_the_cores_is_said() {
        let parked = vec![Nanos::ZERO, Nanos::from_secs(3)];
        let usage = CoreUsage { span: Nanos::from_secs(4), cores: 1, parked, grants: 8, parks: 8 };
        let said = describe(&usage, "delay");
        assert!(said.contains("1.25 of 2") && said.contains("2.0 and 2.0 per second"), "{said}");
        assert!(said.ends_with("parked for 0.0, 3.0 of 4.0 s"), "{said}");
        assert_eq!(json(&usage, "delay")["parked_ns"][1], 3_000_000_000u64);
    }
}
