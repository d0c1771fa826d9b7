//! The command line of `leeward profile`.

use std::path::PathBuf;

use super::join::JoinArgs;

/// Find the function, thread and lock that made a request slow: record a program, and read its
/// traces
///
/// `record --pid` records a running program as it is: its requests, with samples of its functions
/// and all its waits. Every call of a function is recorded in programs that are built with `leeward
/// cc` or `leeward c++`. See docs/profile.md.
#[derive(Debug, clap::Args)]
#[command(after_help = PROFILE, subcommand_required = true)]
pub(crate) struct ProfileArgs {
    #[command(subcommand)]
    pub(crate) command: ProfileCommand,
}

const PROFILE: &str = "\
Examples:
  leeward profile record --pid $(pidof nginx) --duration 30s     a program as it is
  leeward profile record -- ./server --port 8080    a program that was built with `leeward cc`
  leeward profile tail leeward-traces/4711          how the slowest requests differ from the others
  leeward profile timeline leeward-traces/4711      the slowest request, across threads
  leeward profile stats leeward-traces/4711 --by-caller";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ProfileCommand {
    Record(Box<RecordArgs>),
    Attach(AttachArgs),
    Stop(StopArgs),
    Info(InfoArgs),
    Stats(StatsArgs),
    Requests(RequestsArgs),
    Timeline(TimelineArgs),
    Tail(TailArgs),
    Join(JoinArgs),
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
    /// Resolution of the times of calls; by default 1us, with --overhead as fine as that allows
    #[arg(long, value_name = "SPAN")]
    pub(crate) tick: Option<String>,
    /// Largest share of the program's CPU time that recording may take, such as 5%, or `off`; by
    /// default 8% at a tick of 1us. To keep within it, recording omits the shortest and most
    /// frequent functions, and with this option adapts the tick, unless --tick is given. With --pid
    /// it is a share of at least one CPU, by default 3% of what the program uses and 15% of what it
    /// leaves of one CPU; a program that would cost more is recorded in windows of time
    #[arg(long, value_name = "PERCENT")]
    pub(crate) overhead: Option<String>,
    /// Shortest call that is recorded
    #[arg(long, value_name = "SPAN", default_value = "1us")]
    pub(crate) threshold: String,
    /// Shortest wait for a lock, or hold of it, that is recorded
    #[arg(long, value_name = "SPAN", default_value = "1us")]
    pub(crate) lock_threshold: String,
    /// Largest disk space; the oldest events are deleted to stay within it
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub(crate) disk: String,
    /// Largest memory per thread for events that are not on disk yet; used only as far as needed
    #[arg(long, value_name = "SIZE", default_value = "16M")]
    pub(crate) ring: String,
    /// Record no locks
    #[arg(long)]
    pub(crate) no_locks: bool,
    /// Record no scheduler events
    #[arg(long)]
    pub(crate) no_sched: bool,
    /// Record forked children, each in its own trace and with its own clock; `off` for servers that
    /// fork many. With --pid, children that execute no other program share their parent's trace
    #[arg(long, value_name = "ON|OFF", default_value = "on", value_parser = ["on", "off"])]
    pub(crate) follow: String,
    /// CPU for the profiler's clock, preferably an otherwise idle one
    #[arg(long, value_name = "CPU")]
    pub(crate) cpu: Option<u32>,
}

