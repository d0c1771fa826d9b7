//! Scatter plots: one dot per variant and workload, at its median over seeds, with whiskers from
//! minimum to maximum on both axes.

use maud::{Markup, html};

use super::axis::{self, Frame, px};
use super::marks::{Swatch, marker};
use super::scale::Scale;
use super::{Chart, Drawing, reference_lines, reference_names};
use crate::select::{Row, Summary, number, text};

/// Fields that identify a dot; rows that agree in them differ by their seed.
const IDENTITY: [&str; 6] = ["controller", "label", "service", "clients", "demand_rps", "start_s"];

struct Dot {
    series: usize,
    identity: Vec<Option<String>>,
    /// Name in the tooltip.
    name: String,
    xs: Vec<f64>,
    ys: Vec<f64>,
}

/// Draws the chart's rows as dots.
pub(super) fn draw(chart: &Chart) -> Option<Drawing> {
    let (dots, left_out) = dots(chart);
    let dots: Vec<(usize, String, Summary, Summary)> = dots
        .into_iter()
        .filter_map(|dot| Some((dot.series, dot.name, Summary::from_values(dot.xs)?, Summary::from_values(dot.ys)?)))
        .collect();
    if dots.is_empty() {
        return None;
    }
    let highest = dots.iter().map(|(_, _, _, y)| y.max).fold(f64::MIN, f64::max);
    let slos = chart.slo_lines(highest);
    let frame = Frame::new(14.0, 48.0);
    let xs = dots.iter().flat_map(|(_, _, x, _)| [x.min, x.max]);
    let x = Scale::tight(chart.x_spacing, xs, frame.left + 8.0, frame.right - 8.0);
    let ys = dots.iter().flat_map(|(_, _, _, y)| [y.min, y.max]).chain(slos.iter().map(|slo| slo.0));
    let y = Scale::round(chart.y_spacing, ys, frame.bottom, frame.top);
    let svg = html! {
        (axis::vertical(&frame, &y, &chart.y_title()))
        (axis::horizontal(&frame, &x, &chart.x_title()))
        (reference_lines(&frame, &y, &slos))
        @for (series, name, across, up) in &dots { (dot(chart, *series, name, (across, &x), (up, &y))) }
        (reference_names(&frame, &y, &slos))
    };
    Some(Drawing { svg, swatch: Swatch::Marker, omitted: left_out })
}

fn dots(chart: &Chart) -> (Vec<Dot>, usize) {
    let mut dots: Vec<Dot> = Vec::new();
    let mut left_out = 0;
    for selected in &chart.selection.rows {
        let row = &selected.row;
        let x = number(row, &chart.plot.x).filter(|x| chart.x_spacing.accepts(*x));
        let y = number(row, &chart.plot.y).filter(|y| chart.y_spacing.accepts(*y));
        let (Some(x), Some(y)) = (x, y) else {
            left_out += 1;
            continue;
        };
        let identity: Vec<Option<String>> =
            IDENTITY.iter().map(|field| row.get(*field).map(|value| value.to_string())).collect();
        let (x, y) = (x * chart.x_unit.factor, y * chart.y_unit.factor);
        match dots.iter_mut().find(|dot| dot.series == selected.series && dot.identity == identity) {
            Some(dot) => {
                dot.xs.push(x);
                dot.ys.push(y);
            }
            None => dots.push(Dot { series: selected.series, identity, name: name(row), xs: vec![x], ys: vec![y] }),
        }
    }
    (dots, left_out)
}

fn name(row: &Row) -> String {
    let parts = ["label", "service", "demand_rps"].into_iter().filter_map(|field| text(row, field));
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

fn dot(chart: &Chart, series: usize, name: &str, across: (&Summary, &Scale), up: (&Summary, &Scale)) -> Markup {
    let ((x, x_scale), (y, y_scale)) = (across, up);
    let (Some(at), Some(height)) = (x_scale.pixel(x.median), y_scale.pixel(y.median)) else { return html! {} };
    let style = chart.selection.series[series].style;
    let shown_x = x.scale_by(1.0 / chart.x_unit.factor).format(chart.x.quantity);
    let shown_y = y.scale_by(1.0 / chart.y_unit.factor).format(chart.y.quantity);
    html! {
        g.hit {
            title { (format!("{name}\n{} {shown_x}\n{} {shown_y}", chart.x.name, chart.y.name)) }
            @if x.count > 1 {
                @if let (Some(left), Some(right)) = (x_scale.pixel(x.min), x_scale.pixel(x.max)) {
                    path.spread.(style.class()) d=(format!("M{} {}H{}", px(left), px(height), px(right))) {}
                }
                @if let (Some(low), Some(high)) = (y_scale.pixel(y.min), y_scale.pixel(y.max)) {
                    path.spread.(style.class()) d=(format!("M{} {}V{}", px(at), px(low), px(high))) {}
                }
            }
            circle.target cx=(px(at)) cy=(px(height)) r="9" {}
            (marker(style, at, height))
        }
    }
}
