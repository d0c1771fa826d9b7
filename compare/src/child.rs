//! The process of one contender: starting it, reading its CPU time, ending it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::servers::{ANNOUNCEMENT, Idling, ServerKind};
use crate::system;

/// A running server process; dropping this ends it.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts `kind` on `cpu` and waits until it listens.
    ///
    /// `idle` selects how the server waits for work. A bare echo keeps its CPU busy for `work_us`
    /// microseconds per message. A TLS server presents the certificate in `certificates`.
    ///
    /// # Errors
    /// The server does not start.
    pub(crate) fn start(
        kind: ServerKind,
        cpu: usize,
        idle: Idling,
        work_us: u64,
        certificates: &Path,
    ) -> Result<Server> {
        let idle = argument(idle);
        let (work_us, folder) = (work_us.to_string(), certificates.display().to_string());
        Server::start_with(kind, cpu, &["--idle", &idle, "--work-us", &work_us, "--certificates", &folder])
    }

    /// Starts `kind` on `cpu` with additional arguments and waits until it listens.
    ///
    /// # Errors
    /// The server does not start.
    pub(crate) fn start_with(kind: ServerKind, cpu: usize, more: &[&str]) -> Result<Server> {
        let name = argument(kind);
        let mut child = Command::new(std::env::current_exe().context("finding this program")?)
            .args(["serve", &name, "--cpu", &cpu.to_string()])
            .args(more)
            // The server ends when this pipe closes, also when this program is killed.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a server's process")?;
        let mut line = String::new();
        let read = child.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
        let address = line.trim().strip_prefix(ANNOUNCEMENT).and_then(|address| address.parse().ok());
        match (read, address) {
            (Some(Ok(_)), Some(address)) => Ok(Server { child, address }),
            _ => {
                end(&mut child);
                anyhow::bail!("the server `{name}` did not start")
            }
        }
    }

    /// Address on which the server listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// CPU time that the server has used.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        system::cpu_time_of(self.child.id()).context("the server has ended")
    }
}

/// The command-line spelling of a value.
fn argument(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}
