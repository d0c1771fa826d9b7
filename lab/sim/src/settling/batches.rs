//! Batch means: confidence interval of the mean of a stationary series whose values depend on their
//! neighbours.
//!
//! Law, *Simulation Modeling and Analysis*, 5th ed., §9.5.3: a fixed number of batches, which grow
//! with the series until their means no longer depend on each other.

/// Number of batches.
const BATCHES: usize = 20;
/// 97.5 % quantile of Student's t with 19 degrees of freedom.
const T_19: f64 = 2.093;
/// Correlation of neighbouring batch means above which they depend on each other: two standard
/// errors of the estimate over 20 batches.
const CORRELATION_MAX: f64 = 0.45;
/// Standard errors by which the means of two halves may differ.
const DRIFT_ERRORS: f64 = 3.0;
/// Most that neighbouring batch means may depend on each other in a series that wanders. Above, no
/// number of batches tells a wander from a drift.
const WANDER_MAX: f64 = 0.9;
/// Rank correlation of batch means with time from which on they rise or fall: a line has 1, and
/// a wander with [`WANDER_MAX`] is below in three of four cases.
const TREND: f64 = 0.6;

/// Confidence interval of the mean of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BatchMeans {
    /// Half of the width of the 95 % confidence interval.
    pub(super) half_width: f64,
    /// True if neighbouring batches depend on each other, so that the interval is too narrow.
    pub(super) is_correlated: bool,
}

impl BatchMeans {
    /// Divides `values` into batches; `None` with fewer values than batches.
    pub(super) fn of(values: &[f64]) -> Option<BatchMeans> {
        let means = means(values, BATCHES)?;
        let (mean, variance) = moments(&means);
        let neighbours: f64 = means.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
        let correlation = if variance > 0.0 { neighbours / (variance * (BATCHES - 1) as f64) } else { 0.0 };
        Some(BatchMeans {
            half_width: T_19 * (variance / BATCHES as f64).sqrt(),
            is_correlated: correlation > CORRELATION_MAX,
        })
    }
}

/// Means of the batches of a series' halves.
struct Halves([Vec<f64>; 2]);

impl Halves {
    /// `None` with too few values.
    fn of(values: &[f64]) -> Option<Halves> {
        let (first, second) = values.split_at(values.len() / 2);
        Some(Halves([means(first, BATCHES / 2)?, means(second, BATCHES / 2)?]))
    }

    /// The difference of the means, and its standard error if batches are independent.
    fn difference(&self) -> (f64, f64) {
        let [(one, of_one), (other, of_other)] = self.0.each_ref().map(|half| moments(half));
        ((one - other).abs(), ((of_one + of_other) / (BATCHES / 2) as f64).sqrt())
    }

    /// Correlation of neighbouring batches within the halves, without the bias of few batches:
    /// Marriott and Pope, "Bias in the estimation of autocorrelations", Biometrika 41 (1954).
    fn correlation(&self) -> f64 {
        let (mut neighbours, mut squares) = (0.0, 0.0);
        for half in &self.0 {
            let (mean, variance) = moments(half);
            neighbours += half.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum::<f64>();
            squares += variance * (half.len() - 1) as f64;
        }
        let biased = if squares > 0.0 { neighbours / squares } else { 0.0 };
        let count = (BATCHES / 2) as f64;
        ((biased + 1.0 / count) / (1.0 - 4.0 / count)).clamp(0.0, WANDER_MAX)
    }

    /// Kendall's rank correlation of the batch means with time, without its sign.
    fn trend(&self) -> f64 {
        let all = self.0.concat();
        let pairs = (0..all.len()).flat_map(|later| (0..later).map(move |earlier| (earlier, later)));
        let signs = pairs.map(|(earlier, later)| match all[later].partial_cmp(&all[earlier]) {
            Some(std::cmp::Ordering::Greater) => 1.0,
            Some(std::cmp::Ordering::Less) => -1.0,
            _ => 0.0,
        });
        let count = all.len() as f64;
        (signs.sum::<f64>() / (count * (count - 1.0) / 2.0)).abs()
    }
}

/// True if the means of both halves differ by more than `tolerance` and by more than chance.
pub(super) fn halves_differ(values: &[f64], tolerance: f64) -> bool {
    let Some(halves) = Halves::of(values) else { return false };
    let (difference, error) = halves.difference();
    difference > tolerance.max(DRIFT_ERRORS * error)
}

