//! MSER-5: where the initial transient of a series ends.
//!
//! White, "An effective truncation heuristic for bias reduction in simulation output", Simulation
//! 69:6 (1997); White, Cobb, Spratt, "A comparison of five steady-state truncation heuristics for
//! simulation", WSC 2000. The series is divided into batches of five. The transient ends at the
//! batch that minimises the marginal standard error of the mean of the rest,
//! `Σ (z_i − z̄)² / (k − d)²`. An end beyond the first half says that the series is too short.
//!
//! In a long series the batches are larger than five, so that a swing of a control loop, which
//! takes many windows, is noise and no transient.

/// Values per batch.
pub(super) const BATCH: usize = 5;
/// Most batches of a series.
const BATCHES_MAX: usize = 60;
/// Last batches that are not tried as the end: the error of a few similar values is small by
/// chance.
const TAIL: usize = 5;

/// Number of values in the transient; `None` if the series has too few values.
pub(super) fn truncation(values: &[f64]) -> Option<usize> {
    let size = BATCH.max(values.len() / BATCHES_MAX);
    let batches: Vec<f64> = values.chunks_exact(size).map(|batch| batch.iter().sum::<f64>() / size as f64).collect();
    if batches.len() < 2 * TAIL {
        return None;
    }
    // Differences from the last value keep the sums of squares exact.
    let offset = batches[batches.len() - 1];
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut best = (f64::INFINITY, 0);
    for (index, value) in batches.iter().enumerate().rev() {
        let value = value - offset;
        sum += value;
        squares += value * value;
        let kept = (batches.len() - index) as f64;
        if batches.len() - index <= TAIL {
            continue;
        }
        let error = (squares - sum * sum / kept).max(0.0) / (kept * kept);
        if error <= best.0 {
            best = (error, index);
        }
    }
    Some(best.1 * size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_series_has_no_transient() {
        assert_eq!(truncation(&[7.0; 100]), Some(0));
        assert_eq!(truncation(&[0.0; 100]), Some(0));
    }

    #[test]
    fn the_transient_ends_where_the_series_becomes_steady() {
        let noise = |index: usize| ((index * 7_919) % 13) as f64 / 13.0;
        let series: Vec<f64> =
            (0..400).map(|index| if index < 100 { index as f64 } else { 100.0 + noise(index) }).collect();
        let end = truncation(&series).unwrap();
        assert!((95..=120).contains(&end), "{end}");
    }

    #[test]
    fn a_series_that_rises_to_its_end_is_all_transient() {
        let series: Vec<f64> = (0..200).map(f64::from).collect();
        assert!(truncation(&series).unwrap() > 100);
    }

    #[test]
    fn a_swing_is_no_transient() {
        let series: Vec<f64> = (0..6_000).map(|index| (f64::from(index) / 30.0).sin()).collect();
        let end = truncation(&series).unwrap();
        assert!(end <= 3_000, "{end}");
    }

    #[test]
    fn few_values_have_no_answer() {
        assert_eq!(truncation(&[1.0; 49]), None);
        assert_eq!(truncation(&[1.0; 50]), Some(0));
    }
}
