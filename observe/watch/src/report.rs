//! Report of a listener, as plain data: names end in their unit. Serializes to JSON.

use std::fmt;

use leeward_sockdiag::AgeBounds;
use serde::Serialize;

use crate::cause::Cause;
use crate::diagnosis::{Diagnosis, diagnose, slow_backend};
use crate::facts::Facts;
use crate::target::ListenAddress;
use crate::what_if::WhatIf;

/// Reports of all watched listeners.
#[derive(Clone, Debug, Serialize)]
pub struct WatchReport {
    /// Time that the reports cover.
    pub observed_s: f64,
    /// Polls in this time.
    pub polls: usize,
    /// Share of a CPU that this program used.
    pub own_cpu: f64,
    /// The listeners, the one with the oldest unread byte first.
    pub listeners: Vec<ListenerReport>,
}

/// Report of a listener.
#[derive(Clone, Debug, Serialize)]
pub struct ListenerReport {
    /// Address.
    pub address: String,
    /// Processes that listen.
    pub processes: Vec<ProcessReport>,
    /// Why requests wait.
    pub cause: Cause,
    /// The cause in one sentence.
    pub sentence: String,
    /// What was seen, a line each.
    pub evidence: Vec<String>,
    /// Command that would show or mend more, with a reason.
    pub next: Option<String>,
    /// Age of the oldest unread byte at the last poll; none if nothing is unread, and for a Unix
    /// socket, which tells no times.
    pub oldest_unread_ms: Option<AgeMillis>,
    /// The same, the median over time; none for a Unix socket.
    pub oldest_unread_median_ms: Option<f64>,
    /// Largest age of an unread byte; none for a Unix socket.
    pub oldest_unread_max_ms: Option<f64>,
    /// Mean number of connections; accepted ones, of a Unix socket.
    pub connections: f64,
    /// Mean number of connections with unread bytes.
    pub unread: f64,
    /// Mean number of connections with a request inside; none for a Unix socket, which does not
    /// count what passes.
    pub inside: Option<f64>,
    /// Time for which the oldest request has been inside, the median over time; none as `inside`.
    pub oldest_inside_ms: Option<f64>,
    /// Connections that nobody has accepted.
    pub accept_queue: AcceptQueue,
    /// Requests per second: segments with data; none as `inside`.
    pub arrivals_per_s: Option<f64>,
    /// Responses per second; none as `inside`.
    pub responses_per_s: Option<f64>,
    /// Segments sent again, per second.
    pub retransmitted_per_s: f64,
    /// CPUs that the processes used; none if they could not be looked into.
    pub cpus: Option<f64>,
    /// CPUs' worth of time for which their threads waited for a CPU.
    pub waiting_for_cpus: Option<f64>,
    /// Share of the CPU quota's periods in which the processes were throttled.
    pub throttled_share: f64,
    /// What a queue with an objective would have done, if asked for; none as `inside`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what_if: Option<WhatIf>,
}

/// An age and its bounds in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AgeMillis {
    /// The likeliest age.
    pub estimate: f64,
    /// Lower bound: the age of the last segment.
    pub at_least: f64,
    /// Upper bound: the time since the connection was last seen without unread bytes, if it was.
    pub at_most: Option<f64>,
}

/// A process that listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessReport {
    /// Process number.
    pub pid: u32,
    /// Name of its program.
    pub name: String,
}

/// Connections that nobody has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AcceptQueue {
    /// Mean length.
    pub length: f64,
    /// Longest possible length.
    pub limit: u32,
    /// Connections that the kernel dropped.
    pub dropped: u64,
}

impl ListenerReport {
    /// Report of a listener from what was seen.
    pub fn new(address: &ListenAddress, processes: Vec<ProcessReport>, facts: &Facts) -> ListenerReport {
        let Diagnosis { cause, sentence, evidence } = diagnose(facts);
        let milliseconds = |time: std::time::Duration| 1e3 * time.as_secs_f64();
        let visible = |value: f64| facts.is_visible.then_some(value);
        let counted = |value: f64| (!facts.is_unix).then_some(value);
        let now = facts.oldest_unread_now.filter(|_| !facts.is_unix);
        ListenerReport {
            next: next(cause, address, processes.first(), facts, rustix::process::geteuid().is_root()),
            address: address.to_string(),
            processes,
            cause,
            sentence,
            evidence,
            oldest_unread_ms: now.map(|AgeBounds { estimate, at_least, at_most }| AgeMillis {
                estimate: milliseconds(estimate),
                at_least: milliseconds(at_least),
                at_most: at_most.map(milliseconds),
            }),
            oldest_unread_median_ms: counted(facts.oldest_unread.map_or(0.0, |age| milliseconds(age.estimate))),
            oldest_unread_max_ms: counted(milliseconds(facts.oldest_unread_max)),
            connections: facts.connections,
            unread: facts.unread,
            inside: counted(facts.inside),
            oldest_inside_ms: counted(milliseconds(facts.oldest_inside)),
            accept_queue: AcceptQueue { length: facts.accept_queue, limit: facts.accept_limit, dropped: facts.dropped },
            arrivals_per_s: counted(facts.arrivals_per_s),
            responses_per_s: counted(facts.responses_per_s),
            retransmitted_per_s: facts.retransmitted_per_s,
            cpus: visible(facts.cpus),
            waiting_for_cpus: visible(facts.waiting_for_cpus),
            throttled_share: facts.throttled_share,
            what_if: None,
        }
    }
}

