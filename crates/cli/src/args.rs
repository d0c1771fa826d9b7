//! The command line: what can be written, and the help that teaches it.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::allocator::CoreRange;
use crate::commands::profile::ProfileArgs;
use crate::failure::Failure;
use crate::service::ServiceArgs;
use crate::stdout;

/// Overload control: run the experiments of the papers in simulation, compare controllers, serve under one.
#[derive(Debug, Parser)]
#[command(name = "leeward", version, max_term_width = 100, after_help = START)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const START: &str = "\
Start here:
  leeward demo                     overload on this machine, shown while it happens
  leeward list                     what there is to run
  leeward run bw-overall --quick   a first result, and a report to look at
  leeward help run                 everything about running

Exit codes: 0 done, 1 failed on the way, 2 wrong input, 130 interrupted.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(DemoArgs),
    Run(RunArgs),
    List(ListArgs),
    Report(ReportArgs),
    Tune(TuneArgs),
    Serve(ServeArgs),
    Load(LoadArgs),
    Corpus(CorpusArgs),
    Calibrate(CalibrateArgs),
    Record(RecordArgs),
    Replay(ReplayArgs),
    Cc(CompilerArgs),
    #[command(name = "c++")]
    Cxx(CompilerArgs),
    Cargo(CargoArgs),
    Profile(ProfileArgs),
    Top(TopArgs),
}

impl Args {
    /// Reads the program's command line.
    pub(crate) fn read() -> Result<Args, clap::Error> {
        let mut command = Args::command();
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        let mut args = Args::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        let serve = match &mut args.command {
            Command::Serve(serve) => Some(serve),
            Command::Record(record) => Some(&mut record.serve),
            _ => None,
        };
        // What is written wins over a configuration file, what is a default does not.
        if let (Some(serve), Some((_, flags))) = (serve, matches.subcommand()) {
            let written = |id: &&str| flags.value_source(id) == Some(ValueSource::CommandLine);
            serve.written = flags.ids().map(clap::Id::as_str).filter(written).map(Into::into).collect();
        }
        Ok(args)
    }
}

/// Overload a server on this machine, with and without control, and watch
///
/// A synthetic server on one CPU, its clients on another, over loopback: the machine is measured, then demand is half of
/// its capacity, all of it, twice as much, and a spike, each without control and under Breakwater. Takes about a minute.
/// In a terminal there is a live view; elsewhere, or with NO_COLOR set, plain lines.
#[derive(Debug, clap::Args)]
#[command(after_help = DEMO)]
pub(crate) struct DemoArgs {
    /// Folder for result.json, results.jsonl and report.html
    #[arg(long, value_name = "DIR", default_value = "results/demo")]
    pub(crate) out: PathBuf,
    /// No live view: plain lines, as where there is no terminal
    #[arg(long)]
    pub(crate) plain: bool,
    /// Length of a run of steady demand; one with a spike takes half as long again
    #[arg(long, value_name = "SPAN", default_value = "4s")]
    pub(crate) duration: String,
    /// Clients: one connection each
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) clients: u32,
    /// Draws arrivals and service times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=SEED_MAX))]
    pub(crate) seed: u64,
}

const DEMO: &str = "\
Examples:
  leeward demo
  leeward demo --plain --out /tmp/demo
  leeward demo --duration 10s                     longer runs, steadier numbers";

/// Run an experiment; print its results and write them, with a report, to a folder
///
/// A scenario says which controllers meet which demand, what to draw and what the paper claims. The results are the same
/// bytes for the same scenario, seed and version, on any number of threads. Nothing is written unless all of it succeeds.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) what: What,
    /// Where to run: `sim`, the simulated testbed, or `real`, this machine: a server and its clients over loopback, each
    /// on a CPU of its own; capacity and round trip are measured first, and the simulator predicts each run
    #[arg(long, default_value = "sim", value_parser = plant)]
    pub(crate) plant: String,
    /// Folder for result.json, results.jsonl and report.html; by default `results/` and the scenario's id
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the results as one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

const RUN: &str = "\
Examples:
  leeward run bw-overall                              the whole figure
  leeward run bw-overall --quick                      fewer and shorter runs
  leeward run mine.toml --seed 7 --out /tmp/mine      a scenario of your own
  leeward run bw-overall --set workload.clients=200   one value changed, by its key in the file
  leeward run real-overall --plant real               on this machine's CPUs and sockets
  leeward run bw-overall --quick --json | jq '.claims[] | {id, verdict}'";

