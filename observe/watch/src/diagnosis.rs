//! Why requests wait: facts to a sentence, a rule per cause. Pure.
//!
//! Rules are asked in the order of [`RULES`]. A rule answers only with evidence that no healthy
//! service shows; where none answers, the cause is unknown.

use std::time::Duration;

use crate::cause::Cause;
use crate::evidence::{evidence, millis, number, percent, pid_list};
use crate::facts::{Backend, Facts};

/// A cause with its sentence and evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// The cause.
    pub cause: Cause,
    /// One sentence for a person.
    pub sentence: String,
    /// What was seen, a line each.
    pub evidence: Vec<String>,
}

/// Share of time from which a state counts as lasting.
const LASTING: f64 = 0.5;

/// Share of a CPU, of all allowed CPUs, or of a pool's connections, from which they count as busy.
const BUSY: f64 = 0.85;

/// Share of a futex's waiters that do not run for a second, from which they wait for an event. At a
/// lock for which each waits less than five seconds, fewer stand still.
const STILL: f64 = 0.8;

/// Names the cause that the facts show.
pub fn diagnose(facts: &Facts) -> Diagnosis {
    for rule in RULES {
        if let Some((cause, sentence)) = rule(facts) {
            return Diagnosis { cause, sentence, evidence: evidence(facts) };
        }
    }
    Diagnosis { cause: Cause::Unknown, sentence: unknown(facts), evidence: evidence(facts) }
}

/// A rule: the cause with its sentence, if the facts show it.
type Rule = fn(&Facts) -> Option<(Cause, String)>;

/// The rules. Certain causes stand first: a process that is stopped or throttled needs no other
/// explanation, and one that is stopped among others none if requests wait for it. Connections that
/// nobody accepts show themselves, and may keep a CPU busy with failing calls. Pauses fill CPUs,
/// too, but only for their time. Busy CPUs stand before waits, since every thread waits behind a
/// busy CPU. Idle pools look like locks, so locks stand behind everything that shows where a
/// request is. A quick backend is busy behind any of these, so a full pool stands last.
const RULES: [Rule; 12] = [
    stopped,
    quota,
    healthy,
    partly_stopped,
    accept,
    pauses,
    cpu,
    backend,
    name_resolution,
    disk,
    lock,
    connection_pool,
];

fn stopped(facts: &Facts) -> Option<(Cause, String)> {
    // A short stop, or one that has just ended, shows itself in the pause that it made.
    let is_pause = pauses_often(facts) && facts.stopped_share >= LASTING * facts.stall_share;
    let is_lasting = facts.stopped_share >= LASTING;
    (is_lasting || is_pause).then(|| {
        let stopped = if facts.stopped_share >= 0.95 {
            "is stopped".to_owned()
        } else {
            format!("was stopped for {} of the time", percent(facts.stopped_share))
        };
        // The mean and the median say nothing of a moment.
        let wait = if is_lasting {
            queue(facts)
        } else {
            format!("requests waited up to {}", millis(facts.longest_stall.max(facts.oldest_unread_max)))
        };
        (Cause::Stopped, format!("the process {stopped} (by a signal, a debugger or a frozen cgroup); {wait}"))
    })
}

fn quota(facts: &Facts) -> Option<(Cause, String)> {
    let is_slow = waits_in_front(facts) || waits_inside(facts) || facts.stalls > 0;
    let least = if is_slow { 0.1 } else { 0.5 };
    (facts.throttled_share >= least && facts.throttled_cpus >= 0.02).then(|| {
        let cpus = facts.quota_cpus.map_or(String::new(), |cpus| format!(" of {} CPUs", number(cpus)));
        let sentence = format!(
            "throttled by its CPU quota{cpus} in {} of the quota's periods; {}",
            percent(facts.throttled_share),
            queue(facts)
        );
        (Cause::Quota, sentence)
    })
}

/// Nothing waits.
fn healthy(facts: &Facts) -> Option<(Cause, String)> {
    let is_waiting = waits_in_front(facts) || waits_inside(facts) || waits_for_accept(facts) || pauses_often(facts);
    let is_waiting = is_waiting || is_short_of_cpu(facts);
    (!is_waiting).then(|| {
        let readers = match facts.slow_readers {
            readers if readers >= 1.0 => format!("; {} clients do not read their responses", number(readers)),
            _ => String::new(),
        };
        let disk = facts.threads.disk;
        let elsewhere = if facts.inside >= 2.0 && disk >= 0.5 * facts.inside {
            format!("of {} requests inside, {} are at a disk, none for long", number(facts.inside), number(disk))
        } else if facts.is_unix {
            "a Unix socket does not tell what is inside".to_owned()
        } else {
            "what is slow is elsewhere".to_owned()
        };
        (Cause::None, format!("nothing waits in front of it: {elsewhere}{readers}"))
    })
}

