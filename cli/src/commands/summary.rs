//! Results in brief, for a terminal: medians per variant and workload, and the verdicts.

use leeward_lab::Results;
use leeward_lab::results::{KindRow, LockRow, Machine, PointRow, Verdict, WorkloadKey};

use crate::demo::format::{rate, thousands, thousands_with};
use crate::stdout::sanitize;
use crate::table::{Align, Table, WIDTH, wrap};

/// Table of the points, a row per variant and workload: medians over seeds. Constant columns are
/// omitted.
pub(crate) fn points(points: &[PointRow]) -> String {
    let varies = |same: fn(&PointRow, &PointRow) -> bool| points.windows(2).any(|pair| !same(&pair[0], &pair[1]));
    let services = varies(|a, b| a.workload.service == b.workload.service);
    let clients = varies(|a, b| a.workload.clients == b.workload.clients);
    let ps = varies(|a, b| a.workload.p == b.workload.p);
    let rs = varies(|a, b| a.workload.r == b.workload.r);
    let rtts = varies(|a, b| a.rtt_us == b.rtt_us);
    let mut columns = vec![("variant", Align::Left)];
    columns.extend(services.then_some(("service", Align::Left)));
    columns.extend(ps.then_some(("p %", Align::Right)));
    columns.extend(rs.then_some(("r %", Align::Right)));
    columns.extend(clients.then_some(("clients", Align::Right)));
    columns.extend(rtts.then_some(("rtt us", Align::Right)));
    let numbers = ["demand k/s", "x capacity", "goodput k/s", "p99 us", "drops %"];
    columns.extend(numbers.map(|name| (name, Align::Right)));
    let has_ended = points.iter().any(|point| ended_at_client(point) >= SHARE_MIN);
    columns.extend(has_ended.then_some(("at client %", Align::Right)));
    let mut table = Table::new(&columns);
    for group in groups(points) {
        let first = group[0];
        let workload = &first.workload;
        let mut row = vec![first.run.label.clone()];
        row.extend(services.then(|| workload.service.clone()));
        let percent = |share: Option<f64>| share.map_or(String::new(), |share| format!("{:.0}", share * 100.0));
        row.extend(ps.then(|| percent(workload.p)));
        row.extend(rs.then(|| percent(workload.r)));
        row.extend(clients.then(|| workload.clients.to_string()));
        row.extend(rtts.then(|| format!("{:.0}", first.rtt_us)));
        // A service with milliseconds of work serves a few thousand requests per second.
        let slow = first.capacity_rps < 20e3;
        row.push(thousands_with(if slow { 2 } else { 0 }, workload.demand_rps));
        row.push(format!("{:.2}", workload.demand_ratio));
        row.push(thousands_with(if slow { 2 } else { 1 }, median(&group, |point| point.goodput_rps)));
        let p99 = median(&group, |point| point.p99_us);
        // No response, no latency.
        row.push(if p99 > 0.0 { format!("{p99:.1}") } else { "-".into() });
        row.push(format!("{:.2}", median(&group, |point| point.drop_rate) * 100.0));
        row.extend(has_ended.then(|| format!("{:.2}", median(&group, ended_at_client) * 100.0)));
        table.row(row);
    }
    let note =
        if has_ended { "at client: expired, displaced, throttled or given up, of the requests issued\n" } else { "" };
    table.to_string() + note + &unsettled(points)
}

/// Least share that the table shows.
const SHARE_MIN: f64 = 0.000_05;

/// Share of the issued requests that ended at their clients without an answer.
fn ended_at_client(point: &PointRow) -> f64 {
    point.expiry_rate + point.throttle_rate + point.timeout_rate.unwrap_or(0.0)
}

/// A line for each point with runs that had not settled: their numbers still change.
fn unsettled(points: &[PointRow]) -> String {
    let line = |group: &Vec<&PointRow>| {
        let runs = group.iter().filter(|point| point.settled == Some(false)).count();
        let first = group[0];
        let after = group.iter().filter_map(|point| point.settled_s).fold(0.0, f64::max);
        let text = format!(
            "Did not settle in {after:.3} s: {} at {:.2} x capacity ({}), {runs} of {} runs",
            first.run.label,
            first.workload.demand_ratio,
            first.workload.service,
            group.len()
        );
        (runs > 0).then(|| wrap(&text, 0, WIDTH))
    };
    groups(points).iter().filter_map(line).collect()
}

