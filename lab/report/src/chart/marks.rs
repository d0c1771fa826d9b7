//! Marker shapes, one per style, so that no series is distinguished by colour alone.

use maud::{Markup, html};

use crate::palette::{MARKERS, SeriesStyle};

/// Outlines around the origin, about 8 px across and of similar weight.
const SHAPES: [&str; MARKERS] = [
    "M-3.4-3.4L3.4 3.4M-3.4 3.4L3.4-3.4",               // cross
    "M-3.7 0a3.7 3.7 0 1 0 7.4 0a3.7 3.7 0 1 0-7.4 0z", // circle
    "M-3.3-3.3h6.6v6.6h-6.6z",                          // square
    "M0-4.4L4.2 3.1H-4.2z",                             // triangle
    "M0-4.8L4.1 0L0 4.8L-4.1 0z",                       // diamond
    "M0 4.4L4.2-3.1H-4.2z",                             // triangle, point down
    "M-4.2 0H4.2M0-4.2V4.2",                            // plus
    "M-2.1-3.9h4.2L4.3 0L2.1 3.9h-4.2L-4.3 0z",         // hexagon
];

/// Draws a marker at `(x, y)`.
pub(super) fn marker(style: SeriesStyle, x: f64, y: f64) -> Markup {
    html! {
        path.mark.(style.class()) d=(SHAPES[style.marker % MARKERS]) transform=(format!("translate({x:.1} {y:.1})")) {}
    }
}

/// Draws a series' sample for the legend: its line and marker, or a block for bars.
pub(super) fn swatch(style: SeriesStyle, kind: Swatch) -> Markup {
    html! {
        svg.swatch viewBox="0 0 26 12" width="26" height="12" aria-hidden="true" {
            @match kind {
                Swatch::Line => { path.curve.(style.class()) d="M0 6H26" {} (marker(style, 13.0, 6.0)) }
                Swatch::Marker => (marker(style, 13.0, 6.0)),
                Swatch::Block => rect.bar.(style.class()) x="6" y="1" width="14" height="10" rx="1.5" {},
            }
        }
    }
}

/// Kind of sample in a legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swatch {
    Line,
    Marker,
    Block,
}
