//! The machine of real runs, and the accuracy of the simulator's predictions for it. Empty for
//! simulated results.

use leeward_outcome::results::{Machine, PointRow, Results};
use maud::{Markup, html};

use crate::fields::{grouped, number};
use crate::palette::Palette;

/// Largest relative error of a correct prediction.
const TOLERANCE: f64 = 0.1;
/// Share of the capacity below which goodput is negligible; relative errors of such goodput mean
/// nothing.
const NEGLIGIBLE: f64 = 0.02;

/// Draws the machine's measurements, taken before the runs.
pub(crate) fn machines(results: &Results) -> Markup {
    html! {
        @if !results.machines.is_empty() {
            section {
                h2 { "This machine" }
                p.explain {
                    "Measured just before the runs. Demands in multiples of the capacity, the objective and the predictions follow from "
                    "these measurements. Server and clients share the machine and communicate over loopback. If other load takes more "
                    "than a few per cent of a busy CPU's time, it affects the results as much as the controllers do."
                }
                div.scroll {
                    table.numbers {
                        thead {
                            tr {
                                th scope="col" { "Service" }
                                th scope="col" { "Clients" }
                                th scope="col" { "Server's cores" }
                                th scope="col" { "Capacity" small { "k/s" } }
                                th scope="col" { "Round trip" small { "µs" } }
                                th scope="col" { "Overhead" small { "µs per request" } }
                                th scope="col" { "Lost to other load" small { "% of a busy CPU" } }
                                th scope="col" { "Clients' CPU" }
                            }
                        }
                        tbody { @for machine in &results.machines { (row(machine)) } }
                    }
                }
            }
        }
    }
}

fn row(machine: &Machine) -> Markup {
    html! {
        tr {
            th scope="row" { (machine.service) }
            td { (grouped(f64::from(machine.clients), 0)) }
            td { (machine.cores) }
            td { (number(machine.capacity_rps / 1e3)) }
            td { (number(machine.rtt_us)) }
            td { (number(machine.cost_us)) }
            td { (number(machine.stalled * 100.0)) }
            td { @if machine.clients_apart { "their own" } @else { "shared with the server: the results are unreliable" } }
        }
    }
}

/// Draws predicted and measured goodput by variant and workload, as medians over seeds.
pub(crate) fn predictions(results: &Results, palette: &Palette) -> Markup {
    let compared = compare(&results.points);
    let errors = || compared.iter().filter(|comparison| !comparison.is_late).filter_map(|comparison| comparison.error);
    let close = errors().filter(|error| error.abs() <= TOLERANCE).count();
    html! {
        @if !compared.is_empty() {
            section {
                h2 { "How well the simulator predicted it" }
                p.explain {
                    "The same runs, simulated on a machine with the capacity, round trip and stalls that were measured. Within 10 % in "
                    strong { (close) " of " (errors().count()) }
                    " cases with a load that kept its schedule. If nearly no response is in time, a prediction of nearly none counts as right."
                }
                div.scroll {
                    table.numbers {
                        thead {
                            tr {
                                th scope="col" { "Variant" }
                                th scope="col" { "Service" }
                                th scope="col" { "Clients" }
                                th scope="col" { "Demand" small { "× capacity" } }
                                th scope="col" { "Goodput" small { "k/s" } }
                                th scope="col" { "Predicted" small { "k/s" } }
                                th scope="col" { "Error" small { "%" } }
                                th scope="col" { "Within 10 %" }
                            }
                        }
                        tbody {
                            @for (index, comparison) in compared.iter().enumerate() {
                                @let point = comparison.point;
                                @let starts = index > 0 && point.run.label != compared[index - 1].point.run.label;
                                tr.starts[starts] {
                                    th scope="row" { i.dot.(palette.style("label", &point.run.label, 0).class()) {} (point.run.label) }
                                    td { (point.workload.service) }
                                    td { (grouped(f64::from(point.workload.clients), 0)) }
                                    td { (number(point.workload.demand_ratio)) }
                                    td { (number(comparison.measured / 1e3)) }
                                    td { (number(comparison.predicted / 1e3)) }
                                    td { (comparison.error.map_or("–".into(), |error| format!("{:+.1}", error * 100.0))) }
                                    td { (comparison.verdict()) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A variant under one workload.
struct Comparison<'a> {
    point: &'a PointRow,
    measured: f64,
    predicted: f64,
    /// Error relative to the measured goodput; `None` if both are negligible.
    error: Option<f64>,
    /// Whether the load of a run was late, so that the run does not measure the server.
    is_late: bool,
}

impl Comparison<'_> {
    fn verdict(&self) -> &'static str {
        match self.error {
            _ if self.is_late => "the load was late",
            None => "negligible, as predicted",
            Some(error) if error.abs() <= TOLERANCE => "yes",
            Some(_) => "no",
        }
    }
}

fn compare(points: &[PointRow]) -> Vec<Comparison<'_>> {
    let mut groups: Vec<Vec<&PointRow>> = Vec::new();
    let same = |a: &PointRow, b: &PointRow| {
        let workload = |point: &PointRow| (point.workload.clients, point.workload.demand_rps.to_bits());
        a.run.label == b.run.label && a.workload.service == b.workload.service && workload(a) == workload(b)
    };
    for point in points.iter().filter(|point| point.predicted_goodput_rps.is_some()) {
        match groups.iter_mut().find(|group| same(group[0], point)) {
            Some(group) => group.push(point),
            None => groups.push(vec![point]),
        }
    }
    let each = groups.into_iter().map(|group| {
        let measured = median(group.iter().map(|point| point.goodput_rps).collect());
        let predicted = median(group.iter().filter_map(|point| point.predicted_goodput_rps).collect());
        let negligible = NEGLIGIBLE * group[0].capacity_rps;
        let error = (measured > negligible || predicted > negligible).then(|| predicted / measured.max(1.0) - 1.0);
        let is_late = group.iter().any(|point| point.late_us.is_some());
        Comparison { point: group[0], measured, predicted, error, is_late }
    });
    each.collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_outcome::results::RunKey;

    fn point(seed: u64, measured: f64, predicted: f64) -> PointRow {
        PointRow {
            run: RunKey::new("breakwater", "breakwater", seed),
            capacity_rps: 60e3,
            goodput_rps: measured,
            predicted_goodput_rps: Some(predicted),
            ..PointRow::default()
        }
    }

    #[test]
    fn a_late_load_is_no_comparison() {
        let late = PointRow { late_us: Some(900.0), ..point(1, 50e3, 54e3) };
        let compared = compare(std::slice::from_ref(&late));
        assert_eq!(compared[0].verdict(), "the load was late");
    }

    #[test]
    fn seeds_are_compared_by_their_medians() {
        let points = [point(1, 50e3, 54e3), point(2, 52e3, 54e3), point(3, 20e3, 55e3)];
        let compared = compare(&points);
        assert_eq!((compared.len(), compared[0].measured, compared[0].predicted), (1, 50e3, 54e3));
        assert_eq!(compared[0].verdict(), "yes");
    }

    #[test]
    fn negligible_goodput_is_no_prediction_error() {
        assert_eq!(compare(&[point(1, 0.0, 10.0)])[0].verdict(), "negligible, as predicted");
        assert_eq!(compare(&[point(1, 0.0, 40e3)])[0].verdict(), "no");
        assert!(compare(&[PointRow::default()]).is_empty());
    }
}
