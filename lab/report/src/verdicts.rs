//! The page of all verdicts. It has a summary, the papers' numbers over our curves, every claim
//! with its interval and accepted range, and the state of each figure. Our results are beside the
//! results as published.

use leeward_outcome::verdicts::{ClaimVerdicts, FigureNote, ScenarioVerdicts, VerdictCounts, Verdicts};
use maud::{DOCTYPE, Markup, html};

use crate::chart::overlay;
use crate::claims::{badge, non_breaking};
use crate::page::head;
use crate::strip::strip;
use crate::text::text;

/// Draws the whole page.
pub(crate) fn document(verdicts: &Verdicts, notes: &[FigureNote]) -> Markup {
    let tally = VerdictCounts::count(verdicts, |_| true);
    html! {
        (DOCTYPE)
        html lang="en" {
            head { (head("Verdicts")) }
            body {
                main {
                    header {
                        div.top { p.eyebrow { "Leeward verdicts" } }
                        h1 { "The papers' claims, judged" }
                        p.lead {
                            strong { (tally.reproduced) " of " (tally.decided()) } " decided claims reproduced; "
                            (tally.undecided) " undecided, " (tally.not_measured) " not measured."
                        }
                        p.about { "Made by " code { (verdicts.command) } ". Papers' claims are judged on the algorithms as published; \
                            results with our additions are beside them. Intervals contain the median over the seeds with 95 % probability." }
                        p.about { "In figures and in the column Accepted, hollow diamonds and dashed lines are numbers from the papers' texts; \
                            dots, curves and bands are ours: full dots as published, hollow dots with our additions. The papers' curves \
                            are images without numbers, so only numbers from their texts are drawn." }
                    }
                    @for scenario in &verdicts.scenarios { (section(scenario)) }
                    (all_figures(verdicts, notes))
                }
            }
        }
    }
}

fn section(scenario: &ScenarioVerdicts) -> Markup {
    let extended_heading =
        if scenario.machine.is_empty() { "With our additions" } else { "On the scenario's own machine" };
    html! {
        section id=(scenario.id) {
            h2 { (scenario.id) ": " (scenario.title) }
            p.explain { (scenario.source) ". " (scenario.seeds) " seeds" @if scenario.quick { ", quick" } "." }
            @if !scenario.provenance.is_unknown() {
                p.explain { code { (scenario.provenance.command) } " by " (scenario.provenance.version) " on " (scenario.provenance.date) "." }
            } @else if scenario.not_run.is_empty() {
                p.explain { "Judged by an older version, whose runs had fixed times." }
            }
            @if !scenario.machine.is_empty() {
                p.explain { "As published: on a machine with the values that the paper reports (" code { (scenario.machine) } ")." }
            }
            @if !scenario.panels.is_empty() {
                div.figures.single[scenario.panels.len() == 1] { @for panel in &scenario.panels { (overlay(panel)) } }
            }
            @if !scenario.not_run.is_empty() { p.missing { "Not run: " (scenario.not_run) "." } }
            div.scroll {
                table.claims {
                    thead { tr { th { "Verdict" } th { "Claim" } th { "Paper" } th { "As published" } th { (extended_heading) } th { "Accepted" } } }
                    tbody { @for claim in &scenario.claims { (row(scenario, claim, extended_heading)) } }
                }
            }
        }
    }
}

/// Draws the list of the papers' figures: where each is drawn, or why it is not.
fn all_figures(verdicts: &Verdicts, notes: &[FigureNote]) -> Markup {
    let judged = |id: &String| verdicts.scenarios.iter().any(|scenario| scenario.id == *id);
    html! {
        section id="figures" {
            h2 { "Every figure of the papers" }
            div.scroll {
                table.claims {
                    thead { tr { th { "Figure" } th { "Judged by" } th { "Its curves" } } }
                    tbody {
                        @for note in notes {
                            tr {
                                th scope="row" { (note.figure) }
                                td {
                                    @for id in &note.scenarios {
                                        @if judged(id) { a href=(format!("#{id}")) { (id) } } @else { (id) " (not run yet)" } " "
                                    }
                                }
                                td { @if note.reason.is_empty() { "numbers from the text, over our curves" } @else { "not available: " (note.reason) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn row(scenario: &ScenarioVerdicts, claim: &ClaimVerdicts, extended_heading: &str) -> Markup {
    let main_claim = claim.claim();
    html! {
        tr id=(format!("{}-{}", scenario.id, main_claim.id)) {
            td.verdict { (badge(main_claim.verdict)) }
            th scope="row" {
                (non_breaking(&main_claim.text))
                @if !main_claim.settling.is_empty() { p.note { "Settled after: " (main_claim.settled_after()) "." } }
                @if !claim.remedy().is_empty() { p.note { "What would turn it: " (claim.remedy()) "." } }
                @if !main_claim.note.is_empty() { p.note { (text(&main_claim.note)) } }
            }
            td data-name="Paper" { @if claim.ours { "ours: " } (non_breaking(&main_claim.paper)) }
            td.measured data-name="As published" { (non_breaking(&claim.published.measured)) }
            td.measured data-name=(extended_heading) { (non_breaking(&claim.extended.measured)) }
            td data-name="Accepted" { (non_breaking(&main_claim.accepted)) (strip(claim)) }
        }
    }
}
