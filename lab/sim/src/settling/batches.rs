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

/// True if the means of both halves differ by more than `tolerance` and by more than chance.
pub(super) fn halves_differ(values: &[f64], tolerance: f64) -> bool {
    let (first, second) = values.split_at(values.len() / 2);
    let moments_of = |half: &[f64]| means(half, BATCHES / 2).map(|means| moments(&means));
    let (Some((one, of_one)), Some((other, of_other))) = (moments_of(first), moments_of(second)) else { return false };
    let error = ((of_one + of_other) / (BATCHES / 2) as f64).sqrt();
    (one - other).abs() > tolerance.max(DRIFT_ERRORS * error)
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
