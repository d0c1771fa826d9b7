//! Panels of the papers' figures for whose curves the texts give numbers, with our curves.
//!
//! The papers' curves themselves are pictures: parts without numbers in the text are named in
//! [`Panel::missing`] and not drawn. Does not contain drawing.

use crate::claims::{bootstrap, median_with_infinities};
use crate::numbers::round;
use leeward_outcome::results::{PointRow, Results, WorkloadKey};
use leeward_outcome::table::{Cell, Row};
use leeward_outcome::verdicts::{Curve, Panel, PaperValue, Sample};

/// A panel of a paper's figure.
struct PanelSpec {
    scenario: &'static str,
    figure: &'static str,
    title: &'static str,
    x: &'static str,
    y: &'static str,
    log_y: bool,
    /// Text fields with their required values.
    filters: &'static [(&'static str, &'static str)],
    /// Labels of our drawn curves; empty: all.
    labels: &'static [&'static str],
    paper_values: &'static [PaperValueSpec],
    missing: &'static str,
}

/// A number in the paper's text on a curve: a point, or a line across the figure.
struct PaperValueSpec {
    series: &'static str,
    x: Option<f64>,
    y: Option<f64>,
    summary: &'static str,
}

const fn point(series: &'static str, x: f64, y: f64, statement: &'static str) -> PaperValueSpec {
    PaperValueSpec { series, x: Some(x), y: Some(y), summary: statement }
}

const fn vertical_line(series: &'static str, x: f64, statement: &'static str) -> PaperValueSpec {
    PaperValueSpec { series, x: Some(x), y: None, summary: statement }
}

const fn horizontal_line(series: &'static str, y: f64, statement: &'static str) -> PaperValueSpec {
    PaperValueSpec { series, x: None, y: Some(y), summary: statement }
}

const CURVES_NOTE: &str = "the curves are pictures, and the text gives no other coordinate of theirs";

/// Defaults of a panel: all of our curves, linear, without the paper's curves.
const DEFAULT_PANEL: PanelSpec = PanelSpec {
    scenario: "",
    figure: "",
    title: "",
    x: "",
    y: "",
    log_y: false,
    filters: &[],
    labels: &[],
    paper_values: &[],
    missing: CURVES_NOTE,
};

/// Variants of lk-two-mutex that the thesis has.
const TWO_MUTEX: &[&str] = &["delay", "seda", "seda tuned", "efficiency", "asked once 134us"];

