//! The file of threading curves: it is read as it was written, every mistake is reported with line,
//! key and accepted values, and no input causes a panic.

use leeward_lab::scenario::curves::CurvesFile;
use leeward_threading::curves::{Curve, CurvePoint, Curves};
use proptest::prelude::*;

const GOOD: &str = r#"version = 1
service = "hdsearch"
data = "synthetic:128:500000:1"
made = "leeward train hdsearch"
machine = "a machine, 2 CPUs"

[[setup]]
name = "SIP1"
sustains = 1_700
loads = [50, 200, 800, 1600]
p50_us = [80, 81, 85.5, 120]
p99_us = [100, 110.25, 150, 400]
p999_us = [200, 210, 300, 900]
cpu = [1.0, 1.0, 1.0, 1.0]
spread = [0.02, 0.02, 0.03, 0.1]
samples = [2000, 2000, 2000, 500]

[[setup]]
name = "CORE2"
sustains = 9_000
loads = [50, 8000]
p50_us = [90, 95]
p99_us = [120, 300]
p999_us = [200, 900]
cpu = [0.1, 1.9]
spread = [0, 0.05]
samples = [2000, 2000]
"#;

fn parse(text: &str) -> Result<CurvesFile, String> {
    CurvesFile::parse("curves.toml", text).map_err(|error| error.to_string())
}

#[test]
fn a_curve_file_round_trips() {
    let file = parse(GOOD).unwrap();
    assert_eq!(file.curves.all().len(), 2);
    assert_eq!(file.curves.all()[0].points[1].p99_us, 110.25);
    assert_eq!(parse(&file.to_toml()), Ok(file.clone()));
    assert_eq!(file.check_for("hdsearch", "synthetic:128:500000:1", "a machine, 2 CPUs"), Ok(()));
    let other = file.check_for("hdsearch", "synthetic:128:500000:1", "another").unwrap_err().to_string();
    assert!(other.contains("machine `a machine, 2 CPUs`, this is `another`; accepted with --accept-curves"), "{other}");
}

