//! Line charts: the median over seeds as a line, minimum to maximum as a band.

use maud::{Markup, html};

use super::axis::{self, Frame, LETTER, px};
use super::legend::{self, EndLabel};
use super::marks::{Swatch, marker};
use super::scale::Scale;
use super::{Chart, Drawing, reference_lines, reference_names};
use crate::fields::QuantityFormat;
use crate::palette::SeriesStyle;
use crate::select::{Summary, number};

/// Points above which a curve counts as a time series, with few markers and one tooltip per column.
const SPARSE_MAX: usize = 48;
/// Tooltip columns of a time series.
const COLUMNS: usize = 150;
/// Markers per curve of a time series.
const DENSE_MARKERS: usize = 7;

/// A point of a curve, in the units of the axes.
#[derive(Clone, Copy, Debug)]
struct CurveSample {
    x: f64,
    y: Summary,
}

struct Curve {
    name: String,
    style: SeriesStyle,
    samples: Vec<CurveSample>,
}

/// Draws the chart's series as curves.
pub(super) fn draw(chart: &Chart) -> Option<Drawing> {
    let (curves, left_out) = curves(chart);
    let samples = || curves.iter().flat_map(|curve| &curve.samples);
    samples().next()?;
    let highest = samples().map(|sample| sample.y.max).fold(f64::MIN, f64::max);
    let slos = chart.slo_lines(highest);
    let demand = chart.references.demand.iter().map(|(x, y)| (x * chart.x_unit.factor, y * chart.y_unit.factor));
    let demand: Vec<(f64, f64)> = demand.collect();

    let mut frame = Frame::new(14.0, 48.0);
    let ys = samples().flat_map(|sample| [sample.y.min, sample.y.max]);
    let ys = ys.chain(slos.iter().map(|slo| slo.0)).chain(demand.iter().map(|step| step.1));
    let y = Scale::round(chart.y_spacing, ys, frame.bottom, frame.top);
    let labels = end_labels(&curves, &frame, &y);
    if let Some(longest) = labels.iter().map(|label| label.text.chars().count()).max() {
        frame.right -= longest as f64 * LETTER + 2.0;
    }
    let xs = samples().map(|sample| sample.x);
    let x = Scale::tight(chart.x_spacing, xs, frame.left, frame.right);

    let dense = curves.iter().any(|curve| curve.samples.len() > SPARSE_MAX);
    let svg = html! {
        (axis::vertical(&frame, &y, &chart.y_title()))
        (axis::horizontal(&frame, &x, &chart.x_title()))
        @if let Some(capacity_x) = capacity(chart, &x, frame.left) { (axis::vertical_reference(&frame, capacity_x, "capacity")) }
        @if !demand.is_empty() { path.demand d=(steps(&demand, &x, &y)) { title { "Demand" } } }
        @for curve in &curves { path.band.(curve.style.class()) d=(band(&curve.samples, &x, &y)) {} }
        (reference_lines(&frame, &y, &slos))
        @for (index, curve) in curves.iter().enumerate() {
            path.curve.(curve.style.class()).dense[dense] d=(path(&curve.samples, &x, &y)) {}
            @if dense { (few_markers(curve, index, curves.len(), &x, &y)) }
        }
        (reference_names(&frame, &y, &slos))
        @if dense { (columns(chart, &curves, &frame, &x)) }
        @else { @for curve in &curves { (markers(chart, curve, &x, &y)) } }
        @for label in &labels {
            text.direct.(label.style.class()) x=(px(frame.right + 9.0)) y=(px(label.y + 4.0)) { (label.text) }
        }
        @if !demand.is_empty() { (demand_name(&frame)) }
    };
    Some(Drawing { svg, swatch: Swatch::Line, omitted: left_out })
}