/// Some of several processes are stopped, and requests wait for them, whatever the others do.
fn partly_stopped(facts: &Facts) -> Option<(Cause, String)> {
    let count = facts.stopped_pids.len();
    (count > 0 && facts.waits_for_stopped_share >= LASTING).then(|| {
        let (processes, are) = match (count, facts.waits_for_stopped_share >= 0.95) {
            (1, true) => ("process", "is stopped"),
            (1, false) => ("process", "was stopped for half of the time or more"),
            (_, true) => ("processes", "are stopped"),
            (_, false) => ("processes", "were stopped for half of the time or more"),
        };
        let sentence = format!(
            "{processes} {} ({count} of {:.0}) {are}, by a signal, a debugger or a frozen cgroup; {}",
            pid_list(&facts.stopped_pids),
            facts.processes,
            queue(facts)
        );
        (Cause::Stopped, sentence)
    })
}

fn cpu(facts: &Facts) -> Option<(Cause, String)> {
    if !facts.is_visible {
        return None;
    }
    let why = busy_cpus(facts)?;
    (waits_in_front(facts) || waits_inside(facts) || waits_for_accept(facts) || is_short_of_cpu(facts))
        .then(|| (Cause::Cpu, format!("overloaded by CPU: {}; {why}", queue(facts))))
}

/// What shows that the service gets no more CPU time.
fn busy_cpus(facts: &Facts) -> Option<String> {
    let allowed = facts.allowed_cpus.max(1.0);
    if facts.cpus >= BUSY * allowed {
        return Some(format!("it uses {} of its {} CPUs", number(facts.cpus), number(allowed)));
    }
    // Its threads are one in turn, which waits for a CPU where other programs use them.
    let is_kept = facts.cpus >= 0.7 && facts.cpus + facts.waiting_for_cpus >= 0.9;
    if facts.runs_one_thread && (facts.cpus >= BUSY || is_kept) {
        return Some(format!("it uses {} of a CPU, and its interpreter runs one thread at a time", number(facts.cpus)));
    }
    if let Some(thread) = facts.busiest.as_ref().filter(|thread| thread.ran + thread.waited >= 0.9) {
        let waited = if thread.waited >= 0.1 {
            format!(" and waits for a CPU for another {}", percent(thread.waited))
        } else {
            String::new()
        };
        return Some(format!("its thread `{}` runs {} of the time{waited}", thread.name, percent(thread.ran)));
    }
    // Other programs use the CPUs, too.
    let wanted = facts.cpus + facts.waiting_for_cpus;
    let is_short = facts.waiting_for_cpus >= facts.cpus.max(0.3) || wanted >= 0.9 * allowed;
    (facts.idle_cpus < 0.1 * allowed && is_short && wanted >= BUSY).then(|| {
        format!(
            "its threads wait for a CPU for {} of the time that they could run",
            percent(facts.waiting_for_cpus / wanted)
        )
    })
}

fn pauses(facts: &Facts) -> Option<(Cause, String)> {
    // Where nearly all its time is pauses, one request after the other takes long. Who pauses for a
    // collector wants no CPU meanwhile.
    let is_one = facts.stall_share < 0.8 && facts.stall_cpus >= 0.5 && !threads_want_cpus(facts);
    let is_one = is_one && !is_busy_throughout(facts);
    (pauses_often(facts) && is_one).then(|| {
        let collector = if facts.collector_cpus >= 0.05 {
            format!(", and garbage collection uses {} CPUs", number(facts.collector_cpus))
        } else {
            ", as in garbage collection".to_owned()
        };
        let sentence = format!(
            "pauses: for {} of the time it answers nothing while its CPUs are busy, for up to {}{collector}",
            percent(facts.stall_share),
            millis(facts.longest_stall),
        );
        (Cause::Pauses, sentence)
    })
}

/// The CPUs are busy with requests, too: as busy while it answers as while it does not, and not
/// with a collector. More of them, or fewer requests, would help.
fn is_busy_throughout(facts: &Facts) -> bool {
    let is_as_busy = facts.serving_cpus >= BUSY * facts.stall_cpus;
    is_as_busy && facts.collector_cpus < 0.2 * facts.cpus && busy_cpus(facts).is_some()
}

