//! The honest client beside an attack: an open loop, with latencies from each request's due time.

use crate::certificate;
use crate::placement::{self, Role};
use crate::target::Port;
use anyhow::Context;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// The objectives, as configured at the servers (`server`).
const OBJECTIVES: [(Port, Duration); 4] = [
    (Port::Rpc, Duration::from_millis(1)),
    (Port::Datagrams, Duration::from_millis(1)),
    (Port::Tls, Duration::from_millis(1)),
    (Port::Memcached, Duration::from_millis(20)),
];
/// Number of memcached clients, and requests per second of each.
const CLIENTS: usize = 10;
const RATE: u32 = 100;

/// Report of the honest client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientReport {
    /// Share of the requests that were answered within the objective.
    pub(crate) goodput: f64,
    /// Share of the requests that were answered.
    pub(crate) answered: f64,
    /// 99th percentile of the answered requests' latency.
    pub(crate) p99: Duration,
    /// Number of wrong values; must be 0.
    pub(crate) wrong: u64,
    /// Share of the requests that the client itself sent late, by more than a tenth of the
    /// objective.
    pub(crate) late: f64,
}

impl ClientReport {
    /// Writes the report for another process.
    pub(crate) fn to_json(self) -> String {
        let ClientReport { goodput: good, answered, p99, wrong, late } = self;
        serde_json::json!({ "good": good, "answered": answered, "p99_ns": p99.as_nanos() as u64, "wrong": wrong, "late": late })
            .to_string()
    }

    fn from_json(text: &[u8]) -> anyhow::Result<Self> {
        let report: serde_json::Value = serde_json::from_slice(text).context("what the honest client said")?;
        let number = |name: &str| report[name].as_f64().with_context(|| format!("no `{name}`"));
        Ok(ClientReport {
            goodput: number("good")?,
            answered: number("answered")?,
            p99: Duration::from_nanos(number("p99_ns")? as u64),
            wrong: number("wrong")? as u64,
            late: number("late")?,
        })
    }
}

pub(crate) fn objective(port: Port) -> Duration {
    OBJECTIVES.iter().find(|(of, _)| *of == port).map_or(Duration::ZERO, |(_, objective)| *objective)
}

/// Runs the honest client for `span`.
pub(crate) fn run(port: Port, leeward: &Path, address: SocketAddr, span: Duration) -> anyhow::Result<ClientReport> {
    match port {
        Port::Rpc => by_load(leeward, &[&address.to_string()], span),
        Port::Tls => {
            let ca = certificate::files()?.ca();
            by_load(leeward, &["--tls-ca", &ca.display().to_string(), &address.to_string()], span)
        }
        Port::Datagrams => by_load(leeward, &["--udp", &address.to_string()], span),
        Port::Memcached => {
            let this = std::env::current_exe().context("where this program is")?;
            let mut command = placement::command(Role::Client, this);
            command.args(["ask", &address.to_string(), &span.as_secs_f64().to_string()]);
            ClientReport::from_json(&command.output().context("starting the honest client")?.stdout)
        }
    }
}

/// Runs `leeward load`: 50 clients, 1,000 requests of 10 µs per second.
fn by_load(leeward: &Path, server: &[&str], span: Duration) -> anyhow::Result<ClientReport> {
    let span = format!("{}ms", span.as_millis());
    let mut command = placement::command(Role::Client, leeward);
    command.arg("load").args(server);
    command.args(["--slo", "1ms", "--rtt", "50us", "--clients", "50", "--demand", "1k"]);
    command.args(["--duration", &span, "--warmup", "200ms", "--json"]);
    let output = command.output().with_context(|| format!("starting {}", leeward.display()))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).with_context(|| format!("leeward load said: {stderr}"))?;
    let count = |name: &str| report["measured"][name].as_f64().unwrap_or(0.0);
    let offered = count("offered").max(1.0);
    let p99 = Duration::from_nanos(report["latency"]["p99_ns"].as_f64().unwrap_or(0.0) as u64);
    let (good, answered, late) = (count("good") / offered, count("completed") / offered, count("late") / offered);
    Ok(ClientReport { goodput: good, answered, p99, wrong: 0, late })
}

