//! The file of a service's threading curves, as `leeward train` writes it: strict to read, and one
//! text per set of curves.
//!
//! Does not contain the meaning of curves (`leeward_threading::curves`).

use super::ScenarioError;
use super::document::{Origin, Source, parse, read_text};
use super::reader::{Item, Reader};
use leeward_threading::curves::{CURVES_MAX, Curve, CurvePoint, Curves, POINTS_MAX};
use std::path::Path;

/// Maximum file size; a setup has ten lines of a few hundred characters.
const MAX_BYTES: usize = 1_000_000;
/// Version written and read here.
const VERSION: u32 = 1;
const KEYS: [&str; 6] = ["version", "service", "data", "made", "machine", "setup"];
const SETUP_KEYS: [&str; 9] = ["name", "sustains", "loads", "p50_us", "p99_us", "p999_us", "cpu", "samples", "spread"];

/// The curves of a service, with their origin.
#[derive(Clone, Debug, PartialEq)]
pub struct CurvesFile {
    /// Service or scenario that was trained.
    pub service: String,
    /// Data set of the service, as written on the command line; empty without data.
    pub data: String,
    /// Command that produced the curves.
    pub command: String,
    /// Description of the machine, in a line.
    pub machine: String,
    /// The curves.
    pub curves: Curves,
}

/// The curves are of another service, data set or machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the curves are of {key} `{found}`, this is `{expected}`; accepted with --accept-curves")]
pub struct CurvesMismatch {
    /// `service`, `data` or `machine`.
    pub key: &'static str,
    /// Value in the file.
    pub found: String,
    /// Expected value.
    pub expected: String,
}

impl CurvesFile {
    /// Reads the curves of the file at `path`.
    ///
    /// # Errors
    /// The file can't be read, or is not accepted: with place, key and accepted values.
    pub fn read(path: &Path) -> Result<CurvesFile, ScenarioError> {
        let file = path.display().to_string();
        match read_text(path, MAX_BYTES as u64, "longer than 1 MB; curves are a few kilobytes") {
            Ok(text) => CurvesFile::parse(&file, &text),
            Err(error) => Err(ScenarioError::Invalid { place: file, key: "file".into(), problem: error.to_string() }),
        }
    }

    /// Parses the curves of a text; `file` is its name in messages.
    ///
    /// # Errors
    /// As [`CurvesFile::read`].
    pub fn parse(file: &str, text: &str) -> Result<CurvesFile, ScenarioError> {
        let source = Source { file, overrides: &[] };
        if text.len() > MAX_BYTES {
            return Err(source.error(Origin::Line(1), "file", "longer than 1 MB; curves are a few kilobytes"));
        }
        let table = parse(&source, text)?;
        let root = Reader::new(&source, &table, "", Origin::Line(1), &KEYS)?;
        let version = root.require("version", &format!("`{VERSION}`"))?;
        if version.count(0..=u32::MAX)? != VERSION {
            return Err(version.unexpected(format!("the version that is read here, `{VERSION}`; train anew")));
        }
        let line = |key| root.require(key, "a line of text").and_then(|item| read_line(&item));
        let (service, data, made, machine) = (line("service")?, line("data")?, line("made")?, line("machine")?);
        let setups = root.require("setup", "a [[setup]] for each curve")?;
        let mut curves: Vec<Curve> = Vec::new();
        for reader in setups.tables(CURVES_MAX, &SETUP_KEYS)? {
            let curve = read_curve(&reader)?;
            if curves.iter().any(|other| other.setup == curve.setup) {
                let problem = format!("{} has a curve already; accepted: one each", curve.setup);
                return Err(reader.require("name", "")?.error(problem));
            }
            curves.push(curve);
        }
        let curves = Curves::new(curves).map_err(|error| setups.error(error.to_string()))?;
        Ok(CurvesFile { service, data, command: made, machine, curves })
    }

    /// Text of the file, which [`CurvesFile::parse`] reads.
    pub fn to_toml(&self) -> String {
        let quoted = |text: &str| toml::Value::String(single_line(text)).to_string();
        let mut text = format!("version = {VERSION}\n");
        for (key, line) in
            [("service", &self.service), ("data", &self.data), ("made", &self.command), ("machine", &self.machine)]
        {
            text += &format!("{key} = {}\n", quoted(line));
        }
        for curve in self.curves.all() {
            text += &format!("\n[[setup]]\nname = \"{}\"\nsustains = {}\n", curve.setup, number(curve.max_load));
            for (key, of) in COLUMNS {
                let row: Vec<String> = curve.points.iter().map(|point| number(of(point))).collect();
                text += &format!("{key} = [{}]\n", row.join(", "));
            }
            let samples: Vec<String> = curve.points.iter().map(|point| point.samples.to_string()).collect();
            text += &format!("samples = [{}]\n", samples.join(", "));
        }
        text
    }

