//! The page of predictions, `docs/results/twin.md`: the simulator's predictions of real runs, per
//! demand, clients, service and controller.
//!
//! Does not contain the runs or predictions (`real`).

use crate::numbers::median;
use crate::scenario::machine::MAX_STALLED;
use leeward_outcome::results::{PointRow, Results};
use std::fmt::Write;

/// Share of the capacity below which goodput is negligible and a relative error meaningless.
const NEGLIGIBLE: f64 = 0.02;
/// Variant without control, which has another tolerance.
const UNCONTROLLED: &str = "none";

/// Accepted relative error of predicted goodput.
const fn goodput_tolerance(is_controlled: bool) -> f64 {
    if is_controlled { 0.05 } else { 0.15 }
}

/// Accepted relative error of a predicted 99th percentile.
const P99_TOLERANCE: f64 = 0.2;

/// A controller under one workload: medians over the seeds, measured and predicted.
struct PredictionCell<'a> {
    point: &'a PointRow,
    goodput: (f64, f64),
    p99: (f64, f64),
}

impl PredictionCell<'_> {
    fn is_controlled(&self) -> bool {
        self.point.run.label != UNCONTROLLED
    }

    /// Relative error of the goodput; `None` if goodput and prediction are negligible.
    fn goodput_error(&self) -> Option<f64> {
        let (measured, predicted) = self.goodput;
        let little = NEGLIGIBLE * self.point.capacity_rps;
        (measured > little || predicted > little).then(|| predicted / measured.max(1.0) - 1.0)
    }

    fn p99_error(&self) -> f64 {
        self.p99.1 / self.p99.0.max(1e-3) - 1.0
    }

    fn is_goodput_accurate(&self) -> bool {
        self.goodput_error().is_none_or(|error| error.abs() <= goodput_tolerance(self.is_controlled()))
    }

    fn is_p99_accurate(&self) -> bool {
        self.p99_error().abs() <= P99_TOLERANCE
    }
}

fn cells(points: &[PointRow]) -> Vec<PredictionCell<'_>> {
    let mut groups: Vec<Vec<&PointRow>> = Vec::new();
    let same = |a: &PointRow, b: &PointRow| {
        let of = |point: &PointRow| (point.workload.clients, point.workload.demand_rps.to_bits());
        a.run.label == b.run.label && a.workload.service == b.workload.service && of(a) == of(b)
    };
    for point in points.iter().filter(|point| point.predicted_goodput_rps.is_some() && point.late_us.is_none()) {
        match groups.iter_mut().find(|group| same(group[0], point)) {
            Some(group) => group.push(point),
            None => groups.push(vec![point]),
        }
    }
    let middle = |group: &[&PointRow], field: fn(&PointRow) -> Option<f64>| {
        median(&mut group.iter().filter_map(|point| field(point)).collect::<Vec<_>>())
    };
    let each = groups.into_iter().map(|group| PredictionCell {
        point: group[0],
        goodput: (middle(&group, |point| Some(point.goodput_rps)), middle(&group, |point| point.predicted_goodput_rps)),
        p99: (middle(&group, |point| Some(point.p99_us)), middle(&group, |point| point.predicted_p99_us)),
    });
    each.collect()
}

/// Returns the page for the results of a real run; `None` without predictions.
pub fn markdown(results: &Results, command: &str) -> Option<String> {
    let cells = cells(&results.points);
    if cells.is_empty() {
        return None;
    }
    let mut text = format!(
        "# The simulator against this machine\n\nMade by `{command}`: do not edit. [real.md](../real.md) says how the machine is measured, and \
         [simulator.md](../simulator.md#deep-sockets) what a deep socket saves.\nEach cell is the median of its seeds. If nearly no response is in time, a \
         prediction of nearly none counts as right.\n\n"
    );
    let stalled = results.machines.iter().map(|machine| machine.stalled).fold(0.0, f64::max);
    let doubt = if stalled > MAX_STALLED { ": more than the 3 % for which the limits are meant" } else { "" };
    let _ = writeln!(text, "Something else took up to {:.1} % of a busy CPU{doubt}.\n", stalled * 100.0);
    let predicted = || results.points.iter().filter(|point| point.predicted_goodput_rps.is_some());
    let late = predicted().filter(|point| point.late_us.is_some()).count();
    if late > 0 {
        let all = predicted().count();
        let _ = writeln!(text, "Left out: {late} of {all} runs, because their load was late.\n");
    }
    text += "| criterion | cells | met | share |\n|---|---|---|---|\n";
    let controlled: Vec<&PredictionCell<'_>> = cells.iter().filter(|cell| cell.is_controlled()).collect();
    let without: Vec<&PredictionCell<'_>> = cells.iter().filter(|cell| !cell.is_controlled()).collect();
    let mut bar = |label: &str, of: &[&PredictionCell<'_>], is_right: fn(&PredictionCell<'_>) -> bool| {
        let right = of.iter().filter(|cell| is_right(cell)).count();
        let share = 100.0 * right as f64 / of.len().max(1) as f64;
        let _ = writeln!(text, "| {label} | {} | {right} | {share:.0} % |", of.len());
    };
    bar("goodput under a controller within 5 %", &controlled, |cell| cell.is_goodput_accurate());
    bar("its 99th percentile within 20 %", &controlled, |cell| cell.is_p99_accurate());
    bar("goodput without control within 15 %", &without, |cell| cell.is_goodput_accurate());
    text += "\n| controller | service | clients | demand | goodput, k/s | predicted | error | p99, µs | predicted | error |\n\
             |---|---|---|---|---|---|---|---|---|---|\n";
    cells.iter().for_each(|cell| text += &row(cell));
    Some(text)
}

