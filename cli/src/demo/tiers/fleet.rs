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
use crate::stdout::plain;

/// From one look at the interrupt to the next.
const LOOK: Duration = Duration::from_millis(50);
/// Time that a server has for preparing its data.
const PREPARING: Duration = Duration::from_secs(600);
/// Time that a server has for the answers that it owes.
const LEAVING: Duration = Duration::from_secs(8);
/// Lines that are kept of what a process says on stderr.
const SAID: usize = 20;
/// Bytes of a report, at most.
const REPORT: u64 = 16 << 20;

/// A server in a process of its own.
pub(crate) struct Server {
    child: Child,
    /// Its end makes the server stop.
    input: Option<ChildStdin>,
    said: Receiver<String>,
    /// Its address.
    pub(crate) address: String,
}

fn spawned(arguments: &[String], input: Stdio) -> Result<Child, Failure> {
    let program = std::env::current_exe().context("this program's path").map_err(Failure::Runtime)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().context("starting a process").map_err(Failure::Runtime)
}

impl Server {
    /// Starts a server on a free port: it is there when [`Server::wait`] returns.
    pub(crate) fn start(arguments: &[String]) -> Result<Self, Failure> {
        let own = ["serve", "--listen", "127.0.0.1:0", "--idle", "block", "--until-input-ends"].map(String::from);
        let mut child = spawned(&[&own[..], arguments].concat(), Stdio::piped())?;
        let (tell, said) = channel();
        if let Some(stderr) = child.stderr.take() {
            lines(stderr, move |line| tell.send(line).is_ok());
        }
        let input = child.stdin.take();
        Ok(Server { child, input, said, address: String::new() })
    }

    /// Waits until it serves.
    pub(crate) fn wait(&mut self, interrupt: &Interrupt) -> Result<(), Failure> {
        let (tell, first) = channel();
        let output: Option<ChildStdout> = self.child.stdout.take();
        if let Some(output) = output {
            // The rest is read, too: a pipe that is full would stop the server.
            lines(output, move |line| {
                let _ = tell.send(line);
                true
            });
        }
        let began = Instant::now();
        loop {
            match first.recv_timeout(LOOK) {
                Ok(line) => {
                    let address = line.split(" on ").nth(1).and_then(|rest| rest.split(' ').next());
                    self.address = address.unwrap_or_default().into();
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) if interrupt.asked() => return Err(Failure::Interrupted),
                Err(RecvTimeoutError::Timeout) if began.elapsed() < PREPARING => {}
                Err(_) => return Err(self.why()),
            }
        }
    }

    /// Why it does not serve, in its own words.
    fn why(&mut self) -> Failure {
        // The last words may still be on their way.
        thread::sleep(LOOK);
        let said: VecDeque<String> = self.said.try_iter().take(SAID).collect();
        let last = said.iter().rev().find(|line| line.starts_with("error")).or(said.back());
        Failure::Input(anyhow!("a tier did not start: {}", plain(last.map_or("it said nothing", String::as_str))))
    }

    /// Whether it has ended by itself; then why.
    pub(crate) fn has_failed(&mut self) -> Option<Failure> {
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)).then(|| self.why())
    }

    /// Warnings since the last look.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.said.try_iter().take(SAID).filter(|line| line.starts_with("warning")).map(|line| plain(&line)).collect()
    }

    /// Tells it to stop.
    pub(crate) fn leave(&mut self) {
        self.input = None;
    }
}

/// Stops all of them, those first that ask others. What does not end in time is killed.
pub(crate) fn stop(mut servers: Vec<Server>) {
    servers.iter_mut().for_each(Server::leave);
    let began = Instant::now();
    while began.elapsed() < LEAVING && servers.iter_mut().any(|server| matches!(server.child.try_wait(), Ok(None))) {
        thread::sleep(LOOK / 5);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines on a thread of its own, until the end or until nobody wants them.
fn lines(from: impl Read + Send + 'static, mut tell: impl FnMut(String) -> bool + Send + 'static) {
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
    let mut child = Killed(spawned(&[&own[..], arguments].concat(), Stdio::null())?);
    let (tell, heard) = channel();
    let output = child.0.stdout.take();
    let _ = thread::Builder::new().name("report".into()).spawn(move || {
        let mut text = String::new();
        let read = output.map(|output| output.take(REPORT).read_to_string(&mut text));
        let _ = tell.send(read.map(|_| text));
    });
    let (complain, complaints) = channel();
    if let Some(stderr) = child.0.stderr.take() {
        lines(stderr, move |line| complain.send(line).is_ok());
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
                        thread::sleep(LOOK);
                        let words: Vec<String> = complaints.try_iter().take(SAID).collect();
                        Err(Failure::Runtime(anyhow!("the load: {}", plain(&words.join("; ")))))
                    }
                };
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::Runtime(anyhow!("the load: no report"))),
        }
    }
}

/// A process that does not outlive this.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
