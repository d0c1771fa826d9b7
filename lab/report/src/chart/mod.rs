//! Figures as SVG, drawn from a plot's description. Each kind of figure has its own file; shared
//! parts are here.

mod axis;
mod bars;
mod legend;
mod line;
mod marks;
mod overlay;
mod scale;
mod scatter;

pub(crate) use overlay::overlay;

use leeward_outcome::results::{Plot, Results};
use maud::{Markup, html};

use crate::fields::{self, Field, QuantityFormat, Unit};
use crate::palette::Palette;
use crate::select::{Selection, number};
use axis::{Frame, HEIGHT, WIDTH};
use marks::Swatch;
use scale::{Scale, Spacing};

/// A plot that is about to be drawn: its rows and the fields of its axes.
struct Chart<'a> {
    plot: &'a Plot,
    selection: Selection,
    x: Field,
    y: Field,
    x_unit: Unit,
    y_unit: Unit,
    x_spacing: Spacing,
    y_spacing: Spacing,
    references: References,
}

/// Reference values, in the units of the results.
#[derive(Default)]
struct References {
    /// Latency objectives, for figures of latency.
    slo_us: Vec<f64>,
    /// Capacity of the uncontrolled plant, for figures against demand.
    capacity: Option<f64>,
    /// Demand over time, for figures of throughput over time.
    demand: Vec<(f64, f64)>,
}

/// Drawing of a figure, and the number of omitted values.
struct Drawing {
    svg: Markup,
    swatch: Swatch,
    /// Values that can't be drawn: not finite, or not positive on a logarithmic axis.
    omitted: usize,
}

/// Draws a plot with its title, legend and notes; `None` if there is no value to draw.
pub(crate) fn figure(results: &Results, plot: &Plot, palette: &Palette) -> Option<Markup> {
    let chart = Chart::new(results, plot, palette);
    let drawing = match plot.kind.as_str() {
        "bars" => bars::draw(&chart),
        "scatter" => scatter::draw(&chart),
        _ => line::draw(&chart),
    }?;
    let summary = format!("{}: {} against {}", plot.title, chart.y.name, chart.x.name);
    Some(html! {
        figure {
            figcaption { h3 { (plot.title) } }
            (legend::list(&chart.selection.series, drawing.swatch))
            svg.chart viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(summary) { (drawing.svg) }
            @if drawing.omitted > 0 { p.figure-note { (chart.omission_note(drawing.omitted)) } }
        }
    })
}

impl<'a> Chart<'a> {
    fn new(results: &Results, plot: &'a Plot, palette: &Palette) -> Chart<'a> {
        let selection = Selection::new(results, plot, palette);
        let (x, y) = (Field::lookup(&plot.x), Field::lookup(&plot.y));
        let largest = |field: &str| {
            let values = selection.rows.iter().filter_map(|selected| number(&selected.row, field));
            values.map(f64::abs).fold(0.0, f64::max)
        };
        Chart {
            plot,
            x_unit: x.quantity.unit(largest(&plot.x)),
            y_unit: y.quantity.unit(largest(&plot.y)),
            x_spacing: Spacing::parse(&plot.x_scale),
            y_spacing: Spacing::parse(&plot.y_scale),
            references: References::new(results, plot, &selection),
            x,
            y,
            selection,
        }
    }

    fn omission_note(&self, count: usize) -> String {
        let values = if count == 1 { "value is" } else { "values are" };
        let reason = match (self.x_spacing, self.y_spacing) {
            (Spacing::Linear, Spacing::Linear) => "not finite",
            _ => "zero or not finite, which a logarithmic axis cannot show",
        };
        format!("{} {values} not shown: {reason}.", fields::grouped(count as f64, 0))
    }

    /// Title of the horizontal axis, with its unit.
    fn x_title(&self) -> String {
        title(&self.x, self.x_unit)
    }

    /// Title of the vertical axis, with its unit.
    fn y_title(&self) -> String {
        title(&self.y, self.y_unit)
    }

    /// Objectives in the unit of the vertical axis, with names. Objectives far above the data are
    /// left out, to keep it readable.
    fn slo_lines(&self, highest: f64) -> Vec<(f64, String)> {
        let lines = self.references.slo_us.iter().map(|slo| {
            let (value, name) = (slo * self.y_unit.factor, format!("SLO {}", self.y.quantity.format(*slo)));
            (value, name)
        });
        lines.filter(|(value, _)| *value <= 4.0 * highest).collect()
    }
}

/// Draws the reference lines, under the data.
fn reference_lines(frame: &Frame, y: &Scale, lines: &[(f64, String)]) -> Markup {
    html! { @for (value, _) in lines { @if let Some(line_y) = y.pixel(*value) { (axis::reference(frame, line_y)) } } }
}

/// Draws the names of the reference lines, above the data.
fn reference_names(frame: &Frame, y: &Scale, lines: &[(f64, String)]) -> Markup {
    html! {
        @for (value, name) in lines {
            @if let Some(line_y) = y.pixel(*value) { (axis::reference_name(frame, line_y, name)) }
        }
    }
}

fn title(field: &Field, unit: Unit) -> String {
    if unit.suffix.is_empty() { field.name.clone() } else { format!("{}, {}", field.name, unit.suffix) }
}

impl References {
    fn new(results: &Results, plot: &Plot, selection: &Selection) -> References {
        let mut references = References::default();
        if ["p50_us", "p99_us", "p999_us", "mean_us"].contains(&plot.y.as_str()) {
            let own = selection.rows.iter().filter_map(|selected| number(&selected.row, "slo_us"));
            // Windows don't carry the objective; the points of the same runs do.
            let all = results.points.iter().map(|point| point.slo_us);
            let slos = if plot.table == "windows" { distinct(all) } else { distinct(own) };
            references.slo_us = if slos.len() <= 3 { slos } else { Vec::new() };
        }
        references.capacity = match (plot.x.as_str(), plot.table.as_str()) {
            ("demand_ratio", "points") => Some(1.0),
            ("demand_rps", "points") => {
                let capacities = selection.rows.iter().filter_map(|selected| number(&selected.row, "capacity_rps"));
                let capacities = distinct(capacities);
                (capacities.len() == 1).then(|| capacities[0])
            }
            _ => None,
        };
        if plot.table == "windows"
            && plot.x == "start_s"
            && ["goodput_rps", "throughput_rps"].contains(&plot.y.as_str())
        {
            references.demand = demand(selection);
        }
        references
    }
}

/// Demand of the selection's first series; it is the same for all series.
fn demand(selection: &Selection) -> Vec<(f64, f64)> {
    let Some(first) = selection.rows.first() else { return Vec::new() };
    let same_run = |row: &crate::select::Row| row.get("seed") == first.row.get("seed");
    let rows = selection.rows.iter().filter(|selected| selected.series == first.series && same_run(&selected.row));
    let mut steps: Vec<(f64, f64)> = rows
        .filter_map(|selected| Some((number(&selected.row, "start_s")?, number(&selected.row, "demand_rps")?)))
        .collect();
    steps.sort_by(|a, b| a.0.total_cmp(&b.0));
    steps
}

/// Distinct positive values.
fn distinct(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut kept: Vec<f64> = Vec::new();
    for value in values.filter(|value| value.is_finite() && *value > 0.0) {
        if !kept.iter().any(|known| (known - value).abs() <= 1e-6 * value) {
            kept.push(value);
        }
    }
    kept
}
