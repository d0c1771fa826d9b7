//! Ranking of the controllers over all matches.

use super::case_result::{CaseResult, ControllerResult};
use crate::numbers::quantile;
use serde::{Deserialize, Serialize};

/// Share of the oracle's goodput below which a controller counts as locked out, if another one has
/// ten times as much goodput.
const LOCK_OUT_SHARE: f64 = 0.05;

/// Share of a controller's goodput from which another controller's goodput counts as equal.
const TIE_SHARE: f64 = 0.97;

/// Ranking of a controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranking {
    /// Name of the algorithm.
    pub controller: String,
    /// Matches of the controller in which it had settled and the oracle had any goodput. All but
    /// lock-outs is of these.
    pub matches: usize,
    /// Matches in which the controller did not settle.
    #[serde(default)]
    pub unsettled: usize,
    /// Ratio of goodput to the oracle's: median, first decile, and minimum.
    pub of_oracle: RatioQuantiles,
    /// Ratio of goodput to that of the best other controller, tuned ones included.
    pub of_best: RatioQuantiles,
    /// Matches with next to no goodput where another controller had some.
    pub lock_outs: usize,
    /// Matches with a 99th percentile beyond the objective where the oracle's was within.
    pub too_late: usize,
    /// Of these, matches in which another controller was in time with equal goodput: the case did
    /// not cause the lateness.
    pub late_alone: usize,
    /// Match with its lowest ratio to the best; `none` if it settled in no match.
    pub worst: String,
}

/// Distribution of a ratio; zeros without any.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatioQuantiles {
    /// Median: half of the matches were better.
    pub median: f64,
    /// First decile: nine of ten matches were better.
    pub tenth: f64,
    /// Minimum.
    pub worst: f64,
}

impl RatioQuantiles {
    fn from_ratios(ratios: &mut [f64]) -> Self {
        ratios.sort_by(f64::total_cmp);
        RatioQuantiles { median: quantile(ratios, 0.5), tenth: quantile(ratios, 0.1), worst: quantile(ratios, 0.0) }
    }
}

/// All controllers with their defaults, the best first: by the median ratio to the best, then by
/// the minimum.
pub fn rankings(matches: &[CaseResult]) -> Vec<Ranking> {
    let mut names: Vec<&str> = Vec::new();
    for entry in matches.iter().flat_map(|one| &one.entries).filter(|entry| !entry.is_tuned) {
        if !names.contains(&entry.label.as_str()) {
            names.push(&entry.label);
        }
    }
    let mut all: Vec<Ranking> = names.iter().filter_map(|name| rank(name, matches)).collect();
    all.sort_by(|one, other| {
        let key = |standing: &Ranking| (standing.of_best.median, standing.of_best.worst);
        let ((median, worst), (others_median, others_worst)) = (key(one), key(other));
        others_median.total_cmp(&median).then(others_worst.total_cmp(&worst))
    });
    all
}

