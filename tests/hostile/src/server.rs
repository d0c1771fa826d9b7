//! The program under attack: started for one attack, observed, and stopped.

use crate::certificate;
use crate::placement::{self, Role};
use crate::target::Port;
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Time limit for the start and the stop of a server.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A running server. Dropping it stops the server.
pub(crate) struct Server {
    child: Child,
    /// The port under attack.
    pub(crate) address: SocketAddr,
}

/// Descriptors, memory and threads of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResourceUsage {
    /// Resident memory, in MB.
    pub(crate) memory: u64,
    pub(crate) descriptors: usize,
    pub(crate) threads: u64,
}

impl Server {
    /// Starts Leeward with the port to be attacked.
    pub(crate) fn leeward(program: &Path, port: Port) -> anyhow::Result<Self> {
        let mut command = placement::command(Role::Server, program);
        command.args(["serve", "--idle", "50us", "--rtt", "50us", "--listen", "127.0.0.1:0"]);
        match port {
            Port::Rpc => command.args(["--slo", "1ms"]),
            Port::Datagrams => command.args(["--slo", "1ms", "--udp", "127.0.0.1:0"]),
            Port::Tls => {
                let files = certificate::files()?;
                command.args(["--slo", "1ms", "--tls-cert"]).arg(files.cert()).arg("--tls-key").arg(files.key())
            }
            Port::Memcached => {
                command.args(["--slo", "20ms", "--service", "kv", "--memory", "64MB", "--memcached", "127.0.0.1:0"])
            }
        };
        let began = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn();
        let mut child = began.with_context(|| format!("starting {}", program.display()))?;
        let out = child.stdout.take().context("no standard output")?;
        let mut lines = BufReader::new(out).lines();
        // The last line before the server is ready contains the attacked port's address.
        let count = if matches!(port, Port::Rpc | Port::Tls) { 1 } else { 2 };
        let mut address = None;
        for _ in 0..count {
            let line = lines.next().context("the server has ended")??;
            address = line.split_whitespace().find_map(|word| word.parse().ok()).or(address);
        }
        let Some(address) = address else { bail!("the server did not say where it is") };
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Server { child, address })
    }

    /// Starts memcached with one thread.
    pub(crate) fn memcached(program: &Path) -> anyhow::Result<Self> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut command = placement::command(Role::Server, program);
        command.args(["-t", "1", "-m", "64", "-l", "127.0.0.1", "-u", "nobody", "-p", &free.port().to_string()]);
        let began = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = began.with_context(|| format!("starting {}", program.display()))?;
        // memcached writes a line for each reset connection, and attacks reset connections for
        // hours.
        let mut stderr = child.stderr.take().map(BufReader::new).context("no standard error")?;
        let first = std::thread::spawn(move || {
            let mut first = Vec::new();
            let _ = stderr.read_until(b'\n', &mut first);
            // Keeps reading: memcached would end if its output was closed.
            let _ = std::io::copy(&mut stderr, &mut std::io::sink());
            String::from_utf8_lossy(&first).trim_end().to_string()
        });
        let mut server = Server { child, address: free };
        let began = Instant::now();
        while TcpStream::connect(free).is_err() {
            if !server.is_running() {
                bail!("{} has ended: {}", program.display(), first.join().unwrap_or_default());
            }
            if began.elapsed() > TIMEOUT {
                bail!("{} does not listen", program.display());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// Returns whether the server still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the server's current resources.
    pub(crate) fn resource_usage(&self) -> anyhow::Result<ResourceUsage> {
        let process = format!("/proc/{}", self.child.id());
        let status = std::fs::read_to_string(format!("{process}/status")).context("looking at the server")?;
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        let descriptors = std::fs::read_dir(format!("{process}/fd"))?.count();
        Ok(ResourceUsage { memory: value("VmRSS:") / 1024, descriptors, threads: value("Threads:") })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let began = Instant::now();
        while self.is_running() {
            if began.elapsed() > TIMEOUT {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