/// Sets and gets pairs over several connections; each connection uses its own pair.
pub(crate) fn run_pairs(address: SocketAddr, span: Duration) -> anyhow::Result<ClientReport> {
    let clients: Vec<_> = (0..CLIENTS).map(|name| std::thread::spawn(move || pairs(address, name, span))).collect();
    let (mut waits, mut wrong, mut late) = (Vec::new(), 0, 0);
    for client in clients {
        let ConnectionReport { waits: of_one, wrong: wrong_of_one, late: late_of_one } =
            client.join().map_err(|_| anyhow::anyhow!("a client has failed"))?;
        waits.extend(of_one);
        wrong += wrong_of_one;
        late += late_of_one;
    }
    waits.sort();
    let due = f64::from(RATE) * span.as_secs_f64() * CLIENTS as f64;
    let in_time = waits.iter().filter(|wait| **wait < objective(Port::Memcached)).count();
    let p99 = waits.get(waits.len() * 99 / 100).copied().unwrap_or_default();
    Ok(ClientReport {
        goodput: in_time as f64 / due,
        answered: waits.len() as f64 / due,
        p99,
        wrong,
        late: late as f64 / due,
    })
}

/// Report of one connection.
#[derive(Default)]
struct ConnectionReport {
    /// Time from each answered request's due time to its answer.
    waits: Vec<Duration>,
    wrong: u64,
    /// Requests that were sent late although the previous answer arrived in time.
    late: u64,
}

fn pairs(address: SocketAddr, name: usize, span: Duration) -> ConnectionReport {
    let mut report = ConnectionReport::default();
    let connect = || {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        Some(BufReader::new(stream))
    };
    let Some(mut stream) = connect() else { return report };
    let (began, mut stored) = (Instant::now(), None);
    for number in 0.. {
        let due = began + Duration::from_secs(1) * number / RATE;
        if due.duration_since(began) > span {
            break;
        }
        let early = due.saturating_duration_since(Instant::now());
        std::thread::sleep(early);
        report.late += u64::from(!early.is_zero() && due.elapsed() > objective(Port::Memcached) / 10);
        match exchange(&mut stream, name, number, &mut stored) {
            Ok(Answer::Right) => report.waits.push(due.elapsed()),
            Ok(Answer::Busy) => {}
            Ok(Answer::Wrong) => report.wrong += 1,
            Err(_) => break,
        }
    }
    report
}

enum Answer {
    Right,
    /// The server rejected the request.
    Busy,
    Wrong,
}

/// Sends one request and reads its answer: each fourth request sets, the others get the last value.
fn exchange(
    stream: &mut BufReader<TcpStream>,
    name: usize,
    number: u32,
    stored: &mut Option<String>,
) -> std::io::Result<Answer> {
    let mut line = String::new();
    if number.is_multiple_of(4) {
        let value = format!("{name}-{number}");
        write!(stream.get_mut(), "set h{name} 0 0 {}\r\n{value}\r\n", value.len())?;
        read_line(stream, &mut line)?;
        // After a rejected set the stored value is unknown.
        *stored = (line == "STORED\r\n").then_some(value);
        return Ok(if stored.is_some() { Answer::Right } else { Answer::Busy });
    }
    write!(stream.get_mut(), "get h{name}\r\n")?;
    read_line(stream, &mut line)?;
    if !line.starts_with("VALUE") {
        // A flush, or an eviction, may have removed the pair.
        return Ok(if line == "END\r\n" { Answer::Right } else { Answer::Busy });
    }
    read_line(stream, &mut line)?;
    let is_right = stored.as_ref().is_none_or(|stored| line.trim_end() == stored);
    read_line(stream, &mut line)?;
    Ok(if is_right { Answer::Right } else { Answer::Wrong })
}

fn read_line(stream: &mut BufReader<TcpStream>, line: &mut String) -> std::io::Result<()> {
    line.clear();
    if stream.read_line(line)? == 0 { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}
