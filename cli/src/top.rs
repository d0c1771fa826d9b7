//! Text of `leeward top`, for the live view and for files, from two polls of a server's statistics.
//! Does not contain polling or the terminal.

use leeward_rpc::statistics::{LOCKS, LockStatistics, Statistics};
use std::collections::HashMap;
use std::time::Duration;

use crate::demo::format::{format_us, percent};
use crate::stdout::sanitize;
use crate::table::{Align, Table, WIDTH, wrap};

/// Time without a response.
pub(crate) struct NoAnswer<'a> {
    /// Time since the last response.
    pub(crate) duration: Duration,
    /// Reason, in one line.
    pub(crate) reason: &'a str,
}

/// Text of the live view: a warning if the statistics are old, then the statistics.
pub(crate) fn live_text(address: &str, before: &Statistics, now: &Statistics, silence: Option<NoAnswer<'_>>) -> String {
    let text = text(address, before, now);
    let Some(NoAnswer { duration: lasts, reason: why }) = silence else { return text };
    let lasts = format_us(lasts.as_micros() as f64);
    let warning = wrap(&format!("No answer for {lasts}: {}", sanitize(why)), 0, WIDTH);
    format!("{warning}The statistics below are as old as that.\n\n{text}")
}

/// Statistics of the time between `before` and `now`.
pub(crate) fn text(address: &str, before: &Statistics, now: &Statistics) -> String {
    // A restarted server counts from zero.
    let fresh = Statistics::default();
    let before = if now.uptime_ns < before.uptime_ns { &fresh } else { before };
    let seconds = (now.uptime_ns.saturating_sub(before.uptime_ns) as f64 / 1e9).max(1e-9);
    let per_second = |now: u64, before: u64| rate(now.saturating_sub(before) as f64 / seconds);
    let idle = now.idle_ns.saturating_sub(before.idle_ns) as f64 / 1e9 / seconds / now.cores.max(1) as f64;
    let mut lines = vec![
        format!(
            "server    {address}, up {}, {} core{} {} idle, {} connection{}",
            format_us(now.uptime_ns as f64 / 1e3),
            now.cores,
            if now.cores == 1 { "" } else { "s" },
            percent(idle.clamp(0.0, 1.0)),
            now.connections,
            if now.connections == 1 { "" } else { "s" }
        ),
        format!(
            "requests  {}/s received, {}/s answered{}, {}/s within {}",
            per_second(now.received, before.received),
            per_second(now.completed, before.completed),
            failures(before, now, seconds),
            per_second(now.in_time, before.in_time),
            format_us(now.slo_ns as f64 / 1e3)
        ),
        latency(before, now),
        format!(
            "dropped   {}/s{}{}",
            per_second(now.rejected(), before.rejected()),
            reasons(before, now, seconds),
            shadow_rejections(before, now, seconds)
        ),
        format!(
            "delay     {} until read, {} in run queues",
            format_us(now.packet_delay_ns as f64 / 1e3),
            format_us(now.run_delay_ns as f64 / 1e3)
        ),
    ];
    lines.extend(leaves(before, now, seconds));
    lines.extend(datagrams(before, now, seconds));
    lines.extend(handshakes(before, now, seconds));
    lines.extend(controller(now));
    lines.extend(unattainable_objective(before, now));
    let mut lines: Vec<String> = lines.iter().map(|line| fit(line)).collect();
    lines.push(String::new());
    lines.push(locks(before, now, seconds));
    lines.join("\n")
}

/// Columns of a line's label.
const LABEL: usize = 10;

/// Wraps a line behind its label.
fn fit(line: &str) -> String {
    let (label, rest) = line.split_at(LABEL);
    format!("{label}{}", wrap(rest, LABEL, WIDTH).trim())
}

/// Latency percentiles of the results, with those above the objective marked.
fn latency(before: &Statistics, now: &Statistics) -> String {
    let objective = format_us(now.slo_ns as f64 / 1e3);
    let Some(of) = now.latency.since(&before.latency).percentiles() else {
        return format!("latency   no result; objective {objective}");
    };
    let of = [("p50", of.p50_ns), ("p99", of.p99_ns), ("p99.9", of.p999_ns)].map(|(name, ns)| {
        format!("{name} {}{}", format_us(ns as f64 / 1e3), if ns > now.slo_ns { " (over)" } else { "" })
    });
    format!("latency   {}; objective {objective}", of.join(", "))
}

/// Rate of failures among the answers, if the server had any.
fn failures(before: &Statistics, now: &Statistics, seconds: f64) -> String {
    let more = now.failed.saturating_sub(before.failed);
    if now.failed == 0 { String::new() } else { format!(" ({}/s of them with a failure)", rate(more as f64 / seconds)) }
}

