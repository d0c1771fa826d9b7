//! Three processes to record: a front that calls a store and a cache over pipes. Every hundredth
//! request is slow in the store, in `recompute`.
//!
//! `leeward profile record -- target/release/examples/joined`, then `leeward profile join
//! leeward-traces`.

use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leeward_trace::{TraceContext, TraceParent, request, trace};

/// Keeps the CPU busy. Calls last at least 200 µs here, so the run-time sees them even if a busy
/// machine delays its clock.
fn spin(span: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < span {
        black_box(());
    }
}

#[trace]
fn look_up(id: u64, is_store: bool) {
    spin(Duration::from_micros(200));
    if is_store && id.is_multiple_of(100) {
        recompute();
    }
}

#[trace]
fn recompute() {
    spin(Duration::from_millis(30));
}

/// Serves requests: lines with an id and a `traceparent`.
fn serve(is_store: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (number, line) in io::stdin().lock().lines().enumerate() {
        let line = line?;
        let (id, parent) = line.split_once(' ').unwrap_or_default();
        let request = request(number as u64);
        request.trace(TraceParent::parse(parent.as_bytes()));
        look_up(id.parse().unwrap_or(1), is_store);
        drop(request);
        writeln!(out, "done")?;
        out.flush()?;
    }
    Ok(())
}

struct Backend {
    name: &'static str,
    process: Child,
}

impl Backend {
    fn start(name: &'static str) -> io::Result<Backend> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg0(name).arg(name).stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Backend { name, process: command.spawn()? })
    }

    fn call(&mut self, id: u64, context: &TraceContext) -> io::Result<()> {
        let call = context.call(self.name);
        let (Some(to), Some(from)) = (&mut self.process.stdin, &mut self.process.stdout) else { return Ok(()) };
        writeln!(to, "{id} {}", call.traceparent())?;
        to.flush()?;
        BufReader::with_capacity(64, from).read_line(&mut String::new())?;
        Ok(())
    }
}

fn main() -> io::Result<()> {
    if let Some(role) = std::env::args().nth(1) {
        return serve(role == "store");
    }
    let mut backends = [Backend::start("store")?, Backend::start("cache")?];
    for id in 1..=500 {
        let request = request(id);
        let context = request.trace(None);
        for backend in &mut backends {
            backend.call(id, &context)?;
        }
    }
    for mut backend in backends {
        drop(backend.process.stdin.take());
        backend.process.wait()?;
    }
    Ok(())
}