fn name_resolution(facts: &Facts) -> Option<(Cause, String)> {
    let (server, share) = facts.name_server.as_ref()?;
    (*share >= LASTING).then(|| {
        (
            Cause::Dns,
            format!(
                "waits for the name server {server}, which owes an answer for {} of the time; {}",
                percent(*share),
                queue(facts)
            ),
        )
    })
}

fn backend(facts: &Facts) -> Option<(Cause, String)> {
    let slowest = slow_backend(facts)?;
    let Backend { address, waiting, oldest, connecting, .. } = slowest;
    let how = if *connecting >= 0.5 * waiting { "which does not accept connections" } else { "which owes answers" };
    let sentence = format!(
        "waits for {address}, {how}: {} requests wait there, the oldest for {}; {}",
        number(*waiting),
        millis(*oldest),
        queue(facts)
    );
    Some((Cause::Downstream, sentence))
}

/// The backend for which requests wait: it owes answers all the time, for a good part of the time
/// that requests are inside or wait in front.
pub(crate) fn slow_backend(facts: &Facts) -> Option<&Backend> {
    let front = facts.oldest_unread.map_or(Duration::ZERO, |age| age.estimate);
    let delay = facts.oldest_inside.max(front.min(crate::facts::INSIDE_AGE));
    facts.backends.iter().find(|backend| {
        backend.share >= LASTING
            && (backend.oldest >= delay / 3 || backend.threads_wait(facts) || backend.connecting >= 0.5)
    })
}

impl Backend {
    /// Whether the threads that could work wait for backends.
    fn threads_wait(&self, facts: &Facts) -> bool {
        facts.threads.backend >= 0.5 * facts.inside.clamp(1.0, facts.threads.all.max(1.0))
    }
}

/// Requests wait for one of a few connections to a backend that answers each of them soon. A
/// program that lacks one CPU calls it as steadily.
fn connection_pool(facts: &Facts) -> Option<(Cause, String)> {
    let Backend { address, most, oldest, .. } = full_backend(facts)?;
    (facts.cpus + facts.waiting_for_cpus < BUSY).then(|| {
        // One connection may be no pool: HTTP/2 and pipelining send many requests over it.
        let (connections, pool) = match most {
            1 => ("1 connection waits".to_owned(), String::new()),
            _ => (format!("{most} connections wait"), format!("a pool of {most}, or ")),
        };
        let sentence = format!(
            "waits for {address}, or for its turn to call it: always {connections} there, the oldest for {} ({pool}a slow backend?); {}",
            millis(*oldest),
            queue(facts)
        );
        (Cause::Downstream, sentence)
    })
}

/// The backend that nearly always owes as many answers as it ever does. By Little's law, these
/// are enough for all requests: connections that serve none, as of a queue that is polled, are few.
/// Without responses, as of a deadlock or a Unix socket, any connection would be enough.
fn full_backend(facts: &Facts) -> Option<&Backend> {
    facts.backends.iter().filter(|_| facts.responses_per_s > 0.0).find(|backend| {
        let is_steady = backend.share >= BUSY && backend.waiting >= BUSY * backend.share * f64::from(backend.most);
        is_steady && backend.waiting >= 0.5 * facts.responses_per_s * backend.oldest.as_secs_f64()
    })
}

fn disk(facts: &Facts) -> Option<(Cause, String)> {
    let least = 0.3 * facts.inside.clamp(1.0, 3.0);
    (facts.threads.disk >= least).then(|| {
        let sentence = format!(
            "waits for a disk: {} of its threads are in reads and writes of files; {}",
            number(facts.threads.disk),
            queue(facts)
        );
        (Cause::Disk, sentence)
    })
}

