//! Frame of a figure: gridlines, ticks, axis titles and reference lines.

use maud::{Markup, html};

use super::scale::{Scale, Tick};

/// Size of every figure, in its own pixels; the page scales it.
pub(super) const WIDTH: f64 = 560.0;
pub(super) const HEIGHT: f64 = 330.0;
/// Mean width of a tick label's letter, to compute which labels fit.
pub(super) const LETTER: f64 = 6.8;

/// Rectangle of a figure that holds the data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// Leaves `right` pixels for labels beside the lines and `below` pixels for labels under the
    /// axis.
    pub(super) fn new(right: f64, below: f64) -> Frame {
        Frame { left: 58.0, right: WIDTH - right, top: 34.0, bottom: HEIGHT - below }
    }
}

/// Draws the vertical axis: gridlines, their values and a title above.
pub(super) fn vertical(frame: &Frame, scale: &Scale, title: &str) -> Markup {
    html! {
        text.axis-title x="0" y="14" { (title) }
        @for tick in scale.ticks() {
            @if let Some(y) = scale.pixel(tick.value) {
                line.grid x1=(px(frame.left)) x2=(px(frame.right)) y1=(px(y)) y2=(px(y)) {}
                text.tick.end x=(px(frame.left - 8.0)) y=(px(y + 4.0)) { (tick.label) }
            }
        }
    }
}

/// Draws the horizontal axis with numbers.
pub(super) fn horizontal(frame: &Frame, scale: &Scale, title: &str) -> Markup {
    html! {
        (baseline(frame))
        @for (tick, x) in visible_ticks(scale) {
            line.axis x1=(px(x)) x2=(px(x)) y1=(px(frame.bottom)) y2=(px(frame.bottom + 5.0)) {}
            text.tick.middle x=(px(x)) y=(px(frame.bottom + 20.0)) { (tick.label) }
        }
        (x_axis_title(frame, title))
    }
}

/// Leaves out ticks whose labels would touch the previous label.
fn visible_ticks(scale: &Scale) -> Vec<(Tick, f64)> {
    let mut label_end = f64::NEG_INFINITY;
    let mut kept = Vec::new();
    for tick in scale.ticks() {
        let Some(x) = scale.pixel(tick.value) else { continue };
        let half = tick.label.chars().count() as f64 * LETTER / 2.0;
        if x - half >= label_end {
            label_end = x + half + 14.0;
            kept.push((tick, x));
        }
    }
    kept
}

/// Draws the horizontal axis with names, each at its position and `width` pixels wide.
pub(super) fn categories(frame: &Frame, names: &[(String, f64)], width: f64, title: &str) -> Markup {
    let slanted = slants(names.iter().map(|(name, _)| name.as_str()), width);
    // With more than about forty names, only some are readable.
    let stride = (13.0 / width).ceil().max(1.0) as usize;
    html! {
        (baseline(frame))
        @for (name, x) in names.iter().step_by(stride) {
            @if slanted {
                @let (x, y) = (px(x + 4.0), px(frame.bottom + 14.0));
                text.tick.end x=(x) y=(y) transform=(format!("rotate({} {x} {y})", slope(width))) {
                    (shortened(name, NAME_LETTERS)) title { (name) }
                }
            } @else {
                text.tick.middle x=(px(*x)) y=(px(frame.bottom + 20.0)) { (name) }
            }
        }
        @if !slanted && !title.is_empty() { (x_axis_title(frame, title)) }
    }
}

/// Letters of the longest slanted name.
const NAME_LETTERS: usize = 16;

/// Angle of slanted names that are `distance` pixels apart: closer names are steeper, so that they
/// don't touch.
fn slope(distance: f64) -> i32 {
    if distance >= 28.0 { -32 } else { -60 }
}

/// Height that slanted names need below the axis.
pub(super) fn slanted_height(distance: f64) -> f64 {
    18.0 + NAME_LETTERS as f64 * LETTER * f64::from(slope(distance)).to_radians().sin().abs()
}

/// Whether the names are too long to fit side by side.
pub(super) fn slants<'a>(names: impl Iterator<Item = &'a str>, width: f64) -> bool {
    names.map(|name| name.chars().count() as f64 * LETTER).fold(0.0, f64::max) > width - 6.0
}

fn baseline(frame: &Frame) -> Markup {
    html! { line.axis x1=(px(frame.left)) x2=(px(frame.right)) y1=(px(frame.bottom)) y2=(px(frame.bottom)) {} }
}

fn x_axis_title(frame: &Frame, title: &str) -> Markup {
    html! { text.axis-title.middle x=(px((frame.left + frame.right) / 2.0)) y=(px(frame.bottom + 42.0)) { (title) } }
}

/// Draws a dashed line across the figure, such as the objective.
pub(super) fn reference(frame: &Frame, y: f64) -> Markup {
    html! { line.reference x1=(px(frame.left)) x2=(px(frame.right)) y1=(px(y)) y2=(px(y)) {} }
}

/// Draws the name of a reference line at its left end, after the data, so that it stays readable.
pub(super) fn reference_name(frame: &Frame, y: f64, name: &str) -> Markup {
    // The name is above its line unless it would leave the figure.
    let text_y = if y - 16.0 < frame.top { y + 15.0 } else { y - 6.0 };
    html! {
        text.reference-name x=(px(frame.left + 6.0)) y=(px(text_y)) { (name) }
    }
}

/// Draws a vertical dotted line with its name on top, such as the capacity.
///
/// The name stays above the figure, because the axis has numbers beside it.
pub(super) fn vertical_reference(frame: &Frame, x: f64, name: &str) -> Markup {
    let half = name.chars().count() as f64 * LETTER / 2.0;
    let middle = x.min(frame.right - half).max(frame.left + half);
    html! {
        line.upright x1=(px(x)) x2=(px(x)) y1=(px(frame.top)) y2=(px(frame.bottom)) {}
        text.upright-name.middle x=(px(middle)) y=(px(frame.top - 6.0)) { (name) }
    }
}

/// Cuts `name` to at most `letters` letters.
pub(super) fn shortened(name: &str, letters: usize) -> String {
    if name.chars().count() <= letters {
        return name.into();
    }
    name.chars().take(letters - 1).chain(['…']).collect()
}

/// Formats a coordinate briefly.
pub(super) fn px(value: f64) -> String {
    format!("{value:.1}")
}
