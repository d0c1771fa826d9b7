//! The file of a service's threading curves, as `leeward train` writes it: strict to read, and one text for each set of curves. What
//! curves mean is `leeward_threading::curves`'s.

use super::ScenarioError;
use super::document::{Origin, Source, parse, read_text};
use super::reader::{Item, Reader};
use leeward_threading::curves::{CURVES_MAX, Curve, CurvePoint, Curves, POINTS_MAX};
use std::path::Path;

/// A setup has ten lines of a few hundred characters.
const MAX_BYTES: usize = 1_000_000;
/// The version written and read here.
const VERSION: u32 = 1;
const KEYS: [&str; 6] = ["version", "service", "data", "made", "machine", "setup"];
const SETUP_KEYS: [&str; 9] = ["name", "sustains", "loads", "p50_us", "p99_us", "p999_us", "cpu", "samples", "spread"];

/// The curves of a service, with where they come from.
#[derive(Clone, Debug, PartialEq)]
pub struct CurvesFile {
    /// Service, or scenario, that was trained.
    pub service: String,
    /// Its data set, as written on the command line; empty where it has none.
    pub data: String,
    /// The command that made it.
    pub command: String,
    /// The machine that it is of, in a line.
    pub machine: String,
    /// The curves.
    pub curves: Curves,
}

/// Curves of something else than what they are to be used for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the curves are of {key} `{found}`, this is `{expected}`; accepted with --accept-curves")]
pub struct CurvesMismatch {
    /// `service`, `data` or `machine`.
    pub key: &'static str,
    /// Value in the file.
    pub found: String,
    /// Value that it should have.
    pub expected: String,
}

impl CurvesFile {
    /// The curves of the file at `path`.
    ///
    /// # Errors
    /// The file can't be read, or is not accepted: where, which key, and what would be.
    pub fn read(path: &Path) -> Result<CurvesFile, ScenarioError> {
        let file = path.display().to_string();
        match read_text(path, MAX_BYTES as u64, "longer than 1 MB; curves are a few kilobytes") {
            Ok(text) => CurvesFile::parse(&file, &text),
            Err(error) => Err(ScenarioError::Invalid { place: file, key: "file".into(), problem: error.to_string() }),
        }
    }

    /// The curves of a text; `file` is its name in messages.
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

    /// The file's text: what [`CurvesFile::parse`] reads.
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
                let row: Vec<String> = curve.points.iter().map(|knot| number(of(knot))).collect();
                text += &format!("{key} = [{}]\n", row.join(", "));
            }
            let samples: Vec<String> = curve.points.iter().map(|knot| knot.samples.to_string()).collect();
            text += &format!("samples = [{}]\n", samples.join(", "));
        }
        text
    }

    /// Whether the curves are of this service, data and machine.
    ///
    /// # Errors
    /// The first that they are not of.
    pub fn check_for(&self, service: &str, data: &str, machine: &str) -> Result<(), CurvesMismatch> {
        let pairs =
            [("service", &self.service, service), ("data", &self.data, data), ("machine", &self.machine, machine)];
        match pairs.into_iter().find(|(_, theirs, ours)| *theirs != ours) {
            Some((what, theirs, ours)) => {
                Err(CurvesMismatch { key: what, found: theirs.clone(), expected: ours.into() })
            }
            None => Ok(()),
        }
    }
}

type Column = (&'static str, fn(&CurvePoint) -> f64);

/// Numbers of a knot, one list each.
const COLUMNS: [Column; 6] = [
    ("loads", |knot| knot.load),
    ("p50_us", |knot| knot.p50_us),
    ("p99_us", |knot| knot.p99_us),
    ("p999_us", |knot| knot.p999_us),
    ("cpu", |knot| knot.cpu),
    ("spread", |knot| knot.spread),
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
    let knot = |at: usize| CurvePoint {
        load: loads[at],
        p50_us: p50[at],
        p99_us: p99[at],
        p999_us: p999[at],
        cpu: cpu[at],
        samples: counts[at].into(),
        spread: spread[at],
    };
    let curve = Curve { setup, points: (0..loads.len()).map(knot).collect(), max_load: sustains };
    match curve.check() {
        Ok(()) => Ok(curve),
        Err(error) => Err(reader.require(error.key().unwrap_or("name"), "")?.error(error.to_string())),
    }
}

/// A line for people, which may be empty.
fn read_line(item: &Item<'_>) -> Result<String, ScenarioError> {
    let text = item.text()?;
    if text.chars().any(char::is_control) || text.len() > 1_000 {
        return Err(item.unexpected("one line of text, up to 1,000 bytes"));
    }
    Ok(text.into())
}

/// Part of a text that [`text_of`] accepts.
fn single_line(text: &str) -> String {
    let mut line: String = text.chars().filter(|c| !c.is_control()).collect();
    while line.len() > 1_000 {
        line.pop();
    }
    line
}

/// A number as TOML has it: whole ones without a point, others as short as comes back the same.
fn number(value: f64) -> String {
    if value.abs() < 1e15 && value == value.trunc() { format!("{value:.0}") } else { format!("{value:?}") }
}
