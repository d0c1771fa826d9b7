//! Mapping from values to pixels, and the tick values of an axis.

use crate::fields::{grouped, number};

/// Spacing of values along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// Equal steps.
    Linear,
    /// Equal ratios; only positive values can be drawn.
    Log,
}

impl Spacing {
    /// Reads a plot's `x_scale` or `y_scale`; any value except `log` is linear.
    pub(crate) fn parse(name: &str) -> Spacing {
        if name == "log" { Spacing::Log } else { Spacing::Linear }
    }

    /// Whether `value` can be drawn on such an axis.
    pub(crate) fn accepts(self, value: f64) -> bool {
        value.is_finite() && (self == Spacing::Linear || value > 0.0)
    }
}

/// A labelled value of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

/// An axis: a domain of values and a range of pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    spacing: Spacing,
    low: f64,
    high: f64,
    px_start: f64,
    px_end: f64,
}

impl Scale {
    /// Spans exactly the values, for the horizontal axis; zero is included if it is near.
    pub(crate) fn tight(spacing: Spacing, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
        let (mut low, mut high) = extent(spacing, values);
        if spacing == Spacing::Linear && low > 0.0 && low < 0.35 * high {
            low = 0.0;
        }
        if spacing == Spacing::Linear && low < high {
            // A series of windows ends just before the last tick.
            let step = linear_step(high - low);
            let tick = (high / step).ceil() * step;
            high = if tick - high < 0.03 * (high - low) { tick } else { high };
        }
        if low == high {
            (low, high) = if spacing == Spacing::Log { (low / 2.0, high * 2.0) } else { (low - 1.0, high + 1.0) };
        }
        Scale { spacing, low, high, px_start: from, px_end: to }
    }

    /// Spans the values, rounded out to ticks, for the vertical axis; a linear axis includes zero.
    pub(crate) fn round(spacing: Spacing, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Scale {
        let (mut low, mut high) = extent(spacing, values);
        match spacing {
            Spacing::Log => {
                low = step_down(low);
                high = step_up(high.max(low * 1.01));
            }
            Spacing::Linear => {
                low = low.min(0.0);
                high = high.max(0.0);
                if low == high {
                    high = 1.0;
                }
                let step = linear_step(high - low);
                low = (low / step).floor() * step;
                high = ((high / step - 1e-6).ceil() * step).max(low + step);
            }
        }
        Scale { spacing, low, high, px_start: from, px_end: to }
    }

    /// Pixel of `value`; `None` if it can't be drawn. Values outside the domain get its nearer end.
    pub(crate) fn pixel(&self, value: f64) -> Option<f64> {
        if !self.spacing.accepts(value) {
            return None;
        }
        let share = match self.spacing {
            Spacing::Linear => (value - self.low) / (self.high - self.low),
            Spacing::Log => (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln()),
        };
        let pixel = self.px_start + share.clamp(0.0, 1.0) * (self.px_end - self.px_start);
        pixel.is_finite().then_some(pixel)
    }

    /// Whether `value` lies within the domain.
    pub(crate) fn contains(&self, value: f64) -> bool {
        self.spacing.accepts(value) && value >= self.low && value <= self.high
    }

    /// Ticks of the axis: four to eight.
    pub(crate) fn ticks(&self) -> Vec<Tick> {
        match self.spacing {
            Spacing::Linear => self.linear_ticks(),
            Spacing::Log => self.log_ticks(),
        }
    }

    fn linear_ticks(&self) -> Vec<Tick> {
        let step = linear_step(self.high - self.low);
        let first = (self.low / step - 1e-6).ceil();
        let last = (self.high / step + 1e-6).floor();
        let count = (last - first).clamp(0.0, 20.0) as usize;
        let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
        let tick = |index: usize| {
            let value = (first + index as f64) * step;
            let label = match value {
                0.0 => "0".into(),
                _ if step >= 1e9 => number(value),
                _ => grouped(value, decimals),
            };
            Tick { value, label }
        };
        (0..=count).map(tick).collect()
    }

    fn log_ticks(&self) -> Vec<Tick> {
        let decades = self.high.log10() - self.low.log10();
        let heads: &[f64] = if decades <= 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let stride = 1 + (last - first).max(0) / 8;
        let mut ticks = Vec::new();
        for exponent in (first..=last).filter(|exponent| (exponent - first) % stride == 0) {
            for head in heads {
                let value = head * 10f64.powi(exponent);
                if value >= self.low * 0.999 && value <= self.high * 1.001 {
                    ticks.push(Tick { value, label: power(value) });
                }
            }
        }
        ticks
    }
}

/// Smallest and largest of the drawable values; a default range if there are none.
fn extent(spacing: Spacing, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut extent: Option<(f64, f64)> = None;
    for value in values.filter(|value| spacing.accepts(*value)) {
        let (low, high) = extent.unwrap_or((value, value));
        extent = Some((low.min(value), high.max(value)));
    }
    extent.unwrap_or(if spacing == Spacing::Log { (1.0, 10.0) } else { (0.0, 1.0) })
}

/// Step of 1, 2 or 5 times a power of ten that divides `span` into about five parts.
fn linear_step(span: f64) -> f64 {
    let rough = (span / 5.0).max(1e-12);
    let power = 10f64.powf(rough.log10().floor());
    let head = rough / power;
    power * [1.0, 2.0, 5.0].into_iter().find(|step| head <= step * 1.2).unwrap_or(10.0)
}

fn step_down(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    power * [5.0, 2.0].into_iter().find(|head| head * power <= value * 1.0001).unwrap_or(1.0)
}

fn step_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    power * [1.0, 2.0, 5.0].into_iter().find(|head| head * power >= value * 0.9999).unwrap_or(10.0)
}

fn power(value: f64) -> String {
    match value {
        _ if !(1e-4..1e9).contains(&value) => format!("{value:.0e}"),
        _ if value >= 0.99 => grouped(value, 0),
        _ => format!("{:.*}", (-value.log10() + 0.999).floor().clamp(0.0, 6.0) as usize, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        let round = |spacing, values: &[f64]| labels(Scale::round(spacing, values.iter().copied(), 0.0, 100.0));
        assert_eq!(round(Spacing::Linear, &[0.0, 801.0]), ["0", "200", "400", "600", "800", "1,000"]);
        assert_eq!(round(Spacing::Linear, &[0.013]), ["0", "0.005", "0.010", "0.015"]);
        assert_eq!(round(Spacing::Log, &[30.0, 900.0]), ["20", "50", "100", "200", "500", "1,000"]);
        assert_eq!(round(Spacing::Log, &[0.02, 900.0]), ["0.1", "1", "10", "100", "1,000"]);
    }

    #[test]
    fn an_empty_domain_still_has_an_axis() {
        for spacing in [Spacing::Linear, Spacing::Log] {
            for values in [vec![], vec![0.0], vec![-5.0], vec![f64::NAN], vec![1e15], vec![1e-300]] {
                for scale in [
                    Scale::tight(spacing, values.iter().copied(), 0.0, 100.0),
                    Scale::round(spacing, values.iter().copied(), 0.0, 100.0),
                ] {
                    let ticks = scale.ticks();
                    assert!(ticks.len() < 30, "{values:?}: {ticks:?}");
                    for tick in ticks {
                        scale.pixel(tick.value).unwrap();
                    }
                }
            }
        }
    }
}