/// The machine of a real run, one line per service and number of clients; empty for simulated runs.
pub(crate) fn machines(machines: &[Machine]) -> String {
    let line = |machine: &Machine| {
        let apart = if machine.clients_apart { "" } else { "; clients on the SAME CPU: numbers mean little" };
        let text = format!(
            "This machine ({}, {} clients): {} core(s) serve {}, {:.1} us per request besides the service, round trip \
             {:.1} us, {:.1} % of a busy CPU taken by others{apart}",
            machine.service,
            machine.clients,
            machine.cores,
            rate(machine.capacity_rps),
            machine.cost_us,
            machine.rtt_us,
            machine.stalled * 100.0,
        );
        wrap(&text, 0, WIDTH)
    };
    machines.iter().map(line).collect()
}

/// Accuracy of the simulator's goodput predictions; empty without predictions, or if all goodput
/// was negligible.
pub(crate) fn predictions(points: &[PointRow]) -> String {
    let mut errors: Vec<(f64, String)> = Vec::new();
    for group in groups(points) {
        if group.iter().any(|point| point.predicted_goodput_rps.is_none() || point.late_us.is_some()) {
            continue;
        }
        let measured = median(&group, |point| point.goodput_rps);
        let predicted = median(&group, |point| point.predicted_goodput_rps.unwrap_or(0.0));
        let first = group[0];
        if measured.max(predicted) > 0.02 * first.capacity_rps {
            let name = format!("{} at {:.2} x capacity", first.run.label, first.workload.demand_ratio);
            errors.push((predicted / measured.max(1.0) - 1.0, name));
        }
    }
    let Some((worst, name)) = errors.iter().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs())) else {
        return String::new();
    };
    let close = errors.iter().filter(|(error, _)| error.abs() <= 0.1).count();
    let text = format!(
        "The simulator predicted goodput within 10 % in {close} of {} cases; furthest off by {:+.1} % ({name})",
        errors.len(),
        worst * 100.0
    );
    wrap(&text, 0, WIDTH)
}

/// Maximum of locks per variant.
const LOCKS_SHOWN: usize = 3;

/// Locks of each variant at its highest demand, by total wait; medians over seeds. Empty for
/// applications without locks.
pub(crate) fn locks(locks: &[LockRow]) -> String {
    let mut labels: Vec<&str> = Vec::new();
    for lock in locks {
        if !labels.contains(&lock.run.label.as_str()) {
            labels.push(&lock.run.label);
        }
    }
    let right = |name| (name, Align::Right);
    let mut table = Table::new(&[
        ("variant", Align::Left),
        ("lock", Align::Left),
        right("demand k/s"),
        right("taken k/s"),
        right("waited %"),
        right("refused k/s"),
        right("of drops %"),
        right("p50 us"),
        right("p99 us"),
    ]);
    for label in &labels {
        let of_label = || locks.iter().filter(|lock| lock.run.label == *label);
        let highest = of_label().map(|lock| lock.workload.demand_rps).fold(0.0, f64::max);
        let mut groups: Vec<Vec<&LockRow>> = Vec::new();
        for lock in of_label().filter(|lock| lock.workload.demand_rps == highest) {
            match groups.iter_mut().find(|group| (&group[0].lock, &group[0].kind) == (&lock.lock, &lock.kind)) {
                Some(group) => group.push(lock),
                None => groups.push(vec![lock]),
            }
        }
        // Total wait of all requests, per second.
        let waited = |group: &Vec<&LockRow>| median(group, |lock| lock.acquired_rps * lock.wait_mean_us);
        groups.sort_by(|a, b| waited(b).total_cmp(&waited(a)));
        for group in groups.iter().take(LOCKS_SHOWN) {
            let number = |decimals: usize, value: fn(&LockRow) -> f64| format!("{:.*}", decimals, median(group, value));
            let rate = |value: fn(&LockRow) -> f64| thousands(median(group, value));
            table.row(vec![
                (*label).into(),
                sanitize(&group[0].lock).chars().take(32).collect(),
                rate(|lock| lock.workload.demand_rps),
                rate(|lock| lock.acquired_rps),
                number(1, |lock| lock.waited_rate * 100.0),
                rate(|lock| lock.refused_rps),
                number(1, |lock| lock.drop_share * 100.0),
                number(1, |lock| lock.wait_p50_us),
                number(1, |lock| lock.wait_p99_us),
            ]);
        }
    }
    if labels.is_empty() { String::new() } else { table.to_string() }
}