/// Record a running process, or run a program and record it
///
/// With --pid nothing is rebuilt, restarted or loaded into the process: the kernel takes samples of
/// its stacks, and times its requests. That needs root; other users get samples alone, of their own
/// processes, if kernel.perf_event_paranoid is at most 2. A program that was built with `leeward
/// cc` records itself, down to calls of a microsecond.
#[derive(Debug, clap::Args)]
#[command(after_help = RECORD)]
pub(crate) struct RecordArgs {
    /// Record these running processes, until Ctrl-C, --duration, or their end
    #[arg(long, value_name = "PID", num_args = 1.., value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) recording: Recording,
    /// Only listen: recording starts with `leeward profile attach`
    #[arg(long, conflicts_with = "pid")]
    pub(crate) wait: bool,
    /// The run-time library for programs that were not built with `leeward cc`; by default the one
    /// in $LEEWARD_PROFILER_DIR or beside this program
    #[arg(long, value_name = "FILE", conflicts_with = "pid")]
    pub(crate) runtime: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required_unless_present = "pid", conflicts_with = "pid", last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

const RECORD: &str = "\
Examples:
  leeward profile record --pid $(pidof nginx) --duration 30s     a program as it is; needs root
  leeward profile record --pid 4711 --request-fn handle_query    each call of this function is a request
  leeward profile record -- ./server --port 8080
  leeward profile record --threshold 5us --out /tmp/t -- ./server
  leeward profile record --overhead 5% -- ./server               reports the omitted functions
  leeward profile record --wait -- ./server      then: leeward profile attach PID
Then:
  leeward profile tail leeward-traces/PID                        how the slowest requests differ";

/// How a process is sampled that does not record itself.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Options for processes without the run-time")]
pub(crate) struct SamplingArgs {
    /// Each call of this function is a request
    #[arg(long, value_name = "SYMBOL", requires = "pid")]
    pub(crate) request_fn: Option<String>,
    /// A request lasts from the read that brings it over a connection to the write that answers it;
    /// the default
    #[arg(long, requires = "pid", conflicts_with = "request_fn")]
    pub(crate) request_io: bool,
    /// Samples per second of CPU time; by default 1000, or fewer to keep the cost within --overhead
    #[arg(long, value_name = "HZ", requires = "pid", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) rate: Option<u32>,
    /// End of the recording, such as 30s
    #[arg(long, value_name = "SPAN", requires = "pid")]
    pub(crate) duration: Option<String>,
    /// Keep only slow requests and what surrounds them, for a recording that is always on: the
    /// slowest 1 %, or `slow=0.1%`, or `slow=50ms`. Everything else stays in a ring in memory
    #[arg(long, value_name = "slow[=WHAT]", requires = "pid")]
    pub(crate) keep: Option<String>,
    /// Memory of that ring
    #[arg(long, value_name = "SIZE", default_value = "64M", requires = "keep")]
    pub(crate) keep_memory: String,
    /// Whether requests get the labels that the program gives them
    #[arg(long, value_name = "ON|OFF", default_value = "on", value_parser = ["on", "off"])]
    pub(crate) labels: String,
}

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
  leeward profile stop $(pidof server)             prints the trace's folder";

/// Stop recording in a running process; the process continues
#[derive(Debug, clap::Args)]
#[command(after_help = STOP)]
pub(crate) struct StopArgs {
    /// The process id
    pub(crate) pid: u32,
}

const STOP: &str = "\
Examples:
  leeward profile stop 4711      returns when the trace is on disk; `attach` starts another";

/// A trace, and what helps to read it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TraceArgs {
    /// Folder of a trace, or one of its files
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// Folder with executables and debug files, besides the usual folders; may be repeated
    #[arg(long = "symbols", value_name = "DIR")]
    pub(crate) symbols: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments that select requests.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RequestArgs {
    /// Treat each recorded call of this function as a request, instead of the requests that the
    /// program marks
    #[arg(long, value_name = "NAME")]
    pub(crate) request_fn: Option<String>,
}

/// Show the contents of a trace, how it was recorded, and its defects
#[derive(Debug, clap::Args)]
#[command(after_help = INFO)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    pub(crate) source: TraceArgs,
}

const INFO: &str = "\
Examples:
  leeward profile info leeward-traces/4711
  leeward profile info leeward-traces/4711 --symbols /srv/debug      checks the debug files
  leeward profile info leeward-traces/4711/00000003.lwt              one file of a trace";

/// Rank functions, waits and holds by a percentile
///
/// Percentiles are of recorded calls: calls shorter than the threshold are not counted. With
/// --per-request they are of requests: the time of a function with all its callees, or 0 if it was
/// not seen in the request.
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
    /// Separate callers, with their source lines
    #[arg(long)]
    pub(crate) by_caller: bool,
    /// Percentiles of requests instead of calls
    #[arg(long, conflicts_with_all = ["by_caller", "thread"])]
    pub(crate) per_request: bool,
    /// Only names that contain this
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Only the thread with this kernel id
    #[arg(long, value_name = "TID")]
    pub(crate) thread: Option<u32>,
    /// Number of lines
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
}