fn reasons(before: &Statistics, now: &Statistics, seconds: f64) -> String {
    let more = |(reason, count): (&String, &u64)| {
        let more = count.saturating_sub(before.drops.get(reason).copied().unwrap_or(0));
        (more > 0).then(|| format!("{} {}/s", printable(reason), rate(more as f64 / seconds)))
    };
    let reasons: Vec<String> = now.drops.iter().filter_map(more).collect();
    if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) }
}

/// Rate of rejections that are not enforced, if the controller runs in shadow mode.
fn shadow_rejections(before: &Statistics, now: &Statistics, seconds: f64) -> String {
    let Some(foreseen) = now.foreseen else { return String::new() };
    let more = foreseen.saturating_sub(before.foreseen.unwrap_or(0));
    format!("; shadow mode: {}/s more would be rejected", rate(more as f64 / seconds))
}

/// TLS handshakes of a server, and problems with its certificates.
fn handshakes(before: &Statistics, now: &Statistics, seconds: f64) -> Option<String> {
    let tls = now.tls.as_ref()?;
    let none = Default::default();
    let before = before.tls.as_ref().unwrap_or(&none);
    let per_second = |now: u64, before: u64| rate(now.saturating_sub(before) as f64 / seconds);
    let refused = tls.refused.iter().filter_map(|(reason, count)| {
        let more = count.saturating_sub(before.refused.get(reason).copied().unwrap_or(0));
        (more > 0).then(|| format!(", {} {}/s", printable(reason), rate(more as f64 / seconds)))
    });
    let trouble = tls.trouble.as_deref().map(|message| format!("; old certificates: {}", sanitize(message)));
    Some(format!(
        "tls       {}/s handshakes, {} waiting{}{}",
        per_second(tls.done, before.done),
        tls.waiting,
        refused.collect::<String>(),
        trouble.unwrap_or_default()
    ))
}

/// Loss of datagrams, if the server has seen any.
fn datagrams(before: &Statistics, now: &Statistics, seconds: f64) -> Option<String> {
    let counts = |of: &Statistics| [of.overflowed, of.retransmitted, of.duplicates];
    let per_second = |index: usize| rate(counts(now)[index].saturating_sub(counts(before)[index]) as f64 / seconds);
    let [overflowed, retransmitted, duplicates] = [per_second(0), per_second(1), per_second(2)];
    let losses =
        format!("{overflowed}/s lost in full buffers, {retransmitted}/s retransmitted, {duplicates}/s duplicates");
    counts(now).iter().any(|count| *count > 0).then(|| format!("datagrams {losses}"))
}

/// Addresses of absent leaves that are named.
const NAMED_LEAVES: usize = 4;

/// Leaves of a tier: those that are away, and the requests that went on without a part.
fn leaves(before: &Statistics, now: &Statistics, seconds: f64) -> Option<String> {
    let tier = now.tier.as_ref()?;
    let partial = tier.partial.saturating_sub(before.tier.as_ref().map_or(0, |tier| tier.partial));
    let named: Vec<String> = tier.away.iter().take(NAMED_LEAVES).map(|leaf| printable(leaf)).collect();
    let more = if tier.away.len() > NAMED_LEAVES { ", …" } else { "" };
    let away = if named.is_empty() { String::new() } else { format!(" ({}{more})", named.join(", ")) };
    let rate = rate(partial as f64 / seconds);
    Some(format!("leaves    {} of {} away{away}; {rate}/s partial answers", tier.away.len(), tier.leaves))
}

fn controller(now: &Statistics) -> Option<String> {
    let mut parts = Vec::new();
    if let (Some(pool), Some(issued)) = (now.credit_pool, now.credits_issued) {
        parts.push(format!("credits: {issued} issued, pool of {pool}"));
    }
    parts.extend(now.concurrency_limit.map(|limit| format!("at most {limit:.0} requests at once")));
    parts.extend(now.priority_threshold.map(|threshold| format!("priorities up to {threshold:.0}")));
    (!parts.is_empty()).then(|| format!("control   {}", parts.join(", ")))
}

/// Warn about the objective if fewer than one answer in this many is in time.
const IN_TIME_RATIO: u64 = 100;

/// Warning about an unattainable objective: almost no answer is in time, although no queue has a
/// long delay at either poll.
fn unattainable_objective(before: &Statistics, now: &Statistics) -> Option<String> {
    let more = |now: u64, before: u64| now.saturating_sub(before);
    let (answered, in_time) = (more(now.completed, before.completed), more(now.in_time, before.in_time));
    let waits = |poll: &Statistics| poll.packet_delay_ns.saturating_add(poll.run_delay_ns) > now.slo_ns / 2;
    let is_hopeless = answered >= IN_TIME_RATIO && in_time < answered / IN_TIME_RATIO && !waits(before) && !waits(now);
    is_hopeless.then(|| {
        let objective = format_us(now.slo_ns as f64 / 1e3);
        format!("objective requests take more than {objective}, or wait in unmeasured queues: under 1 % in time")
    })
}

