//! The built-in scenarios: the embedded files of `experiments/`.

use super::ScenarioError;

/// A scenario file within the binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltinScenario {
    /// Id: the file's name without `.toml`.
    pub id: &'static str,
    /// Text of the file.
    pub text: &'static str,
}

macro_rules! builtin {
    ($($id:literal),* $(,)?) => {
        &[$(BuiltinScenario { id: $id, text: include_str!(concat!("../../../../experiments/", $id, ".toml")) }),*]
    };
}

/// All built-in scenarios, in the order of the papers' figures.
pub fn builtin_scenarios() -> &'static [BuiltinScenario] {
    builtin![
        "bw-motivation",
        "bw-overall",
        "bw-distribution",
        "bw-service-time",
        "bw-clients",
        "bw-shift",
        "bw-speculation",
        "bw-breakdown",
        "bw-aggressiveness",
        "bw-sensitivity",
        "bw-memcached-usr",
        "bw-today",
        "bw-today-shift",
        "ca-ramp",
        "ca-collapse",
        "ca-policies",
        "edge-overall",
        "edge-shift",
        "edge-burst",
        "edge-tenants",
        "edge-classes",
        "edge-cost",
        "edge-cost-tenants",
        "lk-memcached-usr",
        "lk-memcached-var",
        "lk-var",
        "lk-one-mutex",
        "lk-hoover",
        "lk-hoover-te",
        "lk-lock-ratio",
        "lk-two-mutex",
        "lk-phases",
        "lk-trylock",
        "lk-breakdown",
        "lk-te",
        "lk-mismatch",
        "lk-search",
        "lk-replicas",
        "hidden-disk",
        "hidden-downstream",
        "hidden-pauses",
        "hidden-quota",
        "mt-motivation",
        "mt-saturation",
        "mt-sync-async",
        "mt-sync",
        "mt-wakeups",
        "mt-contention",
        "mt-async",
        "mt-pools",
        "mt-steady",
        "mt-overhead",
        "mt-flash",
        "mt-flash-async",
        "mt-null",
        "mt-machine",
        "mt-detect",
        "mt-lockin",
        "mt-hedge",
        "mt-switch",
        "mt-nine",
        "mt-twin",
        "mt-sensitivity",
        "tier-chain",
        "tier-fanout",
        "tier-diamond",
        "tier-leaf-overload",
        "tier-scale",
        "demo",
        "real-mismatch",
        "real-disk",
        "real-overall",
        "real-grid",
        "real-spike",
    ]
}

/// Aliases of scenarios, from designs or papers.
const ALIASES: [(&str, &str); 1] = [("mt-tiers", "tier-leaf-overload")];

pub(super) fn find(id: &str) -> Result<&'static BuiltinScenario, ScenarioError> {
    let id = ALIASES.iter().find(|(also, _)| *also == id).map_or(id, |(_, id)| id);
    builtin_scenarios().iter().find(|known| known.id == id).ok_or_else(|| ScenarioError::UnknownId {
        id: id.chars().take(60).collect(),
        accepted: builtin_scenarios().iter().map(|known| known.id).collect::<Vec<_>>().join(", "),
    })
}
