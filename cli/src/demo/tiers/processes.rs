//! Processes of this program that serve and load tiers. A server stops when its input ends, so no
//! server outlives the demo. Does not contain output.

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

/// Interval between two checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit for a server to prepare its data.
const START_TIMEOUT: Duration = Duration::from_secs(600);
/// Time limit for a server to send its last responses.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);
/// Maximum of stderr lines that are kept of a process.
const STDERR_LINES_MAX: usize = 20;
/// Longest report, in bytes.
const REPORT_MAX: u64 = 16 << 20;

/// A server in its own process.
pub(crate) struct ServerProcess {
    child: Child,
    /// Closing this input stops the server.
    input: Option<ChildStdin>,
    stderr_lines: Receiver<String>,
    /// Address of the server.
    pub(crate) address: String,
}

fn spawn(arguments: &[String], input: Stdio) -> Result<Child, Failure> {
    let program = std::env::current_exe().context("this program's path").map_err(Failure::Runtime)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().context("starting a process").map_err(Failure::Runtime)
}

impl ServerProcess {
    /// Starts a server on a free port. The server is ready when [`ServerProcess::wait`] returns.
    pub(crate) fn start(arguments: &[String]) -> Result<Self, Failure> {
        let own = ["serve", "--listen", "127.0.0.1:0", "--idle", "block", "--until-input-ends"].map(String::from);
        let mut child = spawn(&[&own[..], arguments].concat(), Stdio::piped())?;
        let (line_sender, lines) = channel();
        if let Some(stderr) = child.stderr.take() {
            read_lines(stderr, move |line| line_sender.send(line).is_ok());
        }
        let input = child.stdin.take();
        Ok(ServerProcess { child, input, stderr_lines: lines, address: String::new() })
    }

    /// Waits until the server is ready.
    pub(crate) fn wait(&mut self, interrupt: &Interrupt) -> Result<(), Failure> {
        let (line_sender, first) = channel();
        let output: Option<ChildStdout> = self.child.stdout.take();
        if let Some(output) = output {
            // Keep reading: a full pipe would block the server.
            read_lines(output, move |line| {
                let _ = line_sender.send(line);
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

    /// Failure of the server, with its own error message.
    fn failure(&mut self) -> Failure {
        // The last lines may still be on their way.
        thread::sleep(POLL_INTERVAL);
        let lines: VecDeque<String> = self.stderr_lines.try_iter().take(STDERR_LINES_MAX).collect();
        let last = lines.iter().rev().find(|line| line.starts_with("error")).or(lines.back());
        Failure::Input(anyhow!("a tier did not start: {}", sanitize(last.map_or("it said nothing", String::as_str))))
    }

    /// Failure of the server, if it has ended by itself.
    pub(crate) fn exit_failure(&mut self) -> Option<Failure> {
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)).then(|| self.failure())
    }

    /// Warnings since the last call.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.stderr_lines
            .try_iter()
            .take(STDERR_LINES_MAX)
            .filter(|line| line.starts_with("warning"))
            .map(|line| sanitize(&line))
            .collect()
    }

    /// Requests the server to stop.
    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }
}

/// Stops all servers, callers before their leaves. A server that does not end in time is killed.
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

/// Reads lines on a separate thread until the end, or until `send` returns false.
pub(crate) fn read_lines(from: impl Read + Send + 'static, mut send: impl FnMut(String) -> bool + Send + 'static) {
    // Without a thread no line arrives, and a waiting caller sees a disconnected channel.
    let _ = thread::Builder::new().name("lines".into()).spawn(move || {
        for line in BufReader::new(from).lines() {
            let Ok(line) = line else { return };
            if !send(line) {
                return;
            }
        }
    });
}

/// Runs `leeward load` and returns its report. `poll` is called repeatedly meanwhile; its error
/// ends the load.
pub(crate) fn load(
    arguments: &[String],
    mut poll: impl FnMut() -> Result<(), Failure>,
) -> Result<serde_json::Value, Failure> {
    let own = ["load", "--json"].map(String::from);
    let mut child = KillOnDrop(spawn(&[&own[..], arguments].concat(), Stdio::null())?);
    let (report_sender, report_receiver) = channel();
    let output = child.0.stdout.take();
    let _ = thread::Builder::new().name("report".into()).spawn(move || {
        let mut text = String::new();
        let read = output.map(|output| output.take(REPORT_MAX).read_to_string(&mut text));
        let _ = report_sender.send(read.map(|_| text));
    });
    let (line_sender, stderr_lines) = channel();
    if let Some(stderr) = child.0.stderr.take() {
        read_lines(stderr, move |line| line_sender.send(line).is_ok());
    }
    loop {
        poll()?;
        match report_receiver.recv_timeout(Duration::from_millis(1)) {
            Ok(text) => {
                let _ = child.0.wait();
                let report = text.as_deref().map(serde_json::from_str);
                return match report {
                    Some(Ok(report)) => Ok(report),
                    _ => {
                        thread::sleep(POLL_INTERVAL);
                        let lines: Vec<String> = stderr_lines.try_iter().take(STDERR_LINES_MAX).collect();
                        Err(Failure::Runtime(anyhow!("the load: {}", sanitize(&lines.join("; ")))))
                    }
                };
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::Runtime(anyhow!("the load: no report"))),
        }
    }
}

/// A process that is killed when this is dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
