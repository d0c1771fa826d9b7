//! Curves and advice as tables and sentences.

use std::path::Path;

use leeward_core::units::{Nanos, Rate};
use leeward_lab::training::RetestResult;
use leeward_lab::training::advice::{Advice, AdviceQuery, SingleSetup};
use leeward_threading::curves::{Curve, Curves, TailPercentile};
use serde_json::{Value, json};

use crate::table::{Align, Table};

/// Table of all curves, a row each.
pub(super) fn curves(curves: &Curves) -> String {
    let columns = [
        ("setup", Align::Left),
        ("sustains/s", Align::Right),
        ("p99 at least", Align::Right),
        ("p99 at half", Align::Right),
        ("CPUs at least", Align::Right),
        ("loads", Align::Right),
        ("requests", Align::Right),
    ];
    let mut table = Table::new(&columns);
    for curve in curves.all() {
        let at = |load: f64| {
            curve.latency(TailPercentile::P99, Rate(load)).map_or_else(|| "-".into(), |tail| tail.to_string())
        };
        table.row(vec![
            curve.setup.to_string(),
            format!("{:.0}", curve.max_load),
            at(0.0),
            at(curve.max_load / 2.0),
            format!("{:.2}", curve.cpu(Rate(0.0)).unwrap_or(0.0)),
            curve.points.len().to_string(),
            curve.points.iter().map(|knot| knot.samples).sum::<u64>().to_string(),
        ]);
    }
    table.to_string()
}

/// A curve as JSON.
pub(super) fn as_json(curve: &Curve) -> Value {
    json!({
        "setup": curve.setup.to_string(),
        "sustains": curve.max_load,
        "knots": curve.points.iter().map(|knot| json!({
            "load": knot.load,
            "p50_us": knot.p50_us,
            "p99_us": knot.p99_us,
            "p999_us": knot.p999_us,
            "cpu": knot.cpu,
            "samples": knot.samples,
            "spread": knot.spread,
        })).collect::<Vec<_>>(),
    })
}

/// Says that the training ended early, at this load.
pub(super) fn cut_short(highest: Rate) -> String {
    format!("cut short     no advice above {:.0}/s: the budget ended there; increase --budget\n", highest.0)
}

/// The advice: sentences, then the table that supports it.
pub(super) fn advice(advice: &Advice, question: &AdviceQuery, file: Option<&Path>) -> String {
    let policy =
        file.map_or("`leeward` with curves (--out)".into(), |file| format!("`leeward` with {}", file.display()));
    let mut text = format!("use           {}; or {policy}\n", steps(advice));
    if let Some(alone) = &advice.single {
        text += &format!("one setup     {}\n", describe_single(alone));
    }
    if let Some(frugal) = advice.cheapest.filter(|frugal| advice.single.is_none_or(|alone| alone.setup != frugal.setup))
    {
        text += &format!("least CPU     {}\n", describe_single(&frugal));
    }
    text += &match advice.max_slo_load {
        Some(load) => format!("objective     {} is met up to {:.0}/s\n", question.slo, load.0),
        None => format!("objective     {} is met by no setup at any of these loads\n", question.slo),
    };
    text + "\n" + &rows(advice, question)
}

fn steps(advice: &Advice) -> String {
    let Some((_, first)) = advice.steps.first() else { return "nothing: no setup sustains these loads".into() };
    let rest: Vec<String> =
        advice.steps[1..].iter().map(|(from, setup)| format!("{setup} above {:.0}/s", from.0)).collect();
    if rest.is_empty() { format!("{first} at all loads") } else { format!("{first} at first, {}", rest.join(", ")) }
}

fn describe_single(alone: &SingleSetup) -> String {
    let SingleSetup { setup, factor, cpu } = alone;
    let behind = (factor - 1.0) * 100.0;
    format!("{setup}: within {behind:.0} % of the best at every load, {cpu:.2} x its CPU at the lowest")
}

fn rows(advice: &Advice, question: &AdviceQuery) -> String {
    let tail = if question.tail == TailPercentile::P99 { "p99" } else { "p99.9" };
    let columns = [
        ("load/s", Align::Right),
        ("best", Align::Left),
        (tail, Align::Right),
        ("CPUs", Align::Right),
        ("second", Align::Left),
        (tail, Align::Right),
        ("", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for row in &advice.rows {
        let span = |span: Nanos| Nanos((span.0 + 500) / 1_000 * 1_000).to_string();
        let second = row.second.map_or(("-".into(), "-".into()), |(setup, tail)| (setup.to_string(), span(tail)));
        table.row(vec![
            format!("{:.0}", row.load.0),
            row.best.to_string(),
            span(row.tail),
            format!("{:.2}", row.cpu),
            second.0,
            second.1,
            row.confidence.as_str().into(),
        ]);
    }
    table.to_string()
}

/// Table of advised setups that were measured again on other requests.
pub(super) fn retest(fresh: &[RetestResult], question: &AdviceQuery) -> String {
    let tail = if question.tail == TailPercentile::P99 { "p99" } else { "p99.9" };
    let columns = [
        ("load/s", Align::Right),
        ("requests", Align::Right),
        ("advised", Align::Left),
        (tail, Align::Right),
        ("over best", Align::Right),
        ("leeward over best", Align::Right),
        ("best", Align::Left),
    ];
    let mut table = Table::new(&columns);
    let times = |factor: f64| format!("{factor:.3}x");
    for one in fresh {
        let (again, factor) = match one.advised.1 {
            Nanos::MAX => ("not sustained".into(), "-".into()),
            again => (Nanos((again.0 + 500) / 1_000 * 1_000).to_string(), times(one.factor())),
        };
        table.row(vec![
            format!("{:.0}", one.load.0),
            one.requests.to_string(),
            one.advised.0.to_string(),
            again,
            factor,
            one.policy_factor().map_or("not sustained".into(), times),
            one.best.0.to_string(),
        ]);
    }
    format!("\nmeasured again\n{table}")
}
