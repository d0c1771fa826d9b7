//! A contender's process: started, watched, ended.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::servers::{ANNOUNCEMENT, Idling, ServerKind};
use crate::system;

/// A running server; ends when dropped.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts `kind` on `cpu` and waits until it listens. While it has nothing to do it does what `idle` says; a bare
    /// echo keeps its CPU busy for `work_us` microseconds per message, and one that speaks TLS shows what is in `certificates`.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn start(
        kind: ServerKind,
        cpu: usize,
        idle: Idling,
        work_us: u64,
        certificates: &Path,
    ) -> Result<Server> {
        let idle = word(idle);
        let (work_us, folder) = (work_us.to_string(), certificates.display().to_string());
        Server::start_with(kind, cpu, &["--idle", &idle, "--work-us", &work_us, "--certificates", &folder])
    }

    /// Starts `kind` on `cpu` with these arguments besides and waits until it listens.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn start_with(kind: ServerKind, cpu: usize, more: &[&str]) -> Result<Server> {
        let name = word(kind);
        let mut child = Command::new(std::env::current_exe().context("finding this program")?)
            .args(["serve", &name, "--cpu", &cpu.to_string()])
            .args(more)
            // Its end ends the server, also when this program is killed.
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

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// CPU time it has used.
    ///
    /// # Errors
    /// It is gone.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        system::cpu_time_of(self.child.id()).context("the server has ended")
    }
}

/// How a value is written on the command line.
fn word(value: impl ValueEnum) -> String {
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
