//! `leeward replay`: repeats the calls of a recording and compares the decisions.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use leeward_core::params::{Params, RawParam};
use leeward_core::registry::{Algorithm, Registry};
use leeward_core::units::{Nanos, Time};
use leeward_recording::{
    Difference, End, EndReason, Header, Item, ReadError, Reader, ReplayCounts, Replayer, Timeline,
};
use serde_json::{Value, json};

use crate::admission::parse_pair;
use crate::demo::format::thousands_with;
use crate::failure::{Failure, file_failure};
use crate::stdout;
use crate::table::{Align, Table};

/// Rows of the timeline.
const ROWS: usize = 20;

/// Repeat the calls of a recording with its controller, which must decide the same, or with another
/// one
///
/// Without further flags every decision is compared. With --admission or --set the calls go to
/// another controller, and its different decisions are counted. That is open loop: this controller
/// sees the delays and demands that the recorded controller caused. To find the better of two
/// controllers, use `leeward run`.
#[derive(Debug, clap::Args)]
#[command(after_help = REPLAY)]
pub(crate) struct ReplayArgs {
    /// Recording that `leeward record` has written
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Use this controller instead of the recorded one
    #[arg(long, value_name = "NAME")]
    pub(crate) admission: Option<String>,
    /// Change a parameter of the controller, such as target=80us; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) overrides: Vec<String>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const REPLAY: &str = "\
Examples:
  leeward replay run.rec                          the same decisions?
  leeward replay run.rec --set target=60us        how many decisions differ?
  leeward replay run.rec --admission codel --json

Exit codes: 0 the same decisions (or another controller), 1 a decision differs, 2 no recording, or a damaged one.";

/// Runs the command.
pub(crate) fn replay(args: &ReplayArgs) -> Result<(), Failure> {
    let replay = ReplayReport::run(args)?;
    stdout::print(&if args.json { replay.json().to_string() } else { replay.text() })?;
    match (&replay.problem, &replay.difference) {
        (_, Some(difference)) if !replay.has_replacement() => {
            Err(Failure::Runtime(anyhow!("{}: {difference}", replay.file)))
        }
        (Some(problem), _) => Err(Failure::Input(anyhow!("{}: {problem}", replay.file))),
        _ => Ok(()),
    }
}

/// Report of a replayed recording.
struct ReplayReport {
    file: String,
    header: Header,
    /// Name and parameters of the replacement controller, if one was requested.
    replacement: Option<(String, Vec<(String, RawParam)>)>,
    /// Number of readable calls.
    calls: u64,
    /// Counts of the replayed calls, up to the first difference.
    counts: ReplayCounts,
    difference: Option<Difference>,
    timeline: Timeline,
    /// First and last time of the recording.
    span: Option<(Time, Time)>,
    end: Option<End>,
    /// Damage of the recording.
    problem: Option<String>,
}

impl ReplayReport {
    fn run(args: &ReplayArgs) -> Result<ReplayReport, Failure> {
        let name = args.file.display().to_string();
        let mut file = File::open(&args.file).with_context(|| name.clone()).map_err(Failure::Input)?;
        let (mut reader, registry) = (Reader::new(), leeward_controllers::builtin());
        let header = match next_item(&mut reader, &mut file, &args.file)? {
            Ok(Some(Item::Header(header))) => header,
            Err(error) => return Err(Failure::Input(anyhow!("{name}: {error}"))),
            _ => return Err(Failure::Input(anyhow!("{name}: {}", ReadError::NotARecording))),
        };
        let refused = |message: String| Failure::Input(anyhow!("{name}: {message}"));
        let other = replacement(args, &header, &registry)?;
        let mut replayer = match &other {
            None => Replayer::from_header(&header, &registry).map_err(|error| refused(error.to_string()))?,
            Some((algorithm, params)) => Replayer::with_algorithm(algorithm, params, &header.environment)
                .map_err(|error| Failure::Input(anyhow!("--set: {error}")))?,
        };
        let other = other.map(|(algorithm, params)| {
            (algorithm.name.to_string(), params.pairs().map(|(name, raw)| (name.to_string(), raw)).collect())
        });
        let mut timeline = Timeline::new(ROWS);
        let (mut span, mut end, mut problem) = (None::<(Time, Time)>, None, None);
        loop {
            match next_item(&mut reader, &mut file, &args.file)? {
                Ok(Some(Item::Entry(entry))) => {
                    if let Some(now) = entry.now() {
                        span =
                            Some((span.map_or(now, |(first, _)| first.min(now)), span.map_or(now, |s| s.1.max(now))));
                    }
                    timeline.record(&entry);
                    if let Err(error) = replayer.step(&entry) {
                        problem = Some(error.to_string());
                        break;
                    }
                }
                Ok(Some(Item::End(found))) => end = Some(found),
                Ok(Some(Item::Header(_))) => {}
                Ok(None) => break,
                Err(error) => {
                    problem = Some(error.to_string());
                    break;
                }
            }
        }
        let (counts, difference) = (replayer.counts(), replayer.difference().cloned());
        Ok(ReplayReport {
            file: name,
            header,
            replacement: other,
            calls: reader.entries(),
            counts,
            difference,
            timeline,
            span,
            end,
            problem,
        })
    }