/// Maximum of kinds per variant.
const KINDS_SHOWN: usize = 12;

/// Kinds of requests of each variant at its highest demand, in the scenario's order; medians over
/// seeds. Empty if all requests are alike.
pub(crate) fn kinds(kinds: &[KindRow]) -> String {
    let right = |name| (name, Align::Right);
    let mut table = Table::new(&[
        ("variant", Align::Left),
        ("kind", Align::Left),
        right("offered k/s"),
        right("in time %"),
        right("refused %"),
        right("late %"),
        right("p50 us"),
        right("p99 us"),
    ]);
    let mut labels: Vec<&str> = Vec::new();
    kinds.iter().for_each(|row| {
        if !labels.contains(&row.run.label.as_str()) {
            labels.push(&row.run.label)
        }
    });
    for label in &labels {
        let of_label = || kinds.iter().filter(|row| row.run.label == *label);
        let highest = of_label().map(|row| row.workload.demand_rps).fold(0.0, f64::max);
        let mut groups: Vec<Vec<&KindRow>> = Vec::new();
        for row in of_label().filter(|row| row.workload.demand_rps == highest) {
            match groups.iter_mut().find(|group| group[0].kind == row.kind) {
                Some(group) => group.push(row),
                None => groups.push(vec![row]),
            }
        }
        for group in groups.iter().take(KINDS_SHOWN) {
            let number = |decimals: usize, value: fn(&KindRow) -> f64| format!("{:.*}", decimals, median(group, value));
            table.row(vec![
                (*label).into(),
                group[0].kind.clone(),
                thousands_with(2, median(group, |row| row.offered_rps)),
                number(2, |row| row.in_time_rate * 100.0),
                number(2, |row| row.refused_rate * 100.0),
                number(2, |row| row.late_rate * 100.0),
                number(1, |row| row.p50_us),
                number(1, |row| row.p99_us),
            ]);
        }
    }
    if labels.is_empty() { String::new() } else { table.to_string() }
}

/// Points that differ only by their seed.
fn groups(points: &[PointRow]) -> Vec<Vec<&PointRow>> {
    let mut groups: Vec<Vec<&PointRow>> = Vec::new();
    let same = |a: &PointRow, b: &PointRow| {
        let bits = |share: Option<f64>| share.map(f64::to_bits);
        let numbers = |WorkloadKey { clients, demand_rps, p, r, .. }: &WorkloadKey| {
            (*clients, demand_rps.to_bits(), bits(*p), bits(*r))
        };
        let same = |a: &WorkloadKey, b: &WorkloadKey| a.service == b.service && numbers(a) == numbers(b);
        let same_rtt = a.rtt_us.to_bits() == b.rtt_us.to_bits();
        a.run.label == b.run.label && same_rtt && same(&a.workload, &b.workload)
    };
    for point in points {
        match groups.iter_mut().find(|group| same(group[0], point)) {
            Some(group) => group.push(point),
            None => groups.push(vec![point]),
        }
    }
    groups
}

fn median<T>(group: &[&T], value: fn(&T) -> f64) -> f64 {
    let mut values: Vec<f64> = group.iter().map(|row| value(row)).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// Heading of the claims, which are a paper's or our own.
pub(crate) fn claims_heading(results: &Results) -> &'static str {
    if results.has_own_claims() { "What we expect, what we measured" } else { "What the paper says, what we measured" }
}

