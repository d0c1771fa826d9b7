//! `leeward list`: lists the scenarios and controllers, or describes one of them.

use anyhow::anyhow;
use leeward_core::params::{ParamKind, ParamSpec};
use leeward_core::registry::{Algorithm, Registry};
use leeward_lab::{Scenario, builtin_scenarios};

use crate::failure::Failure;
use crate::stdout::sanitize;
use crate::table::{WIDTH, wrap};
use crate::{scenario, stdout};

/// List the built-in scenarios and controllers, or describe one of them
///
/// Describes a controller with its parameters, and a scenario with its controllers and claims.
#[derive(Debug, clap::Args)]
#[command(after_help = LIST)]
pub(crate) struct ListArgs {
    /// A controller, or a scenario's id, such as bw-overall or random-3
    #[arg(conflicts_with = "controllers")]
    pub(crate) name: Option<String>,
    /// Show the parameters of each controller: name, default, accepted values, meaning
    #[arg(long)]
    pub(crate) controllers: bool,
}

const LIST: &str = "\
Examples:
  leeward list
  leeward list breakwater
  leeward list bw-overall
  leeward list random-3                                the scenario that seed 3 draws
  leeward list --controllers | less";

/// Runs the command.
pub(crate) fn list(args: &ListArgs) -> Result<(), Failure> {
    let registry = leeward_lab::registry();
    if args.controllers {
        let parts: Vec<String> = registry.algorithms().map(describe_algorithm).collect();
        return stdout::print(&parts.join("\n"));
    }
    if let Some(name) = &args.name {
        return stdout::print(&describe(&registry, name)?);
    }
    let mut scenarios = Vec::new();
    for known in builtin_scenarios() {
        let scenario = Scenario::builtin(known.id, &[], false)?;
        scenarios.push((scenario.id, format!("{} ({})", scenario.title, scenario.source)));
    }
    let of_algorithm = |known: &Algorithm| (known.name.to_string(), format!("{} ({})", known.summary, known.source));
    let (scenarios, controllers) =
        (format_list(&scenarios), format_list(&registry.algorithms().map(of_algorithm).collect::<Vec<_>>()));
    stdout::print(&format!(
        "Scenarios (leeward run <id>)\n{scenarios}\nControllers (leeward list --controllers shows their parameters)\n{controllers}"
    ))
}

/// Describes the controller or scenario called `name`.
fn describe(registry: &Registry, name: &str) -> Result<String, Failure> {
    if let Ok(algorithm) = registry.find(name) {
        return Ok(describe_algorithm(algorithm));
    }
    if builtin_scenarios().iter().any(|known| known.id == name) {
        return Ok(describe_scenario(&Scenario::builtin(name, &[], false)?));
    }
    if let Some(drawn) = Scenario::random(name, &[], false) {
        return Ok(describe_scenario(&drawn?));
    }
    let known = registry.algorithms().map(|algorithm| algorithm.name);
    let known: Vec<&str> = known.chain(builtin_scenarios().iter().map(|known| known.id)).collect();
    let guess = scenario::nearest(name, &known).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
    let name: String = sanitize(name).chars().take(60).collect();
    Err(Failure::Input(anyhow!(
        "there is no controller or scenario `{name}`{guess} (`leeward list` shows all; `random-N` is drawn from the seed N)"
    )))
}

/// Describes a scenario: its subject, its controllers and demands, and its claims.
fn describe_scenario(scenario: &Scenario) -> String {
    let mut text = format!("{}: {}\n", scenario.id, scenario.title);
    text += &wrap(&format!("Source: {}", scenario.source), 2, WIDTH);
    text += &wrap(&scenario.description, 2, WIDTH);
    let labels: Vec<&str> = scenario.controllers.iter().map(|controller| controller.label.as_str()).collect();
    text += &wrap(&format!("Controllers: {}", labels.join(", ")), 2, WIDTH);
    if scenario.claims.is_empty() {
        return text + "  no claims\n";
    }
    for claim in &scenario.claims {
        text += &wrap(&format!("{}: {}", claim.id, claim.text), 2, WIDTH);
        text += &wrap(&format!("paper: {}", claim.paper), 6, WIDTH);
        if !claim.note.is_empty() {
            text += &wrap(&format!("note: {}", claim.note), 6, WIDTH);
        }
    }
    text
}

/// Formats names with their wrapped descriptions beside them.
fn format_list(entries: &[(String, String)]) -> String {
    let widest = entries.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let entry = |(name, text): &(String, String)| {
        format!("  {name:widest$}  {}", wrap(text, widest + 4, WIDTH).trim_start_matches(' '))
    };
    entries.iter().map(entry).collect()
}

fn describe_algorithm(algorithm: &Algorithm) -> String {
    let mut text = format!("{}: {}\n", algorithm.name, algorithm.summary);
    text += &wrap(algorithm.source, 2, WIDTH);
    if algorithm.params.is_empty() {
        return text + "  no parameters\n";
    }
    for param in algorithm.params {
        text += &format!("  {} = {}  ({})\n", param.name, param.default, accepted_values(&param.kind));
        text += &wrap(&doc(param), 6, WIDTH);
    }
    text
}

fn doc(param: &ParamSpec) -> String {
    if param.tuning_values.is_empty() {
        return param.doc.into();
    }
    format!("{}; `leeward tune` tries {}", param.doc.trim_end_matches('.'), param.tuning_values.join(", "))
}

fn accepted_values(kind: &ParamKind) -> String {
    match kind {
        kind if *kind == ParamKind::ANY_DURATION => "duration".into(),
        kind if *kind == ParamKind::POSITIVE => "number, at least 0".into(),
        ParamKind::Duration { min, max } => format!("duration, {min} to {max}"),
        ParamKind::Number { min, max } => format!("number, {min} to {max}"),
        ParamKind::Count { min, max } if *max >= u64::from(u32::MAX) => format!("whole number, at least {min}"),
        ParamKind::Count { min, max } => format!("whole number, {min} to {max}"),
        ParamKind::Choice(choices) => choices.join(" or "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_scenario_is_described() {
        let registry = leeward_lab::registry();
        let text = describe(&registry, "random-3").unwrap();
        assert!(text.starts_with("random-3: ") && text.contains("Controllers: "), "{text}");
        let unknown = describe(&registry, "random-x").unwrap_err().to_string();
        assert!(unknown.contains("`random-N`"), "{unknown}");
    }
}