    fn has_replacement(&self) -> bool {
        self.replacement.is_some()
    }

    fn length(&self) -> Nanos {
        self.span.map_or(Nanos::ZERO, |(first, last)| last.since(first))
    }

    fn end_reason(&self) -> &str {
        match (&self.problem, &self.end) {
            (Some(problem), _) => problem,
            (None, Some(end)) => end.reason.description(),
            (None, None) => "its end is missing",
        }
    }

    fn verdict(&self) -> &'static str {
        match (&self.replacement, &self.difference) {
            (Some(_), _) => "compared",
            (None, Some(_)) => "different",
            (None, None) => "same",
        }
    }

    fn text(&self) -> String {
        let Header { version, plant, environment, .. } = &self.header;
        let counts = self.counts;
        let mut text = format!(
            "recording     {} on {} core{}, objective {}, round trip {}; {plant}, leeward {version}\n",
            controller(&self.header.algorithm, &self.header.params),
            environment.cores,
            if environment.cores == 1 { "" } else { "s" },
            environment.slo,
            environment.rtt,
        );
        text += &format!("              {} calls over {}; {}\n", self.calls, self.length(), self.end_reason());
        text += &format!(
            "replayed      {} calls: {} sessions opened, {} requests, {} of them rejected when recorded, {} ticks\n",
            counts.entries,
            counts.opened,
            counts.requests,
            counts.rejected_recorded + counts.late_recorded,
            counts.ticks
        );
        if counts.late_recorded > 0 {
            text += &format!(
                "              {} of the rejections were made when the request was dequeued\n",
                counts.late_recorded
            );
        }
        match (&self.replacement, &self.difference) {
            (None, None) => text += &format!("decisions     the same: {} compared\n", counts.compared),
            (None, Some(difference)) => {
                text +=
                    &format!("decisions     DIFFERENT after {} that are the same\n", counts.compared.saturating_sub(1));
                text += &format!("              {difference}\n");
            }
            (Some((name, params)), difference) => {
                let agree = counts.rejected_both;
                text += &format!("controller    {} instead\n", controller(name, params));
                text += &format!(
                    "              rejects {} requests on arrival: {agree} that were rejected, {} that were admitted; admits {} that \
                     were rejected\n",
                    counts.rejected_replayed,
                    counts.rejected_replayed - agree,
                    counts.rejected_recorded - agree
                );
                if counts.late_recorded + counts.late_replayed > 0 {
                    let agree = counts.late_both;
                    text += &format!(
                        "              rejects {} when they are dequeued: {agree} that were rejected then, {} that were \
                         executed; executes {} that were rejected\n",
                        counts.late_replayed,
                        counts.late_replayed - agree,
                        counts.late_recorded - agree
                    );
                }
                let (then, now) = (counts.windows_recorded, counts.windows_replayed);
                text += &format!("              windows sent add up to {now} (recorded: {then})\n");
                if let Some(difference) = difference {
                    text += &format!("              first: {difference}\n");
                }
                text +=
                    "              (open loop: it sees the delays and demands that the recorded controller caused)\n";
            }
        }
        text + &self.table()
    }

    fn table(&self) -> String {
        let columns = ["from", "requests k/s", "rejected %", "delay max us", "pool", "issued"];
        let mut table = Table::new(&columns.map(|name| (name, Align::Right)));
        let seconds = self.timeline.length().as_secs_f64();
        let begin = self.timeline.rows().first().map_or(Time::ZERO, |row| row.from);
        let gauge = |value: Option<i64>| value.map_or("-".into(), |value| value.to_string());
        for row in self.timeline.rows() {
            table.row(vec![
                row.from.since(begin).to_string(),
                thousands_with(2, row.requests as f64 / seconds),
                // A late rejection may belong to a request of the previous row.
                format!("{:.1}", row.rejected as f64 / row.requests.max(row.rejected).max(1) as f64 * 100.0),
                format!("{:.1}", row.delay_max.as_micros_f64()),
                gauge(row.credit_pool),
                gauge(row.credits_issued),
            ]);
        }
        format!("\n{table}")
    }

