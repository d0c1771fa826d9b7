//! A service as a child process: it ends with its standard input, however this program ends.

use crate::args::Args;
use anyhow::{Context, Result};
use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(crate) struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(args: &Args) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let guard = args.guard.to_possible_value().context("a guard has a name")?;
        command.arg("serve").arg("--guard").arg(guard.get_name());
        let numbers = [("--work", args.work), ("--wait", args.wait), ("--blocks", args.blocks), ("--slo", args.slo)];
        for (flag, value) in numbers {
            command.arg(flag).arg(value.to_string());
        }
        let pool = args.pool.to_possible_value().context("a pool has a name")?;
        command.arg("--pool").arg(pool.get_name());
        if let [from, until] = args.slower[..] {
            command.arg("--slower").arg(format!("{from},{until}"));
        }
        if let Some(behind) = args.behind {
            command.arg("--behind").arg(behind.to_string());
        }
        if args.passes {
            command.arg("--passes");
        }
        if args.reports {
            command.arg("--reports");
        }
        if args.grpc {
            command.arg("--grpc");
        }
        if args.dear {
            command.arg("--dear");
        }
        if let Some(cpu) = args.cpu {
            command.arg("--cpu").arg(cpu.to_string());
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().context("its output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let address = line.trim().parse().context("the server's address")?;
        Ok(Server { child, input, output, address })
    }

    /// Sends a signal, to stop or continue the process.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Ends the process; returns the report on its requests.
    pub(crate) fn stop(mut self) -> Result<serde_json::Value> {
        self.input = None;
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        self.child.wait()?;
        Ok(text.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default())
    }
}