/// Each claim: its verdict and text, the expected and the measured number, and its note.
pub(crate) fn claims(results: &Results) -> String {
    let expected = if results.has_own_claims() { "expected" } else { "paper" };
    let mut text = String::new();
    for claim in &results.claims {
        text += &wrap(&format!("{}: {}", claim.verdict.label(), claim.text), 2, WIDTH);
        let numbers =
            format!("{expected}: {}; measured: {}; accepted: {}", claim.paper, claim.measured, claim.accepted);
        text += &wrap(&numbers, 6, WIDTH);
        text += &claim.unmeasured().map_or(String::new(), |reason| wrap(&reason, 6, WIDTH));
        if !claim.note.is_empty() && claim.verdict != Verdict::Reproduced {
            text += &wrap(&format!("note: {}", claim.note), 6, WIDTH);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_lab::results::{Claim, RunKey};

    #[test]
    fn predictions_are_compared_with_measurements() {
        let point = |ratio: f64, goodput: f64, predicted: f64| PointRow {
            run: RunKey::new("breakwater", "breakwater", 1),
            workload: WorkloadKey { demand_rps: ratio * 60e3, demand_ratio: ratio, ..WorkloadKey::default() },
            capacity_rps: 60e3,
            goodput_rps: goodput,
            predicted_goodput_rps: Some(predicted),
            ..PointRow::default()
        };
        let text =
            predictions(&[point(1.0, 50e3, 52e3), point(2.0, 40e3, 60e3), point(3.0, 0.0, 0.0)]).replace('\n', " ");
        assert!(text.contains("in 1 of 2 cases") && text.contains("+50.0 % (breakwater at 2.00 x capacity)"), "{text}");
        assert_eq!(predictions(&[PointRow::default()]), "");
    }

    #[test]
    fn requests_that_end_at_the_client_have_a_column() {
        let point = |expiry_rate| PointRow { expiry_rate, timeout_rate: Some(0.1), ..PointRow::default() };
        let text = points(&[point(0.333)]);
        assert!(text.contains("at client %") && text.contains("43.30"), "{text}");
        let text = points(&[PointRow { drop_rate: 0.5, ..PointRow::default() }]);
        assert!(!text.contains("at client"), "{text}");
    }

    #[test]
    fn a_claim_that_does_not_hold_has_its_note() {
        let claim = |verdict: Verdict| Claim {
            id: "a".into(),
            text: "It is fast".into(),
            paper: "2x".into(),
            measured: "1x".into(),
            interval: None,
            value: Some(1.0),
            accepted: "at least 2x".into(),
            verdict,
            note: "the model has no cache".into(),
            settling: Vec::new(),
            late: Vec::new(),
        };
        let results = |source: &str| Results {
            source: source.into(),
            claims: vec![claim(Verdict::Reproduced), claim(Verdict::NotReproduced)],
            ..Results::default()
        };
        let text = claims(&results("Breakwater §5"));
        assert_eq!(text.matches("note: the model has no cache").count(), 1, "{text}");
        assert!(text.contains("not reproduced: It is fast") && text.contains("paper: 2x"), "{text}");
        assert!(claims_heading(&results("Breakwater §5")).contains("the paper says"));
        for ours in ["", "ours, after Breakwater"] {
            assert!(claims(&results(ours)).contains("expected: 2x"));
            assert!(!claims_heading(&results(ours)).contains("paper"));
        }
    }

    #[test]
    fn the_locks_that_are_waited_for_most_come_first() {
        let lock = |label: &str, name: &str, demand: f64, wait: f64| LockRow {
            run: RunKey::new(label, label, 1),
            workload: WorkloadKey { demand_rps: demand, ..WorkloadKey::default() },
            lock: name.into(),
            acquired_rps: 1_000.0,
            wait_mean_us: wait,
            wait_p99_us: 7.0 * wait,
            ..LockRow::default()
        };
        let mut rows = vec![lock("auto", "calm", 2e3, 1.0), lock("auto", "hot\u{7}", 2e3, 9.0)];
        rows.extend(["a", "b", "c"].map(|name| lock("auto", name, 2e3, 2.0)));
        rows.extend([lock("auto", "hot\u{7}", 1e3, 99.0), lock("none", "calm", 1e3, 3.0)]);
        let text = locks(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + LOCKS_SHOWN + 1, "{text}");
        assert!(lines[1].contains("hot") && lines[1].contains("63.0") && !text.contains('\u{7}'), "{text}");
        assert!(!text.contains("693") && lines[4].starts_with("none"), "{text}");
        assert_eq!(locks(&[]), "");
    }

    #[test]
    fn seeds_are_summarised_in_one_row_of_medians() {
        let point = |seed: u64, goodput: f64| PointRow {
            run: RunKey::new("seda", "seda", seed),
            workload: WorkloadKey { demand_rps: 850e3, demand_ratio: 1.0, ..WorkloadKey::default() },
            goodput_rps: goodput,
            ..PointRow::default()
        };
        let text = points(&[point(1, 700e3), point(2, 720e3), point(3, 710e3)]);
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("710.0") && !text.contains("clients"), "{text}");
    }
}
