//! Results of the demo of `leeward proxy`: a line per run, the table, JSON. Does not contain runs.

use leeward_core::units::{Nanos, Rate};
use leeward_load::LoadReport;
use leeward_workload::Segment;
use serde_json::{Value, json};

use crate::demo::format::{format_us, multiple, percent};
use crate::table::{Align, Table, WIDTH, wrap};

/// Responses per second, relative to the capacity, above which the capacity was measured too low.
const CAPACITY_EXCEEDED: f64 = 1.2;
/// Peak of the spike, relative to the capacity.
const SPIKE_PEAK: f64 = 2.0;
/// Demand before and after the spike.
const SPIKE_BASE: f64 = 0.5;

/// Demand of a run, relative to the capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Demand {
    Steady(f64),
    /// Twice the capacity for a third of the time, half of it before and after.
    Spike,
}

impl Demand {
    /// Demands of the demo, in this order.
    pub(crate) const ALL: [Demand; 4] = [Demand::Steady(0.5), Demand::Steady(1.0), Demand::Steady(2.0), Demand::Spike];

    /// Length of a run, given that of a steady one.
    pub(crate) fn duration(self, steady: Nanos) -> Nanos {
        match self {
            Demand::Steady(_) => steady,
            Demand::Spike => steady.scale(1.5),
        }
    }

    /// Rates over the time of a run.
    pub(crate) fn segments(self, capacity: Rate, steady: Nanos) -> Vec<Segment> {
        let at = |share: f64, ratio: f64| Segment { from: steady.scale(share), rate: Rate(ratio * capacity.0) };
        match self {
            Demand::Steady(ratio) => vec![at(0.0, ratio)],
            Demand::Spike => vec![at(0.0, SPIKE_BASE), at(0.5, SPIKE_PEAK), at(1.0, SPIKE_BASE)],
        }
    }

    fn describe(self) -> String {
        match self {
            Demand::Steady(ratio) => multiple(ratio),
            Demand::Spike => format!("{}, spike to {}", multiple(SPIKE_BASE), multiple(SPIKE_PEAK)),
        }
    }
}

/// Facts about the service that were measured before the runs.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) service: &'static str,
    /// Median latency of one request at a time.
    pub(crate) median: Nanos,
    pub(crate) capacity: Rate,
    pub(crate) slo: Nanos,
    /// Whether service and load have a CPU each.
    pub(crate) is_apart: bool,
    /// Whether one request at a time took very different times: other programs use the CPU.
    pub(crate) is_disturbed: bool,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunRow {
    pub(crate) demand: Demand,
    pub(crate) has_proxy: bool,
    pub(crate) report: LoadReport,
}

impl RunRow {
    /// Share of the requests with this count, in the measured part.
    fn share(&self, count: u64) -> f64 {
        (count as f64 / self.report.measured.offered.max(1) as f64).min(1.0)
    }

    fn in_time(&self) -> String {
        percent(self.share(self.report.measured.good))
    }

    fn refused(&self) -> String {
        percent(self.share(self.report.measured.dropped))
    }

    fn p99(&self) -> String {
        let latency = &self.report.latency;
        if latency.count == 0 { "–".into() } else { format_us(latency.p99.as_micros_f64()) }
    }

    /// The result in a line.
    pub(crate) fn line(&self) -> String {
        let refused = if self.has_proxy { format!(", {} refused", self.refused()) } else { String::new() };
        let head = if self.has_proxy { "   with the proxy" } else { "without the proxy" };
        format!(
            "{head}, demand {} the capacity: {} in time{refused}, p99 of the answers {}",
            self.demand.describe(),
            self.in_time(),
            self.p99()
        )
    }

    fn json(&self) -> Value {
        json!({
            "demand": self.demand.describe(),
            "proxy": self.has_proxy,
            "in_time_share": self.share(self.report.measured.good),
            "refused_share": self.share(self.report.measured.dropped),
            "p99_ns": self.report.latency.p99.0,
            "report": self.report,
        })
    }
}