/// List the scenarios and controllers that come with leeward
#[derive(Debug, clap::Args)]
#[command(after_help = LIST)]
pub(crate) struct ListArgs {
    /// Show the parameters of each controller: name, default, what is accepted, what it does
    #[arg(long)]
    pub(crate) controllers: bool,
}

const LIST: &str = "\
Examples:
  leeward list
  leeward list --controllers | less";

/// Draw the report of an earlier run again
#[derive(Debug, clap::Args)]
#[command(after_help = REPORT)]
pub(crate) struct ReportArgs {
    /// Folder of an earlier `leeward run`
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// File to write; by default `report.html` in that folder
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

const REPORT: &str = "\
Examples:
  leeward report results/bw-overall
  leeward report results/bw-overall --out overall.html";

/// Search the parameters under which a controller serves a scenario best
///
/// Tries the values that the controller names as worth trying (see `leeward list --controllers`) and prints what to paste
/// into the scenario. The best is the highest goodput over the scenario's demands.
#[derive(Debug, clap::Args)]
#[command(after_help = TUNE)]
pub(crate) struct TuneArgs {
    #[command(flatten)]
    pub(crate) what: What,
    /// Label of the controller in the scenario
    #[arg(long, value_name = "LABEL")]
    pub(crate) controller: String,
    /// Print everything tried as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const TUNE: &str = "\
Examples:
  leeward tune bw-overall --controller seda --quick
  leeward tune bw-overall --controller seda --set workload.clients=10000 >> tuned.toml";

/// Serve requests on real sockets under an admission controller
///
/// Runs until Ctrl-C or SIGTERM: then it takes no more calls, sends the answers that it owes, and ends. The protocol is
/// docs/protocol.md.
#[derive(Debug, clap::Args)]
#[command(after_help = SERVE)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    /// What a request may spend on queues, those of locks included, such as 2ms; by default no lock refuses anybody
    #[arg(long, value_name = "SPAN")]
    pub(crate) budget: Option<String>,
    #[command(flatten)]
    pub(crate) admission: AdmissionArgs,
    /// Address and port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7117")]
    pub(crate) listen: String,
    /// Cores, one thread each; or a range such as 1..4 of which an allocator has as many there as the load needs
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) cores: CoreRange,
    /// Who grants and parks cores: delay, delay-range, buffer, utilization, per-request or static, with parameters such as
    /// delay:threshold=20us,search=1ms (docs/cores.md); by default, where --cores is a range, delay
    #[arg(long, value_name = "POLICY")]
    pub(crate) allocator: Option<String>,
    /// CPUs to pin the cores to, such as 0,1; by default wherever the system puts them
    #[arg(long, value_name = "CPU,…", value_delimiter = ',')]
    pub(crate) cpus: Vec<usize>,
    /// A core without work: spins (least latency), blocks (least CPU), or spins for a while first, such as 50us; by
    /// default it spins, and for 50us where there is an allocator
    #[arg(long, value_name = "POLICY")]
    pub(crate) idle: Option<String>,
    /// Read and write several sockets in one system call where the kernel has io_uring, or never
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub(crate) io_uring: WhenPossible,
    /// Connections that may be open at once
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,
    /// Record what the controller is asked and decides, for `leeward replay`
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Take what is not said here from a TOML file: its keys are the names of these flags
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// At the end, print what became of all requests, and of the cores, as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print what would be served, as such a file, and end
    #[arg(long)]
    pub(crate) print_config: bool,
    /// Ids of what was written on the command line.
    #[arg(skip)]
    pub(crate) written: Vec<String>,
}

