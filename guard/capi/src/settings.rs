//! A gate's settings from numbers and texts. Does not contain the structure that C fills.

use leeward_core::params::RawParam;
use leeward_gate::{Builder, Gate, Mode, WORKERS_MAX};
use std::time::Duration;

/// Settings as a program gives them; 0 and an empty text stand for the default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GateSettings<'a> {
    pub(crate) slo_ns: u64,
    pub(crate) threads: u32,
    pub(crate) max_in_flight: u32,
    pub(crate) mode: u32,
    pub(crate) share_percent: u32,
    pub(crate) controller: &'a str,
    /// `name=value`, separated by spaces.
    pub(crate) params: &'a str,
}

/// Longest text of parameters.
const PARAMS_MAX: usize = 4_096;

/// Makes the gate.
///
/// # Errors
/// Sentence about the setting that is wrong.
pub(crate) fn build(settings: &GateSettings<'_>) -> Result<Gate, String> {
    let mut builder = Gate::builder(Duration::from_nanos(settings.slo_ns));
    if settings.threads as usize > WORKERS_MAX {
        return Err(format!("{} threads: at most {WORKERS_MAX}", settings.threads));
    }
    if settings.threads > 0 {
        builder = builder.workers(settings.threads as usize);
    }
    if settings.max_in_flight > 0 {
        builder = builder.max_in_flight(settings.max_in_flight);
    }
    let mode = match (settings.mode, u8::try_from(settings.share_percent)) {
        (0, Ok(0)) => Mode::Enforce,
        (1, Ok(0)) => Mode::Shadow,
        (2, Ok(percent @ 0..=100)) => Mode::Share(percent),
        _ => return Err("the mode is 0 (enforce), 1 (shadow) or 2 (share), with a percentage only for 2".into()),
    };
    builder = select_controller(builder.mode(mode), settings)?;
    builder.build().map_err(|error| error.to_string())
}

fn select_controller(builder: Builder, settings: &GateSettings<'_>) -> Result<Builder, String> {
    if settings.params.len() > PARAMS_MAX {
        return Err(format!("more than {PARAMS_MAX} bytes of parameters"));
    }
    let name = if settings.controller.is_empty() { "edge" } else { settings.controller };
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find(name).map_err(|error| error.to_string())?;
    let mut params = Vec::new();
    for pair in settings.params.split_whitespace() {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("`{pair}` is not name=value"))?;
        let spec = algorithm.params.iter().find(|spec| spec.name == key);
        let spec = spec.ok_or_else(|| format!("`{name}` has no parameter `{key}`"))?;
        params.push((spec.name, RawParam::Text(value.into())));
    }
    Ok(builder.algorithm(algorithm, &params))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLO: GateSettings<'static> = GateSettings {
        slo_ns: 1_000_000,
        threads: 2,
        max_in_flight: 0,
        mode: 0,
        share_percent: 0,
        controller: "",
        params: "",
    };

    #[test]
    fn a_controller_is_chosen_by_name_with_its_parameters() {
        assert!(build(&SLO).is_ok());
        assert!(build(&GateSettings { controller: "breakwater", params: "alpha=0.2%", ..SLO }).is_ok());
        assert!(build(&GateSettings { mode: 2, share_percent: 5, ..SLO }).is_ok());
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let error = |settings: GateSettings<'_>| build(&settings).unwrap_err();
        assert!(error(GateSettings { slo_ns: 0, ..SLO }).contains("objective"));
        assert!(error(GateSettings { slo_ns: u64::MAX, ..SLO }).contains("objective"));
        assert!(error(GateSettings { threads: 129, ..SLO }).contains("128"));
        assert!(error(GateSettings { mode: 3, ..SLO }).contains("mode"));
        assert!(error(GateSettings { share_percent: 5, ..SLO }).contains("mode"));
        assert!(error(GateSettings { mode: 2, share_percent: 101, ..SLO }).contains("mode"));
        for controller in ["none", "seda", "window"] {
            assert!(error(GateSettings { controller, mode: 1, ..SLO }).contains("no shadow mode"));
        }
        assert!(error(GateSettings { controller: "wave", ..SLO }).contains("wave"));
        assert!(error(GateSettings { params: "x", ..SLO }).contains("name=value"));
        assert!(error(GateSettings { params: "x=1", ..SLO }).contains("no parameter"));
    }

    proptest! {
        #[test]
        fn any_text_is_settings_or_an_error(slo_ns: u64, controller in "(edge|auto|breakwater|\\PC{0,8})", params in "(\\PC{0,10}=?\\PC{0,10} ?){0,4}") {
            let _ = build(&GateSettings { slo_ns, controller: &controller, params: &params, threads: 1, ..SLO });
        }
    }
}