/// Table of the locks, the longest waits between the polls first.
fn locks(before: &Statistics, now: &Statistics, seconds: f64) -> String {
    if now.locks.is_empty() {
        return "no locks with statistics\n".into();
    }
    let none = LockStatistics::default();
    let known: HashMap<(&str, &str), &LockStatistics> =
        before.locks.iter().take(LOCKS).map(|lock| ((lock.name.as_str(), lock.kind.as_str()), lock)).collect();
    let with_earlier = |lock| {
        let lock: &LockStatistics = lock;
        match known.get(&(lock.name.as_str(), lock.kind.as_str())) {
            Some(earlier) => (lock, *earlier),
            // The lock was not among the reported ones before, so its counts in between are
            // unknown.
            None if known.len() >= LOCKS => (lock, lock),
            None => (lock, &none),
        }
    };
    let waited = |lock: &LockStatistics, earlier: &LockStatistics| lock.waited_ns.saturating_sub(earlier.waited_ns);
    let mut sorted: Vec<(&LockStatistics, &LockStatistics)> = now.locks.iter().take(LOCKS).map(with_earlier).collect();
    sorted.sort_by_key(|(lock, earlier)| std::cmp::Reverse((waited(lock, earlier), lock.waited_ns)));
    let right = |name| (name, Align::Right);
    let mut table = Table::new(&[
        ("lock", Align::Left),
        ("kind", Align::Left),
        right("taken/s"),
        right("waited/s"),
        right("rejected/s"),
        // By Little's law, the wait per second is the mean number of waiting requests.
        right("waiting"),
        right("p50"),
        right("p99"),
        right("longest"),
    ]);
    for (lock, earlier) in sorted {
        let per_second = |now: u64, before: u64| rate(now.saturating_sub(before) as f64 / seconds);
        let wait = |ns: u64| if lock.contended == 0 { "–".into() } else { format_us(ns as f64 / 1e3) };
        table.row(vec![
            printable(&lock.name),
            printable(&lock.kind),
            per_second(lock.acquired, earlier.acquired),
            per_second(lock.contended, earlier.contended),
            per_second(lock.refused, earlier.refused),
            format!("{:.2}", waited(lock, earlier) as f64 / 1e9 / seconds),
            wait(lock.p50_ns),
            wait(lock.p99_ns),
            wait(lock.longest_ns),
        ]);
    }
    table.to_string()
}

/// Printable name from a server, at most 32 characters.
fn printable(name: &str) -> String {
    sanitize(name).chars().take(32).collect()
}

