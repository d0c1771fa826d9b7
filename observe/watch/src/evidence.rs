//! The facts in words: lines of evidence, numbers and times. Does not contain causes. Pure.

use std::time::Duration;

use leeward_sockdiag::AgeBounds;

use crate::facts::Facts;

/// Most processes that a sentence names.
const SHOWN_PIDS: usize = 8;

/// What was seen, a line each.
pub(crate) fn evidence(facts: &Facts) -> Vec<String> {
    let (accepted, inside) = if facts.is_unix {
        ("accepted ", String::new())
    } else {
        ("", format!(", {} have a request inside", number(facts.inside)))
    };
    let mut lines = vec![format!(
        "sockets: {} of {} {accepted}connections have unread bytes{inside}; {} wait to be accepted",
        number(facts.unread),
        number(facts.connections),
        number(facts.accept_queue)
    )];
    lines.extend(facts.oldest_unread.map(|age| unread_age(facts, age)));
    if facts.stalls > 0 {
        lines.push(format!(
            "pauses without an answer: {}, up to {}, {} of the time, with {} CPUs in use",
            facts.stalls,
            millis(facts.longest_stall),
            percent(facts.stall_share),
            number(facts.stall_cpus)
        ));
    }
    if facts.is_visible {
        let busiest = facts.busiest.as_ref().map_or(String::new(), |thread| {
            format!(
                "; busiest thread `{}`: runs {}, waits for a CPU {}",
                thread.name,
                percent(thread.ran),
                percent(thread.waited)
            )
        });
        lines.push(format!(
            "CPUs: uses {} of {}, threads wait for {}; the machine has {} idle{busiest}",
            number(facts.cpus),
            number(facts.allowed_cpus),
            number(facts.waiting_for_cpus),
            number(facts.idle_cpus)
        ));
        let threads = &facts.threads;
        lines.push(format!(
            "threads: {}; runnable {}, at a disk {}, at a mutex {}, at one futex {}, at a backend {}, at a client {}, in a timed sleep {}",
            number(threads.all),
            number(threads.runnable),
            number(threads.disk),
            number(threads.mutex),
            number(threads.same_futex),
            number(threads.backend),
            number(threads.client),
            number(threads.sleep)
        ));
    }
    if let Some(cpus) = facts.quota_cpus {
        lines.push(format!(
            "quota: {} CPUs, throttled in {} of its periods",
            number(cpus),
            percent(facts.throttled_share)
        ));
    }
    if facts.is_out_of_descriptors {
        lines.push("descriptors: it has as many open as it may".to_owned());
    }
    if !facts.stopped_pids.is_empty() {
        lines.push(format!("stopped: {} of its processes", facts.stopped_pids.len()));
    }
    for backend in facts.backends.iter().take(3) {
        lines.push(format!(
            "backend {}: owes {} answers, for {} of the time, the oldest for {}",
            backend.address,
            number(backend.waiting),
            percent(backend.share),
            millis(backend.oldest)
        ));
    }
    lines
}

/// How old unread bytes were.
fn unread_age(facts: &Facts, oldest: AgeBounds) -> String {
    let (median, most) = (millis(oldest.estimate), millis(facts.oldest_unread_max));
    let share = percent(facts.front_share);
    if facts.is_unix {
        return format!(
            "unread bytes: seen in one connection for {median} (median), up to {most}; for 25 ms in {share} of the time"
        );
    }
    let mean = match facts.mean_unread {
        mean if mean >= Duration::from_millis(1) => format!("; of all requests: {} (mean)", millis(mean)),
        _ => String::new(),
    };
    format!("oldest unread byte: {median} (median), up to {most}; older than 25 ms for {share} of the time{mean}")
}

/// Numbers of processes, the first few of them.
pub(crate) fn pid_list(pids: &[u32]) -> String {
    let shown: Vec<String> = pids.iter().take(SHOWN_PIDS).map(u32::to_string).collect();
    shown.join(" ") + if pids.len() > SHOWN_PIDS { " …" } else { "" }
}

/// A number with few digits.
pub(crate) fn number(value: f64) -> String {
    let digits = if value >= 10.0 || (value - value.round()).abs() < 0.005 {
        0
    } else if value >= 1.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
}

/// A share in hundredths.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// A time in milliseconds, or in seconds where it is long.
pub(crate) fn millis(time: Duration) -> String {
    match time.as_millis() {
        ms if ms < 10_000 => format!("{ms} ms"),
        _ => format!("{:.0} s", time.as_secs_f64()),
    }
}
