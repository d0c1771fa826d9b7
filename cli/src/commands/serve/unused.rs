//! Flags of `leeward serve` that have no effect beside the others, or without one. Does not contain
//! those of tiers (`threading`) and of services (`crate::service`).

use std::collections::BTreeSet;

use anyhow::anyhow;

use super::args::ServeArgs;
use super::threading::THREADING;
use crate::failure::Failure;

/// Refuses a flag whose effect depends on another one that is absent.
pub(super) fn check_dependencies(args: &ServeArgs) -> Result<(), Failure> {
    let pairs = [("udp_size", "udp", args.udp.is_none()), ("otlp_every", "otlp", args.otlp.is_none())];
    // A file for --config has the defaults of all flags, so only the command line counts.
    let alone = pairs.iter().find(|(name, _, is_alone)| *is_alone && args.written.iter().any(|flag| flag == name));
    match alone {
        Some((flag, needed, _)) => {
            Err(Failure::Input(anyhow!("--{} has no effect without --{needed}", flag.replace('_', "-"))))
        }
        None => Ok(()),
    }
}

/// Warning if an allocator has one core to allocate.
pub(super) fn idle_allocator(args: &ServeArgs) -> Option<String> {
    let has_one = args.allocator.is_some() && args.cores.max == 1 && !args.service.accepts(THREADING);
    has_one.then(|| "--allocator has no effect with one core".into())
}

/// Warning if --cpus names more CPUs than there are cores.
pub(super) fn unused_cpus(args: &ServeArgs) -> Option<String> {
    let cores = usize::from(args.cores.max) * args.service.ports();
    let named = args.cpus.iter().collect::<BTreeSet<_>>().len();
    let plural = if cores == 1 { "" } else { "s" };
    (named > cores && !args.service.accepts(THREADING))
        .then(|| format!("--cpus names {named} CPUs for {cores} core{plural}: the rest is unused"))
}