/// Formats a rate with three or four digits: `0`, `1.25`, `850`, `12.3 k`, `1.20 M`.
fn rate(per_second: f64) -> String {
    match per_second {
        // Small rates need decimals; whole numbers are printed without.
        rate if rate < 99.95 => format!("{rate:.2}").trim_end_matches('0').trim_end_matches('.').into(),
        rate if rate < 999.5 => format!("{rate:.0}"),
        rate if rate < 99_950.0 => format!("{:.1} k", rate / 1e3),
        rate if rate < 999_500.0 => format!("{:.0} k", rate / 1e3),
        rate => format!("{:.2} M", rate / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_rpc::statistics::TierStatistics;
    use std::collections::BTreeMap;

    fn lock(name: &str, waited_ns: u64) -> LockStatistics {
        let kind = "mutex".to_string();
        LockStatistics {
            name: name.into(),
            kind,
            acquired: 1_000,
            contended: 10,
            waited_ns,
            p99_ns: 1_024,
            ..LockStatistics::default()
        }
    }

    #[test]
    fn rates_cover_the_time_between_two_snapshots() {
        let before = Statistics {
            uptime_ns: 1_000_000_000,
            received: 100,
            drops: BTreeMap::from([("Lock".into(), 5)]),
            locks: vec![lock("long ago", 900_000_000), lock("now", 0)],
            ..Statistics::default()
        };
        let now = Statistics {
            uptime_ns: 3_000_000_000,
            cores: 2,
            idle_ns: 2_000_000_000,
            received: 5_100,
            drops: BTreeMap::from([("Lock".into(), 45)]),
            credit_pool: Some(12),
            credits_issued: Some(7),
            retransmitted: 40,
            locks: vec![lock("long ago", 900_000_000), lock("now\u{7}", 0), lock("now", 400_000_000)],
            ..Statistics::default()
        };
        let text = text("here", &before, &now);
        for part in [
            "2 cores 50 % idle",
            "2.5 k/s received",
            "dropped   20/s: Lock 20/s",
            "credits: 7 issued, pool of 12",
            "0/s lost in full buffers, 20/s retransmitted, 0/s duplicates",
            "0.20",
        ] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
        let place = |name: &str| text.find(name).unwrap();
        assert!(place("\nnow ") < place("long ago"), "{text}");
        assert!(!text.contains('\u{7}'));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn percentiles_cover_the_interval_and_are_compared_with_the_objective() {
        let of = |json: &str| serde_json::from_str(json).unwrap();
        let latency = r#"{"buckets": [[80000, 900], [1300000, 95], [50000000, 5]]}"#;
        let before = Statistics { slo_ns: 1_000_000, latency: of(latency), ..Statistics::default() };
        let latency = r#"{"buckets": [[80000, 910], [640000, 980], [1300000, 104], [50000000, 6]]}"#;
        let now = Statistics { uptime_ns: 1_000_000_000, latency: of(latency), ..before.clone() };
        let told = text("here", &before, &now);
        let line = told.lines().find(|line| line.starts_with("latency")).unwrap();
        let parts = ["p50 630 µs, p99 640 µs, p99.9 1.36", " ms (over); objective 1.00 ms"];
        assert!(parts.iter().all(|part| line.contains(part)) && line.chars().count() <= 80, "{line}");
        assert!(text("here", &now, &now).contains("\nlatency   no result; objective 1.00 ms\n"));
    }

    #[test]
    fn an_unattainable_objective_is_reported() {
        let before = Statistics { cores: 1, slo_ns: 50_000, ..Statistics::default() };
        let now = Statistics { uptime_ns: 1_000_000_000, completed: 1_000, ..before.clone() };
        let tells =
            |now: &Statistics| text("here", &before, now).contains("\nobjective requests take more than 50 µs,");
        assert!(tells(&now) && tells(&Statistics { in_time: 9, ..now.clone() }), "{}", text("here", &before, &now));
        assert!(!tells(&Statistics { in_time: 10, ..now.clone() }), "one in a hundred is in time");
        assert!(!tells(&Statistics { completed: 99, ..now.clone() }), "too few say nothing");
        assert!(!tells(&Statistics { run_delay_ns: 30_000, ..now.clone() }), "they wait, and that is to be seen");
        let waited = Statistics { packet_delay_ns: 30_000, ..before.clone() };
        assert!(!text("here", &waited, &now).contains("\nobjective"), "they did at the look before");
        assert!(text("here", &before, &now).lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn shadow_mode_shows_what_it_would_reject() {
        let before = Statistics { uptime_ns: 1_000_000_000, foreseen: Some(10), ..Statistics::default() };
        let now = Statistics { uptime_ns: 3_000_000_000, foreseen: Some(90), ..Statistics::default() };
        assert!(text("here", &before, &now).contains("dropped   0/s; shadow mode: 40/s more would be rejected"));
        let enforced = Statistics { foreseen: None, ..now };
        assert!(!text("here", &before, &enforced).contains("shadow mode"));
    }

    #[test]
    fn absent_leaves_and_partial_answers_are_shown() {
        let tier = |away: usize, partial| {
            let away = (1..=away).map(|leaf| format!("127.0.0.1:530{leaf}")).collect();
            Some(TierStatistics { leaves: 5, away, partial })
        };
        let before = Statistics { uptime_ns: 1_000_000_000, tier: tier(0, 10), ..Statistics::default() };
        let now = |away| Statistics { uptime_ns: 3_000_000_000, tier: tier(away, 110), ..Statistics::default() };
        assert!(text("here", &before, &before).contains("\nleaves    0 of 5 away; 0/s partial answers\n"));
        let one = text("here", &before, &now(1));
        assert!(one.contains("\nleaves    1 of 5 away (127.0.0.1:5301); 50/s partial answers\n"), "{one}");
        let all = text("here", &before, &now(5));
        assert!(
            all.contains("127.0.0.1:5304, …); 50/s") && all.lines().all(|line| line.chars().count() <= 80),
            "{all}"
        );
        assert!(!text("here", &Statistics::default(), &Statistics::default()).contains("leaves"));
    }

    #[test]
    fn the_cause_of_a_missing_answer_fits_the_narrowest_terminal() {
        let reason = "waited 1s for a connection; the last attempt: 127.0.0.1:7117: connection refused by the system";
        let silence = NoAnswer { duration: Duration::from_secs(3), reason };
        let text = live_text("here", &Statistics::default(), &Statistics::default(), Some(silence));
        assert!(text.contains("system\nThe statistics below") && text.starts_with("No answer for 3.00 s: "), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_restarted_server_has_no_negative_rates() {
        let before = Statistics { uptime_ns: 9_000_000_000, received: 1_000, ..Statistics::default() };
        let now = Statistics { uptime_ns: 1_000_000_000, received: 50, ..Statistics::default() };
        assert!(text("here", &before, &now).contains("50/s received"));
        assert!(text("here", &now, &now).contains("0/s received"));
    }
}
