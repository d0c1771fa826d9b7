//! A service that is not Leeward's, in its own process: Python's or Go's standard library and a
//! page of source. It ends when its input ends, so it does not outlive the demo. Does not contain
//! load.

use std::fs::DirBuilder;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use leeward_load::PinGuard;

use crate::demo::tiers::processes::read_lines;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::stdout::sanitize;

/// Sources of the service.
const PYTHON: &str = include_str!("service.py");
const GO: &str = include_str!("service.go");

/// Interval between two checks of a process.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time limit for the service to print its port.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for Go to build the service; the first build compiles the standard library.
const BUILD_TIMEOUT: Duration = Duration::from_secs(300);
/// Time limit for the service to end by itself.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit of one answer to [`Service::probe`].
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The running service.
pub(crate) struct Service {
    child: Child,
    /// Closing this input ends the service.
    input: Option<ChildStdin>,
    stderr_lines: Receiver<String>,
    /// Address of the service.
    pub(crate) address: SocketAddr,
    /// Description for readers.
    pub(crate) name: &'static str,
}

/// Reason for which a language can't be used.
enum Unusable {
    /// The command must end.
    Ends(Failure),
    /// Another language may do.
    Reason(String),
}

impl Service {
    /// Starts the service on a free port and this CPU, in the first language that the machine has.
    pub(crate) fn start(cpu: Option<usize>, interrupt: &Interrupt) -> Result<Service, Failure> {
        // A new process inherits the CPUs of the thread that starts it.
        let _pinned = PinGuard::pin(cpu).map_err(|error| Failure::Runtime(anyhow!(error)))?;
        let mut reasons = Vec::new();
        for start in [start_python, start_go] {
            match start(interrupt) {
                Ok(service) => return Ok(service),
                Err(Unusable::Ends(failure)) => return Err(failure),
                Err(Unusable::Reason(reason)) => reasons.push(reason),
            }
        }
        let reasons = sanitize(&reasons.join("; "));
        Err(Failure::Runtime(anyhow!("--proxy needs Python 3.7 or Go for a service to protect: {reasons}")))
    }

    /// Time of one request on a connection of its own.
    pub(crate) fn probe(&self) -> io::Result<Duration> {
        let began = Instant::now();
        let mut stream = TcpStream::connect_timeout(&self.address, PROBE_TIMEOUT)?;
        stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        if answer.is_empty() { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(began.elapsed()) }
    }

    /// Failure of the service, if it has ended by itself.
    pub(crate) fn exit_failure(&mut self) -> Option<Failure> {
        let has_ended = matches!(self.child.try_wait(), Ok(Some(_)) | Err(_));
        has_ended.then(|| Failure::Runtime(anyhow!("the service ended: {}", self.last_line())))
    }

    fn last_line(&self) -> String {
        // The last lines may still be on their way.
        thread::sleep(POLL_INTERVAL);
        sanitize(&self.stderr_lines.try_iter().last().unwrap_or_else(|| "it printed no reason".into()))
    }

    /// Starts a program that prints its port.
    fn launch(command: &mut Command, name: &'static str, interrupt: &Interrupt) -> Result<Service, Unusable> {
        // In a group of its own: Ctrl-C in a terminal is for the demo, which ends the service.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| cannot_start(name, &error))?;
        let (line_sender, stderr_lines) = channel();
        if let Some(stderr) = child.stderr.take() {
            read_lines(stderr, move |line| line_sender.send(line).is_ok());
        }
        let (port_sender, ports) = channel();
        if let Some(output) = child.stdout.take() {
            read_lines(output, move |line| port_sender.send(line).is_ok());
        }
        let input = child.stdin.take();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut service = Service { child, input, stderr_lines, address, name };
        let began = Instant::now();
        loop {
            if let Ok(line) = ports.recv_timeout(POLL_INTERVAL) {
                let port = line.trim().parse().map_err(|_| Unusable::Reason(format!("{name} printed no port")))?;
                service.address.set_port(port);
                return Ok(service);
            }
            if interrupt.is_requested() {
                return Err(Unusable::Ends(Failure::Interrupted));
            }
            let has_ended = matches!(service.child.try_wait(), Ok(Some(_)) | Err(_));
            if has_ended || began.elapsed() > START_TIMEOUT {
                return Err(Unusable::Reason(format!("{name} does not run: {}", service.last_line())));
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.input = None;
        let began = Instant::now();
        while began.elapsed() < STOP_TIMEOUT && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(POLL_INTERVAL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start_python(interrupt: &Interrupt) -> Result<Service, Unusable> {
    // Isolated: no variables and packages of the user.
    let mut command = Command::new("python3");
    command.args(["-I", "-c", PYTHON]);
    Service::launch(&mut command, "Python's ThreadingHTTPServer", interrupt)
}

fn start_go(interrupt: &Interrupt) -> Result<Service, Unusable> {
    // The program is in memory once it runs, and the folder goes when this returns.
    let folder = TemporaryFolder::new().map_err(Unusable::Ends)?;
    let source = folder.0.join("service.go");
    let written = std::fs::write(&source, GO).with_context(|| format!("writing {}", source.display()));
    written.map_err(|error| Unusable::Ends(Failure::Runtime(error)))?;
    let program = build_go(&folder.0, interrupt)?;
    Service::launch(&mut Command::new(program), "Go's net/http", interrupt)
}

/// Builds the service in `folder`; returns the program.
fn build_go(folder: &Path, interrupt: &Interrupt) -> Result<PathBuf, Unusable> {
    let mut command = Command::new("go");
    command.args(["build", "-o", "service", "service.go"]).current_dir(folder);
    command.env_remove("GOFLAGS").env("GO111MODULE", "off").env("GOTOOLCHAIN", "local");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut build = command.spawn().map_err(|error| cannot_start("go", &error))?;
    let (line_sender, lines) = channel();
    if let Some(stderr) = build.stderr.take() {
        read_lines(stderr, move |line| line_sender.send(line).is_ok());
    }
    let began = Instant::now();
    let outcome = loop {
        match build.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(folder.join("service")),
            Ok(None) if interrupt.is_requested() => break Unusable::Ends(Failure::Interrupted),
            Ok(None) if began.elapsed() < BUILD_TIMEOUT => thread::sleep(POLL_INTERVAL),
            _ => {
                thread::sleep(POLL_INTERVAL);
                let last = lines.try_iter().last().unwrap_or_default();
                break Unusable::Reason(format!("go builds nothing: {last}"));
            }
        }
    };
    let _ = build.kill();
    let _ = build.wait();
    Err(outcome)
}

fn cannot_start(name: &str, error: &io::Error) -> Unusable {
    Unusable::Reason(match error.kind() {
        ErrorKind::NotFound if name == "go" => "there is no go in PATH".into(),
        ErrorKind::NotFound => "there is no python3 in PATH".into(),
        _ => format!("{name}: {error}"),
    })
}

/// A folder that is removed when dropped.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn new() -> Result<TemporaryFolder, Failure> {
        let path = std::env::temp_dir().join(format!("leeward-demo-{}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&path).with_context(|| format!("making {}", path.display()));
        made.map(|()| TemporaryFolder(path)).map_err(Failure::Runtime)
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
