//! `leeward league --proxy`: benchmarks concurrency limits of a proxy, relative to the best static
//! number of each case. Does not contain the cases or the simulation (`leeward-proxy-sim`).

use leeward_proxy_sim::benchmark::{CaseResult, Ranking, play_all, rankings, worst_cases};

use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::stdout;

/// Cases in the list of the worst.
const WORST: usize = 10;

/// Runs `count` cases from `seed` on, and prints the table.
pub(crate) fn league_proxy(seed: u64, count: u32, json: bool) -> Result<(), Failure> {
    let interrupt = Interrupt::listen(StopMode::Graceful)?;
    let seeds = (0..u64::from(count)).map(|index| seed.wrapping_add(index));
    let cases: Vec<CaseResult> = seeds.take_while(|_| !interrupt.is_requested()).map(play_all).collect();
    let _ = interrupt.finish();
    if cases.is_empty() {
        return Err(if count == 0 {
            Failure::Input(anyhow::anyhow!("--random: must not be 0 with --proxy"))
        } else {
            Failure::Interrupted
        });
    }
    let table = rankings(&cases);
    if json {
        let all = serde_json::json!({ "standings": table, "cases": cases });
        stdout::print(&format!("{all:#}\n"))?;
    } else {
        stdout::print(&text(&table, &cases))?;
    }
    if cases.len() == count as usize {
        Ok(())
    } else {
        Err(Failure::Partial(anyhow::anyhow!("interrupted after {} of {count} cases", cases.len())))
    }
}

fn text(table: &[Ranking], cases: &[CaseResult]) -> String {
    let mut text = format!(
        "{} cases; goodput as a share of the best static number's, which a search finds for each case\n\n\
         {:<10} {:>7} {:>7} {:>7} {:>10} {:>22} {:>24} {:>12}\n",
        cases.len(),
        "",
        "median",
        "tenth",
        "worst",
        "below 0.9",
        "p50 <= 1.05, if equal",
        "late of answered (tenth)",
        "late <= 1 %"
    );
    for rank in table {
        text += &format!(
            "{:<10} {:>7.3} {:>7.3} {:>7.3} {:>8.1} % {:>11.1} % of {:<5} {:>11.2} ({:>5.2}) % {:>13.1} %\n",
            rank.limit,
            rank.median,
            rank.tenth,
            rank.worst,
            rank.below_nine_tenths * 100.0,
            rank.p50_within * 100.0,
            rank.equal,
            rank.late_median * 100.0,
            rank.late_tenth * 100.0,
            rank.late_within * 100.0
        );
    }
    text += "\nWhere `knee` is worst: share, ratio of p50, its mean limit, the best number\n";
    for (case, result) in worst_cases("knee", cases, WORST) {
        text += &format!(
            "{:.3} {:>6.2} {:>8.1} {:>5}  case {}: {}\n",
            result.share, result.p50_ratio, result.result.mean_limit, case.best.number, case.id, case.case
        );
    }
    text
}
