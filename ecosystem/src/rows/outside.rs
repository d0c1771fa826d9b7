//! Rows that third-party clients measure: h2load over HTTP/2, ghz over gRPC, wrk over HTTP/1.
//!
//! For a client that is not installed the program prints a note and leaves out its row.

use super::{Bench, SLO, median};
use crate::args::Args;
use crate::child::Server;
use crate::grpc::PROTO;
use crate::guard::Guard;
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Connections of h2load for all streams.
const CONNECTIONS: u64 = 4;

impl Bench {
    /// HTTP/2 and gRPC at twice the capacity, and the rate with and without the layer.
    pub(super) fn outside(&mut self) -> Result<()> {
        if found("h2load") {
            self.streams()?;
        }
        if found(&program("ghz")) {
            self.grpc_calls()?;
        }
        if found("wrk") {
            self.rate()?;
        }
        Ok(())
    }

    fn streams(&mut self) -> Result<()> {
        let capacity = self.capacity(Guard::Nothing, (500, 0))?;
        for guard in [Guard::Nothing, Guard::Level] {
            let server = serve(guard, 500)?;
            let streams = h2load(server.address, capacity * 2.0, self.span)?;
            server.stop()?;
            self.stream_row("HTTP/2 by h2load", guard, capacity, streams);
        }
        Ok(())
    }

    /// gRPC at twice the capacity. ghz counts latency from sending.
    fn grpc_calls(&mut self) -> Result<()> {
        let args = Args { work: 500, grpc: true, slo: SLO.as_millis() as u64, cpu: Some(0), ..Args::default() };
        let server = Server::start(&args)?;
        let closed = ["--concurrency", "16", "--duration", &format!("{}ms", self.span.as_millis())];
        let capacity = ghz(server.address, &closed)?["rps"].as_f64().context("ghz has said no rate")?;
        server.stop()?;
        for guard in [Guard::Nothing, Guard::Level] {
            let server = Server::start(&Args { guard, ..args.clone() })?;
            let total = format!("{:.0}", capacity * 2.0 * self.span.as_secs_f64());
            let rate = format!("{:.0}", capacity * 2.0);
            let open = ["--async", "--concurrency", "4", "--rps", &rate, "--total", &total];
            let streams = parse_calls(&ghz(server.address, &open)?, self.span);
            server.stop()?;
            self.stream_row("gRPC (tonic) by ghz", guard, capacity, streams);
        }
        Ok(())
    }

    fn stream_row(&mut self, title: &str, guard: Guard, capacity: f64, mut streams: Streams) {
        let share = streams.in_time as f64 / streams.span.as_secs_f64() / capacity;
        let has_bar = guard == Guard::Level;
        streams.latencies.sort_unstable();
        let p99 = streams.latencies.get(streams.latencies.len() * 99 / 100).map_or(0.0, |us| *us as f64 / 1e3);
        self.row(
            format!("{title}, {CONNECTIONS} connections, in time at 2 x, {}", super::name(guard)),
            if has_bar { ">= 0.8" } else { "" },
            format!("{share:.2}, p99 {p99:.1} ms, {} refused", streams.refused),
            share,
            has_bar.then_some(share >= 0.8),
        );
    }

    fn rate(&mut self) -> Result<()> {
        let mut ratios = Vec::new();
        for _ in 0..self.rounds.max(3) {
            let mut rates = Vec::new();
            for guard in [Guard::Nothing, Guard::Level] {
                let server = serve(guard, 0)?;
                rates.push(wrk(server.address, self.span.min(Duration::from_secs(3)))?);
                server.stop()?;
            }
            ratios.push(rates[1] / rates[0].max(1.0));
        }
        let ratio = median(ratios);
        let title = "rate of an empty handler with / without the layer, wrk".into();
        self.row(title, ">= 0.97", format!("{ratio:.3}"), ratio, Some(ratio >= 0.97));
        Ok(())
    }
}

fn serve(guard: Guard, work: u64) -> Result<Server> {
    Server::start(&Args { guard, work, slo: SLO.as_millis() as u64, cpu: Some(0), ..Args::default() })
}

/// Path where `scripts/setup ecosystem` puts a program, or its name.
fn program(name: &str) -> String {
    let ours = format!("target/clients/{name}");
    if std::path::Path::new(&ours).exists() { ours } else { name.into() }
}

fn found(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        println!("{program} is not installed: its row is left out");
    }
    found
}

struct Streams {
    in_time: u64,
    refused: u64,
    /// Latencies of the answered requests, in microseconds.
    latencies: Vec<u64>,
    span: Duration,
}

