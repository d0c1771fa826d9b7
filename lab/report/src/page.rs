//! The document: head, header with the runs' parameters, and the order of the sections.

use leeward_outcome::results::{PointRow, Results};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::fields::{Field, QuantityFormat};
use crate::palette::Palette;
use crate::text::text;
use crate::{chart, claims, machine, tables};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// The browser fetches nothing; the page contains all its resources.
const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// Head of every page; the browser fetches nothing for it.
pub(crate) fn head(title: &str) -> Markup {
    html! {
        meta charset="utf-8";
        meta name="viewport" content="width=device-width, initial-scale=1";
        meta http-equiv="Content-Security-Policy" content=(CONTENT_SECURITY_POLICY);
        meta name="color-scheme" content="light dark";
        title { (title) " · Leeward" }
        link rel="icon" href="data:,";
        style { (PreEscaped(STYLE)) }
    }
}

/// Draws the whole page.
pub(crate) fn document(results: &Results) -> Markup {
    let palette = Palette::new(results);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (head(heading(results)))
                script { (PreEscaped(SCRIPT)) }
            }
            body {
                main {
                    (header(results))
                    (claims::section(results))
                    (figures(results, &palette))
                    (machine::machines(results))
                    (machine::predictions(results, &palette))
                    (tables::shifts(results, &palette))
                    (tables::locks(results, &palette))
                    (tables::replicas(results, &palette))
                    (tables::services(results, &palette))
                    (tables::kinds(results, &palette))
                    (tables::points(results, &palette))
                }
                footer { p { "Leeward results, schema " (results.schema) ". "
                    @if results.plant != "real" { "The same scenario, seed and version reproduce this page byte for byte." }
                    @else { "Measured on real hardware: the numbers differ from run to run." }
                } }
            }
        }
    }
}

fn heading(results: &Results) -> &str {
    if results.title.is_empty() { &results.scenario } else { &results.title }
}

fn header(results: &Results) -> Markup {
    html! {
        header {
            div.top {
                p.eyebrow { "Leeward experiment" @if !results.scenario.is_empty() { " " code { (results.scenario) } } }
                button #theme type="button" hidden { "Dark" }
            }
            h1 { (heading(results)) }
            @if !results.doubts.is_empty() {
                div.notice {
                    p { strong { "Not measured. " } (not_measured(results.doubts.len())) }
                    ul { @for doubt in &results.doubts { li { (text(doubt)) } } }
                }
            }
            @if !results.source.is_empty() { p.source { @if !results.has_own_claims() { "Redraws " } (results.source) } }
            @if !results.description.is_empty() { p.about { (text(&results.description)) } }
            @let summary = runs_summary(&results.points);
            @if !summary.is_empty() { p.lead { (summary) } }
            dl.facts {
                (fact("Plant", match results.plant.as_str() { "sim" => "simulator", "real" => "real server", other => other }))
                (fact("Base seed", &results.seed.to_string()))
                (fact("Runs", &results.points.len().to_string()))
                (fact("Extent", if results.quick { "quick" } else { "full" }))
                @if !results.overrides.is_empty() {
                    div { dt { "Overrides" } dd { @for setting in &results.overrides { code { (setting) } " " } } }
                }
            }
            @if results.quick {
                p.notice { strong { "Quick run. " } "Its runs are shorter and fewer than the paper's; do not quote its results." }
            }
        }
    }
}

/// Says how many runs do not measure the server; their list follows.
fn not_measured(runs: usize) -> String {
    match runs {
        1 => "One run says little about the server:".into(),
        _ => format!("{runs} runs say little about the server:"),
    }
}

fn fact(name: &str, value: &str) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

/// Describes the runs in one sentence.
fn runs_summary(points: &[PointRow]) -> String {
    if points.is_empty() {
        return String::new();
    }
    let variants = distinct(points.iter().map(|point| point.run.label.clone()));
    let services = distinct(points.iter().map(|point| point.workload.service.clone()));
    let seeds = distinct(points.iter().map(|point| point.run.seed));
    let ranges = [
        ("demand", span(points, "demand_rps", |point| point.workload.demand_rps)),
        ("clients", span(points, "clients", |point| f64::from(point.workload.clients))),
        ("SLO", span(points, "slo_us", |point| point.slo_us)),
    ];
    let mut parts = vec![list_names(&variants, "variants")];
    parts.extend(ranges.into_iter().filter_map(|(name, span)| Some(format!("{name} {}", span?))));
    parts.push(format!("service {}", list_names(&services, "distributions")));
    parts.push(if seeds.len() == 1 { "one seed".into() } else { format!("{} seeds", seeds.len()) });
    parts.join("; ") + "."
}

fn list_names(names: &[String], many: &str) -> String {
    match names.len() {
        0..=5 => names.join(", "),
        count => format!("{count} {many}"),
    }
}

fn span(points: &[PointRow], field: &str, value: fn(&PointRow) -> f64) -> Option<String> {
    let values = || points.iter().map(value).filter(|value| value.is_finite());
    let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    let show = |value: f64| {
        if field == "clients" { crate::fields::grouped(value, 0) } else { Field::lookup(field).quantity.format(value) }
    };
    Some(if low == high { show(low) } else { format!("{} to {}", show(low), show(high)) })
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    kept
}

fn figures(results: &Results, palette: &Palette) -> Markup {
    let drawn: Vec<(&str, Option<Markup>)> =
        results.plots.iter().map(|plot| (plot.title.as_str(), chart::figure(results, plot, palette))).collect();
    let missing: Vec<&str> = drawn.iter().filter(|(_, figure)| figure.is_none()).map(|(title, _)| *title).collect();
    let seeds = distinct(results.points.iter().map(|point| point.run.seed)).len();
    html! {
        @if !drawn.is_empty() {
            section {
                h2 { "Figures" }
                @if seeds > 1 {
                    p.explain {
                        "Lines, bars and dots are medians over seeds; bands and whiskers reach from minimum to maximum."
                    }
                }
                div.figures.single[drawn.len() - missing.len() == 1] {
                    @for figure in drawn.iter().filter_map(|(_, figure)| figure.as_ref()) { (figure) }
                }
                @if !missing.is_empty() { p.missing { "This run has no data for: " (missing.join("; ")) "." } }
            }
        }
    }
}
