//! The command line.

use std::path::PathBuf;

use leeward_threading::ThreadingSetup;

use crate::servers::{Idling, ServerKind};

/// Compare Leeward's server with bare echoes and with tonic, and measure what admission control
/// costs
///
/// Runs every case, or those named. Each contender runs in a process of its own on one CPU, the
/// load on another. The contenders of a case take turns, round by round; ratios are taken within a
/// round, and their median counts.
#[derive(Debug, clap::Parser)]
#[command(name = "leeward-compare", version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) compare: CompareArgs,
}

const EXAMPLES: &str = "\
Cases:
  round-trip   one request at a time, against a server that does nothing but poll one socket
  echo-1       requests per second of 1,000 connections with 1 request each, against a bare epoll server
  echo-8       the same with 8 pipelined requests each
  tonic-1      1,000 requests under way, over 1,000 connections or over 8, against tonic's unary calls
  tonic-8      the same with 8,000
  admission    Breakwater against no control, at half load
  watched-1    a server with metrics and a ring of decisions against one without: 1,000 connections with 1 request each
  watched-8    the same with 8 pipelined requests each
  tls-1        1,000 connections with 1 request each: plain, within TLS, and tonic's within rustls
  tls-8        the same with 8 pipelined requests each
  tls-trip     one request at a time within TLS, against plain and against tonic's
  tls-shakes   full handshakes per second, against tonic's with rustls; --idle block tells the server's CPU time
  udp-1        1,000 clients with 1 request each: over datagrams, over TCP, and a bare recvmmsg/sendmmsg echo
  udp-trip     one request at a time over datagrams, against TCP
Case that runs only if named:
  udp-work     as udp-1, with work for each request: what datagrams can give, and what they give here

Examples:
  make compare
  leeward-compare echo-1 echo-8 --quick
  leeward-compare tonic-1 --rounds 3 --server-cpu 2 --load-cpu 3
  leeward-compare threading --quick              threading models of a tier, and the same tier on Tokio
  leeward-compare serve epoll --cpu 0            one contender alone, to profile it; ends with its standard input";

/// Commands other than a comparison.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Run one contender until its standard input ends
    Serve(ServeArgs),
    /// Compare a tier's threading models with the same tier on Tokio: latency, CPU time and
    /// throughput
    Threading(ThreadingArgs),
}

/// Cases to compare, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct CompareArgs {
    /// Cases to run; all but `udp-work` if none is named
    #[arg(value_name = "CASE", value_parser = crate::case::named)]
    pub(crate) cases: Vec<&'static crate::case::Case>,
    /// A third of the time: to see that it works, not to believe the numbers
    #[arg(long)]
    pub(crate) quick: bool,
    /// How often each contender has its turn; odd, so that there is a median
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) rounds: u32,
    /// Bytes of each request's argument and result
    #[arg(long, value_name = "BYTES", default_value_t = 8, value_parser = clap::value_parser!(u32).range(8..=1024))]
    pub(crate) payload: u32,
    /// CPU of the server; by default the first that this program may use
    #[arg(long, value_name = "CPU")]
    pub(crate) server_cpu: Option<usize>,
    /// CPU of the load; by default the last
    #[arg(long, value_name = "CPU")]
    pub(crate) load_cpu: Option<usize>,
    /// Behaviour of the servers while there is nothing to do; with `block` the column "server CPU"
    /// tells how busy they are
    #[arg(long, value_name = "WHAT", default_value = "spin")]
    pub(crate) idle: Idling,
    /// Microseconds that the servers of `udp-work` keep the CPU busy per request, so that the
    /// server is the limit; by default 10
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    pub(crate) work_us: Option<u64>,
    /// Where the numbers go, every round's, as JSON
    #[arg(long, value_name = "FILE", default_value = "results/compare.json")]
    pub(crate) out: PathBuf,
}

/// Which contender to run, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Which
    pub(crate) server: ServerKind,
    /// CPU to run on
    #[arg(long, value_name = "CPU")]
    pub(crate) cpu: Option<usize>,
    /// Behaviour of the server while there is nothing to do
    #[arg(long, value_name = "WHAT", default_value = "spin")]
    pub(crate) idle: Idling,
    /// Leaves that a tier asks, with commas between them
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    pub(crate) leaves: Vec<std::net::SocketAddr>,
    /// Threading model of Leeward's tier
    #[arg(long, value_name = "SETUP", default_value = "SDB1-16")]
    pub(crate) threading: ThreadingSetup,
    /// Threads of a tier on Tokio
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: u16,
    /// Time that a leaf waits before it answers
    #[arg(long, value_name = "SERVICE", default_value = "const:50us")]
    pub(crate) wait: String,
    /// Folder with the certificate of servers that speak TLS
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub(crate) certificates: PathBuf,
    /// Microseconds that a server which echoes keeps the CPU busy per message
    #[arg(long, value_name = "US", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    pub(crate) work_us: u64,
}

/// Threading models to compare, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct ThreadingArgs {
    /// Threading models of Leeward's tier
    #[arg(
        long,
        value_name = "SETUPS",
        value_delimiter = ',',
        default_value = "SIP1,SDB1-16,SDP1-8,AIP1-0-1,ADB1-4-4,CORE1"
    )]
    pub(crate) setups: Vec<ThreadingSetup>,
    /// Leaves that each request asks
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) leaves: u16,
    /// Time that a leaf waits before it answers, without keeping a CPU busy
    #[arg(long, value_name = "SERVICE", default_value = "const:50us")]
    pub(crate) wait: String,
    /// Loads, as shares of what the best contender manages
    #[arg(long, value_name = "SHARES", value_delimiter = ',', default_value = "0.02,0.2,0.5,0.75")]
    pub(crate) loads: Vec<f64>,
    /// A third of the time: to see that it works, not to believe the numbers
    #[arg(long)]
    pub(crate) quick: bool,
    /// How often each contender has its turn; odd, so that there is a median
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) rounds: u32,
    /// CPU of the tier; by default the first that this program may use
    #[arg(long, value_name = "CPU")]
    pub(crate) server_cpu: Option<usize>,
    /// CPU of the load and the leaves; by default the last
    #[arg(long, value_name = "CPU")]
    pub(crate) load_cpu: Option<usize>,
    /// Where the numbers go, every round's, as JSON
    #[arg(long, value_name = "FILE", default_value = "results/compare-threading.json")]
    pub(crate) out: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_help_names_every_case() {
        for case in crate::case::CASES {
            assert!(EXAMPLES.contains(&format!("\n  {} ", case.name)), "{}", case.name);
        }
    }

    #[test]
    fn cases_are_known_by_name() {
        let args = Args::try_parse_from(["leeward-compare", "echo-8", "--quick"]).unwrap();
        assert_eq!(args.compare.cases[0].name, "echo-8");
        let refused = Args::try_parse_from(["leeward-compare", "ecko"]).unwrap_err().to_string();
        assert!(refused.contains("round-trip"), "{refused}");
    }
}