    fn json(&self) -> Value {
        let params = |pairs: &[(String, RawParam)]| -> Value {
            pairs.iter().map(|(name, raw)| (name.clone(), Value::from(raw.to_string()))).collect()
        };
        let Header { version, plant, algorithm, environment, .. } = &self.header;
        let counts = self.counts;
        let end = match (&self.problem, &self.end) {
            (Some(_), _) | (None, None) => "damaged",
            (None, Some(End { reason: EndReason::Complete, .. })) => "complete",
            (None, Some(End { reason: EndReason::Overrun, .. })) => "overrun",
            (None, Some(End { reason: EndReason::Panicked, .. })) => "panicked",
        };
        let rows = self.timeline.rows().iter().map(|row| {
            json!({
                "from_ns": row.from.0,
                "requests": row.requests,
                "rejected": row.rejected,
                "delay_max_ns": row.delay_max.0,
                "credit_pool": row.credit_pool,
                "credits_issued": row.credits_issued,
            })
        });
        json!({
            "file": self.file,
            "recorded": {
                "version": version,
                "plant": plant,
                "controller": algorithm,
                "params": params(&self.header.params),
                "cores": environment.cores,
                "rtt_ns": environment.rtt.0,
                "slo_ns": environment.slo.0,
                "duration_ns": self.length().0,
                "end": end,
            },
            "problem": self.problem,
            "asked": self.replacement.as_ref().map(|(name, pairs)| json!({ "controller": name, "params": params(pairs) })),
            "verdict": self.verdict(),
            "difference": self.difference.as_ref().map(|difference| json!({
                "entry": difference.entry,
                "at_ns": difference.at.0,
                "core": difference.core.map(|core| core.0),
                "session": difference.session.map(|(slot, _)| slot.0),
                "call": difference.call,
                "what": difference.part,
                "recorded": difference.recorded,
                "replayed": difference.replayed,
            })),
            "counts": {
                "calls": self.calls,
                "replayed": counts.entries,
                "compared": counts.compared,
                "sessions_opened": counts.opened,
                "sessions_closed": counts.closed,
                "requests": counts.requests,
                "replies": counts.replies,
                "ticks": counts.ticks,
                "threading": counts.threading,
                "rejected_recorded": counts.rejected_recorded,
                "rejected_replayed": counts.rejected_replayed,
                "rejected_both": counts.rejected_both,
                "turns": counts.dequeues,
                "rejected_late_recorded": counts.late_recorded,
                "rejected_late_replayed": counts.late_replayed,
                "rejected_late_both": counts.late_both,
                "woken_recorded": counts.woken_recorded,
                "woken_replayed": counts.woken_replayed,
                "windows_recorded": counts.windows_recorded,
                "windows_replayed": counts.windows_replayed,
            },
            "timeline": { "row_ns": self.timeline.length().0, "rows": rows.collect::<Vec<Value>>() },
        })
    }
}

/// Formats a controller and its parameters, such as `breakwater (target=80us)`.
fn controller(name: &str, params: &[(String, RawParam)]) -> String {
    let pairs: Vec<String> = params.iter().map(|(name, raw)| format!("{name}={}", format_param(raw))).collect();
    if pairs.is_empty() { name.into() } else { format!("{name} ({})", pairs.join(", ")) }
}

/// Formats a parameter; durations are stored in nanoseconds and printed in readable units.
fn format_param(raw: &RawParam) -> String {
    match raw {
        RawParam::Text(text) => {
            leeward_core::units::parse_duration(text).map_or(raw.to_string(), |span| span.to_string())
        }
        _ => raw.to_string(),
    }
}

/// Returns the controller that the flags request, if it differs from the recorded one.
fn replacement(
    args: &ReplayArgs,
    header: &Header,
    registry: &Registry,
) -> Result<Option<(Algorithm, Params)>, Failure> {
    if args.admission.is_none() && args.overrides.is_empty() {
        return Ok(None);
    }
    let name = args.admission.as_deref().unwrap_or(&header.algorithm);
    let algorithm = registry.find(name).map_err(|error| Failure::Input(anyhow!("--admission: {error}")))?;
    let overrides = args.overrides.iter().map(|text| parse_pair(text)).collect::<Result<Vec<_>, _>>()?;
    let is_overridden = |name: &str| overrides.iter().any(|(known, _)| *known == name);
    // The recorded controller keeps all parameters that `--set` does not change.
    let kept: &[(String, RawParam)] = if name == header.algorithm { &header.params } else { &[] };
    let mut pairs: Vec<(&str, RawParam)> = Vec::new();
    pairs.extend(kept.iter().filter(|(name, _)| !is_overridden(name)).map(|(name, raw)| (name.as_str(), raw.clone())));
    pairs.extend(overrides.iter().cloned());
    let params = algorithm.params(&pairs).map_err(|error| Failure::Input(anyhow!("--set: {error}")))?;
    Ok(Some((algorithm.clone(), params)))
}

/// Reads the next item of a file; `None` at a proper end. The outer error is a disk error.
fn next_item(reader: &mut Reader, file: &mut File, path: &Path) -> Result<Result<Option<Item>, ReadError>, Failure> {
    loop {
        match reader.next_item() {
            Ok(None) => {}
            item => return Ok(item),
        }
        match file.read(reader.spare_capacity()) {
            Ok(0) => return Ok(reader.finish().map(|()| None)),
            Ok(count) => reader.advance(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).with_context(|| path.display().to_string()).map_err(file_failure),
        }
    }
}