fn refuses(from: &str, to: &str, place: &str, problem: &str) {
    assert!(GOOD.contains(from), "{from}");
    let message = parse(&GOOD.replacen(from, to, 1)).unwrap_err();
    assert!(message.starts_with(&format!("curves.toml{place}: ")) && message.contains(problem), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn errors_name_the_line_the_key_and_the_accepted_values() {
    refuses("version = 1", "version = 2", ":1", "version: `2` is not the version that is read here, `1`");
    refuses("version = 1\n", "", ":1", "version: missing; expected `1`");
    refuses("data =", "date =", ":3", "date: unknown key; accepted: version, service, data");
    refuses("cpu = [1.0,", "cpus = [1.0,", ":14", "unknown key; accepted: name, sustains, loads");
    refuses("\"SIP1\"", "\"SIX1\"", ":8", "`B` or `P`");
    refuses("\"SIP1\"", "\"SDB1-1025\"", ":8", "from 1 to 1024 workers");
    refuses("\"CORE2\"", "\"SIP1\"", ":19", "SIP1 has a curve already; accepted: one each");
    refuses("800, 1600]", "1600, 800]", ":10", "`loads` can't be 800; accepted: ascending loads, here above 1600");
    refuses("[50, 8000]", "[50]", ":22", "accepted: as many as loads, 1");
    refuses("[50, 200,", "[50, -200,", ":10", "`loads` can't be -200");
    refuses("[100, 110.25", "[nan, 110.25", ":12", "`NaN` is not a number");
    refuses("[100, 110.25", "[inf, 110.25", ":12", "`inf` is not a number");
    refuses("[100, 110.25", "[79, 110.25", ":12", "at least the percentile below it, here 80");
    refuses("sustains = 1_700", "sustains = 40", ":9", "at least the first load, 50");
    refuses("samples = [2000, 2000, 2000, 500]", "samples = [2000, 2000, 2000, 0.5]", ":16", "a whole number");
    refuses("\"leeward train hdsearch\"", "\"a\\nb\"", ":4", "one line of text");
    let one = GOOD.split("[[setup]]").next().unwrap();
    let message = parse(one).unwrap_err();
    assert!(message.contains("setup: missing; expected a [[setup]] for each curve"), "{message}");
    let single = GOOD.replace("[50, 8000]", "[50]").replace("[90, 95]", "[90]").replace("[120, 300]", "[120]");
    let single = single.replace("[200, 900]", "[200]").replace("[0.1, 1.9]", "[0.1]").replace("[0, 0.05]", "[0]");
    let single = single.replace("[2000, 2000]", "[2000]");
    assert!(parse(&single).unwrap_err().contains("from 2 to 64 knots"), "{:?}", parse(&single));
}

#[test]
fn oversized_files_are_rejected_before_parsing() {
    let many = GOOD.to_string() + &"[[setup]]\n".repeat(50_000);
    assert!(parse(&many).unwrap_err().contains("accepted: 1 to 256 entries"));
    let million = GOOD.to_string() + &"[[setup]]\n".repeat(1_000_000);
    assert!(parse(&million).unwrap_err().contains("longer than 1 MB"));
}

#[test]
fn every_prefix_is_parsed_or_rejected() {
    for end in 0..GOOD.len() {
        if let Ok(file) = parse(&GOOD[..end]) {
            // Cut between two setups, or before the last newline, the file is still valid.
            assert!(file.curves.all().len() == 1 || end == GOOD.len() - 1, "{end}");
        }
    }
}

fn any_file() -> impl Strategy<Value = CurvesFile> {
    let point = (1e-3..1e6f64, 1e-3..1e9f64, 1.0..10.0f64, 1.0..10.0f64, 0.0..64.0f64, any::<u32>(), 0.0..1.0f64);
    let curve = (1..=9u16, proptest::collection::vec(point, 2..6), 1.0..2.0f64).prop_map(|(cores, raw, beyond)| {
        let mut load = 0.0;
        let curve_points: Vec<CurvePoint> = raw
            .into_iter()
            .map(|(step, p50_us, tail, further, cpu, samples, spread)| {
                load += step;
                let p99_us = p50_us * tail;
                CurvePoint { load, p50_us, p99_us, p999_us: p99_us * further, cpu, samples: samples.into(), spread }
            })
            .collect();
        let setup = leeward_threading::ThreadingSetup::Cores(cores);
        Curve { setup, max_load: load * beyond, points: curve_points }
    });
    (proptest::collection::vec(curve, 1..5), any::<String>()).prop_map(|(mut all, text)| {
        all.sort_by_key(|curve| curve.setup);
        all.dedup_by_key(|curve| curve.setup);
        let text: String = text.chars().filter(|c| !c.is_control()).take(100).collect();
        let (service, data) = (text.clone(), text.chars().rev().collect());
        CurvesFile { service, data, command: text, machine: "m".into(), curves: Curves::new(all).unwrap() }
    })
}

proptest! {
    #[test]
    fn any_curves_round_trip(file in any_file()) {
        prop_assert_eq!(parse(&file.to_toml()), Ok(file));
    }

    #[test]
    fn damaged_curves_are_parsed_or_rejected(cuts in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..12, "[ -~\n]{0,6}"), 1..4)) {
        let mut text: Vec<char> = GOOD.chars().collect();
        for (at, length, put) in cuts {
            let at = at.index(text.len());
            let end = (at + length).min(text.len());
            text.splice(at..end, put.chars());
        }
        match parse(&text.into_iter().collect::<String>()) {
            // A valid file is written and read the same.
            Ok(file) => prop_assert_eq!(parse(&file.to_toml()), Ok(file)),
            Err(message) => prop_assert_eq!(message.lines().count(), 1, "{}", message),
        }
    }

    #[test]
    fn arbitrary_texts_do_not_panic(text in any::<String>()) {
        let _ = parse(&text);
    }
}
