//! The table for the terminal.

use super::{Contender, Point};
use crate::servers::ServerKind;
use crate::statistics::Spread;

/// Share of late requests above which an open loop did not offer the intended load.
const LATE: f64 = 0.01;
/// Share of complete responses below which a contender does not sustain a load.
const SUSTAINS: f64 = 0.99;

/// Median over the rounds of a quantity at one load.
fn median(contender: &Contender, load: usize, of: impl Fn(&Point) -> f64) -> f64 {
    Spread::of(contender.points.iter().map(|points| of(&points[load]))).median
}

/// Returns the table: a block per load, contenders in order, ratios to the better one of Tokio's.
pub(super) fn text(contenders: &[Contender], loads: &[f64], reference: f64, quick: bool) -> String {
    let mut text = String::from("Medians over rounds; ratios over the better of both ways to run Tokio.");
    if quick {
        text += " Quick: too short to believe.";
    }
    text += "\n\n";
    let is_tokio = |contender: &&Contender| contender.kind != ServerKind::Tier;
    let best = contenders.iter().filter(is_tokio).map(capacity).fold(0.0, f64::max);
    text += &line("at most", ["per second", "", "", "ratio", "spread"]);
    for contender in contenders {
        let spread = Spread::of(contender.capacity.iter().copied());
        let ratio = format!("{:.2} x", spread.median / best);
        let spread = format!("{:.0}-{:.0}", spread.least, spread.most);
        text += &line(&contender.name, [&format!("{:.0}", capacity(contender)), "", "", &ratio, &spread]);
    }
    for (load, share) in loads.iter().enumerate() {
        let rate = format!("{share} x = {:.0}/s", reference * share);
        text += "\n";
        text += &line(&rate, ["p50 us", "p99 us", "CPU us", "p99 ratio", ""]);
        let tokio = contenders.iter().filter(is_tokio).map(|contender| median(contender, load, |point| point.p99_us));
        let best = tokio.fold(f64::INFINITY, f64::min);
        for contender in contenders {
            let at = |of: fn(&Point) -> f64| median(contender, load, of);
            let mut note = Vec::new();
            if at(|point| point.answered) < SUSTAINS {
                note.push(format!("{:.0} % answered", 100.0 * at(|point| point.answered)));
            }
            if at(|point| point.late) > LATE {
                note.push("LOAD-BOUND".to_string());
            }
            let number = |value: f64| if value < 10_000.0 { format!("{value:.1}") } else { format!("{value:.0}") };
            let p99 = at(|point| point.p99_us);
            text += &line(
                &contender.name,
                [
                    &number(at(|point| point.p50_us)),
                    &number(p99),
                    &number(at(|point| point.cpu_us)),
                    &format!("{:.2} x", p99 / best),
                    &note.join(", "),
                ],
            );
        }
    }
    text + "\n"
}

fn capacity(contender: &Contender) -> f64 {
    Spread::of(contender.capacity.iter().copied()).median
}

fn line(name: &str, [a, b, c, d, note]: [&str; 5]) -> String {
    let line = format!("{name:22} {a:>10} {b:>10} {c:>10} {d:>10}  {note}");
    format!("{}\n", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsustained_loads_are_marked() {
        let point = |answered, p99_us| Point { answered, p50_us: 50.0, p99_us, cpu_us: 20.0, late: 0.0 };
        let contender = |name: &str, kind, answered, p99_us| Contender {
            name: name.into(),
            kind,
            capacity: vec![1_000.0],
            points: vec![vec![point(answered, p99_us)]],
        };
        let contenders = [
            contender("SIP1", ServerKind::Tier, 0.4, 50_000.0),
            contender("Tokio, one runtime", ServerKind::TokioShared, 1.0, 100.0),
        ];
        let text = text(&contenders, &[0.5], 1_000.0, false);
        assert!(text.contains("500.00 x  40 % answered") && text.contains("0.5 x = 500/s"), "{text}");
    }
}
