//! Requests under load while the proxy takes new settings and is replaced by new processes: none
//! may be lost.
//!
//! A request is lost if its client gets no complete answer. Clients keep their connections until
//! the proxy says `connection: close`, or open one every few requests.

use crate::contender::Contender;
use crate::line::{Bar, Line};
use crate::measure::Bench;
use crate::process::{PROXY_CPU, Process, free_address};
use crate::speed::trivial;
use anyhow::{Context, Result};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Clients; every second one keeps its connection.
const CLIENTS: u64 = 16;
/// Requests of a connection that is not kept.
const SHORT: u64 = 4;
/// Reloads, and of these one in so many is followed by an upgrade.
const RELOADS: u64 = 200;
const UPGRADE_EVERY: u64 = 10;
/// Longest time of one step.
const PATIENCE: Duration = Duration::from_secs(60);

/// Counts of all clients.
#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    /// Answers of the proxy's own.
    refused: AtomicU64,
    lost: AtomicU64,
    connections: AtomicU64,
}

/// Reloads and upgrades under load, until `requests` were answered.
pub(crate) fn reload(bench: &mut Bench, requests: u64) -> Result<(Vec<Line>, Value)> {
    let title = format!("requests lost of {requests} over {RELOADS} reloads, {} upgrades", RELOADS / UPGRADE_EVERY);
    let Some(program) = Contender::Ours.program() else {
        return Ok((vec![Line::new(title, Bar::AtMost(0.0), None, |lost| format!("{lost:.0}"))], Value::Null));
    };
    let service = trivial(bench)?;
    let address = free_address()?;
    let file = std::path::absolute(bench.folder.join("reload.toml"))?;
    write(&file, address, service.address, 0)?;
    let command = [program, "proxy".into(), "--config".into(), file.to_string_lossy().into_owned()];
    let process = Process::start(&command, &[], PROXY_CPU, address, &bench.folder)?;
    let log = bench.folder.join("leeward.log");
    let (counts, stops) = (Counts::default(), AtomicBool::new(false));
    let result = std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (counts, stops) = (&counts, &stops);
            scope.spawn(move || ask(address, client % 2 == 0, counts, stops));
        }
        let result =
            disturb(&process, &log, requests, &counts, |number| write(&file, address, service.address, number));
        stops.store(true, Ordering::SeqCst);
        result
    });
    result?;
    let of = |count: &AtomicU64| count.load(Ordering::SeqCst);
    let raw = json!({
        "answered": of(&counts.answered), "refused": of(&counts.refused), "lost": of(&counts.lost),
        "connections": of(&counts.connections), "reloads": RELOADS, "upgrades": RELOADS / UPGRADE_EVERY,
    });
    let line = Line::new(title, Bar::AtMost(0.0), Some(of(&counts.lost) as f64), |lost| format!("{lost:.0}"));
    let more = format!(", {} refused, {} connections", of(&counts.refused), of(&counts.connections));
    Ok((vec![line.with(&more)], raw))
}

/// Sends the signals, evenly over the requests.
fn disturb(
    process: &Process,
    log: &Path,
    requests: u64,
    counts: &Counts,
    write: impl Fn(u64) -> Result<()>,
) -> Result<()> {
    let (mut reloads, mut upgrades) = (0, 0);
    let answered = || counts.answered.load(Ordering::SeqCst);
    for number in 1..=RELOADS {
        let due = requests * number / (RELOADS + 1);
        await_for("requests are answered", || Ok(answered() >= due))?;
        write(number)?;
        // Processes that drain ignore both signals.
        process.signal(Signal::HUP);
        reloads += 1;
        await_for("settings are reloaded", || Ok(said(log, "Settings reloaded")? >= reloads))?;
        if number % UPGRADE_EVERY == 0 {
            process.signal(Signal::USR2);
            upgrades += 1;
            await_for("a process takes over", || Ok(said(log, "has taken over")? >= upgrades))?;
        }
    }
    await_for("requests are answered", || Ok(answered() >= requests))
}

/// Times that the processes have said something.
fn said(log: &Path, text: &str) -> Result<usize> {
    Ok(String::from_utf8_lossy(&std::fs::read(log)?).matches(text).count())
}

fn await_for(what: &str, is_done: impl Fn() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_done()? {
        anyhow::ensure!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Writes settings that differ from those before.
fn write(file: &Path, listen: SocketAddr, to: SocketAddr, number: u64) -> Result<()> {
    let text = format!(
        "slo = \"{}s\"\nlisten = \"{listen}\"\nto = [\"{to}\"]\nthreads = 1\nshared = {}\n[queue]\nrequests = {}\n\
         [timeouts]\nconnect = \"{}s\"\nstop = \"20s\"\n[[rule]]\nname = \"r{}\"\nclass = {}\n",
        5 + number % 3,
        number % 2 == 0,
        1_000 + number,
        1 + number % 5,
        number % 4,
        number % 8,
    );
    let new = file.with_extension("new");
    std::fs::write(&new, text)?;
    std::fs::rename(new, file).context("the settings")
}

/// Asks until it is told to stop.
fn ask(address: SocketAddr, keeps: bool, counts: &Counts, stops: &AtomicBool) {
    let (mut connection, mut used) = (None, 0);
    while !stops.load(Ordering::SeqCst) {
        let mut stream = match connection.take() {
            Some(stream) => stream,
            None => match connect(address) {
                Ok(stream) => {
                    counts.connections.fetch_add(1, Ordering::SeqCst);
                    used = 0;
                    stream
                }
                Err(_) => {
                    counts.lost.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
            },
        };
        used += 1;
        match exchange(&mut stream) {
            Ok((status, is_last)) => {
                counts.answered.fetch_add(1, Ordering::SeqCst);
                if status != 200 {
                    counts.refused.fetch_add(1, Ordering::SeqCst);
                }
                connection = (!is_last && (keeps || used < SHORT)).then_some(stream);
            }
            Err(error) => {
                eprintln!("    lost: request {used} of a connection: {error:#}");
                counts.lost.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

fn connect(address: SocketAddr) -> Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(BufReader::new(stream))
}

/// Status of an answer, and whether it is the connection's last one.
fn exchange(stream: &mut BufReader<TcpStream>) -> Result<(u16, bool)> {
    stream.get_ref().write_all(b"GET / HTTP/1.1\r\nhost: leeward\r\n\r\n")?;
    let (mut status, mut length, mut is_last) = (None, None, false);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        anyhow::ensure!(line.ends_with('\n'), "the connection ends in the head");
        let line = line.trim_end().to_ascii_lowercase();
        if status.is_none() {
            status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
            anyhow::ensure!(status.is_some(), "no status in {line:?}");
        } else if let Some(text) = line.strip_prefix("content-length:") {
            length = text.trim().parse::<usize>().ok();
        } else if line.starts_with("connection:") {
            is_last = line.contains("close");
        } else if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length.context("no length")?];
    stream.read_exact(&mut body).context("the connection ends in the body")?;
    Ok((status.unwrap_or_default(), is_last))
}