fn rank(name: &str, matches: &[CaseResult]) -> Option<Ranking> {
    let (mut of_oracle, mut of_best) = (Vec::new(), Vec::new());
    let (mut lock_outs, mut too_late, mut late_alone, mut unsettled) = (0, 0, 0, 0);
    let mut worst: Option<(f64, &CaseResult)> = None;
    for case in matches.iter().filter(|case| case.oracle_rps > 0.0) {
        let Some(own) = case.entries.iter().find(|entry| entry.label == name) else { continue };
        let others = || case.entries.iter().filter(|entry| entry.label != name && entry.settled);
        let best = others().map(|entry| entry.goodput_rps).fold(0.0, f64::max);
        let part = own.goodput_rps / case.oracle_rps;
        lock_outs += usize::from(part < LOCK_OUT_SHARE && best > own.goodput_rps * 10.0);
        if !own.settled {
            unsettled += 1;
            continue;
        }
        of_oracle.push(part);
        // If no other controller has goodput, any result equals the best.
        let ratio = if best > 0.0 { own.goodput_rps / best } else { 1.0 };
        of_best.push(ratio);
        let is_late = own.p99_us > case.slo_us && case.oracle_p99_us <= case.slo_us;
        let is_as_good =
            |entry: &ControllerResult| entry.p99_us <= case.slo_us && entry.goodput_rps >= own.goodput_rps * TIE_SHARE;
        too_late += usize::from(is_late);
        late_alone += usize::from(is_late && others().any(is_as_good));
        if worst.is_none_or(|(least, _)| ratio < least) {
            worst = Some((ratio, case));
        }
    }
    if of_oracle.is_empty() && unsettled == 0 {
        return None;
    }
    Some(Ranking {
        controller: name.into(),
        matches: of_oracle.len(),
        unsettled,
        of_oracle: RatioQuantiles::from_ratios(&mut of_oracle),
        of_best: RatioQuantiles::from_ratios(&mut of_best),
        lock_outs,
        too_late,
        late_alone,
        worst: worst.map_or_else(|| "none".into(), |(_, case)| format!("{}: {}", case.scene, case.workload)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(label: &str, goodput_rps: f64) -> ControllerResult {
        ControllerResult {
            label: label.into(),
            is_tuned: label.contains("tuned"),
            goodput_rps,
            p99_us: 100.0,
            settled: true,
        }
    }

    fn case_result(scene: &str, oracle_rps: f64, entries: Vec<ControllerResult>) -> CaseResult {
        CaseResult {
            scene: scene.into(),
            workload: "exp".into(),
            slo_us: 200.0,
            oracle_rps,
            oracle_p99_us: 150.0,
            entries,
        }
    }

    #[test]
    fn rankings_relate_goodput_to_the_oracle_and_the_best_other_controller() {
        let matches = [
            case_result("a", 100.0, vec![entry("auto", 90.0), entry("none", 1.0), entry("none (tuned)", 45.0)]),
            case_result("b", 100.0, vec![entry("auto", 40.0), entry("none", 20.0), entry("none (tuned)", 80.0)]),
            case_result("dead", 0.0, vec![entry("auto", 0.0), entry("none", 0.0)]),
        ];
        let all = rankings(&matches);
        let names: Vec<&str> = all.iter().map(|standing| standing.controller.as_str()).collect();
        assert_eq!(names, ["auto", "none"], "those that were tuned have no place of their own");
        let auto = &all[0];
        assert_eq!((auto.matches, auto.of_oracle.worst, auto.of_best.worst), (2, 0.4, 0.5));
        assert_eq!((auto.lock_outs, auto.too_late, auto.worst.as_str()), (0, 0, "b: exp"));
        assert_eq!(all[1].lock_outs, 1);
    }

    #[test]
    fn who_has_not_settled_is_not_compared_but_may_be_locked_out() {
        let rising = |label: &str, goodput_rps| ControllerResult { settled: false, ..entry(label, goodput_rps) };
        let matches = [
            case_result("settled", 100.0, vec![entry("auto", 90.0), entry("none", 60.0)]),
            case_result("rises", 100.0, vec![entry("auto", 50.0), rising("none", 100.0)]),
            case_result("shut", 100.0, vec![entry("auto", 50.0), rising("none", 1.0)]),
        ];
        let all = rankings(&matches);
        let (auto, none) = (&all[0], &all[1]);
        assert_eq!((auto.matches, auto.unsettled, auto.of_best.worst), (3, 0, 1.0));
        assert_eq!((none.matches, none.unsettled, none.lock_outs), (1, 2, 1));
    }

    #[test]
    fn a_late_controller_counts_as_late_alone_if_others_were_in_time() {
        let late = |goodput_rps| ControllerResult { p99_us: 201.0, ..entry("late", goodput_rps) };
        let matches = [
            case_result("as good as another", 100.0, vec![late(90.0), entry("other", 88.0)]),
            case_result("better than another", 100.0, vec![late(90.0), entry("other", 80.0)]),
            CaseResult {
                oracle_p99_us: 201.0,
                ..case_result("as the oracle", 100.0, vec![late(90.0), entry("other", 90.0)])
            },
        ];
        let all = rankings(&matches);
        let late = all.iter().find(|standing| standing.controller == "late").unwrap();
        assert_eq!((late.too_late, late.late_alone), (2, 1));
    }
}
