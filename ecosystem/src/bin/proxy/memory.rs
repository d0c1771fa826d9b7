//! Memory of the proxy with idle connections, and with long bodies.

use crate::contender::Contender;
use crate::line::{Bar, Line};
use crate::measure::Bench;
use crate::sample::Service;
use crate::speed::{PROXIES, forwarding, of, raw, trivial};
use crate::transients::list;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Idle connections.
const IDLE: usize = 10_000;
/// Number of MB that stands for a failure.
const FAILED: f64 = 1e9;

/// Memory with 10,000 idle connections, each of which has had a request.
pub(crate) fn idle(bench: &mut Bench) -> Result<(Vec<Line>, Value)> {
    let service = trivial(bench)?;
    let mut all = Vec::new();
    for contender in PROXIES {
        if contender.program().is_none() {
            all.push((contender, None));
            continue;
        }
        let front = forwarding(bench, contender, service.address)?;
        let mut connections = Vec::with_capacity(IDLE);
        for _ in 0..IDLE {
            let mut stream = TcpStream::connect(front.address)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"GET / HTTP/1.1\r\nhost: leeward\r\n\r\n")?;
            let mut bytes = [0; 1_024];
            let read = stream.read(&mut bytes)?;
            anyhow::ensure!(bytes[..read].starts_with(b"HTTP/1.1 200"), "{} does not answer", contender.name());
            connections.push(stream);
        }
        let process = front.process.as_ref().context("a proxy is a process")?;
        let (now, _) = process.memory_mb();
        eprintln!("    {}: {now:.0} MB with {} connections", contender.name(), connections.len());
        all.push((contender, Some(now)));
    }
    let title = format!("memory with {IDLE} idle connections");
    let line = Line::new(title, Bar::AtMost(100.0), of(&all, Contender::Ours), |mb| format!("{mb:.0} MB"));
    Ok((vec![line.beside(list(&all, |mb| format!("{mb:.0} MB")))], raw(&all)))
}

/// Memory that a long body adds, in each direction.
pub(crate) fn bodies(bench: &mut Bench, mb: usize) -> Result<(Vec<Line>, Value)> {
    let service = bench.services.start_in(Service::Axum, "empty", &bench.folder)?;
    let (mut down, mut up) = (Vec::new(), Vec::new());
    for contender in PROXIES {
        if contender.program().is_none() {
            down.push((contender, None));
            up.push((contender, None));
            continue;
        }
        for (all, is_down) in [(&mut down, true), (&mut up, false)] {
            let front = forwarding(bench, contender, service.address)?;
            let process = front.process.as_ref().context("a proxy is a process")?;
            let (before, _) = process.memory_mb();
            let received = if is_down { download(front.address, mb) } else { upload(front.address, mb) };
            let received = received.unwrap_or_else(|error| {
                println!("{}: a long body fails: {error:#}", contender.name());
                0
            });
            if received < mb << 20 {
                all.push((contender, Some(FAILED)));
                continue;
            }
            let added = process.memory_mb().1 - before;
            eprintln!(
                "    {}: {mb} MB {}, {added:.1} MB more memory",
                contender.name(),
                if is_down { "down" } else { "up" }
            );
            all.push((contender, Some(added)));
        }
    }
    let lines = [("down", &down), ("up", &up)].map(|(way, all)| {
        let title = format!("memory added by a body of {mb} MB {way}");
        let show = |mb: f64| if mb < FAILED { format!("{mb:.1} MB") } else { "failed".into() };
        let line = Line::new(title, Bar::AtMost(16.0), of(all, Contender::Ours), show);
        line.beside(list(all, |mb| show(*mb)))
    });
    Ok((lines.to_vec(), json!({ "down": raw(&down), "up": raw(&up) })))
}

/// Bytes of a response until the connection's end, its head included.
fn download(address: SocketAddr, mb: usize) -> Result<usize> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(format!("GET /-/large/{mb} HTTP/1.1\r\nhost: leeward\r\nconnection: close\r\n\r\n").as_bytes())?;
    // However a proxy frames it, no less than the body comes.
    let (mut bytes, mut received) = (vec![0; 1 << 18], 0);
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(received),
            read => received += read,
        }
    }
}

/// Bytes that the service has received.
fn upload(address: SocketAddr, mb: usize) -> Result<usize> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let length = mb << 20;
    let head =
        format!("POST /-/sink HTTP/1.1\r\nhost: leeward\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let piece = vec![b'x'; 1 << 18];
    for _ in 0..length / piece.len() {
        stream.write_all(&piece)?;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let count =
        answer.rsplit("\r\n\r\n").next().and_then(|body| body.lines().find_map(|line| line.trim().parse().ok()));
    count.with_context(|| format!("no count in {answer}"))
}
