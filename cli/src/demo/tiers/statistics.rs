//! Statistics of tiers: differences between two polls of a server, sums over the servers of a tier,
//! and their table. Does not contain polling or the terminal.

use leeward_rpc::statistics::Statistics;
use serde_json::{Value, json};

use crate::demo::format::{format_us, percent};
use crate::table::{Align, Table};

/// Sums over the servers of a tier between two polls.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TierStatistics {
    /// Name of the tier's service.
    pub(crate) name: String,
    /// Number of servers that responded.
    pub(crate) servers: usize,
    /// Requests per second that arrived.
    pub(crate) received_per_s: f64,
    /// Requests per second that were answered within the objective.
    pub(crate) in_time_per_s: f64,
    /// Requests per second that were rejected.
    pub(crate) rejected_per_s: f64,
    /// Current longest queueing delay of a server, in microseconds.
    pub(crate) delay_us: f64,
    /// Credits that clients hold; `None` without a controller that has credits.
    pub(crate) credits: Option<i64>,
    /// Size of the credit pool.
    pub(crate) pool: Option<i64>,
}

impl TierStatistics {
    /// Makes the statistics of a tier from each server's previous and current statistics.
    pub(crate) fn from_statistics(name: &str, servers: &[(Statistics, Statistics)]) -> TierStatistics {
        let mut tier = TierStatistics { name: name.into(), servers: servers.len(), ..TierStatistics::default() };
        for (before, now) in servers {
            let seconds = (now.uptime_ns.saturating_sub(before.uptime_ns) as f64 / 1e9).max(1e-9);
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            tier.received_per_s += rate(now.received, before.received);
            tier.in_time_per_s += rate(now.in_time, before.in_time);
            tier.rejected_per_s += rate(now.rejected(), before.rejected());
            tier.delay_us = tier.delay_us.max(now.packet_delay_ns.saturating_add(now.run_delay_ns) as f64 / 1e3);
            tier.credits = sum(tier.credits, now.credits_issued);
            tier.pool = sum(tier.pool, now.credit_pool);
        }
        tier
    }
}

impl TierStatistics {
    /// Statistics as JSON.
    pub(crate) fn json(&self) -> Value {
        let TierStatistics {
            name,
            servers,
            received_per_s,
            in_time_per_s,
            rejected_per_s: dropped_per_s,
            delay_us,
            credits,
            pool,
        } = self;
        json!({
            "tier": name, "servers": servers, "received_per_s": received_per_s, "in_time_per_s": in_time_per_s,
            "dropped_per_s": dropped_per_s, "delay_us": delay_us, "credits": credits, "pool": pool,
        })
    }
}

impl Phase {
    /// Result as JSON.
    pub(crate) fn json(&self) -> Value {
        let Phase { ratio, demand_per_s, goodput_per_s, p99_us, lost, late, tiers } = self;
        json!({
            "demand_ratio": ratio, "demand_per_s": demand_per_s, "goodput_per_s": goodput_per_s, "p99_us": p99_us,
            "without_good_answer": lost, "issued_late": late, "tiers": tiers.iter().map(TierStatistics::json).collect::<Vec<_>>(),
        })
    }
}

fn sum(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    one.map_or(other, |one| Some(one.saturating_add(other.unwrap_or(0))))
}

/// Results of one demand, as measured by the clients.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Phase {
    /// Demand over the measured capacity.
    pub(crate) ratio: f64,
    /// Requests per second that clients issued.
    pub(crate) demand_per_s: f64,
    /// Requests per second that were answered within the objective.
    pub(crate) goodput_per_s: f64,
    /// 99th percentile of latency, in microseconds.
    pub(crate) p99_us: f64,
    /// Share of requests without a good answer.
    pub(crate) lost: f64,
    /// Share of requests that the clients issued too late, because they lacked CPU time.
    pub(crate) late: f64,
    /// Statistics of the tiers over the phase.
    pub(crate) tiers: Vec<TierStatistics>,
}

