//! The frame of a figure: gridlines, ticks, titles of the axes, and lines of reference.

use maud::{Markup, html};

use super::scale::{Scale, Tick};

/// Size of every figure, in its own pixels; the page scales it.
pub(super) const WIDTH: f64 = 560.0;
pub(super) const HEIGHT: f64 = 330.0;
/// Width of a letter of the ticks, on average, for finding out what fits.
pub(super) const LETTER: f64 = 6.8;

/// The part of a figure that holds the data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// Leaves `right` pixels for labels beside the lines and `below` for those under the axis.
    pub(super) fn new(right: f64, below: f64) -> Frame {
        Frame { left: 58.0, right: WIDTH - right, top: 34.0, bottom: HEIGHT - below }
    }
}

/// The vertical axis: gridlines, their values and a title above.
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

/// The horizontal axis with numbers on it.
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

/// Leaves out ticks whose labels would touch the one before.
fn visible_ticks(scale: &Scale) -> Vec<(Tick, f64)> {
    let mut taken = f64::NEG_INFINITY;
    let mut kept = Vec::new();
    for tick in scale.ticks() {
        let Some(x) = scale.pixel(tick.value) else { continue };
        let half = tick.label.chars().count() as f64 * LETTER / 2.0;
        if x - half >= taken {
            taken = x + half + 14.0;
            kept.push((tick, x));
        }
    }
    kept
}

/// The horizontal axis with names on it, each at the given place and `room` wide.
pub(super) fn categories(frame: &Frame, names: &[(String, f64)], room: f64, title: &str) -> Markup {
    let slanted = slants(names.iter().map(|(name, _)| name.as_str()), room);
    // Beyond about forty names only some can be read.
    let stride = (13.0 / room).ceil().max(1.0) as usize;
    html! {
        (baseline(frame))
        @for (name, x) in names.iter().step_by(stride) {
            @if slanted {
                @let (x, y) = (px(x + 4.0), px(frame.bottom + 14.0));
                text.tick.end x=(x) y=(y) transform=(format!("rotate({} {x} {y})", slope(room))) {
                    (shortened(name, NAME_LETTERS)) title { (name) }
                }
            } @else {
                text.tick.middle x=(px(*x)) y=(px(frame.bottom + 20.0)) { (name) }
            }
        }
        @if !slanted && !title.is_empty() { (x_axis_title(frame, title)) }
    }
}

/// Longest slanted name.
const NAME_LETTERS: usize = 16;

/// Slanted names `room` apart must not touch: the closer they are, the steeper they stand.
fn slope(room: f64) -> i32 {
    if room >= 28.0 { -32 } else { -60 }
}

/// Height that slanted names need below the axis.
pub(super) fn slanted_height(room: f64) -> f64 {
    18.0 + NAME_LETTERS as f64 * LETTER * f64::from(slope(room)).to_radians().sin().abs()
}

/// Whether names are too long to stand side by side.
pub(super) fn slants<'a>(names: impl Iterator<Item = &'a str>, room: f64) -> bool {
    names.map(|name| name.chars().count() as f64 * LETTER).fold(0.0, f64::max) > room - 6.0
}

fn baseline(frame: &Frame) -> Markup {
    html! { line.axis x1=(px(frame.left)) x2=(px(frame.right)) y1=(px(frame.bottom)) y2=(px(frame.bottom)) {} }
}

fn x_axis_title(frame: &Frame, title: &str) -> Markup {
    html! { text.axis-title.middle x=(px((frame.left + frame.right) / 2.0)) y=(px(frame.bottom + 42.0)) { (title) } }
}

/// A dashed line across the figure, such as the objective.
pub(super) fn reference(frame: &Frame, y: f64) -> Markup {
    html! { line.reference x1=(px(frame.left)) x2=(px(frame.right)) y1=(px(y)) y2=(px(y)) {} }
}

/// The name of such a line at its left end; drawn after the data, to stay readable.
pub(super) fn reference_name(frame: &Frame, y: f64, name: &str) -> Markup {
    // The name stands above its line unless that would leave the figure.
    let text_y = if y - 16.0 < frame.top { y + 15.0 } else { y - 6.0 };
    html! {
        text.reference-name x=(px(frame.left + 6.0)) y=(px(text_y)) { (name) }
    }
}

/// A dotted line up the figure with its name on top, such as the capacity. The name stays over the figure, beside which the axis has numbers.
pub(super) fn vertical_reference(frame: &Frame, x: f64, name: &str) -> Markup {
    let half = name.chars().count() as f64 * LETTER / 2.0;
    let middle = x.min(frame.right - half).max(frame.left + half);
    html! {
        line.upright x1=(px(x)) x2=(px(x)) y1=(px(frame.top)) y2=(px(frame.bottom)) {}
        text.upright-name.middle x=(px(middle)) y=(px(frame.top - 6.0)) { (name) }
    }
}

/// At most `letters` of `name`.
pub(super) fn shortened(name: &str, letters: usize) -> String {
    if name.chars().count() <= letters {
        return name.into();
    }
    name.chars().take(letters - 1).chain(['…']).collect()
}

/// A coordinate, as short as it may be.
pub(super) fn px(value: f64) -> String {
    format!("{value:.1}")
}