const PANELS: &[PanelSpec] = &[
    PanelSpec {
        scenario: "bw-overall",
        figure: "Breakwater, Fig. 3 (thesis, Fig. 2.7)",
        title: "Goodput against demand",
        x: "demand_rps",
        y: "goodput_rps",
        paper_values: &[point(
            "Breakwater",
            850e3,
            801e3,
            "801k requests/s of goodput around the capacity of 850k (§5.2)",
        )],
        ..DEFAULT_PANEL
    },
    PanelSpec {
        scenario: "bw-overall",
        figure: "Breakwater, Fig. 3 (thesis, Fig. 2.7)",
        title: "Throughput against demand",
        x: "demand_rps",
        y: "throughput_rps",
        paper_values: &[point(
            "Breakwater",
            850e3,
            808e3,
            "808k requests/s of throughput around the capacity of 850k (§5.2)",
        )],
        ..DEFAULT_PANEL
    },
    PanelSpec {
        scenario: "bw-sensitivity",
        figure: "Breakwater, Fig. 11 (thesis, Fig. 2.15)",
        title: "99th percentile against throughput, 27 misconfigurations each",
        x: "throughput_rps",
        y: "p99_us",
        log_y: true,
        paper_values: &[horizontal_line(
            "DAGOR",
            800.0,
            "DAGOR's worst is as high as four times the objective of 200 us (§5.2)",
        )],
        ..DEFAULT_PANEL
    },
    PanelSpec {
        scenario: "bw-memcached-usr",
        figure: "Breakwater, Fig. 12 (thesis, Fig. 2.16)",
        title: "99th percentile against demand",
        x: "demand_ratio",
        y: "p99_us",
        log_y: true,
        paper_values: &[point(
            "Breakwater",
            2.0,
            75.0,
            "around 25 us above its objective of 50 us; the text speaks of twice the capacity (§5.3)",
        )],
        ..DEFAULT_PANEL
    },
    PanelSpec {
        scenario: "lk-one-mutex",
        figure: "Hoover, Fig. 2",
        title: "Throughput against the share of the slow path",
        x: "p",
        y: "throughput_rps",
        paper_values: &[
            point("Breakwater", 0.0, 1e6, "1M requests/s without the mutex (§2.1)"),
            point("Breakwater", 1.0, 100e3, "100k requests/s of the slow path alone (§2.1)"),
            point(
                "Breakwater",
                0.2,
                500e3,
                "by the text's formula: (1 - p)/p times the slow path's 100k on the fast path (§2.1)",
            ),
            point(
                "Breakwater",
                0.5,
                200e3,
                "by the text's formula: (1 - p)/p times the slow path's 100k on the fast path (§2.1)",
            ),
            vertical_line(
                "mutex congested before the CPU",
                0.1,
                "above 10 % the mutex is congested before the CPU (§2.1)",
            ),
        ],
        missing: "CPU usage, 99th percentile and drop rate are in words only",
        ..DEFAULT_PANEL
    },
    PanelSpec {
        scenario: "lk-hoover-te",
        figure: "Hoover, Fig. 10",
        title: "Goodput against drop rate, by the efficiency threshold",
        x: "drop_rate",
        y: "goodput_rps",
        paper_values: &[
            point("e_t 1 %", 0.155, 895e3, "895k requests/s with a drop rate of 15.5 % (§5.6)"),
            point("e_t 50 %", 0.097, 810e3, "810k requests/s with a drop rate of 9.7 % (§5.6)"),
            vertical_line("e_t 25 %", 0.13, "a drop rate of 13 % at the default of 25 % (§5.6)"),
        ],
        missing: "the points at other thresholds",
        ..DEFAULT_PANEL
    },
    PanelSpec {
        scenario: "lk-var",
        figure: "Thesis, Fig. 2.18 (Hoover, Fig. 7)",
        title: "Goodput against demand",
        x: "demand_rps",
        y: "goodput_rps",
        paper_values: &[
            vertical_line(
                "lock contended (thesis)",
                550e3,
                "goodput of the delay signal and of SEDA drops from 550k requests/s on (§2.5.3)",
            ),
            vertical_line(
                "collapse (Hoover)",
                500e3,
                "Breakwater's goodput collapses when demand exceeds 500k requests/s (§5.4)",
            ),
        ],
        ..DEFAULT_PANEL
    },
    PanelSpec {
        scenario: "lk-two-mutex",
        figure: "Thesis, Fig. 2.20",
        title: "Goodput against demand",
        x: "demand_rps",
        y: "goodput_rps",
        labels: TWO_MUTEX,
        paper_values: &[horizontal_line(
            "SEDA at most",
            168e3,
            "SEDA's goodput is limited to 168k requests/s (§2.5.3)",
        )],
        ..DEFAULT_PANEL
    },
    PanelSpec {
        scenario: "lk-two-mutex",
        figure: "Thesis, Fig. 2.20",
        title: "99th percentile against demand",
        x: "demand_rps",
        y: "p99_us",
        log_y: true,
        labels: TWO_MUTEX,
        paper_values: &[horizontal_line("SEDA at most", 600.0, "up to three times the target of 200 us (§2.5.3)")],
        ..DEFAULT_PANEL
    },
    PanelSpec {
        scenario: "lk-replicas",
        figure: "Thesis, Fig. 2.19",
        title: "99th percentile against demand",
        x: "demand_rps",
        y: "p99_us",
        log_y: true,
        paper_values: &[vertical_line(
            "server 1 drops",
            400e3,
            "server 1 begins to drop when demand exceeds 400k requests/s (§2.5.3)",
        )],
        ..DEFAULT_PANEL
    },
    PanelSpec {
        scenario: "ca-collapse",
        figure: "Poster, Fig. 2",
        title: "Throughput against the round trip",
        x: "rtt_us",
        y: "throughput_rps",
        paper_values: &[vertical_line("collapse", 25.0, "a round trip of 25 us is enough for the collapse (§2)")],
        missing: "the figure is a time series at one round trip; the text gives the round trip from which on it is so",
        ..DEFAULT_PANEL
    },
    PanelSpec {
        scenario: "mt-sync",
        figure: "µTune, Fig. 8",
        title: "99th percentile against load",
        x: "demand_rps",
        y: "p99_us",
        log_y: true,
        filters: &[("arrivals", "constant")],
        labels: &["SIP1", "SIB1", "SDP1-50", "SDB1-50"],
        paper_values: &[
            vertical_line("SIP needs more threads", 512.0, "one in-line thread suffices below 512 requests/s (§7)"),
            vertical_line("SDB alone", 10_000.0, "only SDB sustains 10,000 requests/s and more (§7)"),
        ],
        ..DEFAULT_PANEL
    },
    PanelSpec {
        scenario: "mt-async",
        figure: "µTune, Fig. 11",
        title: "Throughput against load",
        x: "demand_rps",
        y: "throughput_rps",
        filters: &[("arrivals", "constant")],
        labels: &["AIP1-0-1", "ADB1-4-4", "SIP1"],
        paper_values: &[point(
            "AIP1-0-1",
            4_096.0,
            4_096.0,
            "one in-line and one response thread tolerate up to 4,096 requests/s (§7)",
        )],
        missing: "Set Algebra's curves are pictures; ours are HDSearch's",
        ..DEFAULT_PANEL
    },
];

