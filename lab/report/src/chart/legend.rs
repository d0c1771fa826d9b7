//! The names of the series: as a list above the figure, and beside the lines' ends where there is room.

use maud::{Markup, html};

use super::marks::{Swatch, swatch};
use crate::palette::SeriesStyle;
use crate::select::Series;

/// Lines of direct labels are this far apart.
const LINE_HEIGHT: f64 = 15.0;
/// A label further than this from its line's end would mislead.
const SHIFT_MAX: f64 = 24.0;

/// The list above a figure; nothing for a single series, which the title names.
pub(super) fn list(series: &[Series], kind: Swatch) -> Markup {
    html! {
        @if series.len() > 1 {
            ul.legend {
                @for one in series { li { (swatch(one.style, kind)) span { (one.name) } } }
            }
        }
    }
}

/// A label beside the end of a line.
#[derive(Clone, Debug)]
pub(super) struct EndLabel {
    pub(super) text: String,
    pub(super) style: SeriesStyle,
    /// Height of the line's end.
    pub(super) y: f64,
}

/// Spreads labels that would overlap; gives up (no labels) where they would end far from their lines.
pub(super) fn spread_labels(labels: Vec<EndLabel>, top: f64, bottom: f64) -> Vec<EndLabel> {
    let wanted: Vec<f64> = labels.iter().map(|label| label.y).collect();
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut places = wanted.clone();
    // Each round moves close neighbours apart by half of what they lack.
    for _ in 0..40 {
        for pair in order.windows(2) {
            let lack = LINE_HEIGHT - (places[pair[1]] - places[pair[0]]);
            if lack > 0.0 {
                places[pair[0]] -= lack / 2.0;
                places[pair[1]] += lack / 2.0;
            }
        }
        places.iter_mut().for_each(|place| *place = place.clamp(top, bottom));
    }
    let crowded = order.windows(2).any(|pair| places[pair[1]] - places[pair[0]] < LINE_HEIGHT - 2.5);
    if crowded || places.iter().zip(&wanted).any(|(place, wanted)| (place - wanted).abs() > SHIFT_MAX) {
        return Vec::new();
    }
    labels.into_iter().zip(places).map(|(label, y)| EndLabel { y, ..label }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(heights: &[f64], expected: &[f64]) {
        let label = |y: &f64| EndLabel { text: String::new(), style: SeriesStyle::nth(0), y: *y };
        let placed = spread_labels(heights.iter().map(label).collect(), 0.0, 200.0);
        let placed: Vec<f64> = placed.iter().map(|label| label.y.round()).collect();
        assert_eq!(placed, expected);
    }

    #[test]
    fn labels_spread_but_stay_near_their_lines() {
        check(&[100.0, 50.0], &[100.0, 50.0]);
        check(&[100.0, 100.0], &[93.0, 108.0]);
        check(&[50.0; 8], &[]);
    }
}
