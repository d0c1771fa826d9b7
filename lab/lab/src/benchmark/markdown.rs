//! The league as a page of documentation.

use super::case_result::CaseResult;
use super::ranking::{Ranking, RatioQuantiles};
use std::fmt::Write;

/// Matches that are listed in which the default came out worst.
const MAX_WORST_ROWS: usize = 20;
/// The controller that is to be everybody's.
const DEFAULT_CONTROLLER: &str = "auto";

/// The page; `command` is the one that made it.
pub fn markdown(command: &str, matches: &[CaseResult], standings: &[Ranking]) -> String {
    let mut text = format!(
        "# The league\n\nMade by `{command}`. Every controller plays every scene with its defaults; those that a scenario has tuned \
         for itself play that scene as well. The oracle knows every service time and admits exactly what will be in time \
         (docs/controllers.md). It prefers short requests where not all can be served, as nobody else could. \
         `leeward run random-7` plays a drawn scene by itself.\n\n\
         {} matches. Ratios of goodput: the median, nine of ten are better than, the worst. The 99th percentile is too late where the \
         oracle's is not; alone, where another one that had as much goodput, or 3 % less, was in time.\n\n\
         | controller | of the oracle | of the best other, tuned ones included | lock-outs | p99 too late | alone | its worst match |\n\
         |---|---|---|---|---|---|---|\n",
        matches.len()
    );
    for standing in standings {
        let Ranking { controller, of_oracle, of_best, lock_outs, too_late, late_alone, worst, .. } = standing;
        let (of_oracle, of_best) = (spread(of_oracle), spread(of_best));
        let _ = writeln!(
            text,
            "| `{controller}` | {of_oracle} | {of_best} | {lock_outs} | {too_late} | {late_alone} | {worst} |"
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

/// The default's ratio to the best, and the line that tells of it.
fn row(one: &CaseResult) -> Option<(f64, String)> {
    let own = one.entries.iter().find(|entry| entry.label == DEFAULT_CONTROLLER)?;
    let others = one.entries.iter().filter(|entry| entry.label != DEFAULT_CONTROLLER);
    let best = others.max_by(|one, other| one.goodput_rps.total_cmp(&other.goodput_rps))?;
    let ratio = if best.goodput_rps > 0.0 { own.goodput_rps / best.goodput_rps } else { 1.0 };
    let thousands = |rate: f64| format!("{:.1} k/s", rate / 1e3);
    let line = format!(
        "| {} | {} | {} | {} {} | {ratio:.3} | {} |\n",
        one.scene,
        one.workload,
        thousands(own.goodput_rps),
        best.label,
        thousands(best.goodput_rps),
        thousands(one.oracle_rps)
    );
    Some((ratio, line))
}