    /// Checks that the curves are of this service, data set and machine.
    ///
    /// # Errors
    /// The first mismatch.
    pub fn check_for(&self, service: &str, data: &str, machine: &str) -> Result<(), CurvesMismatch> {
        let pairs =
            [("service", &self.service, service), ("data", &self.data, data), ("machine", &self.machine, machine)];
        match pairs.into_iter().find(|(_, actual, expected)| *actual != expected) {
            Some((what, actual, expected)) => {
                Err(CurvesMismatch { key: what, found: actual.clone(), expected: expected.into() })
            }
            None => Ok(()),
        }
    }
}

type Column = (&'static str, fn(&CurvePoint) -> f64);

/// Numbers of a curve point, one list each.
const COLUMNS: [Column; 6] = [
    ("loads", |point| point.load),
    ("p50_us", |point| point.p50_us),
    ("p99_us", |point| point.p99_us),
    ("p999_us", |point| point.p999_us),
    ("cpu", |point| point.cpu),
    ("spread", |point| point.spread),
];

fn read_curve(reader: &Reader<'_>) -> Result<Curve, ScenarioError> {
    let name = reader.require("name", "a setup such as \"SDB1-50\"")?;
    let setup = name.text()?.parse().map_err(|error| name.error(format!("{error}")))?;
    let sustains = reader.require("sustains", "a load in requests per second")?.number()?;
    let column = |key: &str| {
        let item = reader.require(key, "a list of numbers, one per load")?;
        let numbers = item.list(POINTS_MAX)?.iter().map(Item::number).collect::<Result<Vec<f64>, _>>()?;
        Ok::<_, ScenarioError>((item, numbers))
    };
    let (_, loads) = column("loads")?;
    let of_all = |key: &str| {
        let (item, numbers) = column(key)?;
        if numbers.len() == loads.len() {
            return Ok(numbers);
        }
        Err(item.error(format!("a list of {}; accepted: as many as loads, {}", numbers.len(), loads.len())))
    };
    let (p50, p99, p999) = (of_all("p50_us")?, of_all("p99_us")?, of_all("p999_us")?);
    let (cpu, spread) = (of_all("cpu")?, of_all("spread")?);
    let samples = reader.require("samples", "a list of whole numbers, one per load")?;
    let counts =
        samples.list(POINTS_MAX)?.iter().map(|item| item.count(0..=u32::MAX)).collect::<Result<Vec<u32>, _>>()?;
    if counts.len() != loads.len() {
        return Err(samples.error(format!("a list of {}; accepted: as many as loads, {}", counts.len(), loads.len())));
    }
    let point = |at: usize| CurvePoint {
        load: loads[at],
        p50_us: p50[at],
        p99_us: p99[at],
        p999_us: p999[at],
        cpu: cpu[at],
        samples: counts[at].into(),
        spread: spread[at],
    };
    let curve = Curve { setup, points: (0..loads.len()).map(point).collect(), max_load: sustains };
    match curve.check() {
        Ok(()) => Ok(curve),
        Err(error) => Err(reader.require(error.key().unwrap_or("name"), "")?.error(error.to_string())),
    }
}

/// Reads a line of text, which may be empty.
fn read_line(item: &Item<'_>) -> Result<String, ScenarioError> {
    let text = item.text()?;
    if text.chars().any(char::is_control) || text.len() > 1_000 {
        return Err(item.unexpected("one line of text, up to 1,000 bytes"));
    }
    Ok(text.into())
}

/// Shortens a text so that [`read_line`] accepts it.
fn single_line(text: &str) -> String {
    let mut line: String = text.chars().filter(|c| !c.is_control()).collect();
    while line.len() > 1_000 {
        line.pop();
    }
    line
}

/// Formats a number for TOML: integers without a point, others as short as possible without loss.
fn number(value: f64) -> String {
    if value.abs() < 1e15 && value == value.trunc() { format!("{value:.0}") } else { format!("{value:?}") }
}