/// Panels of a scenario, with our curves from `results`.
pub(super) fn panels(scenario: &str, results: &Results) -> Vec<Panel> {
    PANELS.iter().filter(|panel| panel.scenario == scenario).map(|panel| panel.panel(results)).collect()
}

/// Scenarios with panels, each with the panel's figure.
pub(super) fn panel_figures() -> impl Iterator<Item = (&'static str, &'static str)> {
    PANELS.iter().map(|panel| (panel.scenario, panel.figure))
}

/// Whether a panel of the scenario draws the run of which the columns `setup` are known.
pub(super) fn is_drawn(scenario: &str, setup: &PointRow) -> bool {
    let label = setup.run.label.as_str();
    let draws = |panel: &PanelSpec| {
        (panel.labels.is_empty() || panel.labels.contains(&label)) && panel.matches(Row::PointRow(setup))
    };
    PANELS.iter().filter(|panel| panel.scenario == scenario).any(draws)
}

impl PanelSpec {
    fn panel(&self, results: &Results) -> Panel {
        let stated = |value: &PaperValueSpec| PaperValue {
            series: value.series.into(),
            x: value.x,
            y: value.y,
            says: value.summary.into(),
        };
        Panel {
            figure: self.figure.into(),
            title: self.title.into(),
            x: self.x.into(),
            y: self.y.into(),
            log_y: self.log_y,
            curves: self.curves(results),
            stated: self.paper_values.iter().map(stated).collect(),
            missing: self.missing.into(),
        }
    }

    fn curves(&self, results: &Results) -> Vec<Curve> {
        let mut labels: Vec<&str> = Vec::new();
        for point in &results.points {
            let label = point.run.label.as_str();
            if (self.labels.is_empty() || self.labels.contains(&label)) && !labels.contains(&label) {
                labels.push(label);
            }
        }
        let curve = |label: &str| Curve { label: label.into(), samples: self.samples(results, label) };
        labels.into_iter().map(curve).filter(|curve| !curve.samples.is_empty()).collect()
    }

    /// Medians over the seeds, one point per workload, in the order of the horizontal axis.
    fn samples(&self, results: &Results, label: &str) -> Vec<Sample> {
        let mut groups: Vec<(SeedlessKey<'_>, Vec<(f64, f64)>)> = Vec::new();
        for point in results.points.iter().filter(|point| point.run.label == label) {
            let row = Row::PointRow(point);
            if !self.matches(row) {
                continue;
            }
            let (Some(x), Some(y)) = (row.cell(self.x).number(), row.cell(self.y).number()) else { continue };
            let key = seedless_key(point);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, values)) => values.push((x, y)),
                None => groups.push((key, vec![(x, y)])),
            }
        }
        let sample = |(_, values): (SeedlessKey<'_>, Vec<(f64, f64)>)| {
            let (mut xs, mut ys): (Vec<f64>, Vec<f64>) = values.into_iter().unzip();
            let (low, high) = bootstrap(&ys);
            let rounded = |value: f64| round(value, 4);
            let (x, median) = (median_with_infinities(&mut xs), median_with_infinities(&mut ys));
            Sample { x: rounded(x), median: rounded(median), low: rounded(low), high: rounded(high) }
        };
        let mut samples: Vec<Sample> = groups.into_iter().map(sample).collect();
        samples
            .retain(|sample| [sample.x, sample.median, sample.low, sample.high].iter().all(|value| value.is_finite()));
        samples.sort_by(|a, b| a.x.total_cmp(&b.x));
        samples
    }

    fn matches(&self, row: Row<'_>) -> bool {
        self.filters.iter().all(|(field, expected)| matches!(row.cell(field), Cell::Text(found) if found == *expected))
    }
}

/// Part of a point that is the same for all seeds.
type SeedlessKey<'a> = (&'a WorkloadKey, u64, Option<&'a str>);

fn seedless_key(point: &PointRow) -> SeedlessKey<'_> {
    (&point.workload, point.rtt_us.to_bits(), point.arrivals.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use leeward_outcome::table::{Table, ValueType};

    #[test]
    fn every_panel_names_existing_fields_and_labels() {
        for panel in PANELS {
            for field in [panel.x, panel.y] {
                assert_eq!(Table::Points.value_type(field), Some(ValueType::Number), "{}: {field}", panel.scenario);
            }
            let scenario = Scenario::builtin(panel.scenario, &[], true).unwrap_or_else(|error| panic!("{error}"));
            let known: Vec<&str> = scenario.controllers.iter().map(|variant| variant.label.as_str()).collect();
            for label in panel.labels {
                assert!(known.contains(label), "{}: {label} of {known:?}", panel.scenario);
            }
            assert!(!panel.paper_values.is_empty() && !panel.missing.is_empty(), "{}", panel.figure);
            assert!(panel.paper_values.iter().all(|value| value.x.is_some() || value.y.is_some()), "{}", panel.figure);
        }
    }
}
