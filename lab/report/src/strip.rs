//! A claim as a small drawing: a bar for the accepted range, a hollow diamond for the paper's
//! number, and dots with intervals for our values. Does not contain the verdict.

use leeward_outcome::results::Claim;
use leeward_outcome::verdicts::ClaimVerdicts;
use maud::{Markup, html};

const WIDTH: f64 = 210.0;
const HEIGHT: f64 = 30.0;
const MARGIN: f64 = 9.0;
/// Ratio of the largest to the smallest value above which the axis is logarithmic.
const LOG_RATIO: f64 = 30.0;

/// Mapping from values to pixels.
struct ValueAxis {
    low: f64,
    high: f64,
    log: bool,
}

impl ValueAxis {
    /// Spans the accepted range and its width on either side, if the range has two ends; otherwise,
    /// all numbers of the claim.
    ///
    /// Returns `None` if the claim has no finite number.
    fn new(claim: &ClaimVerdicts) -> Option<ValueAxis> {
        let numbers_of = |claim: &Claim| {
            let (low, high) = claim.interval.unzip();
            [claim.value, low, high]
        };
        if let (Some(min), Some(max), true) = (claim.bounds.min, claim.bounds.max, claim.claim().value.is_some()) {
            let margin = (max - min).max(f64::MIN_POSITIVE);
            return Some(ValueAxis { low: min - margin, high: max + margin, log: false });
        }
        let bounds = [claim.bounds.number, claim.bounds.min, claim.bounds.max];
        let numbers = bounds.into_iter().chain(numbers_of(&claim.published)).chain(numbers_of(&claim.extended));
        let numbers: Vec<f64> = numbers.flatten().filter(|number| number.is_finite()).collect();
        let (low, high) = (numbers.iter().copied().reduce(f64::min)?, numbers.iter().copied().reduce(f64::max)?);
        let log = low > 0.0 && high / low > LOG_RATIO;
        let margin = if high > low { 0.06 * (high - low) } else { high.abs().max(1.0) * 0.1 };
        let axis = if log {
            ValueAxis { low: low / 1.2, high: high * 1.2, log }
        } else {
            ValueAxis { low: low - margin, high: high + margin, log }
        };
        Some(axis)
    }

    /// Whether `value` lies beyond an end; it is then drawn at that end.
    fn is_outside(&self, value: f64) -> bool {
        value < self.low || value > self.high
    }

    fn pixel(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        MARGIN + share.clamp(0.0, 1.0) * (WIDTH - 2.0 * MARGIN)
    }
}

/// Draws the claim; empty for a claim without finite numbers.
pub(crate) fn strip(claim: &ClaimVerdicts) -> Markup {
    let Some(axis) = ValueAxis::new(claim) else { return html! {} };
    let from = claim.bounds.min.map_or(0.0, |min| axis.pixel(min));
    let to = claim.bounds.max.map_or(WIDTH, |max| axis.pixel(max));
    let same = claim.published == claim.extended;
    let (first, second) =
        if claim.ours { (&claim.extended, None) } else { (&claim.published, (!same).then_some(&claim.extended)) };
    let number = claim.bounds.number.map(|number| axis.pixel(number));
    html! {
        svg.strip viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) width=(WIDTH) height=(HEIGHT) role="img"
            aria-label=(format!("measured {}, accepted {}", first.measured, first.accepted)) {
            @if claim.bounds.min.is_some() || claim.bounds.max.is_some() {
                rect.accepted x=(px(from)) y="3" width=(px((to - from).max(1.0))) height="24" {}
            }
            line.axis x1="0" x2=(WIDTH) y1="15" y2="15" {}
            @if let Some(second) = second { (dot(second, &axis, 22.0, "beside")) }
            (dot(first, &axis, if second.is_some() { 9.0 } else { 15.0 }, "counted"))
            @if let Some(x) = number {
                path.stated-mark d="M0-5L5 0L0 5L-5 0z" transform=(format!("translate({x:.1} 15)")) { title { "the paper: " (claim.claim().paper) } }
            }
        }
    }
}

fn dot(claim: &Claim, axis: &ValueAxis, y: f64, class: &str) -> Markup {
    html! {
        @if let Some((low, high)) = claim.interval {
            line.whisker x1=(px(axis.pixel(low))) x2=(px(axis.pixel(high))) y1=(y) y2=(y) {}
        }
        @if let Some(value) = claim.value {
            @if axis.is_outside(value) {
                text.beyond x=(px(axis.pixel(value))) y=(y + 4.0) { (if value > axis.high { "»" } else { "«" }) title { (claim.measured) } }
            } @else { circle.(class) cx=(px(axis.pixel(value))) cy=(y) r="3.6" { title { (claim.measured) } } }
        }
    }
}

fn px(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_outcome::results::Verdict;
    use leeward_outcome::verdicts::Bounds;

    fn claim(value: Option<f64>, interval: Option<(f64, f64)>, bounds: Bounds) -> ClaimVerdicts {
        let one = Claim {
            id: "c".into(),
            text: "a claim".into(),
            paper: "2 x".into(),
            measured: "measured".into(),
            value,
            interval,
            accepted: "accepted".into(),
            verdict: Verdict::Reproduced,
            note: String::new(),
            settling: Vec::new(),
            late: Vec::new(),
        };
        ClaimVerdicts { ours: false, bounds, published: one.clone(), extended: one, turned_by: None }
    }

    #[test]
    fn a_strip_shows_the_papers_number_the_accepted_range_and_the_result() {
        let bounds = Bounds { number: Some(2.0), min: Some(1.5), max: Some(2.5) };
        let drawn = strip(&claim(Some(1.8), Some((1.7, 1.9)), bounds)).into_string();
        for part in ["accepted", "stated-mark", "whisker", "counted"] {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
        assert!(!drawn.contains("beside"), "both forms are the same: {drawn}");
    }

    #[test]
    fn strips_are_empty_without_values_and_omit_infinite_ones() {
        assert_eq!(strip(&claim(None, None, Bounds::default())).into_string(), "");
        let drawn =
            strip(&claim(Some(f64::INFINITY), None, Bounds { min: Some(3.0), ..Bounds::default() })).into_string();
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
    }

    #[test]
    fn axis_positions_are_in_order() {
        let bounds = Bounds { number: None, min: Some(0.1), max: None };
        let line = ValueAxis::new(&claim(Some(40.0), None, bounds)).unwrap();
        assert!(line.log && line.pixel(0.1) < line.pixel(5.0) && line.pixel(5.0) < line.pixel(40.0));
        let two_sided = Bounds { max: Some(0.5), ..bounds };
        let line = ValueAxis::new(&claim(Some(40.0), None, two_sided)).unwrap();
        assert!(line.is_outside(40.0) && !line.is_outside(0.5) && line.pixel(0.1) < line.pixel(0.5));
    }
}
