//! `[server]`'s `pauses`, `quota` and `slow`: bottlenecks outside of the server's queues.

use super::ScenarioError;
use super::reader::Item;
use leeward_core::units::Nanos;
use leeward_sim::config::{Pauses, Quota, SlowPeriod};

const MIN_SPAN: Nanos = Nanos::from_micros(1);
const MAX_SPAN: Nanos = Nanos::from_secs(3_600);
const FACTOR: &str = "how many times as long a wait takes, 0 to 1,000";
const A_SPAN: &str = "a duration such as \"10ms\"";

/// Reads `pauses = { every = "100ms", lasts = "5ms" }`.
pub(super) fn pauses(item: &Item<'_>) -> Result<Pauses, ScenarioError> {
    let table = item.table(&["every", "lasts"])?;
    let every = table.require("every", A_SPAN)?.duration(MIN_SPAN..=MAX_SPAN)?;
    let lasts = table.require("lasts", A_SPAN)?;
    let pauses = Pauses { interval: every, length: lasts.duration(Nanos::ZERO..=MAX_SPAN)? };
    if pauses.length < every { Ok(pauses) } else { Err(lasts.unexpected(format!("less than `every`, {every}"))) }
}

/// Reads `quota = { period = "100ms", cpu = "400ms" }`.
pub(super) fn quota(item: &Item<'_>) -> Result<Quota, ScenarioError> {
    let table = item.table(&["period", "cpu"])?;
    let span = |key| table.require(key, A_SPAN)?.duration(MIN_SPAN..=MAX_SPAN);
    Ok(Quota { period: span("period")?, cpu: span("cpu")? })
}

/// Reads `slow = { from = "2s", until = "4s", factor = 3 }`.
pub(super) fn slow(item: &Item<'_>) -> Result<SlowPeriod, ScenarioError> {
    let table = item.table(&["from", "until", "factor"])?;
    let from = table.require("from", A_SPAN)?.duration(Nanos::ZERO..=MAX_SPAN)?;
    let until = table.require("until", A_SPAN)?;
    let end = until.duration(MIN_SPAN..=MAX_SPAN)?;
    let factor = table.require("factor", FACTOR)?;
    let slow = SlowPeriod { start: from, end, factor: factor.number()? };
    if !(0.0..=1_000.0).contains(&slow.factor) {
        return Err(factor.unexpected(FACTOR));
    }
    if from < end { Ok(slow) } else { Err(until.unexpected(format!("later than `from`, {from}"))) }
}
