//! Builds and starts the services in five languages (`ecosystem/services`).

use crate::process::{Process, SERVICE_CPU, find, free_address};
use crate::sample::{Mode, Service};
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Seconds after the beginning in which the mode `slow` takes three times as long.
pub(crate) const SLOW: (u64, u64) = (4, 8);

/// The tree of sources, and the folder for what is built of them.
pub(crate) struct Services {
    sources: PathBuf,
    built: PathBuf,
}

/// Why a service cannot run here.
pub(crate) struct Missing(pub(crate) String);

impl Services {
    pub(crate) fn new(built: &Path) -> Self {
        Services { sources: Path::new(env!("CARGO_MANIFEST_DIR")).join("services"), built: built.join("services") }
    }

    /// Builds a service; `Err` names the program that is not installed.
    pub(crate) fn build(&self, service: Service) -> Result<Result<(), Missing>> {
        std::fs::create_dir_all(&self.built)?;
        let missing = |what: &str| Ok(Err(Missing(format!("{what} is not installed (scripts/setup proxy)"))));
        let mut command = match service {
            Service::Go => {
                let Some(go) = find("go") else { return missing("Go") };
                let mut command = Command::new(go);
                command.arg("build").arg("-o").arg(self.absolute("go")?).arg(".").current_dir(self.sources.join("go"));
                command
            }
            Service::Java => {
                let (Some(javac), Some(_)) = (find("javac"), find("java")) else { return missing("a JDK") };
                let mut command = Command::new(javac);
                command.arg("-d").arg(self.built.join("java")).arg(self.sources.join("java/Service.java"));
                command
            }
            Service::Node if find("node").is_none() => return missing("Node"),
            Service::Uvicorn | Service::Gunicorn if !self.python().exists() => {
                return missing("the virtual environment");
            }
            _ => return Ok(Ok(())),
        };
        let output = command.output().with_context(|| format!("building {}", service.name()))?;
        let text = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{} does not compile: {text}", service.name());
        Ok(Ok(()))
    }

    /// Starts a service that [`Services::build`] has built.
    pub(crate) fn start(&self, service: Service, mode: Mode, folder: &Path) -> Result<Process> {
        self.start_in(service, mode.name(), folder)
    }

    /// Starts a service in a mode of any name.
    pub(crate) fn start_in(&self, service: Service, name: &str, folder: &Path) -> Result<Process> {
        let address = free_address()?;
        let port = address.port().to_string();
        let of = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
        let python = self.python();
        let python = python.to_string_lossy();
        let command = match service {
            Service::Go => of(&[&self.absolute("go")?.to_string_lossy(), &port, name]),
            Service::Node => {
                let script = self.sources.join("node/service.js");
                of(&[&find("node").context("node")?, &script.to_string_lossy(), &port, name])
            }
            Service::Java => of(&[
                &find("java").context("java")?,
                "-XX:+UseSerialGC",
                "-Xmx512m",
                // Without these, each response waits for a delayed acknowledgement, and all but
                // 200 idle connections are closed.
                "-Dsun.net.httpserver.nodelay=true",
                "-Dsun.net.httpserver.maxIdleConnections=20000",
                "-cp",
                &self.absolute("java")?.to_string_lossy(),
                "Service",
                &port,
                name,
            ]),
            Service::Uvicorn => of(&[
                &python,
                "-m",
                "uvicorn",
                "app:asgi",
                "--port",
                &port,
                "--log-level",
                "error",
                "--no-access-log",
                "--timeout-keep-alive",
                "75",
            ]),
            Service::Gunicorn => of(&[
                &python,
                "-m",
                "gunicorn",
                "app:wsgi",
                "--workers",
                "3",
                "--bind",
                &address.to_string(),
                "--log-level",
                "error",
            ]),
            Service::Axum => of(&[&std::env::current_exe()?.to_string_lossy(), "serve", &port, name]),
        };
        let slow = format!("{},{}", SLOW.0, SLOW.1);
        let sources = self.sources.join("python");
        let env = [
            ("GOMAXPROCS", "1"),
            ("MODE", name),
            ("SLOW", &slow),
            ("PYTHONPATH", &sources.to_string_lossy()),
            ("PYTHONDONTWRITEBYTECODE", "1"),
        ];
        Process::start(&command, &env, SERVICE_CPU, address, folder)
    }

    fn python(&self) -> PathBuf {
        self.built.with_file_name("python").join("bin/python")
    }

    fn absolute(&self, name: &str) -> Result<PathBuf> {
        Ok(std::path::absolute(self.built.join(name))?)
    }
}

/// Starts the clock of the mode `slow`.
pub(crate) fn begin(service: &Process) -> Result<()> {
    let mut stream = TcpStream::connect(service.address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /-/begin HTTP/1.1\r\nhost: leeward\r\nconnection: close\r\n\r\n")?;
    let mut byte = [0; 16];
    stream.read_exact(&mut byte).context("the service does not begin")
}

/// Stops a service for 100 ms of each second while `run` runs.
pub(crate) fn with_pauses<T>(service: &Process, run: impl FnOnce() -> T) -> T {
    let (ends, group) = (AtomicBool::new(false), service.group());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                for (signal, ms) in [(Signal::STOP, 100), (Signal::CONT, 900)] {
                    signal_group(group, signal);
                    std::thread::sleep(Duration::from_millis(ms));
                    if ends.load(Ordering::Relaxed) {
                        break;
                    }
                }
            }
            signal_group(group, Signal::CONT);
        });
        let result = run();
        ends.store(true, Ordering::Relaxed);
        result
    })
}

fn signal_group(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        let _ = kill_process_group(group, signal);
    }
}