/// Share of late requests above which a phase is doubtful, as in `leeward load`.
pub(crate) const LATE_MAX: f64 = 0.01;

/// Formats a rate.
fn rate(per_second: f64) -> String {
    if per_second > 0.0 && per_second < 99.95 {
        format!("{per_second:.2}")
    } else if per_second < 9_995.0 {
        format!("{per_second:.0}")
    } else {
        format!("{:.1} k", per_second / 1e3)
    }
}

/// Table of tiers.
pub(crate) fn table(tiers: &[TierStatistics]) -> String {
    let right = |name| (name, Align::Right);
    let columns = ["servers", "demand/s", "goodput/s", "drops/s", "delay", "credits"].map(right);
    let mut table = Table::new(&[&[("tier", Align::Left)], &columns[..]].concat());
    for tier in tiers {
        let credits = match (tier.credits, tier.pool) {
            (Some(credits), Some(pool)) => format!("{credits} of {pool}"),
            _ => "–".into(),
        };
        table.row(vec![
            tier.name.clone(),
            tier.servers.to_string(),
            rate(tier.received_per_s),
            rate(tier.in_time_per_s),
            rate(tier.rejected_per_s),
            format_us(tier.delay_us),
            credits,
        ]);
    }
    table.to_string()
}

/// Table of the phases.
pub(crate) fn phases(phases: &[Phase]) -> String {
    let right = |name| (name, Align::Right);
    let columns = ["demand/s", "goodput/s", "p99", "without a good answer"].map(right);
    let mut table = Table::new(&[&[right("demand")], &columns[..]].concat());
    for phase in phases {
        table.row(vec![
            crate::demo::format::multiple(phase.ratio),
            rate(phase.demand_per_s),
            rate(phase.goodput_per_s),
            format_us(phase.p99_us),
            percent(phase.lost),
        ]);
    }
    let doubted = phases.iter().any(|phase| phase.late > LATE_MAX);
    let warning = if doubted {
        "The clients themselves were late (issued_late in the report): too little CPU for all.\n"
    } else {
        ""
    };
    format!("{table}{warning}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_tier_is_the_sum_of_its_servers() {
        let before = Statistics { uptime_ns: 1_000_000_000, received: 100, ..Statistics::default() };
        let now = Statistics {
            uptime_ns: 3_000_000_000,
            received: 2_100,
            in_time: 1_000,
            drops: BTreeMap::from([("Delay".into(), 200)]),
            run_delay_ns: 7_000,
            credit_pool: Some(9),
            credits_issued: Some(4),
            ..Statistics::default()
        };
        let tier =
            TierStatistics::from_statistics("leaf", &[(before.clone(), now.clone()), (before.clone(), now.clone())]);
        assert_eq!((tier.received_per_s, tier.in_time_per_s, tier.rejected_per_s), (2_000.0, 1_000.0, 200.0));
        assert_eq!((tier.delay_us, tier.credits, tier.pool), (7.0, Some(8), Some(18)));
        let text = table(&[tier, TierStatistics::from_statistics("none", &[])]);
        assert!(text.contains("8 of 18") && text.contains("2000") && text.lines().count() == 3, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        // A restarted server counts from zero.
        assert_eq!(TierStatistics::from_statistics("leaf", &[(now, before)]).received_per_s, 0.0);
    }

    #[test]
    fn phases_are_rows() {
        let phase = Phase {
            ratio: 2.0,
            demand_per_s: 12_345.0,
            goodput_per_s: 6_100.0,
            p99_us: 9e3,
            lost: 0.5,
            late: 0.2,
            tiers: vec![],
        };
        let text = phases(&[phase]);
        assert!(
            text.contains("2x") && text.contains("12.3 k") && text.contains("50 %") && text.contains("late"),
            "{text}"
        );
    }
}
