//! Tables of all numbers behind the figures: each shift of demand, each lock, each of several servers, and every run.
//! For exact values there is `result.json`.

use leeward_lab::results::{Lock, Point, Replica, Results, Shift};
use maud::{Markup, html};

use crate::fields::{grouped, number};
use crate::palette::Palette;

/// A column: its heading, its unit, and how a row fills it.
struct Column<T> {
    name: &'static str,
    unit: &'static str,
    cell: fn(&T) -> String,
}

const fn column<T>(name: &'static str, unit: &'static str, cell: fn(&T) -> String) -> Column<T> {
    Column { name, unit, cell }
}

const SHIFTS: [Column<Shift>; 10] = [
    column("Seed", "", |shift| shift.seed.to_string()),
    column("At", "s", |shift| number(shift.at_s)),
    column("From", "k/s", |shift| thousands(shift.from_rps)),
    column("To", "k/s", |shift| thousands(shift.to_rps)),
    column("Settles at", "k/s", |shift| thousands(shift.settled_goodput_rps)),
    column("Reaches that in", "ms", |shift| number(shift.reached_ms)),
    column("Recovers in", "ms", |shift| {
        if shift.recovered { number(shift.recovery_ms) } else { format!("not within {}", number(shift.recovery_ms)) }
    }),
    column("Lowest goodput", "× settled", |shift| number(shift.goodput_dip_ratio)),
    column("Highest p99", "µs", |shift| number(shift.p99_peak_us)),
    column("Highest reject delay", "µs", |shift| number(shift.reject_delay_peak_us)),
];

const POINTS: [Column<Point>; 26] = [
    column("Service", "", |point| point.service.clone()),
    column("Clients", "", |point| grouped(f64::from(point.clients), 0)),
    column("Demand", "k/s", |point| thousands(point.demand_rps)),
    column("Demand", "× capacity", |point| number(point.demand_ratio)),
    column("Seed", "", |point| point.seed.to_string()),
    column("Goodput", "k/s", |point| thousands(point.goodput_rps)),
    column("Throughput", "k/s", |point| thousands(point.throughput_rps)),
    column("p50", "µs", |point| number(point.p50_us)),
    column("p99", "µs", |point| number(point.p99_us)),
    column("p99.9", "µs", |point| number(point.p999_us)),
    column("Mean", "µs", |point| number(point.mean_us)),
    column("SLO", "µs", |point| number(point.slo_us)),
    column("Drops", "%", |point| percent(point.drop_rate)),
    column("Expired", "%", |point| percent(point.expiry_rate)),
    column("Throttled", "%", |point| percent(point.throttle_rate)),
    column("Sent again", "%", |point| point.retry_rate.map_or("–".into(), percent)),
    column("Reject delay", "µs", |point| number(point.reject_delay_mean_us)),
    column("Round trip", "µs", |point| number(point.rtt_us)),
    column("Cores held", "", |point| point.cores_mean.map_or("–".into(), number)),
    column("Left for others", "%", |point| point.best_effort_share.map_or("–".into(), percent)),
    column("CPU", "%", |point| percent(point.cpu_utilization)),
    column("Received", "per response", |point| number(point.rx_per_request)),
    column("Sent", "per response", |point| number(point.tx_per_request)),
    column("Capacity", "k/s", |point| thousands(point.capacity_rps)),
    column("Offered", "requests", |point| grouped(point.offered as f64, 0)),
    column("Unfinished", "requests", |point| grouped(point.unfinished as f64, 0)),
];

const LOCKS: [Column<Lock>; 16] = [
    column("Lock", "", |row| row.lock.clone()),
    column("Kind", "", |row| if row.kind.is_empty() { "–".into() } else { row.kind.clone() }),
    column("Demand", "k/s", |row| thousands(row.demand_rps)),
    column("p", "%", |row| row.p.map_or("–".into(), percent)),
    column("r", "%", |row| row.r.map_or("–".into(), percent)),
    column("Clients", "", |row| grouped(f64::from(row.clients), 0)),
    column("Seed", "", |row| row.seed.to_string()),
    column("Acquired", "k/s", |row| thousands(row.acquired_rps)),
    column("After waiting", "%", |row| percent(row.waited_rate)),
    column("Refused", "k/s", |row| thousands(row.refused_rps)),
    column("Of all drops", "%", |row| percent(row.drop_share)),
    column("Mean wait", "µs", |row| number(row.wait_mean_us)),
    column("p50 wait", "µs", |row| number(row.wait_p50_us)),
    column("p99 wait", "µs", |row| number(row.wait_p99_us)),
    column("Held", "%", |row| row.utilization.map_or("–".into(), percent)),
    column("Waiting at the end", "requests", |row| row.waiting.map_or("–".into(), |count| grouped(count as f64, 0))),
];

