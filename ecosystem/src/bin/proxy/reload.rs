//! Requests under load while the proxy takes new settings and is replaced by new processes: none
//! may be lost. Over TLS, the certificates change, too.
//!
//! A request is lost if its client gets no complete answer, or one that says that the proxy could
//! not reach the service. Clients keep their connections until the proxy says `connection: close`,
//! or open one every few requests.

use crate::certificates::Certificates;
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
use std::path::{Path, PathBuf};
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
/// Pause after a connection that is refused.
const PAUSE: Duration = Duration::from_millis(10);

/// Counts of all clients.
#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    /// Rejections by the proxy.
    refused: AtomicU64,
    lost: AtomicU64,
    connections: AtomicU64,
}

/// A proxy whose settings change.
struct Subject {
    process: Process,
    /// What all its processes say.
    log: PathBuf,
    file: PathBuf,
    service: SocketAddr,
    certificates: Option<Certificates>,
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}
type Connection = BufReader<Box<dyn Stream>>;

/// Reloads and upgrades under load, until `requests` were answered; then the same over TLS.
pub(crate) fn reload(bench: &Bench, requests: u64) -> Result<(Vec<Line>, Value)> {
    let upgrades = RELOADS / UPGRADE_EVERY;
    let (mut lines, mut raw) = (Vec::new(), serde_json::Map::new());
    for (name, title) in [
        ("plain", format!("requests lost of {requests}, {RELOADS} reloads, {upgrades} upgrades")),
        ("tls", format!("the same over TLS, {RELOADS} certificates")),
    ] {
        let measured = measure(bench, requests, name == "tls")?;
        let lost = measured.as_ref().map(|(counts, _)| counts.lost.load(Ordering::SeqCst) as f64);
        let mut line = Line::new(title, Bar::AtMost(0.0), lost, |lost| format!("{lost:.0}"));
        if let Some((counts, took)) = measured {
            let of = |count: &AtomicU64| count.load(Ordering::SeqCst);
            let (answered, refused, connections) = (of(&counts.answered), of(&counts.refused), of(&counts.connections));
            line = line.with(&format!(" ({refused} refused, {connections} connections)"));
            let counts = json!({
                "answered": answered, "refused": refused, "lost": of(&counts.lost), "connections": connections,
                "reloads": RELOADS, "upgrades": upgrades, "seconds": took.as_secs_f64(),
            });
            raw.insert(name.into(), counts);
        }
        lines.push(line);
    }
    Ok((lines, raw.into()))
}

/// Counts of one form, and how long it took; none where a program that it needs is not installed.
fn measure(bench: &Bench, requests: u64, is_tls: bool) -> Result<Option<(Counts, Duration)>> {
    let Some(program) = Contender::Ours.program() else { return Ok(None) };
    let folder = std::path::absolute(&bench.folder)?;
    let certificates = if is_tls { Certificates::make(folder.join("certificates"))? } else { None };
    if is_tls && certificates.is_none() {
        return Ok(None);
    }
    let service = trivial(bench)?;
    let (address, file) = (free_address()?, folder.join("reload.toml"));
    write(&file, address, service.address, certificates.as_ref(), 0)?;
    let name = Path::new(&program).file_name().unwrap_or_default().to_string_lossy();
    let log = folder.join(format!("{name}.log"));
    let command = [program, "proxy".into(), "--config".into(), file.to_string_lossy().into_owned()];
    let process = Process::start(&command, &[], PROXY_CPU, address, &folder)?;
    let subject = Subject { process, log, file, service: service.address, certificates };
    let (counts, stops, start) = (Counts::default(), AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (subject, counts, stops) = (&subject, &counts, &stops);
            scope.spawn(move || ask(subject, client % 2 == 0, counts, stops));
        }
        let result = disturb(&subject, requests, &counts);
        stops.store(true, Ordering::SeqCst);
        result
    })?;
    Ok(Some((counts, start.elapsed())))
}

