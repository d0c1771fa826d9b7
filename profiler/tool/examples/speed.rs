//! Measures the speed and memory of each question of `leeward profile`, once per question.
//!
//! The first line is wall-clock time on all CPUs. The other times are CPU time of one thread, which
//! depends less on the load of the machine.
//!
//! `cargo run --release -p leeward-profile --example speed -- TRACE`; the example `synthetic`
//! writes a trace.

use std::path::Path;
use std::time::{Duration, Instant};

use leeward_profile::analysis::slowest::slowest;
use leeward_profile::analysis::timeline::{RequestChoice, timeline};
use leeward_profile::analysis::{Selection, tail};
use leeward_profile::stats::{self, Options};
use leeward_profile::symbols::{self, Symbols};
use leeward_profile::trace::{Trace, cpus, ignore_progress};

/// Peak resident memory of this process, in MB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// CPU time of the main thread.
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
    let report = |name: &str, took: Duration| {
        let took = took.as_secs_f64();
        let (million, times) = (events as f64 / took / 1e6, seconds / took);
        println!(
            "{name:>20}  {took:>7.3} s  {million:>6.1} M events/s  {times:>6.1} times real time  {:>4} MB at most",
            peak()
        );
    };
    report(&format!("statistics, {} CPUs", cpus()), all);
    report("open", opened);
    let mut symbols = Symbols::new(&trace, symbols::Options::default());

    let begin = now();
    let (_, collector) = stats::open(path, &options, 1, &mut ignore_progress)?;
    let rows = collector.rows(&mut symbols, &options, 0).len();
    report("open, statistics", now() - begin);

    let begin = now();
    let mut sum = 0_u64;
    trace.in_order(&mut ignore_progress, |_| true, |event| sum = sum.wrapping_add(event.time))?;
    report("in order", now() - begin);

    let begin = now();
    let found = slowest(&trace, &mut symbols, &Selection::Marked, 10, &mut ignore_progress)?;
    report("slowest requests", now() - begin);

    let begin = now();
    let shown = timeline(&trace, &mut symbols, &Selection::Marked, RequestChoice::Slowest, &mut ignore_progress)?;
    report("timeline", now() - begin);

    let begin = now();
    let tail = tail::tail(&trace, &mut symbols, &Selection::Marked, 0.01, &mut ignore_progress)?;
    report("tail", now() - begin);
    println!(
        "{rows} rows, {} requests, {:?} findings, timeline: {}",
        found.latencies.count(),
        tail.findings.len(),
        shown.is_some()
    );
    Ok(())
}
