//! CPUs and priorities: the server has one CPU, the honest client and the attacker share another, and the client goes before. An attacker has a
//! machine of its own in earnest; here it would else take the time of those whose latency is measured, and the server would be blamed for it.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Part in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Client,
    Attacker,
}

/// A command that starts `program` in its place. Where the system does not let it have that place, it starts wherever it may.
pub(crate) fn command(part: Role, program: impl AsRef<OsStr>) -> Command {
    let mut words: Vec<&str> = Vec::new();
    if is_allowed(&["taskset", "-c", "1"]) {
        words.extend(["taskset", "-c", if part == Role::Server { "0" } else { "1" }]);
    }
    match part {
        Role::Client if is_allowed(&FIRST) => words.extend(FIRST),
        Role::Attacker => words.extend(["nice", "-n", "5"]),
        Role::Client | Role::Server => {}
    }
    let mut words = words.into_iter();
    let Some(first) = words.next() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(words).arg(program);
    command
}

/// Before all that is ordinary.
const FIRST: [&str; 3] = ["chrt", "--fifo", "10"];

/// Whether the system allows this prefix; asked once for each.
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