/// Sends streams at this rate for `span`; the first third is not measured.
fn h2load(address: SocketAddr, rate: f64, span: Duration) -> Result<Streams> {
    let log = std::env::temp_dir().join(format!("h2load-{}.log", std::process::id()));
    let _ = std::fs::remove_file(&log);
    let each = (rate / CONNECTIONS as f64).max(1.0);
    let ran = Command::new("h2load")
        .args(["-c", &CONNECTIONS.to_string(), "-m", "1000", "--rps", &format!("{each:.0}")])
        .args(["-n", &format!("{:.0}", each * CONNECTIONS as f64 * span.as_secs_f64())])
        .arg(format!("--log-file={}", log.display()))
        .arg(format!("http://{address}/"))
        .stdout(Stdio::null())
        .status()
        .context("h2load")?;
    anyhow::ensure!(ran.success(), "h2load has failed");
    let text = std::fs::read_to_string(&log).context("the log of h2load")?;
    let _ = std::fs::remove_file(&log);
    Ok(parse_log(&text, span))
}

/// Counts the requests of a log: start in us, status, and duration in us.
fn parse_log(log: &str, span: Duration) -> Streams {
    let row = |line: &str| -> Option<(u64, i64, u64)> {
        let mut columns = line.split('\t');
        Some((columns.next()?.parse().ok()?, columns.next()?.parse().ok()?, columns.next()?.trim().parse().ok()?))
    };
    let rows: Vec<_> = log.lines().filter_map(row).collect();
    let first = rows.iter().map(|row| row.0).min().unwrap_or(0);
    let (from, until) = (first + span.as_micros() as u64 / 3, first + span.as_micros() as u64);
    let mut streams = Streams { in_time: 0, refused: 0, latencies: Vec::new(), span: span - span / 3 };
    for (_, status, took) in rows.into_iter().filter(|row| row.0 >= from && row.0 < until) {
        match status {
            200 => {
                streams.in_time += u64::from(u128::from(took) <= SLO.as_micros());
                streams.latencies.push(took);
            }
            _ => streams.refused += 1,
        }
    }
    streams
}

/// Runs ghz with these arguments and returns its report.
fn ghz(address: SocketAddr, how: &[&str]) -> Result<serde_json::Value> {
    let folder = std::env::temp_dir().join(format!("ghz-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (proto, out) = (folder.join("echo.proto"), folder.join("out.json"));
    std::fs::write(&proto, PROTO)?;
    let ran = Command::new(program("ghz"))
        .args(["--insecure", "--call", "bench.Echo/Echo", "-d", r#"{"value":"hello"}"#])
        .args(["--connections", &CONNECTIONS.to_string(), "--format", "json", "--timeout", "2s"])
        .args(how)
        .arg(format!("--proto={}", proto.display()))
        .arg(format!("--output={}", out.display()))
        .arg(address.to_string())
        .stdout(Stdio::null())
        .status()
        .context("ghz")?;
    anyhow::ensure!(ran.success(), "ghz has failed");
    let report = serde_json::from_slice(&std::fs::read(&out)?).context("the report of ghz")?;
    std::fs::remove_dir_all(&folder)?;
    Ok(report)
}

/// Counts the calls of a report, with status and latency in ns. They are ordered by their ends.
fn parse_calls(report: &serde_json::Value, span: Duration) -> Streams {
    let details = report["details"].as_array().map_or(&[][..], Vec::as_slice);
    let counted = &details[details.len() / 3..];
    let mut streams = Streams { in_time: 0, refused: 0, latencies: Vec::new(), span: span - span / 3 };
    for call in counted {
        let us = call["latency"].as_u64().unwrap_or(u64::MAX) / 1_000;
        if call["status"] == "OK" {
            streams.in_time += u64::from(u128::from(us) <= SLO.as_micros());
            streams.latencies.push(us);
        } else {
            streams.refused += 1;
        }
    }
    streams
}

/// Measures requests per second of a closed loop.
fn wrk(address: SocketAddr, span: Duration) -> Result<f64> {
    let output = Command::new("wrk")
        .args(["-t1", "-c16", &format!("-d{}s", span.as_secs().max(1)), &format!("http://{address}/")])
        .output()
        .context("wrk")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:")?.trim().parse().ok());
    rate.context("wrk has said no rate")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_third_of_a_log_is_skipped() {
        let log = "1000000\t200\t15000\n1500000\t200\t15000\n1600000\t200\t25000\n1700000\t503\t90\nnonsense\n1800000\t-1\t5\n2100000\t200\t5\n";
        let streams = parse_log(log, Duration::from_secs(1));
        assert_eq!((streams.in_time, streams.refused, streams.latencies), (1, 2, vec![15_000, 25_000]));
    }
}
