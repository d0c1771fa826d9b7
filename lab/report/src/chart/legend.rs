//! Names of the series: a list above the figure, and labels beside the lines' ends if they fit.

use maud::{Markup, html};

use super::marks::{Swatch, swatch};
use crate::palette::SeriesStyle;
use crate::select::Series;

/// Distance of neighbouring end labels, in pixels.
const LINE_HEIGHT: f64 = 15.0;
/// Largest distance of a label from its line's end; beyond it, the label would mislead.
const SHIFT_MAX: f64 = 24.0;

/// Draws the list above a figure; empty for a single series, which the title names.
pub(super) fn list(series: &[Series], kind: Swatch) -> Markup {
    html! {
        @if series.len() > 1 {
            ul.legend {
                @for item in series { li { (swatch(item.style, kind)) span { (item.name) } } }
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

/// Spreads labels that would overlap; returns none if some would end far from their lines.
pub(super) fn spread_labels(labels: Vec<EndLabel>, top: f64, bottom: f64) -> Vec<EndLabel> {
    let targets: Vec<f64> = labels.iter().map(|label| label.y).collect();
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by(|a, b| targets[*a].total_cmp(&targets[*b]));
    let mut positions = targets.clone();
    // Each round moves close neighbours apart by half of the missing distance.
    for _ in 0..40 {
        for pair in order.windows(2) {
            let lack = LINE_HEIGHT - (positions[pair[1]] - positions[pair[0]]);
            if lack > 0.0 {
                positions[pair[0]] -= lack / 2.0;
                positions[pair[1]] += lack / 2.0;
            }
        }
        positions.iter_mut().for_each(|y| *y = y.clamp(top, bottom));
    }
    let crowded = order.windows(2).any(|pair| positions[pair[1]] - positions[pair[0]] < LINE_HEIGHT - 2.5);
    if crowded || positions.iter().zip(&targets).any(|(y, target)| (y - target).abs() > SHIFT_MAX) {
        return Vec::new();
    }
    labels.into_iter().zip(positions).map(|(label, y)| EndLabel { y, ..label }).collect()
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
