//! Numbers from a paper's text, drawn over our curves. Hollow diamonds and lines are the paper's;
//! curves with bands are ours. Does not contain the paper's curves, which exist only as pictures.

use leeward_outcome::verdicts::{Curve, Panel, PaperValue};
use maud::{Markup, html};

use super::axis::{self, Frame, HEIGHT, WIDTH, px};
use super::marks::{Swatch, marker, swatch};
use super::scale::{Scale, Spacing};
use super::title;
use crate::claims::non_breaking;
use crate::fields::{Field, QuantityFormat, Unit};
use crate::palette::SeriesStyle;

/// Axes of a panel.
struct Axes {
    x: (Field, Unit, Scale),
    y: (Field, Unit, Scale),
    frame: Frame,
}

/// Draws a panel with its legend and the paper's statements.
pub(crate) fn overlay(panel: &Panel) -> Markup {
    let axes = Axes::new(panel);
    let summary = format!("{}: {}, ours and what the text says", panel.figure, panel.title);
    html! {
        figure {
            figcaption { h3 { (panel.title) } p.figure-note { (panel.figure) } }
            ul.legend {
                @for (index, curve) in panel.curves.iter().enumerate() {
                    li { (swatch(SeriesStyle::nth(index), if is_line(curve, panel) { Swatch::Line } else { Swatch::Marker })) span { (curve.label) } }
                }
                li { (diamond_swatch()) span { "the paper's text" } }
            }
            svg.chart viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(summary) { (draw(panel, &axes)) }
            ul.stated { @for stated in &panel.stated { li { strong { (stated.series) } ": " (non_breaking(&stated.says)) } } }
            p.figure-note { "Not drawn: " (panel.missing) "." }
        }
    }
}

/// Whether a curve's points are joined: only if the x field is an input, not a measurement.
fn is_line(curve: &Curve, panel: &Panel) -> bool {
    let measured = ["throughput_rps", "goodput_rps", "drop_rate", "p99_us"];
    curve.samples.len() > 1 && !measured.contains(&panel.x.as_str())
}

impl Axes {
    fn new(panel: &Panel) -> Axes {
        let samples = || panel.curves.iter().flat_map(|curve| &curve.samples);
        let stated = || panel.stated.iter();
        let (x_field, y_field) = (Field::lookup(&panel.x), Field::lookup(&panel.y));
        let xs = || samples().map(|sample| sample.x).chain(stated().filter_map(|stated| stated.x));
        let ys =
            || samples().flat_map(|sample| [sample.low, sample.high]).chain(stated().filter_map(|stated| stated.y));
        let x_unit = x_field.quantity.unit(xs().fold(0.0, f64::max));
        let y_unit = y_field.quantity.unit(ys().fold(0.0, f64::max));
        let frame = Frame::new(14.0, 48.0);
        let spacing = if panel.log_y { Spacing::Log } else { Spacing::Linear };
        let x = Scale::tight(Spacing::Linear, xs().map(|x| x * x_unit.factor), frame.left, frame.right);
        let y = Scale::round(spacing, ys().map(|y| y * y_unit.factor), frame.bottom, frame.top);
        Axes { x: (x_field, x_unit, x), y: (y_field, y_unit, y), frame }
    }

    fn x_px(&self, value: f64) -> Option<f64> {
        self.x.2.pixel(value * self.x.1.factor)
    }

    fn y_px(&self, value: f64) -> Option<f64> {
        self.y.2.pixel(value * self.y.1.factor)
    }
}

fn draw(panel: &Panel, axes: &Axes) -> Markup {
    html! {
        (axis::vertical(&axes.frame, &axes.y.2, &title(&axes.y.0, axes.y.1)))
        (axis::horizontal(&axes.frame, &axes.x.2, &title(&axes.x.0, axes.x.1)))
        @for (index, curve) in panel.curves.iter().enumerate() {
            @if is_line(curve, panel) {
                path.band.(SeriesStyle::nth(index).class()) d=(band(curve, axes)) {}
                path.curve.(SeriesStyle::nth(index).class()) d=(line(curve, axes)) {}
            }
            (marks(curve, SeriesStyle::nth(index), axes))
        }
        @for stated in &panel.stated { (paper_mark(stated, axes)) }
    }
}

fn joined(points: impl Iterator<Item = (Option<f64>, Option<f64>)>) -> String {
    let mut d = String::new();
    for (x, y) in points {
        if let (Some(x), Some(y)) = (x, y) {
            d.push(if d.is_empty() { 'M' } else { 'L' });
            d.push_str(&format!("{x:.1} {y:.1}"));
        }
    }
    d
}

fn line(curve: &Curve, axes: &Axes) -> String {
    joined(curve.samples.iter().map(|sample| (axes.x_px(sample.x), axes.y_px(sample.median))))
}

fn band(curve: &Curve, axes: &Axes) -> String {
    let above = curve.samples.iter().map(|sample| (axes.x_px(sample.x), axes.y_px(sample.high)));
    let below = curve.samples.iter().rev().map(|sample| (axes.x_px(sample.x), axes.y_px(sample.low)));
    joined(above.chain(below)) + "z"
}

fn marks(curve: &Curve, style: SeriesStyle, axes: &Axes) -> Markup {
    html! {
        @for sample in &curve.samples {
            @if let (Some(x), Some(y)) = (axes.x_px(sample.x), axes.y_px(sample.median)) {
                @let tooltip = format!("{}\n{} {}\n{} {} ({} to {})", curve.label, axes.x.0.name, axes.x.0.quantity.format(sample.x),
                    axes.y.0.name, axes.y.0.quantity.format(sample.median), axes.y.0.quantity.format(sample.low), axes.y.0.quantity.format(sample.high));
                g.hit {
                    title { (tooltip) }
                    @if let (Some(low), Some(high)) = (axes.y_px(sample.low), axes.y_px(sample.high)) {
                        line.whisker x1=(px(x)) x2=(px(x)) y1=(px(low)) y2=(px(high)) {}
                    }
                    circle.target cx=(px(x)) cy=(px(y)) r="10" {}
                    (marker(style, x, y))
                }
            }
        }
    }
}

/// Outline of the paper's points.
const DIAMOND: &str = "M0-6.4L6.4 0L0 6.4L-6.4 0z";

/// Draws a paper's value as a point, or as a line if one coordinate is absent.
fn paper_mark(stated: &PaperValue, axes: &Axes) -> Markup {
    let (x, y) = (stated.x.and_then(|x| axes.x_px(x)), stated.y.and_then(|y| axes.y_px(y)));
    html! {
        @match (x, y) {
            (Some(x), Some(y)) => {
                g.hit {
                    title { (format!("the paper, {}: {}", stated.series, stated.says)) }
                    circle.target cx=(px(x)) cy=(px(y)) r="10" {}
                    path.stated-mark d=(DIAMOND) transform=(format!("translate({x:.1} {y:.1})")) {}
                }
            }
            (Some(x), None) => (axis::vertical_reference(&axes.frame, x, &stated.series)),
            (None, Some(y)) => { (axis::reference(&axes.frame, y)) (axis::reference_name(&axes.frame, y, &stated.series)) }
            (None, None) => {}
        }
    }
}

fn diamond_swatch() -> Markup {
    html! {
        svg.swatch viewBox="0 0 26 14" width="26" height="14" aria-hidden="true" {
            path.stated-mark d=(DIAMOND) transform="translate(13 7)" {}
        }
    }
}