/// What to do next.
fn next(
    cause: Cause,
    address: &ListenAddress,
    process: Option<&ProcessReport>,
    facts: &Facts,
    is_root: bool,
) -> Option<String> {
    let pid = process.map_or("PID".to_owned(), |process| process.pid.to_string());
    let port = match address {
        ListenAddress::Tcp(address) => format!(":{}", address.port()),
        ListenAddress::Unix(name) => name.clone(),
    };
    match cause {
        Cause::Cpu | Cause::Quota => Some(format!(
            "bound its queue: `leeward proxy` (docs/proxy.md) before {port}, or the layer in axum, hyper and tonic (docs/middleware.md), rejects what cannot be in time"
        )),
        Cause::Lock => Some(format!(
            "`leeward profile record --pid {pid}` names the function that waits, of an interpreter or a JVM only with a perf map; built with `leeward cc` or `leeward cargo`, the lock's holder, too (docs/profile.md)"
        )),
        Cause::Stopped => {
            // All of them, since the command is to be run as it stands.
            let stopped: Vec<String> = facts.stopped_pids.iter().map(u32::to_string).collect();
            let stopped = if stopped.is_empty() { pid } else { stopped.join(" ") };
            Some(format!("`kill -CONT {stopped}` lets a process go on that a signal stopped"))
        }
        Cause::Accept => Some("allow it more connections or workers, or let idle connections end sooner".into()),
        Cause::Downstream if slow_backend(facts).is_none() => {
            Some("watch that service, on its own machine; if nothing waits there, allow more calls at a time".into())
        }
        Cause::Downstream => Some("watch that service, on its own machine".into()),
        Cause::Unknown if !facts.is_visible => {
            let user = if is_root { "" } else { "as root, " };
            Some(format!("run this {user}outside of containers"))
        }
        Cause::Unknown => Some(format!(
            "`leeward profile record --pid {pid}` shows where its threads wait (docs/profile.md); of Go, Java and async Rust a dump of their goroutines, threads or tasks shows more"
        )),
        Cause::Pauses | Cause::Disk | Cause::Dns | Cause::None => None,
    }
}

impl fmt::Display for ListenerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> =
            self.processes.iter().take(3).map(|process| format!("{} {}", process.name, process.pid)).collect();
        let more = if self.processes.len() > 3 { ", …" } else { "" };
        let names = if names.is_empty() { "process not visible".to_owned() } else { names.join(", ") + more };
        writeln!(f, "{} ({names}): {}", self.address, self.sentence)?;
        for line in &self.evidence {
            writeln!(f, "  {line}")?;
        }
        match (self.arrivals_per_s, self.responses_per_s) {
            (Some(arrivals), Some(responses)) => writeln!(
                f,
                "  per second: {arrivals:.0} requests, {responses:.0} responses, {:.0} segments sent again",
                self.retransmitted_per_s
            )?,
            _ => writeln!(f, "  per second: a Unix socket does not tell, nor what a queue would have refused")?,
        }
        if let Some(what_if) = &self.what_if {
            writeln!(f, "  {}", what_if.sentence)?;
        }
        match &self.next {
            Some(next) => writeln!(f, "  next: {next}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::facts::Backend;

    /// What to do next about requests that wait, where these facts are seen, too.
    fn next_of(facts: Facts, is_root: bool) -> (Cause, Option<String>) {
        let facts = Facts { inside: 9.0, inside_share: 1.0, oldest_inside: Duration::from_secs(1), ..facts };
        let address = ListenAddress::Tcp("127.0.0.1:80".parse().unwrap());
        let process = ProcessReport { pid: 11, name: "service".into() };
        let cause = diagnose(&facts).cause;
        (cause, next(cause, &address, Some(&process), &facts, is_root))
    }

    #[test]
    fn what_to_do_next_fits_what_was_seen() {
        let idle = Facts { is_visible: true, allowed_cpus: 2.0, idle_cpus: 2.0, ..Facts::default() };
        let owing = |ms| {
            let oldest = Duration::from_millis(ms);
            vec![Backend { share: 1.0, waiting: 4.0, most: 4, oldest, ..Backend::default() }]
        };
        let mut locked = idle.clone();
        locked.threads.mutex = 8.0;
        for (facts, cause, words) in [
            (idle.clone(), Cause::Unknown, "`leeward profile record --pid 11` shows where its threads wait"),
            (idle.clone(), Cause::Unknown, "of Go, Java and async Rust a dump"),
            (Facts { is_visible: false, ..idle.clone() }, Cause::Unknown, "run this as root"),
            (locked, Cause::Lock, "of an interpreter or a JVM only with a perf map"),
            (
                Facts { backends: owing(50), responses_per_s: 80.0, ..idle.clone() },
                Cause::Downstream,
                "allow more calls at a time",
            ),
            (Facts { backends: owing(900), ..idle.clone() }, Cause::Downstream, "on its own machine"),
            (
                Facts {
                    processes: 30.0,
                    stopped_pids: (12..=21).collect(),
                    waits_for_stopped_share: 1.0,
                    ..idle.clone()
                },
                Cause::Stopped,
                "`kill -CONT 12 13 14 15 16 17 18 19 20 21`",
            ),
            (Facts { stopped_share: 1.0, ..idle }, Cause::Stopped, "`kill -CONT 11`"),
        ] {
            let (found, next) = next_of(facts, false);
            assert!(found == cause && next.as_ref().is_some_and(|next| next.contains(words)), "{found:?}: {next:?}");
        }
    }

    #[test]
    fn root_is_not_told_to_become_root() {
        let (cause, next) = next_of(Facts::default(), true);
        assert_eq!((cause, next.as_deref()), (Cause::Unknown, Some("run this outside of containers")));
    }
}