/// Sentences about the service and the objective.
pub(crate) fn introduction(measured: &Measured) -> String {
    format!(
        "The service is {}: {} a request when it is alone, {:.0} requests/s at most. The objective is {}: ten times \
         the former, and 20 ms at least.",
        measured.service,
        format_us(measured.median.as_micros_f64()),
        measured.capacity.0,
        format_us(measured.slo.as_micros_f64()),
    )
}

/// The final text.
pub(crate) fn text(measured: &Measured, rows: &[RunRow]) -> String {
    let names = ["demand", "without: in time", "p99", "with: in time", "refused", "p99"];
    let mut table = Table::new(&names.map(|name| (name, if name == "demand" { Align::Left } else { Align::Right })));
    for demand in Demand::ALL {
        let of = |has_proxy| rows.iter().find(|row| row.demand == demand && row.has_proxy == has_proxy);
        if let (Some(without), Some(with)) = (of(false), of(true)) {
            let cells = [without.in_time(), without.p99(), with.in_time(), with.refused(), with.p99()];
            table.row([demand.describe()].into_iter().chain(cells).collect());
        }
    }
    let legend = "In time: answered within the objective from the time at which the request was due, of all requests; at \
                  2x at most 50 % can be. Refused: 503 with `leeward-reason`. p99: of the answers, from the due time.";
    let mut warnings = String::new();
    if !measured.is_apart {
        warnings += &wrap("Service, proxy and load share one CPU: the numbers mean little.", 0, WIDTH);
    }
    if measured.is_disturbed {
        let words = "Other programs keep this machine busy: the objective and the numbers mean little.";
        warnings += &wrap(words, 0, WIDTH);
    }
    let late = rows.iter().filter(|row| !row.report.adherence.kept).count();
    if late > 0 {
        let words = format!(
            "The load was late in {late} of {} runs: other programs keep this machine busy, and the latencies of these \
             runs are partly its own.",
            rows.len()
        );
        warnings += &wrap(&words, 0, WIDTH);
    }
    let most = rows.iter().map(|row| row.report.throughput_per_s).fold(0.0, f64::max);
    if most > CAPACITY_EXCEEDED * measured.capacity.0 {
        let words = format!(
            "The service answered up to {most:.0} requests/s, more than the {:.0} that were measured before: other programs \
             kept this machine busy then. So the demands were lower than the table says, and its lines do not compare. Run \
             the demo again when the machine is quiet.",
            measured.capacity.0
        );
        warnings += &wrap(&words, 0, WIDTH);
    }
    let introduction = wrap(&introduction(measured), 0, WIDTH);
    format!("{warnings}{introduction}\n{table}\n{}", wrap(legend, 0, WIDTH))
}

/// The results as JSON.
pub(crate) fn to_json(measured: &Measured, rows: &[RunRow]) -> Value {
    json!({
        "service": measured.service,
        "unloaded_p50_ns": measured.median.0,
        "capacity_per_s": measured.capacity.0,
        "slo_ns": measured.slo.0,
        "cpus_apart": measured.is_apart,
        "disturbed": measured.is_disturbed,
        "runs": rows.iter().map(RunRow::json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spike_is_twice_the_capacity_for_a_third_of_the_time() {
        let steady = Nanos::from_secs(4);
        assert_eq!(Demand::Spike.duration(steady), Nanos::from_secs(6));
        let segments = Demand::Spike.segments(Rate(100.0), steady);
        let expected = [(0, 50.0), (2, 200.0), (4, 50.0)];
        for (segment, (from, rate)) in segments.iter().zip(expected) {
            assert_eq!((segment.from, segment.rate), (Nanos::from_secs(from), Rate(rate)));
        }
        assert_eq!(Demand::ALL.map(Demand::describe), ["0.5x", "1x", "2x", "0.5x, spike to 2x"]);
    }
}