/// Groups the rows by series, and counts the rows that can't be drawn.
fn curves(chart: &Chart) -> (Vec<Curve>, usize) {
    let mut left_out = 0;
    let mut values: Vec<Vec<(f64, f64)>> = vec![Vec::new(); chart.selection.series.len()];
    for selected in &chart.selection.rows {
        let x = number(&selected.row, &chart.plot.x).filter(|x| chart.x_spacing.accepts(*x));
        let y = number(&selected.row, &chart.plot.y).filter(|y| chart.y_spacing.accepts(*y));
        match (x, y) {
            (Some(x), Some(y)) => values[selected.series].push((x * chart.x_unit.factor, y * chart.y_unit.factor)),
            _ => left_out += 1,
        }
    }
    let series = chart.selection.series.iter().zip(values);
    let curve = series.map(|(series, values)| Curve {
        name: series.name.clone(),
        style: series.style,
        samples: summarize(values),
    });
    (curve.collect(), left_out)
}

/// Summarizes `values` as one sample per distinct x, in order.
fn summarize(mut values: Vec<(f64, f64)>) -> Vec<CurveSample> {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let groups = values.chunk_by(|a, b| (a.0 - b.0).abs() <= 1e-9 * a.0.abs());
    let sample = |group: &[(f64, f64)]| {
        let y = Summary::from_values(group.iter().map(|value| value.1).collect())?;
        Some(CurveSample { x: group[0].0, y })
    };
    groups.filter_map(sample).collect()
}

fn capacity(chart: &Chart, x: &Scale, left: f64) -> Option<f64> {
    let value = chart.references.capacity? * chart.x_unit.factor;
    let capacity_px = x.pixel(value).filter(|_| x.contains(value))?;
    // Further left, the name would overlap the title of the vertical axis.
    (capacity_px > left + 40.0).then_some(capacity_px)
}

fn pixel_points<'a>(
    samples: impl Iterator<Item = (f64, f64)> + 'a,
    x: &'a Scale,
    y: &'a Scale,
) -> impl Iterator<Item = (f64, f64)> + 'a {
    samples.filter_map(|(at, value)| Some((x.pixel(at)?, y.pixel(value)?)))
}

fn joined(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut d = String::new();
    for (x, y) in points {
        d.push(if d.is_empty() { 'M' } else { 'L' });
        d.push_str(&format!("{x:.1} {y:.1}"));
    }
    d
}

/// Path of the medians. The line of a time series has gaps where values are missing.
fn path(samples: &[CurveSample], x: &Scale, y: &Scale) -> String {
    let mut steps: Vec<f64> = samples.windows(2).map(|pair| pair[1].x - pair[0].x).collect();
    steps.sort_by(f64::total_cmp);
    let gap = match steps.get(steps.len() / 2) {
        Some(step) if samples.len() > SPARSE_MAX => 2.5 * step,
        _ => f64::INFINITY,
    };
    let segments = samples.chunk_by(|before, after| after.x - before.x <= gap);
    let line = |segment: &[CurveSample]| {
        let d = joined(pixel_points(segment.iter().map(|sample| (sample.x, sample.y.median)), x, y));
        // A segment of its own: the round cap makes a single value visible as a dot.
        if segment.len() == 1 && !d.is_empty() { d + "h0" } else { d }
    };
    segments.map(line).collect()
}

fn band(samples: &[CurveSample], x: &Scale, y: &Scale) -> String {
    if samples.iter().all(|sample| sample.y.count < 2) {
        return String::new();
    }
    let above = samples.iter().map(|sample| (sample.x, sample.y.max));
    let below = samples.iter().rev().map(|sample| (sample.x, sample.y.min));
    joined(pixel_points(above.chain(below), x, y)) + "z"
}

fn steps(demand: &[(f64, f64)], x: &Scale, y: &Scale) -> String {
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for (index, (at, value)) in demand.iter().copied().enumerate() {
        let before = corners.last().copied();
        // Only corners and the last point; a flat segment needs no points within.
        if before.is_none_or(|(_, level)| level != value) || index + 1 == demand.len() {
            if let Some((_, level)) = before {
                corners.push((at, level));
            }
            corners.push((at, value));
        }
    }
    joined(pixel_points(corners.into_iter(), x, y))
}

