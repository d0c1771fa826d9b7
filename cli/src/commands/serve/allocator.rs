//! Core allocation of `leeward serve`: its flags, and the report of its use at the end.

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

/// Default policy, if the number of cores is a range.
const DEFAULT: &str = "delay";

/// Default idle behaviour: cores spin if each has a CPU of its own; otherwise they sleep soon, to
/// leave the CPU to others.
const IDLE_PINNED: &str = "spin";
const IDLE_SHARED: &str = "50us";

/// A policy with its parameters, as given by `--allocator`.
pub(crate) struct Allocator {
    policy: &'static AllocationPolicy,
    params: Params,
    limits: CoreLimits,
}

impl Allocator {
    /// Returns the requested policy, if the number of cores varies.
    pub(crate) fn from_args(args: &ServeArgs) -> Result<Option<Allocator>, Failure> {
        let Some(text) = args.allocator.as_deref().or(args.cores.min.map(|_| DEFAULT)) else { return Ok(None) };
        let limits = CoreLimits::new(args.cores.min.unwrap_or(1).into(), args.cores.max.into());
        let (policy, params) = parse(text).map_err(|problem| Failure::Input(anyhow!("--allocator: {problem}")))?;
        Ok(Some(Allocator { policy, params, limits }))
    }

    /// Makes the policy allocate the server's cores.
    pub(crate) fn apply(&self, builder: Builder) -> Builder {
        builder.allocator(self.policy, self.params.clone(), self.limits.min as usize)
    }

    /// Checks that the parameters are consistent.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let built = allocation::build(self.policy, &self.params, self.limits);
        built.map(drop).map_err(|error| Failure::Input(anyhow!("--allocator: {error}")))
    }

    /// Name of the policy.
    pub(crate) fn name(&self) -> &'static str {
        self.policy.name
    }
}

/// Parses a policy's name and parameters: `delay`, or `delay:threshold=20us,search=1ms`.
pub(crate) fn parse(text: &str) -> Result<(&'static AllocationPolicy, Params), String> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let policy = find(name).map_err(|error| error.to_string())?;
    let pairs = rest.split(',').filter(|pair| !pair.is_empty());
    let pairs =
        pairs.map(|text| parse_pair(text).map_err(|_| format!("`{text}` is not name=value, such as threshold=20us")));
    let pairs = pairs.collect::<Result<Vec<_>, String>>()?;
    Ok((policy, policy.params(&pairs).map_err(|error| error.to_string())?))
}

/// Idle behaviour of a core: the value of `--idle`, or the default.
pub(crate) fn idle(args: &ServeArgs) -> &str {
    let comes_and_goes = args.allocator.is_some() || args.cores.min.is_some();
    let own = args.cpus.iter().collect::<BTreeSet<_>>().len();
    let has_own = own >= usize::from(args.cores.max) * args.service.ports();
    args.idle.as_deref().unwrap_or(if has_own && !comes_and_goes { IDLE_PINNED } else { IDLE_SHARED })
}

/// Environment of the controller; tells it whether an allocator runs.
pub(crate) fn environment(args: &ServeArgs, environment: Environment) -> Environment {
    if args.allocator.is_some() || args.cores.min.is_some() { environment.with_allocator() } else { environment }
}

/// Warning if there are more cores than CPUs.
pub(crate) fn oversubscription(args: &ServeArgs) -> Option<String> {
    let there = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
    let named: BTreeSet<usize> = args.cpus.iter().copied().collect();
    let cpus = if named.is_empty() { there } else { named.len() };
    let cores = usize::from(args.cores.max);
    let plural = if cpus == 1 { "" } else { "s" };
    (cores > cpus).then(|| format!("{cores} cores on {cpus} CPU{plural}: cores share CPUs, which increases latencies"))
}

/// Summary of the core usage, as one line.
pub(crate) fn describe(usage: &CoreUsage, policy: &str) -> String {
    let parked: Vec<String> = usage.parked.iter().map(|span| format!("{:.1}", span.0 as f64 / 1e9)).collect();
    format!(
        "cores: {:.2} of {} held on average by {policy}; {} granted, {} returned ({:.1} and {:.1} per second); \
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

/// Summary of the core usage, as JSON.
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
    fn core_usage_is_described() {
        let parked = vec![Nanos::ZERO, Nanos::from_secs(3)];
        let usage = CoreUsage { span: Nanos::from_secs(4), cores: 1, parked, grants: 8, parks: 8 };
        let line = describe(&usage, "delay");
        assert!(line.contains("1.25 of 2") && line.contains("2.0 and 2.0 per second"), "{line}");
        assert!(line.ends_with("parked for 0.0, 3.0 of 4.0 s"), "{line}");
        assert_eq!(json(&usage, "delay")["parked_ns"][1], 3_000_000_000u64);
    }
}