fn row(cell: &PredictionCell<'_>) -> String {
    let workload = &cell.point.workload;
    let flag = |is_right: bool, error: String| if is_right { error } else { format!("**{error}**") };
    let percent = |error: f64| format!("{:+.1} %", error * 100.0);
    let goodput = cell.goodput_error().map_or_else(|| "nothing, as predicted".into(), percent);
    format!(
        "| {} | {} | {} | {:.2} x | {:.2} | {:.2} | {} | {:.0} | {:.0} | {} |\n",
        cell.point.run.label,
        workload.service,
        workload.clients,
        workload.demand_ratio,
        cell.goodput.0 / 1e3,
        cell.goodput.1 / 1e3,
        flag(cell.is_goodput_accurate(), goodput),
        cell.p99.0,
        cell.p99.1,
        flag(!cell.is_controlled() || cell.is_p99_accurate(), percent(cell.p99_error())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_outcome::results::{Machine, RunKey};

    fn point(label: &str, seed: u64, goodput: (f64, f64), p99: (f64, f64)) -> PointRow {
        PointRow {
            run: RunKey::new(label, label, seed),
            capacity_rps: 60e3,
            goodput_rps: goodput.0,
            predicted_goodput_rps: Some(goodput.1),
            p99_us: p99.0,
            predicted_p99_us: Some(p99.1),
            ..PointRow::default()
        }
    }

    fn page(points: Vec<PointRow>) -> String {
        let machines = vec![Machine { stalled: 0.04, ..Machine::default() }];
        markdown(&Results { points, machines, ..Results::default() }, "leeward twin results").unwrap()
    }

    #[test]
    fn a_prediction_is_right_within_the_tolerance_of_its_controller() {
        let right = page(vec![point("breakwater", 1, (50e3, 52e3), (200.0, 230.0))]);
        assert!(right.contains("| goodput under a controller within 5 % | 1 | 1 | 100 % |"), "{right}");
        assert!(right.contains("| its 99th percentile within 20 % | 1 | 1 | 100 % |"), "{right}");
        assert!(right.contains("up to 4.0 % of a busy CPU: more than the 3 %"), "{right}");
        let wrong = page(vec![point("breakwater", 1, (50e3, 53e3), (200.0, 250.0))]);
        assert!(wrong.contains("within 5 % | 1 | 0 | 0 %") && wrong.contains("within 20 % | 1 | 0 | 0 %"), "{wrong}");
        assert!(wrong.contains("**+6.0 %**") && wrong.contains("**+25.0 %**"), "{wrong}");
        let none = page(vec![point("none", 1, (50e3, 56e3), (9e6, 1e6)), point("none", 2, (0.0, 100.0), (1.0, 1.0))]);
        assert!(none.contains("without control within 15 % | 1 |"), "one cell of two seeds: {none}");
    }

    #[test]
    fn runs_with_late_load_are_left_out_and_counted() {
        let right = point("breakwater", 1, (50e3, 52e3), (200.0, 230.0));
        let late = PointRow { late_us: Some(300.0), ..point("breakwater", 2, (10e3, 52e3), (900.0, 230.0)) };
        let text = page(vec![right.clone(), late]);
        assert!(text.contains("Left out: 1 of 2 runs"), "{text}");
        assert!(text.contains("within 5 % | 1 | 1 | 100 %"), "{text}");
        assert!(!page(vec![right]).contains("Left out"), "nothing is left out here");
    }

    #[test]
    fn negligible_goodput_is_right_if_predicted() {
        let text = page(vec![point("none", 1, (0.0, 500.0), (9e6, 1e6))]);
        assert!(text.contains("| goodput without control within 15 % | 1 | 1 | 100 % |"), "{text}");
        let text = page(vec![point("none", 1, (0.0, 30e3), (9e6, 1e6))]);
        assert!(text.contains("| goodput without control within 15 % | 1 | 0 | 0 % |"), "{text}");
        assert!(markdown(&Results { points: vec![PointRow::default()], ..Results::default() }, "x").is_none());
    }
}
