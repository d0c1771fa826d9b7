//! CPUs and priorities of the processes.
//!
//! The server has one CPU. The honest client and the attacker share another, and the client has
//! priority. A real attacker has a separate machine. Here it would take CPU time from the honest
//! client, and the server would be blamed for the latency.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Role of a process in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Client,
    Attacker,
}

/// Creates a command that starts `program` with the placement of its role; without it if the system
/// forbids it.
pub(crate) fn command(role: Role, program: impl AsRef<OsStr>) -> Command {
    let mut prefix: Vec<&str> = Vec::new();
    if is_allowed(&["taskset", "-c", "1"]) {
        prefix.extend(["taskset", "-c", if role == Role::Server { "0" } else { "1" }]);
    }
    match role {
        Role::Client if is_allowed(&FIRST) => prefix.extend(FIRST),
        Role::Attacker => prefix.extend(["nice", "-n", "5"]),
        Role::Client | Role::Server => {}
    }
    let mut prefix = prefix.into_iter();
    let Some(first) = prefix.next() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(prefix).arg(program);
    command
}

/// Real-time priority, before all ordinary processes.
const FIRST: [&str; 3] = ["chrt", "--fifo", "10"];

/// Returns whether the system allows this prefix; tried once for each.
fn is_allowed(prefix: &[&'static str]) -> bool {
    static TASKSET: OnceLock<bool> = OnceLock::new();
    static CHRT: OnceLock<bool> = OnceLock::new();
    let answer = if prefix[0] == "taskset" { &TASKSET } else { &CHRT };
    *answer.get_or_init(|| {
        let mut command = Command::new(prefix[0]);
        command.args(&prefix[1..]).arg("true").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}