fn demand_name(frame: &Frame) -> Markup {
    html! {
        path.demand d=(format!("M{} 10H{}", px(frame.right - 84.0), px(frame.right - 62.0))) {}
        text.reference-name.end x=(px(frame.right)) y="14" { "demand" }
    }
}

fn markers(chart: &Chart, curve: &Curve, x: &Scale, y: &Scale) -> Markup {
    html! {
        @for sample in &curve.samples {
            @if let (Some(at), Some(height)) = (x.pixel(sample.x), y.pixel(sample.y.median)) {
                g.hit {
                    title { (format!("{}\n{}\n{}", curve.name, x_label(chart, sample.x), y_label(chart, sample.y))) }
                    circle.target cx=(px(at)) cy=(px(height)) r="10" {}
                    (marker(curve.style, at, height))
                }
            }
        }
    }
}

fn x_label(chart: &Chart, x: f64) -> String {
    format!("{} {}", chart.x.name, chart.x.quantity.format(x / chart.x_unit.factor))
}

fn y_label(chart: &Chart, y: Summary) -> String {
    format!("{} {}", chart.y.name, y.scale_by(1.0 / chart.y_unit.factor).format(chart.y.quantity))
}

/// Draws a few markers per curve, staggered so that overlapping curves stay distinguishable.
fn few_markers(curve: &Curve, index: usize, curves: usize, x: &Scale, y: &Scale) -> Markup {
    let stride = (curve.samples.len() / DENSE_MARKERS).max(1);
    let first = stride * index / curves.max(1) + stride / 4;
    html! {
        @for sample in curve.samples.iter().skip(first).step_by(stride) {
            @if let (Some(at), Some(height)) = (x.pixel(sample.x), y.pixel(sample.y.median)) {
                (marker(curve.style, at, height))
            }
        }
    }
}

/// Draws invisible columns over a time series; the tooltip of each names all curves' values.
fn columns(chart: &Chart, curves: &[Curve], frame: &Frame, x: &Scale) -> Markup {
    let width = (frame.right - frame.left) / COLUMNS as f64;
    let mut lines: Vec<Vec<String>> = vec![Vec::new(); COLUMNS];
    for curve in curves {
        let mut last = usize::MAX;
        for sample in &curve.samples {
            let Some(at) = x.pixel(sample.x) else { continue };
            let column = (((at - frame.left) / width) as usize).min(COLUMNS - 1);
            if column == last {
                continue;
            }
            last = column;
            if lines[column].is_empty() {
                lines[column].push(x_label(chart, sample.x));
            }
            let value = chart.y.quantity.format(sample.y.median / chart.y_unit.factor);
            lines[column].push(format!("{}  {value}", curve.name));
        }
    }
    html! {
        @for (column, lines) in lines.iter().enumerate().filter(|(_, lines)| !lines.is_empty()) {
            rect.hit.column x=(px(frame.left + column as f64 * width)) y=(px(frame.top)) width=(px(width))
                height=(px(frame.bottom - frame.top)) { title { (lines.join("\n")) } }
        }
    }
}

/// Labels for the curves' right ends; none if they are too many, too long or too close.
fn end_labels(curves: &[Curve], frame: &Frame, y: &Scale) -> Vec<EndLabel> {
    let long = curves.iter().any(|curve| curve.name.chars().count() > 14);
    if long || !(2..=6).contains(&curves.len()) {
        return Vec::new();
    }
    let label = |curve: &Curve| {
        let label_y = y.pixel(curve.samples.last()?.y.median)?;
        Some(EndLabel { text: curve.name.clone(), style: curve.style, y: label_y })
    };
    legend::spread_labels(curves.iter().filter_map(label).collect(), frame.top, frame.bottom)
}