fn lock(facts: &Facts) -> Option<(Cause, String)> {
    let threads = &facts.threads;
    let calls = full_backend(facts).map_or(String::new(), |Backend { address, most, .. }| {
        format!(", while {address} owes answers on {most} of its connections: a lock that is held during its calls, or a pool's?")
    });
    // Threads of an interpreter that runs one at a time sleep at its own lock while one of them
    // runs.
    if facts.runs_one_thread && facts.cpus + facts.waiting_for_cpus >= 0.5 {
        return None;
    }
    if threads.mutex >= 0.7 {
        let sentence =
            format!("waits for a lock: {} threads sleep at a mutex{calls}; {}", number(threads.mutex), queue(facts));
        return Some((Cause::Lock, sentence));
    }
    // As many threads at one futex as there are requests inside: an idle pool has nothing to do
    // with the number of requests. A lock goes from thread to thread, so that its waiters run now
    // and then; threads that wait for an event do not.
    let inside = facts.inside;
    let fits = threads.same_futex >= 2.0 && inside >= 2.0 && (0.6..=1.15).contains(&(threads.same_futex / inside));
    let fits = fits && facts.still_waiters < STILL;
    (fits && facts.threads.runnable < 0.5 * facts.allowed_cpus.max(1.0)).then(|| {
        let sentence = format!(
            "waits for a lock: {} requests are inside, and {} threads sleep at the same futex{calls}; {}",
            number(inside),
            number(threads.same_futex),
            queue(facts)
        );
        (Cause::Lock, sentence)
    })
}

fn accept(facts: &Facts) -> Option<(Cause, String)> {
    // Each accepted connection of a Unix socket may have a request inside.
    let inside = if facts.is_unix { facts.connections } else { facts.inside };
    (waits_for_accept(facts) && facts.unread_accepted < 1.0 && inside < 0.5).then(|| {
        let dropped = match facts.dropped {
            0 => String::new(),
            dropped => format!("; the kernel dropped {dropped} connections"),
        };
        let dropped = if facts.is_out_of_descriptors {
            format!("; it has as many descriptors open as it may{dropped}")
        } else {
            dropped
        };
        let sentence = format!(
            "accepts too few connections: {} wait to be accepted (room for {}), while those that it accepted wait for nothing{dropped}",
            number(facts.accept_queue),
            facts.accept_limit
        );
        (Cause::Accept, sentence)
    })
}

fn unknown(facts: &Facts) -> String {
    if !facts.is_visible {
        return format!(
            "{}; its processes belong to another user or a container, so the reason is not known",
            queue(facts)
        );
    }
    let perhaps =
        "a lock or a timer inside the program, or a service that it reaches over a Unix socket or UDP, perhaps";
    let threads = match facts.cpus {
        cpus if cpus < 0.05 => format!("its threads do not run: {perhaps}"),
        cpus if cpus < 0.5 => {
            format!("it uses {} of a CPU, and nothing shows what else it waits for: {perhaps}", number(cpus))
        }
        _ => "nothing shows why".to_owned(),
    };
    let owing = facts.backends.first().filter(|backend| backend.share >= LASTING).map_or(String::new(), |backend| {
        format!("; {} owes {} answers, and a pool of connections may be full", backend.address, number(backend.waiting))
    });
    format!("{}; {threads}{owing}", queue(facts))
}

/// Requests wait before they are read.
fn waits_in_front(facts: &Facts) -> bool {
    facts.front_share >= LASTING
}

/// A short queue in front of a service that gets no more CPU time, or requests that have been read
/// and wait for a CPU.
fn is_short_of_cpu(facts: &Facts) -> bool {
    (facts.mean_unread >= Duration::from_millis(6) || threads_want_cpus(facts)) && busy_cpus(facts).is_some()
}

/// Most requests that have been read wait for a CPU.
fn threads_want_cpus(facts: &Facts) -> bool {
    facts.inside >= 2.0 && facts.waiting_for_cpus >= 0.5 * facts.inside
}

/// Requests are inside for long.
fn waits_inside(facts: &Facts) -> bool {
    facts.inside_share >= LASTING
}

fn waits_for_accept(facts: &Facts) -> bool {
    facts.accept_share >= LASTING
}

/// A single pause of this length is not chance.
const LONG_STALL: Duration = Duration::from_millis(200);

/// The service stops answering again and again, or once for long.
fn pauses_often(facts: &Facts) -> bool {
    facts.stall_share >= 0.05 && (facts.stalls >= 2 || facts.longest_stall >= LONG_STALL)
}

