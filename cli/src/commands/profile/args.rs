//! The command line of `leeward profile`.

use std::path::PathBuf;

/// Which function, thread and lock made this request slow: record a program, and read its traces
///
/// Programs are built with `leeward cc` or `leeward c++` for calls of functions; without, there are
/// locks and the scheduler. See docs/profile.md.
#[derive(Debug, clap::Args)]
#[command(after_help = PROFILE, subcommand_required = true)]
pub(crate) struct ProfileArgs {
    #[command(subcommand)]
    pub(crate) command: ProfileCommand,
}

const PROFILE: &str = "\
Examples:
  leeward profile record -- ./server --port 8080
  leeward profile tail leeward-traces/4711          what the slowest requests do that the others don't
  leeward profile timeline leeward-traces/4711      the slowest request, across threads
  leeward profile stats leeward-traces/4711 --by-caller";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ProfileCommand {
    Record(RecordArgs),
    Attach(AttachArgs),
    Stop(StopArgs),
    Info(InfoArgs),
    Stats(StatsArgs),
    Requests(RequestsArgs),
    Timeline(TimelineArgs),
    Tail(TailArgs),
    Export(ExportArgs),
}

/// How to record.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Recording {
    /// Folder for traces; each process gets one in it, named after its process id
    #[arg(long, value_name = "DIR", default_value = "leeward-traces")]
    pub(crate) out: PathBuf,
    /// How calls are timed: `tick`, `scan`, or as the program was built
    #[arg(long, default_value = "auto", value_parser = ["auto", "tick", "scan", "none"])]
    pub(crate) engine: String,
    /// Resolution of calls' times; 1us unless --overhead says what it may cost
    #[arg(long, value_name = "SPAN")]
    pub(crate) tick: Option<String>,
    /// Most of the program's CPU time that recording may take, such as 5%, or `off`. The shortest
    /// functions that are called most are left out for it, and ticks come as often as it allows, or
    /// as --tick says
    #[arg(long, value_name = "PERCENT")]
    pub(crate) overhead: Option<String>,
    /// Shortest call that is recorded
    #[arg(long, value_name = "SPAN", default_value = "1us")]
    pub(crate) threshold: String,
    /// Shortest wait for a lock, or hold of it, that is recorded
    #[arg(long, value_name = "SPAN", default_value = "1us")]
    pub(crate) lock_threshold: String,
    /// Most disk space; the oldest is deleted to stay within it
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub(crate) disk: String,
    /// Most memory for the events of a thread that are not on disk yet; it takes as much only while
    /// it must
    #[arg(long, value_name = "SIZE", default_value = "16M")]
    pub(crate) ring: String,
    /// Record no locks
    #[arg(long)]
    pub(crate) no_locks: bool,
    /// Record no scheduler events
    #[arg(long)]
    pub(crate) no_sched: bool,
    /// Whether forked children are recorded, each in a trace and with a clock of its own; `off` for
    /// servers that fork many
    #[arg(long, value_name = "ON|OFF", default_value = "on", value_parser = ["on", "off"])]
    pub(crate) follow: String,
    /// CPU for the profiler's clock, best one that nothing else runs on
    #[arg(long, value_name = "CPU")]
    pub(crate) cpu: Option<u32>,
}

/// Run a program and record it
#[derive(Debug, clap::Args)]
#[command(after_help = RECORD)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    pub(crate) recording: Recording,
    /// Only listen: recording starts with `leeward profile attach`
    #[arg(long)]
    pub(crate) wait: bool,
    /// The run-time library for programs that were not built with `leeward cc`; by default the one
    /// in $LEEWARD_PROFILER_DIR or beside this program
    #[arg(long, value_name = "FILE")]
    pub(crate) runtime: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

const RECORD: &str = "\
Examples:
  leeward profile record -- ./server --port 8080
  leeward profile record --threshold 5us --out /tmp/t -- ./server
  leeward profile record --overhead 5% -- ./server               says what was left out for that
  leeward profile record --wait -- ./server      then: leeward profile attach PID";

/// Start recording in a running process that has the profiler's run-time
#[derive(Debug, clap::Args)]
#[command(after_help = ATTACH)]
pub(crate) struct AttachArgs {
    /// The process id
    pub(crate) pid: u32,
    #[command(flatten)]
    pub(crate) recording: Recording,
}

const ATTACH: &str = "\
Examples:
  leeward profile record --wait -- ./server &      the server runs and listens; nothing is recorded
  leeward profile attach $(pidof server)           now it records
  leeward profile stop $(pidof server)             and this says where the trace is";

/// Stop recording in a running process; it goes on
#[derive(Debug, clap::Args)]
#[command(after_help = STOP)]
pub(crate) struct StopArgs {
    /// The process id
    pub(crate) pid: u32,
}

const STOP: &str = "\
Examples:
  leeward profile stop 4711      answers when the trace is on disk; `attach` starts another";

/// A trace, and what helps to read it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TraceArgs {
    /// Folder of a trace, or one of its files
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// Where to look for executables and debug files besides their usual places; may be repeated
    #[arg(long = "symbols", value_name = "DIR")]
    pub(crate) symbols: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments that select requests.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RequestArgs {
    /// Take each recorded call of this function for a request, instead of those that the program
    /// marks
    #[arg(long, value_name = "NAME")]
    pub(crate) request_fn: Option<String>,
}

/// Show what a trace holds, how it was recorded and what is wrong with it
#[derive(Debug, clap::Args)]
#[command(after_help = INFO)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    pub(crate) source: TraceArgs,
}

