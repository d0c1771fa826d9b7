//! The page of verdicts: numbers from a paper's text are drawn over our curves, and missing figures
//! are listed.

use leeward_outcome::results::{Claim, Verdict};
use leeward_outcome::verdicts::{
    Bounds, ClaimVerdicts, Curve, FigureNote, Panel, PaperValue, Sample, ScenarioVerdicts, Verdicts,
};
use leeward_report::render_verdicts;

fn verdicts() -> Verdicts {
    let claim = |measured: &str, value| Claim {
        id: "gain".into(),
        text: "Goodput over SEDA".into(),
        paper: "5.7 % more".into(),
        measured: measured.into(),
        value: Some(value),
        interval: Some((value - 0.01, value + 0.01)),
        accepted: "from 1.029 to 1.086x".into(),
        verdict: Verdict::Reproduced,
        note: String::new(),
        settling: Vec::new(),
        late: Vec::new(),
    };
    let sample = |x, median| Sample { x, median, low: median * 0.99, high: median * 1.01 };
    let stated = |x, y, says: &str| PaperValue { series: "Breakwater".into(), x, y, says: says.into() };
    Verdicts {
        command: "leeward verdicts".into(),
        scenarios: vec![ScenarioVerdicts {
            id: "one".into(),
            machine: "server.threads.preset=utune".into(),
            claims: vec![ClaimVerdicts {
                ours: false,
                bounds: Bounds { number: Some(1.057), min: Some(1.0285), max: Some(1.0855) },
                published: claim("1.05x", 1.05),
                extended: claim("9x", 9.0),
                turned_by: None,
            }],
            panels: vec![Panel {
                figure: "Breakwater, Fig. 3".into(),
                title: "Goodput against demand".into(),
                x: "demand_rps".into(),
                y: "goodput_rps".into(),
                log_y: false,
                curves: vec![Curve {
                    label: "breakwater".into(),
                    samples: vec![sample(400e3, 400e3), sample(850e3, 805e3)],
                }],
                stated: vec![
                    stated(Some(850e3), Some(801e3), "801k requests/s at 850k"),
                    stated(Some(700e3), None, "a place on the axis"),
                    stated(None, Some(808e3), "a level"),
                ],
                missing: "the curves are pictures".into(),
            }],
            ..ScenarioVerdicts::default()
        }],
    }
}

#[test]
fn the_papers_numbers_are_drawn_over_the_measured_curves() {
    let notes = [
        FigureNote { figure: "Breakwater, Fig. 3".into(), scenarios: vec!["one".into()], reason: String::new() },
        FigureNote { figure: "Breakwater, Fig. 2".into(), scenarios: vec![], reason: "a diagram".into() },
    ];
    let page = render_verdicts(&verdicts(), &notes);
    for part in [
        "Goodput, k/s",
        "Demand, k/s",
        "the paper, Breakwater: 801k requests/s at 850k",
        "Not drawn: the curves are pictures.",
        "numbers from the text, over our curves",
        "not available: a diagram",
        "On the scenario's own machine",
        "server.threads.preset=utune",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert_eq!(page.matches("class=\"upright\"").count(), 1, "the place on the axis is a line");
    assert_eq!(page.matches("class=\"reference\"").count(), 1, "and so is the level");
    assert!(page.contains("»"), "ours lies far beyond what is accepted, and says so");
    assert!(!page.contains("NaN") && !page.contains("inf "));
}

/// The axis's numbers are beside the figure, so a line's name must stay above it.
#[test]
fn the_label_of_a_line_stays_above_the_figure() {
    let mut left = verdicts();
    let panel = &mut left.scenarios[0].panels[0];
    panel.stated.retain(|stated| stated.y.is_none());
    (panel.stated[0].series, panel.stated[0].x) = ("a name of many letters".into(), Some(0.0));
    let page = render_verdicts(&left, &[]);
    let at = |class: &str, key: &str| -> f64 {
        let (_, rest) = page.split_once(&format!("class=\"{class}\"")).unwrap_or_else(|| panic!("{class}"));
        let (_, rest) = rest.split_once(&format!("{key}=\"")).unwrap();
        rest.split_once('"').unwrap().0.parse().unwrap()
    };
    assert!(at("upright-name middle", "x") - at("upright", "x1") > 60.0, "half of the name is right of its line");
}

/// The hollow diamond is at the paper's numbers: above our point at the same demand if ours is
/// lower.
#[test]
fn a_paper_value_is_drawn_on_the_scale_of_the_curves() {
    let mut lower = verdicts();
    lower.scenarios[0].panels[0].stated.truncate(1);
    lower.scenarios[0].panels[0].curves[0].samples[1].median = 500e3;
    let page = render_verdicts(&lower, &[]);
    let position = |mark: &str| {
        let (_, rest) = page.split_once(mark).unwrap_or_else(|| panic!("{mark}"));
        let (_, rest) = rest.split_once("translate(").unwrap();
        let (position, _) = rest.split_once(')').unwrap();
        let (x, y) = position.split_once(' ').unwrap();
        (x.parse::<f64>().unwrap(), y.parse::<f64>().unwrap())
    };
    let paper = position("801k requests/s at 850k</title>");
    let ours = position("Demand 850 k/s\nGoodput 500 k/s");
    assert_eq!(paper.0, ours.0);
    assert!(paper.1 < ours.1, "{paper:?} above {ours:?}");
}
