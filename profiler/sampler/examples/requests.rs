//! Prints the slowest requests of a running server: `requests PID [SECONDS [FUNCTION]]`.
//!
//! Contains no stacks: `leeward profile record` has them.

use std::time::{Duration, Instant};

use leeward_sampler::probe::{RequestOptions, RequestSource};
use leeward_sampler::record::{Record, RecordKind, RecordSource};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let pid: u32 = arguments.next().ok_or("which process?")?.parse()?;
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let options = RequestOptions::new(pid);
    let mut source = match arguments.next() {
        None => RequestSource::io(&options)?,
        Some(function) => RequestSource::function(&function, &options)?,
    };
    let mut requests: Vec<(u64, Record)> = Vec::new();
    let mut report = |record: Record| match record.kind {
        RecordKind::Request { start, .. } => requests.push((record.time - start, record)),
        _ => println!("{record:?}"),
    };
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(seconds) {
        std::thread::sleep(Duration::from_millis(50));
        source.poll(&mut report)?;
    }
    source.finish(&mut report)?;
    requests.sort_by_key(|(latency, _)| std::cmp::Reverse(*latency));
    println!("{} requests reported; {:?}", requests.len(), source.counts());
    for percent in [50.0, 90.0, 99.0, 99.9, 100.0] {
        println!("{percent} %: {} µs", source.latencies().percentile(percent) as f64 / 1e3);
    }
    for (latency, record) in requests.iter().take(10) {
        println!("{} µs {record:?}", *latency as f64 / 1e3);
    }
    Ok(())
}
