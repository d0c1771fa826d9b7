//! How fast a trace is read, and in how much memory: each question that `leeward profile` asks, once. Times are of one CPU:
//! what else a machine does costs less of them than of the clock on the wall. Only the first line is of all CPUs and that clock.
//! `cargo run --release -p leeward-profile --example speed -- TRACE`; `synthetic` makes one.

use std::path::Path;
use std::time::{Duration, Instant};

use leeward_profile::analysis::slowest::slowest;
use leeward_profile::analysis::timeline::{RequestChoice, timeline};
use leeward_profile::analysis::{Selection, tail};
use leeward_profile::stats::{self, Options};
use leeward_profile::symbols::{self, Symbols};
use leeward_profile::trace::{Trace, cpus, ignore_progress};

/// The most memory that this process ever had, in MB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// How long this process has run.
fn now() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("argument: a trace")?;
    let path = Path::new(&path);
    let options = Options::default();
    let all = Instant::now();
    stats::open(path, &options, cpus(), &mut ignore_progress)?;
    let all = all.elapsed();
    let begin = now();
    let trace = Trace::open_with(path, &mut ignore_progress, |_| {})?;
    let opened = now() - begin;
    let (events, seconds) = (trace.counts().events, trace.counts().span() as f64 / 1e9);
    let bytes = trace.size().1 as f64 / 1e6;
    println!("{events} events over {seconds:.3} s, {bytes:.0} MB, {:.0} MB per second", bytes / seconds);
    let say = |what: &str, took: Duration| {
        let took = took.as_secs_f64();
        let (million, times) = (events as f64 / took / 1e6, seconds / took);
        println!(
            "{what:>20}  {took:>7.3} s  {million:>6.1} M events/s  {times:>6.1} times real time  {:>4} MB at most",
            peak()
        );
    };
    say(&format!("statistics, {} CPUs", cpus()), all);
    say("open", opened);
    let mut symbols = Symbols::new(&trace, symbols::Options::default());

    let begin = now();
    let (_, collector) = stats::open(path, &options, 1, &mut ignore_progress)?;
    let rows = collector.rows(&mut symbols, &options, 0).len();
    say("open, statistics", now() - begin);

    let begin = now();
    let mut sum = 0_u64;
    trace.in_order(&mut ignore_progress, |_| true, |event| sum = sum.wrapping_add(event.time))?;
    say("in order", now() - begin);

    let begin = now();
    let found = slowest(&trace, &mut symbols, &Selection::Marked, 10, &mut ignore_progress)?;
    say("slowest requests", now() - begin);

    let begin = now();
    let shown = timeline(&trace, &mut symbols, &Selection::Marked, RequestChoice::Slowest, &mut ignore_progress)?;
    say("timeline", now() - begin);

    let begin = now();
    let tail = tail::tail(&trace, &mut symbols, &Selection::Marked, 0.01, &mut ignore_progress)?;
    say("tail", now() - begin);
    println!(
        "{rows} rows, {} requests, {:?} findings, timeline: {}",
        found.latencies.count(),
        tail.findings.len(),
        shown.is_some()
    );
    Ok(())
}
