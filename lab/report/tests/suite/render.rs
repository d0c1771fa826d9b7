//! Pages of made-up results: their required and forbidden content.

use crate::samples;
use leeward_outcome::results::{PointRow, Results, RunKey, WorkloadKey};
use leeward_report::render;

/// Writes the page into the folder `LEEWARD_SAMPLES`, for inspection.
fn save_page(name: &str, page: &str) {
    if let Some(folder) = std::env::var_os("LEEWARD_SAMPLES") {
        std::fs::write(std::path::Path::new(&folder).join(name), page).unwrap();
    }
}

#[test]
fn an_overall_comparison_shows_claims_figures_and_numbers() {
    let page = render(&samples::overall());
    save_page("overall.html", &page);
    for part in [
        "Reproduced",
        "Not reproduced",
        "Not measured",
        "SLO 200 µs",
        "capacity",
        "Goodput, k/s",
        "Quick run.",
        "All 240 runs",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("This run has no data for: Nothing to see."));
    assert!(!page.contains("NaN"));
}

#[test]
fn a_time_series_shows_demand_and_shifts() {
    let page = render(&samples::shift());
    save_page("shift.html", &page);
    for part in ["demand", "Shifts of demand", "not within 2,000", "Time, s"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
}

#[test]
fn a_page_loads_no_external_resources() {
    for results in [samples::overall(), samples::shift()] {
        let page = render(&results);
        for foreign in ["http://", "https://", "src=\"", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert_eq!(page, render(&results));
    }
}

#[test]
fn names_cannot_become_markup() {
    let mut results = samples::overall();
    let evil = "</script><img src=x onerror=alert(1)>\"'";
    results.title = evil.into();
    results.overrides = vec![evil.into()];
    results.points = vec![PointRow {
        run: RunKey::new(evil, evil, 0),
        workload: WorkloadKey { service: evil.into(), ..WorkloadKey::default() },
        ..PointRow::default()
    }];
    results.claims[0].text = evil.into();
    results.claims[0].id = evil.into();
    results.plots[0].title = evil.into();
    assert!(!render(&results).contains("<img"));
}

#[test]
fn runs_that_measured_nothing_are_one_sentence_and_a_list() {
    let mut results = samples::overall();
    results.description = "Repeat it with `leeward run demo`.".into();
    results.doubts = vec!["none at 3475/s: late".into(), "auto at 3475/s: late".into()];
    let page = render(&results);
    assert!(page.contains("<p><strong>Not measured. </strong>2 runs say little about the server:</p>"));
    assert!(page.contains("<ul><li>none at 3475/s: late</li><li>auto at 3475/s: late</li></ul>"));
    assert!(page.contains("Repeat it with <code>leeward run demo</code>."));
    results.doubts.truncate(1);
    assert!(render(&results).contains("One run says little about the server:"));
}

#[test]
fn empty_results_make_a_page() {
    let page = render(&Results::default());
    assert!(page.contains("</html>"));
}
