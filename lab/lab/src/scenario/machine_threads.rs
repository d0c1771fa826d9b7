//! Thread costs of a machine, as `leeward calibrate --threads` writes them: the section
//! `[server.threads]` of a scenario.
//!
//! Does not contain the reader, which is the one for scenarios.

use leeward_core::units::Nanos;
use leeward_sim::threads::model::ThreadCosts;

/// The costs as `key = value` pairs, in TOML.
pub(super) fn pairs(costs: &ThreadCosts) -> Vec<(&'static str, String)> {
    let span = |span: Nanos| format!("\"{}ns\"", span.0);
    let row = |row: &[Nanos; 6]| format!("[{}]", row.map(span).join(", "));
    vec![
        ("wake_call", span(costs.wake_call)),
        ("wake", format!("[{}]", costs.wake.rows().each_ref().map(row).join(", "))),
        ("switch", span(costs.switch)),
        ("slice", span(costs.slice)),
        ("preempt", span(costs.preempt)),
        ("poll_turn", span(costs.poll)),
        ("receive", span(costs.receive)),
        ("send", span(costs.send)),
        ("locked", format!("{}", f64::from(costs.locked_permille) / 1_000.0)),
        ("push_pop", span(costs.push_pop)),
        ("line", span(costs.cache_line)),
        ("cold", span(costs.cold_cache)),
        ("record", span(costs.record)),
        ("decide", span(costs.decide)),
    ]
}

/// Text of the section.
pub fn to_toml(costs: &ThreadCosts) -> String {
    let lines = pairs(costs).into_iter().map(|(key, value)| format!("{key} = {value}\n"));
    format!("\n[server.threads]\n{}", lines.collect::<String>())
}
