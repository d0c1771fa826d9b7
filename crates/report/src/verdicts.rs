//! The page of all verdicts: the summary, every claim with its interval drawn against what is accepted, and ours against as published.

use leeward_outcome::verdicts::{Judged, JudgedClaim, Tally, Verdicts};
use maud::{DOCTYPE, Markup, html};

use crate::claims::{badge, unbroken};
use crate::page::about;

/// The whole page.
pub(crate) fn document(verdicts: &Verdicts) -> Markup {
    let tally = Tally::of(verdicts, |_| true);
    html! {
        (DOCTYPE)
        html lang="en" {
            head { (about("Verdicts")) }
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
                            our additions stand beside them. Intervals hold the median over the seeds with 95 % probability." }
                    }
                    @for scenario in &verdicts.scenarios { (section(scenario)) }
                }
            }
        }
    }
}

fn section(scenario: &Judged) -> Markup {
    html! {
        section id=(scenario.id) {
            h2 { (scenario.id) ": " (scenario.title) }
            p.explain { (scenario.source) ". " (scenario.seeds) " seeds" @if scenario.quick { ", quick" } "." }
            @if !scenario.not_run.is_empty() { p.missing { "Not run: " (scenario.not_run) "." } }
            div.scroll {
                table.claims {
                    thead { tr { th { "Verdict" } th { "Claim" } th { "Paper" } th { "As published" } th { "With ours" } th { "Accepted" } } }
                    tbody { @for claim in &scenario.claims { (row(scenario, claim)) } }
                }
            }
        }
    }
}

fn row(scenario: &Judged, claim: &JudgedClaim) -> Markup {
    let counted = claim.claim();
    html! {
        tr id=(format!("{}-{}", scenario.id, counted.id)) {
            td.verdict { (badge(counted.verdict)) }
            th scope="row" {
                (unbroken(&counted.text))
                @if !counted.note.is_empty() { p.note { (counted.note) } }
            }
            td data-name="Paper" { @if claim.ours { "ours: " } (unbroken(&counted.paper)) }
            td.measured data-name="As published" { (unbroken(&claim.published.measured)) }
            td.measured data-name="With ours" { (unbroken(&claim.extended.measured)) }
            td data-name="Accepted" { (unbroken(&counted.accepted)) }
        }
    }
}