const INFO: &str = "\
Examples:
  leeward profile info leeward-traces/4711
  leeward profile info leeward-traces/4711 --symbols /srv/debug      are the right debug files there?
  leeward profile info leeward-traces/4711/00000003.lwt              one file of a trace";

/// Functions, waits and holds, ranked by a percentile
///
/// Percentiles are of what was recorded: calls shorter than the threshold are not counted. With
/// --per-request they are of requests: the time of a function with all it calls, and nothing where
/// it was not seen.
#[derive(Debug, clap::Args)]
#[command(after_help = STATS)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) source: TraceArgs,
    #[command(flatten)]
    pub(crate) what: RequestArgs,
    /// The percentile to rank by
    #[arg(long, short, value_name = "P", default_value = "99.99", value_parser = parse_percentile)]
    pub(crate) percentile: f64,
    /// Tell callers apart, with their lines
    #[arg(long)]
    pub(crate) by_caller: bool,
    /// Percentiles of requests instead of calls
    #[arg(long, conflicts_with_all = ["by_caller", "thread"])]
    pub(crate) per_request: bool,
    /// Only names that contain this
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Only one thread, by the kernel's id
    #[arg(long, value_name = "TID")]
    pub(crate) thread: Option<u32>,
    /// How many lines
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
}

const STATS: &str = "\
Examples:
  leeward profile stats leeward-traces/4711
  leeward profile stats leeward-traces/4711 -p 99 --by-caller --filter store::
  leeward profile stats leeward-traces/4711 --per-request";

/// The slowest requests and where their time went
#[derive(Debug, clap::Args)]
#[command(after_help = REQUESTS)]
pub(crate) struct RequestsArgs {
    #[command(flatten)]
    pub(crate) source: TraceArgs,
    #[command(flatten)]
    pub(crate) what: RequestArgs,
    /// How many
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) limit: u16,
}

const REQUESTS: &str = "\
Examples:
  leeward profile requests leeward-traces/4711
  leeward profile requests leeward-traces/4711 --request-fn handle -n 3     each recorded call of `handle` is one
  leeward profile requests leeward-traces/4711 --json | jq .p99_ns";

/// Show a request across threads: its functions, its waits, the holders of the locks it waited for,
/// off the CPU
#[derive(Debug, clap::Args)]
#[command(after_help = TIMELINE)]
pub(crate) struct TimelineArgs {
    #[command(flatten)]
    pub(crate) source: TraceArgs,
    /// The request's id (as `leeward profile requests` shows it); by default the slowest
    #[arg(value_name = "ID", value_parser = parse_id)]
    pub(crate) id: Option<u64>,
    #[command(flatten)]
    pub(crate) what: RequestArgs,
    /// Write a page to look at in a browser
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

const TIMELINE: &str = "\
Examples:
  leeward profile timeline leeward-traces/4711
  leeward profile timeline leeward-traces/4711 123456 --html slow.html
  leeward profile timeline leeward-traces/4711 --request-fn request_handler";

/// Tell in words what the slowest requests do that the others don't
#[derive(Debug, clap::Args)]
#[command(after_help = TAIL)]
pub(crate) struct TailArgs {
    #[command(flatten)]
    pub(crate) source: TraceArgs,
    #[command(flatten)]
    pub(crate) what: RequestArgs,
    /// How many count as the slowest, in per cent
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = parse_percentile)]
    pub(crate) slowest: f64,
    /// Compare requests with the same label with each other
    #[arg(long, value_name = "WHAT", value_parser = ["label"])]
    pub(crate) by: Option<String>,
    /// How many findings
    #[arg(long, short = 'n', value_name = "N", default_value_t = 8)]
    pub(crate) limit: usize,
}

const TAIL: &str = "\
Examples:
  leeward profile tail leeward-traces/4711
  leeward profile tail leeward-traces/4711 --slowest 0.1                  the slowest thousandth
  leeward profile tail leeward-traces/4711 --by label                     each command or route by itself
  leeward profile tail leeward-traces/4711 --request-fn server::handle    without marks in the program";

/// Write a trace for other tools
#[derive(Debug, clap::Args)]
#[command(after_help = EXPORT)]
pub(crate) struct ExportArgs {
    /// Folder of a trace, or one of its files
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// Where to look for executables and debug files besides their usual places; may be repeated
    #[arg(long = "symbols", value_name = "DIR")]
    pub(crate) symbols: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) what: RequestArgs,
    /// Format to write: Perfetto's own format, Chrome's JSON, a line per event, or stacks of
    /// requests for flame graphs
    #[arg(long, value_name = "FORMAT", value_parser = ["perfetto", "chrome", "csv", "parquet", "folded"])]
    pub(crate) format: String,
    /// File to write; `-` is stdout
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Folded stacks only: of the slowest requests, in per cent
    #[arg(long, value_name = "PERCENT", value_parser = parse_percentile)]
    pub(crate) slowest: Option<f64>,
}

const EXPORT: &str = "\
Examples:
  leeward profile export leeward-traces/4711 --format perfetto -o trace.pftrace    for ui.perfetto.dev
  leeward profile export leeward-traces/4711 --format folded --slowest 1 -o tail.folded
  leeward profile export leeward-traces/4711 --format csv -o - | head";

fn parse_percentile(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').parse::<f64>().map_err(|error| error.to_string())?;
    if (0.0..=100.0).contains(&number) { Ok(number) } else { Err("accepted: 0 to 100".into()) }
}

fn parse_id(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| error.to_string())
}