/// True if the halves differ as [`halves_differ`] says, and by more than a stationary series that
/// wanders as slowly as this one: its batches depend on each other, so that the means of halves
/// differ by `√((1 + ρ) / (1 − ρ))` of what independent batches would (Law §4.4, for lag 1). A
/// series that rises or falls all the time does not wander.
pub(super) fn halves_differ_beyond_wander(values: &[f64], tolerance: f64) -> bool {
    let Some(halves) = Halves::of(values) else { return false };
    let (difference, error) = halves.difference();
    let correlation = halves.correlation();
    let wander = error * ((1.0 + correlation) / (1.0 - correlation)).sqrt();
    let is_trend = halves.trend() >= TREND && difference > DRIFT_ERRORS * error;
    difference > tolerance && (is_trend || difference > DRIFT_ERRORS * wander)
}

/// Means of `count` batches of equal size; `None` with fewer values. The first values are left out
/// if the batches do not divide the series.
fn means(values: &[f64], count: usize) -> Option<Vec<f64>> {
    let size = values.len() / count;
    if size == 0 {
        return None;
    }
    let used = &values[values.len() - size * count..];
    Some(used.chunks_exact(size).map(|batch| batch.iter().sum::<f64>() / size as f64).collect())
}

/// Mean and variance of a sample.
fn moments(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, squares / (values.len() - 1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_workload::rng::{Purpose, Rng};

    #[test]
    fn the_interval_holds_the_mean_of_independent_values() {
        let mut held = 0;
        for seed in 0..400 {
            let mut rng = Rng::new(seed, Purpose::Service);
            let values: Vec<f64> = (0..400).map(|_| rng.unit()).collect();
            let means = BatchMeans::of(&values).unwrap();
            let mean = values.iter().sum::<f64>() / 400.0;
            held += u32::from((mean - 0.5).abs() <= means.half_width);
        }
        assert!((370..=392).contains(&held), "{held} of 400 intervals of 95 %");
    }

    #[test]
    fn slow_swings_are_correlated() {
        let values: Vec<f64> = (0..400).map(|index| (f64::from(index) / 40.0).sin()).collect();
        assert!(BatchMeans::of(&values).unwrap().is_correlated);
    }

    /// First-order autoregressive series; `memory` is the correlation of neighbours.
    fn wander(seed: u64, count: usize, memory: f64) -> Vec<f64> {
        let mut rng = Rng::new(seed, Purpose::Service);
        let mut level = 0.0;
        let mut next = || {
            level = memory * level + (1.0 - memory * memory).sqrt() * (rng.unit() - 0.5);
            level
        };
        (0..count).map(|_| next()).skip(count / 10).collect()
    }

    #[test]
    fn a_wander_is_no_drift_and_a_trend_is_one() {
        // A batch has 50 values, so neighbouring batches depend on each other.
        let (mut strict, mut beyond) = (0, 0);
        for seed in 0..200 {
            let values = wander(seed, 1_111, 0.99);
            strict += u32::from(halves_differ(&values, 0.0));
            beyond += u32::from(halves_differ_beyond_wander(&values, 0.0));
        }
        assert!(strict >= 40 && beyond <= strict / 3, "{strict} and {beyond} of 200");
        let shapes: [fn(f64) -> f64; 4] = [|at| at, |at| -at, |at| 1.0 - (-3.0 * at).exp(), |at| f64::from(at > 0.5)];
        for (seed, shape) in (0..).zip(shapes) {
            let noise = wander(seed, 1_111, 0.5);
            let values: Vec<f64> =
                noise.iter().enumerate().map(|(index, value)| value + 3.0 * shape(index as f64 / 1_000.0)).collect();
            assert!(halves_differ_beyond_wander(&values, 0.1), "shape {seed}");
            assert!(!halves_differ_beyond_wander(&values, 9.0), "within the tolerance");
        }
    }

    #[test]
    fn a_step_in_the_middle_is_a_drift_and_noise_is_none() {
        let mut rng = Rng::new(1, Purpose::Service);
        let noise: Vec<f64> = (0..400).map(|_| rng.unit()).collect();
        assert!(!halves_differ(&noise, 0.01));
        let step: Vec<f64> = noise.iter().enumerate().map(|(index, value)| value + f64::from(index >= 200)).collect();
        assert!(halves_differ(&step, 0.01));
        assert!(!halves_differ(&step, 2.0), "within the tolerance");
        assert!(!halves_differ(&[1.0; 5], 0.0), "too few values");
    }
}