/// Serve like `leeward serve`, and record what the controller is asked and decides
///
/// The same as `leeward serve --record FILE`. While recording, all cores decide one after another: see
/// docs/recording-format.md. When the disk can't keep up, the recording ends, marked as incomplete, and the server goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = RECORD)]
pub(crate) struct RecordArgs {
    /// File to write; what is in it is replaced
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

const RECORD: &str = "\
Examples:
  leeward record run.rec --cores 2 --slo 1ms --rtt 50us
  leeward replay run.rec";

/// Make the calls of a recording again to its controller, which must decide the same, or to another one
///
/// Without further flags every decision is compared. With --admission or --set another controller is asked, and it is
/// counted how often it would have decided otherwise. That is open loop: it sees the delays and demands that the recorded
/// controller brought about. Which of two serves better is for `leeward run` to say.
#[derive(Debug, clap::Args)]
#[command(after_help = REPLAY)]
pub(crate) struct ReplayArgs {
    /// What `leeward record` has written
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Ask this controller instead
    #[arg(long, value_name = "NAME")]
    pub(crate) admission: Option<String>,
    /// Another value for a parameter, such as target=80us; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) overrides: Vec<String>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const REPLAY: &str = "\
Examples:
  leeward replay run.rec                          the same decisions?
  leeward replay run.rec --set target=60us        how often would that have decided otherwise?
  leeward replay run.rec --admission codel --json

Exit codes: 0 the same (or another was asked), 1 a decision differs, 2 no recording, or a damaged one.";

/// The controller, for both ends of a connection.
#[derive(Debug, clap::Args)]
pub(crate) struct AdmissionArgs {
    /// The controller (see `leeward list`); server and clients must run the same
    #[arg(long = "admission", value_name = "NAME", default_value = "breakwater")]
    pub(crate) name: String,
    /// A parameter of the controller, such as target=80us; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) overrides: Vec<String>,
    /// The latency objective
    #[arg(long, value_name = "SPAN", default_value = "200us")]
    pub(crate) slo: String,
    /// The network's round trip without queueing
    #[arg(long, value_name = "SPAN", default_value = "10us")]
    pub(crate) rtt: String,
}

/// Measure this machine and write it down for the simulator
///
/// Starts a server and its clients on CPUs of their own and measures what a core serves without control, what a message
/// costs, how long an empty round trip takes and how often a busy CPU is taken away. What it writes makes the simulator
/// predict this machine: `leeward run SCENARIO --machine FILE`. Takes some seconds.
#[derive(Debug, clap::Args)]
pub(crate) struct CalibrateArgs {
    /// The file to write, such as machine.toml; otherwise it is printed
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Cores of the server, as far as there are CPUs besides the clients'
    #[arg(long, default_value_t = 1, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=128))]
    pub(crate) cores: u16,
    /// Connections
    #[arg(long, default_value_t = 1000, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) clients: u32,
    /// The service to measure with, as scenarios write it
    #[arg(long, default_value = "exp:10us", value_name = "SERVICE")]
    pub(crate) service: String,
}

/// Load a server and report what came of each request
///
/// Open loop: when each request is due is drawn from the seed before the run, whatever the server does. Latency counts
/// from then. With `--closed` each client keeps so many requests under way instead, which measures capacity.
#[derive(Debug, clap::Args)]
#[command(after_help = LOAD)]
pub(crate) struct LoadArgs {
    /// The server's address and port
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: String,
    #[command(flatten)]
    pub(crate) admission: AdmissionArgs,
    /// Clients: one connection each
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) clients: u32,
    /// Requests per second of all clients, such as 50k; or a multiple of what the server can do, such as 1.4x, which is
    /// measured first: a second of closed loop, one request under way on each of the same connections
    #[arg(long, value_name = "RATE", default_value = "10k", conflicts_with = "closed")]
    pub(crate) demand: String,
    /// Closed loop: requests that each client keeps under way
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) closed: Option<u32>,
    /// How long each request keeps a core busy: exp:, const:, bimodal: or lognormal: and a mean; or what is searched for, such
    /// as search or search:words=1-2,match=all, in the server's own words
    #[arg(long, value_name = "TIMES", default_value = "exp:10us")]
    pub(crate) service: String,
    /// Bytes of each request's argument, of which the first 8 are its service time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(8..=16_777_216))]
    pub(crate) payload: u32,
    /// What a request may spend on queues from when it was due, at the client too: sent along with what is left of it, for
    /// servers whose locks refuse who would wait too long; by default the server's own applies
    #[arg(long, value_name = "SPAN")]
    pub(crate) budget: Option<String>,
    /// How long requests are issued, warm-up included
    #[arg(long, value_name = "SPAN", default_value = "5s")]
    pub(crate) duration: String,
    /// The part at the beginning that is not measured
    #[arg(long, value_name = "SPAN", default_value = "1s")]
    pub(crate) warmup: String,
    /// Draws arrivals and service times
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// CPU to run on
    #[arg(long, value_name = "CPU")]
    pub(crate) cpu: Option<usize>,
    /// Never sleep: for microseconds, on a CPU of its own
    #[arg(long)]
    pub(crate) busy: bool,
    /// Write the latencies as an HdrHistogram percentile file
    #[arg(long, value_name = "FILE")]
    pub(crate) hgrm: Option<PathBuf>,
    /// Print the report as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const LOAD: &str = "\
Examples:
  leeward load 127.0.0.1:7117 --demand 50k
  leeward load 127.0.0.1:7117 --closed 1 --admission none             capacity
  leeward load 127.0.0.1:7117 --demand 1.4x                           overload, whatever the machine
  leeward load 127.0.0.1:7117 --demand 120k --busy --cpu 1 --json

The capacity that 1.4x is a multiple of is the throughput with this controller at both ends and however late the
answers are; start the server with --admission none to measure it without control (--closed 1).";

/// Something that not every kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WhenPossible {
    Auto,
    Off,
}

