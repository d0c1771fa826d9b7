//! The controller benchmark as a page of documentation.

use super::case_result::CaseResult;
use super::ranking::{Ranking, RatioQuantiles};
use std::fmt::Write;

/// Maximum number of listed matches with the default controller's worst results.
const MAX_WORST_ROWS: usize = 20;
/// The default controller.
const DEFAULT_CONTROLLER: &str = "auto";

/// Returns the page; `command` produced the results.
pub fn markdown(command: &str, matches: &[CaseResult], standings: &[Ranking]) -> String {
    let mut text = format!(
        "# The league\n\nMade by `{command}`. Every controller runs in every scene with its default parameters. Variants that a scenario \
         tunes for itself run in that scenario, too. The oracle knows every service time and admits exactly the requests that will be \
         in time (docs/controllers.md). It prefers short requests if not all can be served, which no controller can do. \
         `leeward run random-7` runs one random scene.\n\n\
         {} matches. Ratios of goodput: the median, the first decile, the worst. *p99 too late* counts the matches in which the 99th \
         percentile is late, but the oracle's is not. *Alone* counts those in which another controller with at least 97 % of the goodput \
         was in time. A controller that had not settled in a match ([scenarios.md](scenarios.md#when-a-run-is-measured)) is not compared in it.\n\n\
         | controller | of the oracle | of the best other, tuned ones included | lock-outs | p99 too late | alone | did not settle | its worst match |\n\
         |---|---|---|---|---|---|---|---|\n",
        matches.len()
    );
    for standing in standings {
        let Ranking { controller, of_oracle, of_best, lock_outs, too_late, late_alone, unsettled, worst, .. } =
            standing;
        let (of_oracle, of_best) = (spread(of_oracle), spread(of_best));
        let _ = writeln!(
            text,
            "| `{controller}` | {of_oracle} | {of_best} | {lock_outs} | {too_late} | {late_alone} | {unsettled} | {worst} |"
        );
    }
    let mut own: Vec<(f64, String)> = matches.iter().filter_map(row).collect();
    own.sort_by(|one, other| one.0.total_cmp(&other.0));
    let _ = write!(
        text,
        "\n## Where `{DEFAULT_CONTROLLER}` is worst\n\n| scene | workload | `{DEFAULT_CONTROLLER}` | best other | | oracle |\n|---|---|---|---|---|---|\n"
    );
    own.iter().take(MAX_WORST_ROWS).for_each(|(_, row)| text += row);
    text
}

fn spread(RatioQuantiles { median, tenth, worst }: &RatioQuantiles) -> String {
    format!("{median:.3}, {tenth:.3}, {worst:.3}")
}

/// Ratio of the default controller to the best other one, and the line of the table.
fn row(case: &CaseResult) -> Option<(f64, String)> {
    let settled = || case.entries.iter().filter(|entry| entry.settled);
    let own = settled().find(|entry| entry.label == DEFAULT_CONTROLLER)?;
    let others = settled().filter(|entry| entry.label != DEFAULT_CONTROLLER);
    let best = others.max_by(|case, other| case.goodput_rps.total_cmp(&other.goodput_rps))?;
    let ratio = if best.goodput_rps > 0.0 { own.goodput_rps / best.goodput_rps } else { 1.0 };
    let thousands = |rate: f64| format!("{:.1} k/s", rate / 1e3);
    let line = format!(
        "| {} | {} | {} | {} {} | {ratio:.3} | {} |\n",
        case.scene,
        case.workload,
        thousands(own.goodput_rps),
        best.label,
        thousands(best.goodput_rps),
        thousands(case.oracle_rps)
    );
    Some((ratio, line))
}