/// Where requests wait, for how long.
fn queue(facts: &Facts) -> String {
    let front = facts.oldest_unread.filter(|_| waits_in_front(facts));
    match (front, waits_inside(facts)) {
        (Some(_), _) if facts.is_unix => {
            "requests wait before they are read, and a Unix socket does not tell how long".to_owned()
        }
        (Some(age), _) => format!("the oldest request waits {} before it is read", millis(age.estimate)),
        (None, true) => {
            format!(
                "its requests are read at once but take long inside: the oldest of {} for {}",
                number(facts.inside),
                millis(facts.oldest_inside)
            )
        }
        (None, false) if waits_for_accept(facts) => {
            format!("{} connections wait to be accepted", number(facts.accept_queue))
        }
        _ if threads_want_cpus(facts) => {
            format!(
                "{} requests are inside, {} threads wait for a CPU",
                number(facts.inside),
                number(facts.waiting_for_cpus)
            )
        }
        _ if facts.mean_unread >= Duration::from_millis(1) => {
            format!("requests wait {} on average before they are read", millis(facts.mean_unread))
        }
        _ if facts.is_unix => "a Unix socket does not tell how long requests wait".to_owned(),
        _ => format!("requests wait up to {} before they are read", millis(facts.oldest_unread_max)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::BusiestThread;
    use crate::poll::ThreadCounts;
    use leeward_sockdiag::AgeBounds;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// A service with fifty connections that does little.
    fn idle() -> Facts {
        Facts {
            span: ms(3000),
            connections: 50.0,
            is_visible: true,
            allowed_cpus: 2.0,
            idle_cpus: 1.9,
            threads: ThreadCounts { all: 8.0, ..ThreadCounts::default() },
            ..Facts::default()
        }
    }

    /// Requests wait in front of it for `age` milliseconds.
    fn with_queue(age: u64, facts: Facts) -> Facts {
        let oldest = AgeBounds { estimate: ms(age), at_least: ms(age), at_most: Some(ms(age + 30)) };
        let unread = 40.0;
        Facts {
            unread,
            unread_accepted: unread,
            front_share: 1.0,
            oldest_unread: Some(oldest),
            oldest_unread_max: ms(age),
            ..facts
        }
    }

    /// Requests are inside for `age` milliseconds.
    fn with_inside(count: f64, age: u64, facts: Facts) -> Facts {
        Facts { inside: count, inside_share: 1.0, oldest_inside: ms(age), ..facts }
    }

    fn threads(change: impl FnOnce(&mut ThreadCounts), facts: Facts) -> Facts {
        let mut threads = facts.threads;
        change(&mut threads);
        Facts { threads, ..facts }
    }

    fn owing(waiting: f64, age: u64) -> Vec<Backend> {
        let (address, most) = ("10.0.0.7:5432".into(), waiting.ceil() as u32);
        vec![Backend { address, share: 1.0, waiting, most, oldest: ms(age), connecting: 0.0 }]
    }

    /// Sixty requests are inside a service whose pool of four connections is full.
    fn with_full_pool(facts: Facts) -> Facts {
        Facts { backends: owing(3.8, 66), responses_per_s: 48.0, ..with_inside(60.0, 1_250, facts) }
    }

    /// One of two processes is stopped; requests wait for it for this share of the time.
    fn with_stopped(share: f64, facts: Facts) -> Facts {
        Facts { processes: 2.0, stopped_pids: vec![12], waits_for_stopped_share: share, ..facts }
    }

    #[test]
    fn each_cause_is_named_with_its_evidence() {
        let busy = Facts { cpus: 1.9, idle_cpus: 0.0, ..idle() };
        let loop_thread = BusiestThread { name: "node".into(), ran: 0.97, waited: 0.01 };
        for (facts, cause, words) in [
            (idle(), Cause::None, "nothing waits in front of it"),
            (
                Facts { cpus: 1.4, idle_cpus: 0.6, ..with_queue(8, Facts { front_share: 0.1, ..idle() }) },
                Cause::Cpu,
                "",
            ),
            (
                with_queue(380, busy.clone()),
                Cause::Cpu,
                "the oldest request waits 380 ms before it is read; it uses 1.9 of its 2 CPUs",
            ),
            (
                with_queue(90, Facts { cpus: 0.98, busiest: Some(loop_thread), ..idle() }),
                Cause::Cpu,
                "thread `node` runs 97 %",
            ),
            (with_queue(90, Facts { cpus: 0.95, runs_one_thread: true, ..idle() }), Cause::Cpu, "one thread at a time"),
            (
                with_queue(90, Facts { cpus: 0.5, waiting_for_cpus: 1.5, idle_cpus: 0.0, ..idle() }),
                Cause::Cpu,
                "wait for a CPU for 75 %",
            ),
            (
                with_queue(90, Facts { throttled_share: 0.4, throttled_cpus: 0.21, quota_cpus: Some(0.5), ..busy }),
                Cause::Quota,
                "quota of 0.50 CPUs in 40 %",
            ),
            (with_queue(900, Facts { stopped_share: 1.0, ..idle() }), Cause::Stopped, "stopped"),
            (
                with_inside(20.0, 900, threads(|threads| threads.mutex = 19.0, idle())),
                Cause::Lock,
                "19 threads sleep at a mutex",
            ),
            (
                with_inside(20.0, 900, threads(|threads| threads.same_futex = 19.0, idle())),
                Cause::Lock,
                "19 threads sleep at the same futex",
            ),
            (
                with_queue(90, threads(|threads| threads.disk = 4.0, idle())),
                Cause::Disk,
                "4 of its threads are in reads and writes",
            ),
            (
                Facts { backends: owing(12.0, 500), ..with_inside(12.0, 510, idle()) },
                Cause::Downstream,
                "waits for 10.0.0.7:5432",
            ),
            (
                with_full_pool(idle()),
                Cause::Downstream,
                "always 4 connections wait there, the oldest for 66 ms (a pool of 4, or a slow backend?)",
            ),
            (
                Facts { backends: owing(0.95, 40), responses_per_s: 20.0, ..with_inside(60.0, 3_000, idle()) },
                Cause::Downstream,
                "always 1 connection waits there, the oldest for 40 ms (a slow backend?)",
            ),
            (
                with_full_pool(threads(|threads| threads.mutex = 56.0, idle())),
                Cause::Lock,
                "56 threads sleep at a mutex, while 10.0.0.7:5432 owes answers on 4 of its connections: a lock that is held during its calls",
            ),
            (
                with_full_pool(Facts { cpus: 0.95, ..idle() }),
                Cause::Unknown,
                "nothing shows why; 10.0.0.7:5432 owes 3.8 answers, and a pool of connections may be full",
            ),
            (
                with_queue(3_000, with_stopped(1.0, Facts { cpus: 1.9, idle_cpus: 0.0, ..idle() })),
                Cause::Stopped,
                "process 12 (1 of 2) is stopped, by a signal",
            ),
            (
                with_queue(3_000, with_stopped(0.6, idle())),
                Cause::Stopped,
                "process 12 (1 of 2) was stopped for half of the time or more, by a signal",
            ),
            (
                Facts { name_server: Some(("10.0.0.2:53".into(), 0.9)), ..with_inside(12.0, 510, idle()) },
                Cause::Dns,
                "name server 10.0.0.2:53",
            ),
            (
                Facts { stalls: 3, stall_share: 0.3, longest_stall: ms(320), stall_cpus: 1.0, cpus: 0.6, ..idle() },
                Cause::Pauses,
                "for up to 320 ms",
            ),
            (
                Facts { accept_share: 1.0, accept_queue: 30.0, accept_limit: 128, ..idle() },
                Cause::Accept,
                "30 wait to be accepted",
            ),
            (
                Facts { stopped_share: 0.4, stalls: 1, stall_share: 0.4, longest_stall: ms(1600), cpus: 0.1, ..idle() },
                Cause::Stopped,
                "was stopped for 40 % of the time (by a signal, a debugger or a frozen cgroup); requests waited up to 1600 ms",
            ),
            (with_inside(3.0, 30_000, idle()), Cause::Unknown, "do not run: a lock or a timer inside the program"),
            (with_inside(3.0, 30_000, Facts { cpus: 0.49, ..idle() }), Cause::Unknown, "; it uses 0.49 of a CPU, and"),
            (with_queue(300, Facts { is_visible: false, ..idle() }), Cause::Unknown, "another user"),
        ] {
            // The second row is what a healthy service at seven tenths of its capacity shows.
            let cause = if words.is_empty() { Cause::None } else { cause };
            let facts = if words.is_empty() { Facts { front_share: 0.1, ..facts } } else { facts };
            let diagnosis = diagnose(&facts);
            assert_eq!(diagnosis.cause, cause, "{diagnosis:?}");
            assert!(diagnosis.sentence.contains(words), "{diagnosis:?}");
            assert!(!diagnosis.evidence.is_empty());
        }
    }

    #[test]
    fn the_oldest_request_is_told_from_the_mean_one() {
        let diagnosis = diagnose(&Facts { mean_unread: ms(240), ..with_queue(11_000, idle()) });
        assert!(diagnosis.sentence.contains("the oldest request waits 11 s"), "{diagnosis:?}");
        assert!(diagnosis.evidence[1].ends_with("of all requests: 240 ms (mean)"), "{diagnosis:?}");
    }

    #[test]
    fn a_unix_socket_has_no_cause_that_its_kernel_does_not_show() {
        let unix = Facts { is_unix: true, ..idle() };
        let queued = Facts { accept_share: 1.0, accept_queue: 30.0, accept_limit: 512, ..unix.clone() };
        let busy = Facts { cpus: 0.97, runs_one_thread: true, ..queued.clone() };
        for (facts, cause, words) in [
            (unix, Cause::None, "does not tell what is inside"),
            // Nothing was accepted, so that nothing can be inside.
            (Facts { connections: 0.0, ..queued.clone() }, Cause::Accept, "30 wait to be accepted"),
            (queued, Cause::Unknown, "30 connections wait to be accepted; its threads do not run"),
            (busy.clone(), Cause::Cpu, "30 connections wait to be accepted; it uses 0.97 of a CPU"),
            (with_queue(1600, busy), Cause::Cpu, "a Unix socket does not tell how long; it uses 0.97 of a CPU"),
        ] {
            let diagnosis = diagnose(&facts);
            assert_eq!(diagnosis.cause, cause, "{diagnosis:?}");
            assert!(diagnosis.sentence.contains(words), "{diagnosis:?}");
            assert!(!diagnosis.evidence[0].contains("inside"), "{diagnosis:?}");
        }
    }

    #[test]
    fn states_that_look_like_a_fault_are_not_taken_for_one() {
        let parked = |count: f64| threads(|threads| (threads.all, threads.same_futex) = (count, count), idle());
        for (facts, cause) in [
            // A hundred idle threads at one futex.
            (parked(100.0), Cause::None),
            // The same, and three requests that wait for a timer.
            (with_inside(3.0, 20_000, parked(100.0)), Cause::Unknown),
            // An interpreter on a machine with other work.
            (
                with_inside(
                    19.0,
                    4_000,
                    Facts { cpus: 0.84, waiting_for_cpus: 0.67, idle_cpus: 0.01, runs_one_thread: true, ..idle() },
                ),
                Cause::Cpu,
            ),
            // Twenty threads that each hold a lock for 200 ms: a quarter of them runs in a second.
            (with_inside(20.0, 4_000, Facts { still_waiters: 0.75, ..parked(19.0) }), Cause::Lock),
            // Sixty requests that wait for an event, each in a thread of its own.
            (with_inside(60.0, 20_000, Facts { still_waiters: 0.97, ..parked(60.0) }), Cause::Unknown),
            // A backend that answers at once, of a service without CPU.
            (with_queue(200, Facts { cpus: 1.95, idle_cpus: 0.0, backends: owing(1.0, 2), ..idle() }), Cause::Cpu),
            // Four calls at a time, always, of a service that lacks CPU or waits for its quota.
            (with_full_pool(Facts { cpus: 1.95, idle_cpus: 0.0, ..idle() }), Cause::Cpu),
            (
                with_full_pool(Facts { throttled_share: 0.4, throttled_cpus: 0.2, quota_cpus: Some(0.3), ..idle() }),
                Cause::Quota,
            ),
            // A queue of jobs that is polled, beside requests that wait for something else.
            (Facts { backends: owing(1.0, 250), ..with_full_pool(idle()) }, Cause::Unknown),
            // Calls that come by chance: about four at a time, and eight at most.
            (
                Facts { backends: vec![Backend { most: 8, ..owing(3.8, 66).remove(0) }], ..with_full_pool(idle()) },
                Cause::Unknown,
            ),
            // A deadlock, and a client of a queue that is polled.
            (Facts { backends: owing(1.0, 500), ..with_inside(60.0, 20_000, idle()) }, Cause::Unknown),
            // The same client, in a service whose responses are not counted.
            (with_queue(600, Facts { is_unix: true, backends: owing(1.0, 20), ..idle() }), Cause::Unknown),
            // One of two processes is stopped, and nobody waits for it.
            (with_stopped(0.0, idle()), Cause::None),
            // The same, and the other one has too much work.
            (with_queue(380, with_stopped(0.0, Facts { cpus: 1.9, idle_cpus: 0.0, ..idle() })), Cause::Cpu),
            // A thread that computes in the background, while requests are served at once.
            (
                Facts {
                    cpus: 1.0,
                    busiest: Some(BusiestThread { name: "batch".into(), ran: 0.99, waited: 0.0 }),
                    ..idle()
                },
                Cause::None,
            ),
            // Connections that wait to be accepted behind busy CPUs.
            (
                Facts { inside: 1.0, cpus: 2.0, idle_cpus: 0.0, accept_share: 1.0, accept_queue: 9.0, ..idle() },
                Cause::Cpu,
            ),
            // A server that cannot accept, and tries all the time.
            (Facts { cpus: 1.0, runs_one_thread: true, accept_share: 1.0, accept_queue: 9.0, ..idle() }, Cause::Accept),
            // Threads of Python that wait for the one that runs, on a machine with other work.
            (
                with_queue(
                    600,
                    threads(
                        |threads| threads.mutex = 3.5,
                        Facts { cpus: 0.5, waiting_for_cpus: 0.6, idle_cpus: 0.0, runs_one_thread: true, ..idle() },
                    ),
                ),
                Cause::Cpu,
            ),
            // A collector and its program, which want two CPUs and get 1.3.
            (Facts { mean_unread: ms(8), cpus: 1.3, waiting_for_cpus: 0.7, idle_cpus: 0.0, ..idle() }, Cause::Cpu),
            // A thread for each connection: all requests are read, and wait for a CPU then.
            (Facts { inside: 14.0, cpus: 1.8, waiting_for_cpus: 13.0, idle_cpus: 0.0, ..idle() }, Cause::Cpu),
            // The same with requests that take 200 ms: now and then none ends for a while.
            (
                Facts {
                    stalls: 2,
                    stall_share: 0.07,
                    longest_stall: ms(114),
                    stall_cpus: 2.0,
                    ..with_inside(16.0, 200, Facts { cpus: 1.9, waiting_for_cpus: 14.0, idle_cpus: 0.0, ..idle() })
                },
                Cause::Cpu,
            ),
            // Threads of Python that compute for their requests, which sometimes end together.
            (
                Facts {
                    stalls: 3,
                    stall_share: 0.4,
                    longest_stall: ms(620),
                    stall_cpus: 0.98,
                    serving_cpus: 0.96,
                    runs_one_thread: true,
                    ..with_inside(20.0, 2_000, Facts { cpus: 0.97, waiting_for_cpus: 0.5, ..idle() })
                },
                Cause::Cpu,
            ),
            // A collector without an end: its program has little of the one CPU.
            (
                Facts {
                    stalls: 6,
                    stall_share: 0.6,
                    longest_stall: ms(320),
                    stall_cpus: 0.98,
                    serving_cpus: 0.96,
                    collector_cpus: 0.6,
                    ..with_queue(400, Facts { cpus: 0.97, allowed_cpus: 1.0, ..idle() })
                },
                Cause::Pauses,
            ),
            // Threads that compute in the background, while requests are served at once.
            (Facts { inside: 0.2, cpus: 1.9, waiting_for_cpus: 6.0, idle_cpus: 0.0, ..idle() }, Cause::None),
            // As many, without a queue.
            (Facts { mean_unread: ms(1), cpus: 1.3, waiting_for_cpus: 0.7, idle_cpus: 0.0, ..idle() }, Cause::None),
            // A short throttling that hurts nobody.
            (Facts { throttled_share: 0.2, throttled_cpus: 0.02, quota_cpus: Some(1.0), ..idle() }, Cause::None),
        ] {
            let diagnosis = diagnose(&facts);
            assert_eq!(diagnosis.cause, cause, "{diagnosis:?}");
        }
    }

    proptest::proptest! {
        /// Whatever is seen, there is one sentence of one line.
        #[test]
        fn any_facts_have_a_sentence(
            unread in 0.0..1e6f64, front in 0.0..=1.0f64, inside in 0.0..1e6f64, inside_share in 0.0..=1.0f64,
            cpus in 0.0..200.0f64, stalls in 0..90u32, mutex in 0.0..1e5f64, accept in 0.0..=1.0f64, age in 0..100_000u64,
        ) {
            let facts = Facts {
                inside_share, stalls, stall_share: front, stall_cpus: cpus, accept_share: accept, accept_queue: unread, cpus,
                ..with_inside(inside, age, with_queue(age, threads(|threads| threads.mutex = mutex, idle())))
            };
            let facts = Facts { unread, front_share: front, inside_share, ..facts };
            let diagnosis = diagnose(&facts);
            proptest::prop_assert!(!diagnosis.sentence.is_empty() && !diagnosis.sentence.contains('\n'));
            proptest::prop_assert_eq!(&diagnose(&facts), &diagnosis);
        }
    }
}
