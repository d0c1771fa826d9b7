//! `--threading FILE.toml`: curves from which a policy chooses the tier's setup while it serves.

use super::args::ServeArgs;
use crate::failure::Failure;
use anyhow::anyhow;
use leeward_core::units::Nanos;
use leeward_lab::scenario::curves::CurvesFile;
use leeward_plant::machine_identity;
use leeward_rpc::tier::PolicyFactory;
use leeward_services::arguments::Value;
use leeward_services::tiers::CURVES;
use leeward_threading::registry;
use leeward_threading::{ThreadEnvironment, ThreadingPolicy, ThreadingSetup};
use std::path::Path;
use std::sync::Arc;

/// Policy that keeps its setup.
const STATIC: &str = "static";
/// Flag and key of the setup, or of the curves.
pub(super) const THREADING: &str = "threading";

/// Loads the policy if `--threading` names a file of curves. The flag then gets the initial setup
/// as its value.
pub(super) fn load_policy(args: &mut ServeArgs, slo: Nanos) -> Result<Option<PolicyFactory>, Failure> {
    let refused = |problem: String| Failure::Input(anyhow!("--threading: {problem}"));
    let text = args.service.values.text(THREADING).filter(|text| text.ends_with(CURVES)).map(str::to_string);
    let Some(text) = text.filter(|_| args.service.accepts(THREADING)) else {
        let asks = |name: &str| args.written.iter().any(|written| written == name);
        if asks("threading_policy") || asks("accept_curves") {
            let message =
                "--threading-policy and --accept-curves go with --threading FILE.toml, which `leeward train` writes";
            return Err(Failure::Input(anyhow!(message)));
        }
        return Ok(None);
    };
    let file = CurvesFile::read(Path::new(&text))?;
    let cpus = if args.cpus.is_empty() {
        std::thread::available_parallelism().map_or(1, usize::from)
    } else {
        args.cpus.len()
    };
    let data = args.service.values.text("data").unwrap_or_default();
    if !args.accept_curves {
        file.check_for(args.service.name(), data, &machine_identity(cpus))
            .map_err(|error| refused(error.to_string()))?;
    }
    let first = file.curves.strongest().setup;
    let environment = ThreadEnvironment::new(Some(Arc::new(file.curves)), first, cpus as u16).with_slo(slo);
    let name = args.threading_policy.as_str();
    let spec = registry::find(name).map_err(|error| Failure::Input(anyhow!("--threading-policy: {error}")))?;
    if spec.name == STATIC {
        return Err(Failure::Input(anyhow!(
            "--threading-policy {STATIC} does not use curves; accepted: --threading SETUP"
        )));
    }
    let params = spec.params(&[]).map_err(|error| refused(error.to_string()))?;
    let build = move || spec.build(&params, &environment);
    let policy = build().map_err(|error| refused(error.to_string()))?;
    if let Some(core) = policy.choices().iter().find(|choice| choice.setup().is_none()) {
        return Err(refused(format!(
            "{core} can't be changed to or from while a tier serves; accepted: curves without it"
        )));
    }
    let initial: ThreadingSetup = policy.initial();
    args.service.values.set(THREADING, Value::Text(initial.to_string()));
    let make = move || -> Box<dyn ThreadingPolicy> { build().unwrap_or_else(|_| unreachable!("it was built above")) };
    Ok(Some(PolicyFactory::new(cpus as u16, make)))
}

/// Warning if `--cores` or `--allocator` is given for a tier: `--threading` says what it runs on.
pub(super) fn unused_cores(args: &ServeArgs) -> Option<String> {
    let text = args.service.values.text(THREADING).filter(|_| args.service.accepts(THREADING))?;
    let written = |name: &&&str| args.written.iter().any(|written| written == **name);
    let given: Vec<String> = ["cores", "allocator"].iter().filter(written).map(|name| format!("--{name}")).collect();
    let have = if given.len() == 1 { "has" } else { "have" };
    (!given.is_empty()).then(|| format!("{} {have} no effect on a tier under --threading {text}", given.join(" and ")))
}

/// Warning if a setup has more polling threads than there are CPUs, since they take the CPUs from
/// each other.
pub(super) fn oversubscription(args: &ServeArgs) -> Option<String> {
    let text = args.service.values.text(THREADING).filter(|_| args.service.accepts(THREADING))?;
    let setup = text.parse::<ThreadingSetup>().ok()?.setup()?;
    let cpus = match args.cpus.len() {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        named => named,
    };
    let pollers = setup.pollers();
    let one = if cpus == 1 { "CPU" } else { "CPUs" };
    (pollers as usize > cpus).then(|| {
        format!("--threading {setup}: {pollers} threads poll on {cpus} {one}, and take the CPU from each other")
    })
}