impl WhenPossible {
    /// As flags and files say it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            WhenPossible::Auto => "auto",
            WhenPossible::Off => "off",
        }
    }
}

/// Make a corpus of what the package manager knows, for `leeward serve --service search`
///
/// Some 64,000 documents: Debian's long package descriptions, 4 million words. Lists that the system has are used; otherwise
/// apt-get gets them with a state of its own, which changes nothing of the system's and needs no rights. Takes some seconds.
/// The descriptions' licences are their packages': the corpus is for this machine, not for passing on.
#[derive(Debug, clap::Args)]
#[command(after_help = CORPUS)]
pub(crate) struct CorpusArgs {
    /// File to write; by default where `leeward serve` looks for it: in the user's folder for caches
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

const CORPUS: &str = "\
Examples:
  leeward corpus
  leeward serve --service search --cores 2
  leeward load 127.0.0.1:7117 --service search --demand 500 --slo 10ms";

/// Watch a running server: throughput, drops, delays, credits, and which of its locks it waits for
///
/// Rates are of the time between two looks. Locks are sorted by what was waited for them meanwhile; `waiting` is how many waited
/// on average. The percentiles of waits are since the server's start. In a terminal there is a live view, elsewhere one
/// look; see docs/top.md.
#[derive(Debug, clap::Args)]
#[command(after_help = TOP)]
pub(crate) struct TopArgs {
    /// The server's address and port
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: String,
    /// From one look to the next
    #[arg(long, value_name = "SPAN", default_value = "1s")]
    pub(crate) interval: String,
    /// No live view: one text, after one interval
    #[arg(long, conflicts_with = "json")]
    pub(crate) plain: bool,
    /// What the server says, as one JSON object, at once
    #[arg(long)]
    pub(crate) json: bool,
}

const TOP: &str = "\
Examples:
  leeward top 127.0.0.1:7117
  leeward top 127.0.0.1:7117 --plain --interval 10s
  leeward top 127.0.0.1:7117 --json | jq '.locks[] | {name, waited_ns, refused}'";

const SERVE: &str = "\
Examples:
  leeward serve                                                 Breakwater on one core
  leeward serve --admission none --cores 4 --cpus 0,1,2,3
  leeward serve --slo 1ms --set target=300us --idle 50us
  leeward serve --cores 1..4 --allocator delay                  cores that come with the load and go without it
  leeward serve --service kv --memcached 127.0.0.1:11211        pairs, for memcached's clients too
  leeward serve --cores 2 --print-config > server.toml          a file to begin with
  leeward serve --config server.toml --cores 4";

/// What to run, for all commands that run something.
#[derive(Debug, clap::Args)]
pub(crate) struct What {
    /// A scenario's id (see `leeward list`) or the path of a .toml file
    pub(crate) scenario: String,
    /// Base seed: the n-th run of each point adds n
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(..=SEED_MAX))]
    pub(crate) seed: u64,
    /// Fewer and shorter points, as the scenario's `quick` section says
    #[arg(long)]
    pub(crate) quick: bool,
    /// Change one value of the scenario, such as run.seeds=5; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", allow_hyphen_values = true)]
    pub(crate) overrides: Vec<String>,
    /// Simulate the machine of this file, as `leeward calibrate` writes it
    #[arg(long, value_name = "FILE")]
    pub(crate) machine: Option<PathBuf>,
    /// Threads to run on; by default one per CPU
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}