const STATS: &str = "\
Examples:
  leeward profile stats leeward-traces/4711
  leeward profile stats leeward-traces/4711 -p 99 --by-caller --filter store::
  leeward profile stats leeward-traces/4711 --per-request";

/// List the slowest requests, and where they spent their time
#[derive(Debug, clap::Args)]
#[command(after_help = REQUESTS)]
pub(crate) struct RequestsArgs {
    #[command(flatten)]
    pub(crate) source: TraceArgs,
    #[command(flatten)]
    pub(crate) what: RequestArgs,
    /// Number of requests
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) limit: u16,
}

const REQUESTS: &str = "\
Examples:
  leeward profile requests leeward-traces/4711
  leeward profile requests leeward-traces/4711 --request-fn handle -n 3     each recorded call of `handle` is a request
  leeward profile requests leeward-traces/4711 --json | jq .p99_ns";

/// Show a request across threads: its functions, its waits, the holders of the locks that it waited
/// for, and its time off the CPU
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
    /// Also write an HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

const TIMELINE: &str = "\
Examples:
  leeward profile timeline leeward-traces/4711
  leeward profile timeline leeward-traces/4711 123456 --html slow.html
  leeward profile timeline leeward-traces/4711 --request-fn request_handler";

/// Explain how the slowest requests differ from the others
#[derive(Debug, clap::Args)]
#[command(after_help = TAIL)]
pub(crate) struct TailArgs {
    #[command(flatten)]
    pub(crate) source: TraceArgs,
    #[command(flatten)]
    pub(crate) what: RequestArgs,
    /// Share of the requests that counts as the slowest, in percent
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = parse_share)]
    pub(crate) slowest: f64,
    /// Compare requests with the same label with each other
    #[arg(long, value_name = "WHAT", value_parser = ["label"])]
    pub(crate) by: Option<String>,
    /// Number of findings
    #[arg(long, short = 'n', value_name = "N", default_value_t = 8)]
    pub(crate) limit: usize,
}

const TAIL: &str = "\
Examples:
  leeward profile tail leeward-traces/4711
  leeward profile tail leeward-traces/4711 --slowest 0.1                  the slowest thousandth
  leeward profile tail leeward-traces/4711 --by label                     each command or route separately
  leeward profile tail leeward-traces/4711 --request-fn server::handle    without marks in the program";

/// Convert a trace for other tools
#[derive(Debug, clap::Args)]
#[command(after_help = EXPORT)]
pub(crate) struct ExportArgs {
    /// Folder of a trace, or one of its files
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// Folder with executables and debug files, besides the usual folders; may be repeated
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
    /// Folded stacks only: this share of the requests, the slowest ones, in percent
    #[arg(long, value_name = "PERCENT", value_parser = parse_share)]
    pub(crate) slowest: Option<f64>,
}

const EXPORT: &str = "\
Examples:
  leeward profile export leeward-traces/4711 --format perfetto -o trace.pftrace    for ui.perfetto.dev
  leeward profile export leeward-traces/4711 --format folded --slowest 1 -o tail.folded
  leeward profile export leeward-traces/4711 --format csv -o - | head";

pub(super) fn parse_percentile(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').parse::<f64>().map_err(|error| error.to_string())?;
    if (0.0..=100.0).contains(&number) { Ok(number) } else { Err("accepted: 0 to 100".into()) }
}

/// Parses the share of the requests that are the slowest.
pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    parse_percentile(text).ok().filter(|share| *share > 0.0).ok_or_else(|| "accepted: above 0, to 100".into())
}

/// True if all characters are hexadecimal digits; `from_str_radix` also accepts a sign.
pub(super) fn is_hex(digits: &str) -> bool {
    digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

fn parse_id(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").filter(|digits| is_hex(digits)) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| error.to_string())
}