const REPLICAS: [Column<Replica>; 12] = [
    column("Server", "", |row| row.replica.to_string()),
    column("Demand", "k/s", |row| thousands(row.demand_rps)),
    column("p", "%", |row| row.p.map_or("–".into(), percent)),
    column("r", "%", |row| row.r.map_or("–".into(), percent)),
    column("Clients", "", |row| grouped(f64::from(row.clients), 0)),
    column("Seed", "", |row| row.seed.to_string()),
    column("Attempts", "k/s", |row| thousands(row.attempts_rps)),
    column("Responses", "k/s", |row| thousands(row.throughput_rps)),
    column("p99", "µs", |row| number(row.p99_us)),
    column("Drops", "%", |row| percent(row.drop_rate)),
    column("Expired", "%", |row| percent(row.expiry_rate)),
    column("CPU", "%", |row| percent(row.cpu_utilization)),
];

fn thousands(value: f64) -> String {
    if value.is_finite() && value.abs() < 1e12 { grouped(value / 1e3, 1) } else { number(value) }
}

fn percent(share: f64) -> String {
    if share.is_finite() && share.abs() < 1e6 { grouped(share * 100.0, 2) } else { number(share * 100.0) }
}

/// Table of the shifts of demand; nothing for scenarios of steady demand.
pub(crate) fn shifts(results: &Results, palette: &Palette) -> Markup {
    html! {
        @if !results.shifts.is_empty() {
            section {
                h2 { "Shifts of demand" }
                p.explain {
                    "Goodput has reached the level it settles at with the first 20 ms at 95 % of it, whatever follows. "
                    "A controller has recovered with the first 20 ms at 95 % of the goodput it settles at, or more, after which it "
                    "does not collapse again (below 80 %). Lowest goodput is of 20 ms, highest latencies are of the time series' windows."
                }
                (table(&results.shifts, &SHIFTS, |shift| &shift.label, palette))
            }
        }
    }
}

/// Every run, folded away.
pub(crate) fn points(results: &Results, palette: &Palette) -> Markup {
    html! {
        @if !results.points.is_empty() {
            section {
                h2 { "Numbers" }
                details {
                    summary { "All " (results.points.len()) " runs" }
                    (table(&results.points, &POINTS, |point| &point.label, palette))
                }
            }
        }
    }
}

/// Table of the locks, folded away; nothing for applications without locks.
pub(crate) fn locks(results: &Results, palette: &Palette) -> Markup {
    html! {
        @if !results.locks.is_empty() {
            section {
                h2 { "Locks" }
                p.explain {
                    "Those that got a lock at once waited 0. "
                    @if results.plant == "real" {
                        "Locks of the same name are told of together, those first that were waited for longest; percentiles are up to "
                        "twice too much. How long a lock was held is not measured."
                    } @else {
                        "Whoever gets a mutex after waiting holds it while waiting for a core, too."
                    }
                }
                details {
                    summary { "Each lock of each run" }
                    (table(&results.locks, &LOCKS, |row| &row.label, palette))
                }
            }
        }
    }
}

/// Table of the servers, folded away; nothing where there is one.
pub(crate) fn replicas(results: &Results, palette: &Palette) -> Markup {
    html! {
        @if !results.replicas.is_empty() {
            section {
                h2 { "Servers" }
                p.explain {
                    "A request that one server drops, or gives no credit in time, is sent once to another. Here each server's "
                    "requests are such attempts, and its latencies begin with them; everywhere else a request is counted once, from its issue."
                }
                details {
                    summary { "Each server of each run" }
                    (table(&results.replicas, &REPLICAS, |row| &row.label, palette))
                }
            }
        }
    }
}

fn table<T>(rows: &[T], columns: &[Column<T>], label: fn(&T) -> &String, palette: &Palette) -> Markup {
    html! {
        div.scroll.tall {
            table.numbers {
                thead {
                    tr {
                        th scope="col" { "Variant" }
                        @for column in columns { th scope="col" { (column.name) @if !column.unit.is_empty() { small { (column.unit) } } } }
                    }
                }
                tbody {
                    @for (index, row) in rows.iter().enumerate() {
                        @let starts = index > 0 && label(row) != label(&rows[index - 1]);
                        tr.starts[starts] {
                            th scope="row" { i.dot.(palette.look("label", label(row), 0).class()) {} (label(row)) }
                            @for column in columns { td { ((column.cell)(row)) } }
                        }
                    }
                }
            }
        }
    }
}