/// Sends the signals, evenly over the requests.
fn disturb(subject: &Subject, requests: u64, counts: &Counts) -> Result<()> {
    let answered = || counts.answered.load(Ordering::SeqCst);
    let Subject { process, log, file, service, certificates } = subject;
    for number in 1..=RELOADS {
        let due = requests * number / (RELOADS + 1);
        await_for("requests are answered", || Ok(answered() >= due))?;
        let is_upgrade = number.is_multiple_of(UPGRADE_EVERY);
        write(file, process.address, *service, certificates.as_ref(), number)?;
        let is_shown = || match certificates {
            Some(certificates) => certificates.is_shown(number, connect(process.address)?),
            None => Ok(true),
        };
        if is_upgrade {
            // The proxy sees by itself that they have changed.
            await_for("the new certificate is shown", is_shown)?;
        }
        // Processes that drain ignore both signals.
        signal(process, Signal::HUP, log, "Settings reloaded")?;
        anyhow::ensure!(is_shown()?, "the old certificate is shown after a reload");
        if is_upgrade {
            signal(process, Signal::USR2, log, "has taken over")?;
        }
    }
    await_for("requests are answered", || Ok(answered() >= requests))
}

/// Sends a signal, and waits until the processes say what it has done.
fn signal(process: &Process, signal: Signal, log: &Path, text: &str) -> Result<()> {
    let said = || -> Result<usize> { Ok(String::from_utf8_lossy(&std::fs::read(log)?).matches(text).count()) };
    let before = said()?;
    process.signal(signal);
    await_for(text, || Ok(said()? > before))
}

fn await_for(what: &str, is_done: impl Fn() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_done()? {
        anyhow::ensure!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Writes settings and certificates that differ from those before.
fn write(
    file: &Path,
    listen: SocketAddr,
    to: SocketAddr,
    certificates: Option<&Certificates>,
    number: u64,
) -> Result<()> {
    let text = format!(
        "slo = \"{}s\"\nlisten = \"{listen}\"\nto = [\"{to}\"]\nthreads = 1\nshared = {}\n[queue]\nrequests = {}\n\
         [timeouts]\nconnect = \"{}s\"\nstop = \"20s\"\n[[rule]]\nname = \"r{}\"\nclass = {}\n{}",
        5 + number % 3,
        number.is_multiple_of(2),
        1_000 + number,
        1 + number % 5,
        number % 4,
        number % 8,
        certificates.map_or(String::new(), Certificates::section),
    );
    let new = file.with_extension("new");
    std::fs::write(&new, text)?;
    std::fs::rename(new, file).context("the settings")?;
    certificates.map_or(Ok(()), |certificates| certificates.change(number))
}

/// Asks until it is told to stop.
fn ask(subject: &Subject, keeps: bool, counts: &Counts, stops: &AtomicBool) {
    let (mut connection, mut used) = (None, 0);
    while !stops.load(Ordering::SeqCst) {
        let mut stream = match connection.take() {
            Some(stream) => stream,
            None => match open(subject) {
                Ok(stream) => {
                    counts.connections.fetch_add(1, Ordering::SeqCst);
                    used = 0;
                    stream
                }
                Err(error) => {
                    eprintln!("    lost: a connection: {error:#}");
                    counts.lost.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(PAUSE);
                    continue;
                }
            },
        };
        used += 1;
        match exchange(&mut stream) {
            Ok((status @ (200 | 503), is_last)) => {
                counts.answered.fetch_add(1, Ordering::SeqCst);
                if status == 503 {
                    counts.refused.fetch_add(1, Ordering::SeqCst);
                }
                connection = (!is_last && (keeps || used < SHORT)).then_some(stream);
            }
            other => {
                eprintln!("    lost: request {used} of a connection: {other:?}");
                counts.lost.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn open(subject: &Subject) -> Result<Connection> {
    let stream = connect(subject.process.address)?;
    Ok(BufReader::new(match &subject.certificates {
        Some(certificates) => Box::new(certificates.session(stream)?),
        None => Box::new(stream),
    }))
}

/// Status of an answer, and whether it is the connection's last one.
fn exchange(stream: &mut Connection) -> Result<(u16, bool)> {
    stream.get_mut().write_all(b"GET / HTTP/1.1\r\nhost: leeward\r\n\r\n")?;
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
