//! Comparison of a search's best set with the scenario's own, on seeds that the search did not use.
//!
//! Does not contain the runs.

use super::{Candidate, Params, TIE};
use leeward_outcome::results::PointRow;

/// Number of seeds of the retest. One that is as good as the other is better at all five in 1 of 32
/// searches.
pub const RETEST_SEEDS: u32 = 5;

/// Offset of these seeds from those of the search, of which there are fewer.
pub(super) const SEED_OFFSET: u64 = 1 << 20;

/// The best set of a search and the scenario's own, run again on [`RETEST_SEEDS`] other seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Retest {
    /// The best set, with its means over these seeds.
    pub best: Candidate,
    /// The scenario's own set, with its means over these seeds.
    pub own: Candidate,
    /// Number of these seeds at which the best set is better, by the rule of the search.
    pub wins: u32,
}

impl Retest {
    /// Compares both sets by their rows, which are seed by seed at each demand.
    pub(super) fn from_points(best: (Params, Vec<PointRow>), own: (Params, Vec<PointRow>)) -> Retest {
        let at = |(params, points): &(Params, Vec<PointRow>), seed: u32| {
            Candidate::from_points(params.clone(), points.iter().skip(seed as usize).step_by(RETEST_SEEDS as usize))
        };
        let wins = (0..RETEST_SEEDS).filter(|seed| is_better(&at(&best, *seed), &at(&own, *seed))).count() as u32;
        let mean = |(params, points): (Params, Vec<PointRow>)| Candidate::from_points(params, points.iter());
        Retest { best: mean(best), own: mean(own), wins }
    }

    /// Whether the best set is better at each of the seeds, so that it was not merely lucky.
    pub fn is_confirmed(&self) -> bool {
        self.wins == RETEST_SEEDS
    }
}

/// Whether a set is better than another: it settles, or it has the higher goodput, or within
/// [`TIE`] the lower 99th percentile.
fn is_better(one: &Candidate, other: &Candidate) -> bool {
    if one.settled != other.settled {
        return one.settled;
    }
    let tie = one.goodput_ratio.max(other.goodput_ratio) * (1.0 - TIE);
    if one.goodput_ratio.min(other.goodput_ratio) >= tie {
        one.p99_us < other.p99_us
    } else {
        one.goodput_ratio > other.goodput_ratio
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OWN, TunedWorkload, Tuning};
    use super::*;
    use leeward_core::params::RawParam;

    /// Rows of one demand, with the capacity 1.
    fn points(goodput: [f64; 5], p99_us: f64) -> Vec<PointRow> {
        let row = |goodput_rps| PointRow { goodput_rps, capacity_rps: 1.0, p99_us, ..PointRow::default() };
        goodput.map(row).to_vec()
    }

    fn retest(best: Vec<PointRow>, own: Vec<PointRow>) -> Retest {
        Retest::from_points((vec![("target".into(), RawParam::Text("80us".into()))], best), (Params::new(), own))
    }

    #[test]
    fn the_best_must_be_better_at_each_seed() {
        let own = || points([0.9; 5], 200.0);
        let wins = |goodput, p99_us| retest(points(goodput, p99_us), own()).wins;
        assert_eq!(wins([0.95; 5], 900.0), 5);
        assert_eq!(wins([0.95, 0.95, 0.95, 0.89, 0.95], 100.0), 4);
        // A tie of goodput: the lower 99th percentile decides.
        assert_eq!((wins([0.8995; 5], 199.0), wins([0.9005; 5], 201.0)), (5, 0));
        assert_eq!(wins([0.9; 5], 200.0), 0, "the same is not better");
        let mut unsettled = points([0.99; 5], 100.0);
        unsettled[2].settled = Some(false);
        assert_eq!(retest(unsettled, own()).wins, 4);
    }

    #[test]
    fn only_a_confirmed_set_is_recommended() {
        let tuning = |retest: Option<Retest>| {
            let candidates = vec![Candidate::from_points(Params::new(), points([0.9; 5], 200.0).iter()); 3];
            let one = TunedWorkload { service: "exp:10us".into(), clients: 50, candidates, best: 2, retest };
            let all = Tuning { scenario: "s".into(), label: "l".into(), command: "c".into(), workloads: vec![one] };
            (all.workloads[0].recommended(), all.to_toml())
        };
        let lucky = retest(points([0.95, 0.95, 0.95, 0.89, 0.95], 100.0), points([0.9; 5], 200.0));
        assert_eq!(tuning(Some(lucky)), (OWN, String::new()), "the scenario stays as it is");
        assert_eq!(tuning(None), (OWN, String::new()));
        let (recommended, toml) = tuning(Some(retest(points([0.95; 5], 100.0), points([0.9; 5], 200.0))));
        assert!(recommended == 2 && toml.starts_with("[[controller.tuned]]"), "{toml}");
    }
}
