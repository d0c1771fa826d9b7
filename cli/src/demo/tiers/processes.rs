//! Processes of this program that serve and load tiers. A server stops when its input ends, so none is left behind, whatever becomes of
//! the demo. Never here: what is shown.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::stdout::sanitize;

/// From one look at the interrupt to the next.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time that a server has for preparing its data.
const START_TIMEOUT: Duration = Duration::from_secs(600);
/// Time that a server has for the answers that it owes.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);
/// Lines that are kept of what a process says on stderr.
const STDERR_LINES_MAX: usize = 20;
/// Bytes of a report, at most.
const REPORT_MAX: u64 = 16 << 20;

/// A server in a process of its own.
pub(crate) struct ServerProcess {
    child: Child,
    /// Its end makes the server stop.
    input: Option<ChildStdin>,
    stderr_lines: Receiver<String>,
    /// Its address.
    pub(crate) address: String,
}

fn spawn(arguments: &[String], input: Stdio) -> Result<Child, Failure> {
    let program = std::env::current_exe().context("this program's path").map_err(Failure::Runtime)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().context("starting a process").map_err(Failure::Runtime)
}

impl ServerProcess {
    /// Starts a server on a free port: it is there when [`Server::wait`] returns.
    pub(crate) fn start(arguments: &[String]) -> Result<Self, Failure> {
        let own = ["serve", "--listen", "127.0.0.1:0", "--idle", "block", "--until-input-ends"].map(String::from);
        let mut child = spawn(&[&own[..], arguments].concat(), Stdio::piped())?;
        let (tell, said) = channel();
        if let Some(stderr) = child.stderr.take() {
            read_lines(stderr, move |line| tell.send(line).is_ok());
        }
        let input = child.stdin.take();
        Ok(ServerProcess { child, input, stderr_lines: said, address: String::new() })
    }

    /// Waits until it serves.
    pub(crate) fn wait(&mut self, interrupt: &Interrupt) -> Result<(), Failure> {
        let (tell, first) = channel();
        let output: Option<ChildStdout> = self.child.stdout.take();
        if let Some(output) = output {
            // The rest is read, too: a pipe that is full would stop the server.
            read_lines(output, move |line| {
                let _ = tell.send(line);
                true
            });
        }
        let began = Instant::now();
        loop {
            match first.recv_timeout(POLL_INTERVAL) {
                Ok(line) => {
                    let address = line.split(" on ").nth(1).and_then(|rest| rest.split(' ').next());
                    self.address = address.unwrap_or_default().into();
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) if interrupt.is_requested() => return Err(Failure::Interrupted),
                Err(RecvTimeoutError::Timeout) if began.elapsed() < START_TIMEOUT => {}
                Err(_) => return Err(self.failure()),
            }
        }
    }

    /// Why it does not serve, in its own words.
    fn failure(&mut self) -> Failure {
        // The last words may still be on their way.
        thread::sleep(POLL_INTERVAL);
        let said: VecDeque<String> = self.stderr_lines.try_iter().take(STDERR_LINES_MAX).collect();
        let last = said.iter().rev().find(|line| line.starts_with("error")).or(said.back());
        Failure::Input(anyhow!("a tier did not start: {}", sanitize(last.map_or("it said nothing", String::as_str))))
    }

    /// Whether it has ended by itself; then why.
    pub(crate) fn exit_failure(&mut self) -> Option<Failure> {
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)).then(|| self.failure())
    }

    /// Warnings since the last look.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.stderr_lines
            .try_iter()
            .take(STDERR_LINES_MAX)
            .filter(|line| line.starts_with("warning"))
            .map(|line| sanitize(&line))
            .collect()
    }

    /// Tells it to stop.
    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }
}

/// Stops all of them, those first that ask others. What does not end in time is killed.
pub(crate) fn stop(mut servers: Vec<ServerProcess>) {
    servers.iter_mut().for_each(ServerProcess::close_input);
    let began = Instant::now();
    while began.elapsed() < STOP_TIMEOUT && servers.iter_mut().any(|server| matches!(server.child.try_wait(), Ok(None)))
    {
        thread::sleep(POLL_INTERVAL / 5);
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines on a thread of its own, until the end or until nobody wants them.
fn read_lines(from: impl Read + Send + 'static, mut tell: impl FnMut(String) -> bool + Send + 'static) {
    // Without a thread nothing is heard, and a wait ends with that.
    let _ = thread::Builder::new().name("lines".into()).spawn(move || {
        for line in BufReader::new(from).lines() {
            let Ok(line) = line else { return };
            if !tell(line) {
                return;
            }
        }
    });
}

/// Runs `leeward load` to its end, and returns its report. `look` is called again and again meanwhile; an error of it ends the load.
pub(crate) fn load(
    arguments: &[String],
    mut look: impl FnMut() -> Result<(), Failure>,
) -> Result<serde_json::Value, Failure> {
    let own = ["load", "--json"].map(String::from);
    let mut child = KillOnDrop(spawn(&[&own[..], arguments].concat(), Stdio::null())?);
    let (tell, heard) = channel();
    let output = child.0.stdout.take();
    let _ = thread::Builder::new().name("report".into()).spawn(move || {
        let mut text = String::new();
        let read = output.map(|output| output.take(REPORT_MAX).read_to_string(&mut text));
        let _ = tell.send(read.map(|_| text));
    });
    let (complain, complaints) = channel();
    if let Some(stderr) = child.0.stderr.take() {
        read_lines(stderr, move |line| complain.send(line).is_ok());
    }
    loop {
        look()?;
        match heard.recv_timeout(Duration::from_millis(1)) {
            Ok(text) => {
                let _ = child.0.wait();
                let report = text.as_deref().map(serde_json::from_str);
                return match report {
                    Some(Ok(report)) => Ok(report),
                    _ => {
                        thread::sleep(POLL_INTERVAL);
                        let words: Vec<String> = complaints.try_iter().take(STDERR_LINES_MAX).collect();
                        Err(Failure::Runtime(anyhow!("the load: {}", sanitize(&words.join("; ")))))
                    }
                };
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::Runtime(anyhow!("the load: no report"))),
        }
    }
}

/// A process that does not outlive this.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
