//! Loads and checks the scenario that the command line names.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use leeward_lab::run::Options;
use leeward_lab::scenario::machine;
use leeward_lab::{Scenario, ScenarioError, builtin_scenarios};

use crate::failure::Failure;
use crate::sanitize::sanitize;

/// Largest seed: all JSON readers are exact for integers up to this value.
pub(crate) const SEED_MAX: u64 = (1 << 53) - 1;

/// Arguments that say what to run, for all commands that run something.
#[derive(Debug, clap::Args)]
pub(crate) struct ScenarioArgs {
    /// Id of a scenario (see `leeward list`), path of a .toml file, or a random scenario such as
    /// random-91
    pub(crate) scenario: String,
    /// Base seed: the n-th run of each point adds n
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(..=SEED_MAX))]
    pub(crate) seed: u64,
    /// Run fewer points and measure them less precisely, as the scenario's `quick` section defines
    #[arg(long)]
    pub(crate) quick: bool,
    /// Change one value of the scenario, such as run.seeds=5; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) overrides: Vec<String>,
    /// Simulate the machine that this file describes; `leeward calibrate` writes it
    #[arg(long, value_name = "FILE")]
    pub(crate) machine: Option<PathBuf>,
    /// Threads to run on; by default one per CPU
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}

/// Loads the scenario that `what` names: a path if it looks like one, an id otherwise.
pub(crate) fn load(what: &ScenarioArgs) -> Result<Scenario, Failure> {
    let name = &what.scenario;
    let (overrides, doubt) = overrides_and_doubt(what)?;
    if let (Some(doubt), Some(file)) = (doubt, &what.machine) {
        let file = sanitize(&file.display().to_string());
        let _ = writeln!(std::io::stderr(), "warning: --machine {file} is DOUBTFUL: {doubt}");
    }
    if builtin_scenarios().iter().any(|known| known.id == name) {
        return Ok(Scenario::builtin(name, &overrides, what.quick)?);
    }
    if let Some(drawn) = Scenario::random(name, &overrides, what.quick) {
        return Ok(drawn?);
    }
    let path = Path::new(name);
    if name.ends_with(".toml") || name.contains(['/', '\\']) || path.is_file() {
        return Ok(Scenario::load(path, &overrides, what.quick)?);
    }
    let ids: Vec<&str> = builtin_scenarios().iter().map(|known| known.id).collect();
    let guess = nearest(name, &ids).map(|id| format!("; did you mean `{id}`?")).unwrap_or_default();
    let name: String = name.chars().take(60).collect();
    let known = ids.join(", ");
    Err(Failure::Input(anyhow!(
        "there is no scenario `{name}`{guess} (there are: {known}; `random-N`, drawn from the seed N; or give the path of a .toml file)"
    )))
}

/// Loads the same scenario with only these overrides; its name has been checked before.
pub(crate) fn load_with(what: &ScenarioArgs, overrides: &[String]) -> Result<Scenario, ScenarioError> {
    if builtin_scenarios().iter().any(|known| *known.id == what.scenario) {
        return Scenario::builtin(&what.scenario, overrides, what.quick);
    }
    let drawn = Scenario::random(&what.scenario, overrides, what.quick);
    drawn.unwrap_or_else(|| Scenario::load(Path::new(&what.scenario), overrides, what.quick))
}

/// Overrides of the machine file, then those of the command line, which take precedence.
pub(crate) fn overrides(what: &ScenarioArgs) -> Result<Vec<String>, Failure> {
    overrides_and_doubt(what).map(|(overrides, _)| overrides)
}

/// The overrides, and a reason to doubt the machine file.
fn overrides_and_doubt(what: &ScenarioArgs) -> Result<(Vec<String>, Option<String>), Failure> {
    let mut file = what.machine.as_deref().map(machine::read).transpose()?.unwrap_or_default();
    file.overrides.extend(what.overrides.iter().cloned());
    Ok((file.overrides, file.doubt))
}

/// Options of the run.
pub(crate) fn options(what: &ScenarioArgs, plant: &str) -> Options {
    Options {
        seed: what.seed,
        threads: what.threads.map(usize::from),
        quick: what.quick,
        plant: plant.into(),
        // The scenario already contains all overrides, those of a machine included.
        overrides: Vec::new(),
        observers: None,
    }
}

/// Name that is most similar to `name`, if any is similar enough.
pub(crate) fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let likeness = |known: &&str| strsim::jaro_winkler(name, known);
    let best = names.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(&best) > 0.8).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn similar_names_are_suggested() {
        let names = ["bw-overall", "bw-shift"];
        assert_eq!(nearest("bw-ovrall", &names), Some("bw-overall"));
        assert_eq!(nearest("bwshift", &names), Some("bw-shift"));
        assert_eq!(nearest("zebra", &names), None);
    }
}