/// Compile as clang does, for the profiler: in the place of the compiler of make, CMake or configure
///
/// Adds the profiler's plugin when it compiles and its run-time when it links; everything else is clang's. The program
/// records nothing until LEEWARD_PROFILE or `leeward profile` says so. Options of ours begin with --leeward-.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, after_help = COMPILER)]
pub(crate) struct CompilerArgs {
    /// The compiler's arguments
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

const COMPILER: &str = "\
Examples:
  make CC='leeward cc' CXX='leeward c++'
  CC='leeward cc' ./configure && make
  cmake -DCMAKE_C_COMPILER=leeward -DCMAKE_C_COMPILER_ARG1=cc …
  leeward cc -O2 -g server.c -o server && LEEWARD_PROFILE=on ./server

Options of ours, here or in LEEWARD_CC_OPTIONS:
  --leeward-engine=tick|scan|none         how calls are timed
  --leeward-request-fn=NAME[:N]           each call of NAME is a request, its id argument N (from 0) or a counter
  --leeward-exclude=PATTERN[,…]           functions to leave alone, by name; --leeward-exclude-file= by source file,
                                          --leeward-exclude-list= by a file of `fun:PATTERN` and `src:PATTERN`
  --leeward-min-instructions=N            functions without calls and loops and with fewer instructions are left alone
  --leeward-unwind=true|false             measure functions left by a C++ exception, too
  --leeward-clang=PATH                    another clang of the plugin's version";

/// Build Rust for the profiler: cargo, with its plugin in rustc and its run-time in programs
///
/// Needs the plugin for the LLVM of the installed rustc, and says so where it isn't; rustc's unstable options are unlocked
/// for it. The programs are in target/TRIPLE/, and record nothing until LEEWARD_PROFILE or `leeward profile` says so.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, after_help = CARGO)]
pub(crate) struct CargoArgs {
    /// cargo's arguments
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

const CARGO: &str = "\
Examples:
  leeward cargo build --release
  leeward cargo --leeward-request-fn='server::handle*' build --release

Options of ours, here or in LEEWARD_CC_OPTIONS: those of `leeward help cc`, except --leeward-clang.";

/// Every JSON reader keeps integers up to here.
const SEED_MAX: u64 = (1 << 53) - 1;

fn plant(word: &str) -> Result<String, String> {
    match word {
        "sim" | "real" => Ok(word.into()),
        _ => Err("accepted: sim, real".into()),
    }
}

/// Help and version go to stdout; what clap refuses becomes a failure of one line.
pub(crate) fn explain(error: &clap::Error) -> Result<(), Failure> {
    let text = error.render();
    match error.kind() {
        // With its colours where the terminal has them.
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => error.print().or_else(stdout::forgive),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Failure::Input(anyhow!("no command; `leeward --help` shows what there is")))
        }
        _ => Err(Failure::Input(anyhow!(first_paragraph(&text.to_string())))),
    }
}

/// clap's message without its `error:`, usage and advice, but with its suggestion.
fn first_paragraph(text: &str) -> String {
    let mut paragraphs = text.split("\n\n");
    let words = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut message = words(paragraphs.next().unwrap_or_default().trim_start_matches("error: "));
    if let Some(tip) = paragraphs.find_map(|part| part.trim().strip_prefix("tip: ")) {
        message += &format!("; {}", words(tip.lines().next().unwrap_or_default()));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn refusals_fit_in_a_line() {
        let check = |line: &str, expected: &str| {
            let refused = Args::try_parse_from(line.split(' ')).unwrap_err();
            let message = explain(&refused).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{message}");
        };
        check("leeward reprot", "similar subcommand exists: 'report'");
        check("leeward run", "not provided: <SCENARIO>");
        check("leeward run x --plant dream", "accepted: sim, real");
        check("leeward run x --seed -1", "--seed");
        check("leeward run x --threads 0", "0 is not in 1..=1024");
        check("leeward", "no command");
    }
}
