//! Table of the claims, by the paper or by us, with their measurements: the page's first section.

use leeward_outcome::results::{Claim, Results, Verdict};
use maud::{Markup, html};

use crate::text::text;

/// Draws the summary and the table; empty for a scenario without claims.
pub(crate) fn section(results: &Results) -> Markup {
    let claims = &results.claims;
    let (heading, expected) = if results.has_own_claims() {
        ("What we expect, what we measured", "Expected")
    } else {
        ("What the paper says, what we measured", "Paper")
    };
    html! {
        @if !claims.is_empty() {
            section {
                h2 { (heading) }
                p.tally { (tally(claims)) }
                div.scroll {
                    table.claims {
                        thead { tr { th { "Verdict" } th { "Claim" } th { (expected) } th { "Measured" } th { "Accepted" } } }
                        tbody { @for claim in claims { (row(claim, expected)) } }
                    }
                }
            }
        }
    }
}

fn row(claim: &Claim, expected: &str) -> Markup {
    html! {
        tr id=(format!("claim-{}", claim.id)) {
            td.verdict { (badge(claim.verdict)) }
            th scope="row" {
                (non_breaking(&claim.text))
                @if let Some(reason) = claim.unmeasured() { p.note { (reason) } }
                @if !claim.note.is_empty() { p.note { (text(&claim.note)) } }
            }
            td data-name=(expected) { (non_breaking(&claim.paper)) }
            td.measured[claim.verdict != Verdict::NotApplicable] data-name="Measured" { (non_breaking(&claim.measured)) }
            td data-name="Accepted" { (non_breaking(&claim.accepted)) }
        }
    }
}

/// Keeps a unit on the line of its number.
pub(crate) fn non_breaking(text: &str) -> String {
    let units = ["%", "×", "x", "µs", "us", "ms", "s", "k/s", "M/s"];
    let mut out = String::new();
    for (index, part) in text.split(' ').enumerate() {
        let is_unit = units.contains(&part.trim_end_matches([',', ';', '.', ')']));
        let after_number = out.ends_with(|letter: char| letter.is_ascii_digit());
        if index > 0 {
            out.push(if is_unit && after_number { '\u{a0}' } else { ' ' });
        }
        out.push_str(part);
    }
    out
}

/// Draws a verdict as an icon and a word; the colour only repeats them.
pub(crate) fn badge(verdict: Verdict) -> Markup {
    let (class, path, label) = match verdict {
        Verdict::Reproduced => ("yes", "M3.5 8.5l3 3 6-7", "Reproduced"),
        Verdict::NotReproduced => ("no", "M4 4l8 8M12 4l-8 8", "Not reproduced"),
        Verdict::Undecided => ("unmeasured", "M4 6h8M4 10h8", "Undecided"),
        Verdict::NotApplicable => ("unmeasured", "M4 8h8", "Not measured"),
    };
    html! {
        span.badge.(class) {
            svg viewBox="0 0 16 16" width="13" height="13" aria-hidden="true" { path d=(path) {} }
            (label)
        }
    }
}

fn tally(claims: &[Claim]) -> Markup {
    let count = |verdict: Verdict| claims.iter().filter(|claim| claim.verdict == verdict).count();
    let (yes, no, open) = (count(Verdict::Reproduced), count(Verdict::NotReproduced), count(Verdict::NotApplicable));
    let undecided = count(Verdict::Undecided);
    html! {
        strong { (yes) " of " (yes + no) } " decided " (if yes + no == 1 { "claim" } else { "claims" }) " reproduced"
        @if undecided > 0 { "; " (undecided) " undecided: results vary too much between seeds, a run had not settled, or its load was late" }
        @if open > 0 { "; " (open) " not measured by this run" }
        "."
    }
}
