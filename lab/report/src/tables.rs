//! Tables of all numbers behind the figures: shifts of demand, locks, servers, services of a graph,
//! kinds of requests, and runs. `result.json` has the exact values.

use leeward_outcome::results::{KindRow, LockRow, PointRow, ReplicaRow, Results, ServiceRow, ShiftRow};
use leeward_outcome::table::{Cell, TableRow};
use maud::{Markup, html};

use crate::fields::{Quantity, grouped, number};
use crate::palette::Palette;

/// A column: its heading, its unit and its source.
struct Column<T> {
    name: &'static str,
    unit: &'static str,
    source: CellSource<T>,
}

enum CellSource<T> {
    /// The field with this name.
    Field(&'static str),
    /// A function of several fields.
    Row(fn(&T) -> String),
}

/// A column of `field` with the heading `name`.
const fn column<T>(field: &'static str, name: &'static str, unit: &'static str) -> Column<T> {
    Column { name, unit, source: CellSource::Field(field) }
}

const SHIFTS: [Column<ShiftRow>; 10] = [
    column("seed", "Seed", ""),
    column("at_s", "At", "s"),
    column("from_rps", "From", "k/s"),
    column("to_rps", "To", "k/s"),
    column("settled_goodput_rps", "Settles at", "k/s"),
    column("reached_ms", "Reaches that in", "ms"),
    Column {
        name: "Recovers in",
        unit: "ms",
        source: CellSource::Row(|shift| {
            let recovery = number(shift.recovery_ms);
            if shift.recovered { recovery } else { format!("not within {recovery}") }
        }),
    },
    column("goodput_dip_ratio", "Lowest goodput", "× settled"),
    column("p99_peak_us", "Highest p99", "µs"),
    column("reject_delay_peak_us", "Highest reject delay", "µs"),
];

const POINTS: [Column<PointRow>; 27] = [
    column("service", "Service", ""),
    column("clients", "Clients", ""),
    column("demand_rps", "Demand", "k/s"),
    column("demand_ratio", "Demand", "× capacity"),
    column("seed", "Seed", ""),
    column("goodput_rps", "Goodput", "k/s"),
    column("throughput_rps", "Throughput", "k/s"),
    column("p50_us", "p50", "µs"),
    column("p99_us", "p99", "µs"),
    column("p999_us", "p99.9", "µs"),
    column("mean_us", "Mean", "µs"),
    column("slo_us", "SLO", "µs"),
    column("drop_rate", "Drops", "%"),
    column("expiry_rate", "Expired", "%"),
    column("throttle_rate", "Throttled", "%"),
    column("retry_rate", "Sent again", "%"),
    column("timeout_rate", "Given up", "%"),
    column("reject_delay_mean_us", "Reject delay", "µs"),
    column("rtt_us", "Round trip", "µs"),
    column("cores_mean", "Cores held", ""),
    column("best_effort_share", "Left for others", "%"),
    column("cpu_utilization", "CPU", "%"),
    column("rx_per_request", "Received", "per response"),
    column("tx_per_request", "Sent", "per response"),
    column("capacity_rps", "Capacity", "k/s"),
    column("offered", "Offered", "requests"),
    column("unfinished", "Unfinished", "requests"),
];

const LOCKS: [Column<LockRow>; 16] = [
    column("lock", "Lock", ""),
    column("kind", "Kind", ""),
    column("demand_rps", "Demand", "k/s"),
    column("p", "p", "%"),
    column("r", "r", "%"),
    column("clients", "Clients", ""),
    column("seed", "Seed", ""),
    column("acquired_rps", "Acquired", "k/s"),
    column("waited_rate", "After waiting", "%"),
    column("refused_rps", "Refused", "k/s"),
    column("drop_share", "Of all drops", "%"),
    column("wait_mean_us", "Mean wait", "µs"),
    column("wait_p50_us", "p50 wait", "µs"),
    column("wait_p99_us", "p99 wait", "µs"),
    column("utilization", "Held", "%"),
    column("waiting", "Waiting at the end", "requests"),
];

const SERVICES: [Column<ServiceRow>; 10] = [
    column("name", "Service", ""),
    column("demand_rps", "Demand", "k/s"),
    column("clients", "Clients", ""),
    column("seed", "Seed", ""),
    column("objective_us", "Objective", "µs"),
    column("received_rps", "Calls", "k/s"),
    column("p50_us", "p50", "µs"),
    column("p99_us", "p99", "µs"),
    column("drop_rate", "Drops", "%"),
    column("cpu_utilization", "CPU", "%"),
];

const KINDS: [Column<KindRow>; 17] = [
    column("kind", "Kind", ""),
    column("tenant", "Tenant", ""),
    column("class", "Class", ""),
    column("cost", "Cost", ""),
    column("demand_rps", "Demand", "k/s"),
    column("clients", "Clients", ""),
    column("seed", "Seed", ""),
    column("objective_us", "Objective", "µs"),
    column("offered_rps", "Offered", "k/s"),
    column("goodput_rps", "Goodput", "k/s"),
    column("cost_in_time", "Cost in time", "per second"),
    column("in_time_rate", "In time", "%"),
    column("refused_rate", "Refused", "%"),
    column("client_rate", "Ended at clients", "%"),
    column("late_rate", "Late", "%"),
    column("p50_us", "p50", "µs"),
    column("p99_us", "p99", "µs"),
];

const REPLICAS: [Column<ReplicaRow>; 12] = [
    column("replica", "Server", ""),
    column("demand_rps", "Demand", "k/s"),
    column("p", "p", "%"),
    column("r", "r", "%"),
    column("clients", "Clients", ""),
    column("seed", "Seed", ""),
    column("attempts_rps", "Attempts", "k/s"),
    column("throughput_rps", "Responses", "k/s"),
    column("p99_us", "p99", "µs"),
    column("drop_rate", "Drops", "%"),
    column("expiry_rate", "Expired", "%"),
    column("cpu_utilization", "CPU", "%"),
];

/// Text of a cell, in the format of its quantity; a dash if the row has no value.
fn cell_text<T: TableRow>(column: &Column<T>, row: &T) -> String {
    let field = match column.source {
        CellSource::Row(fill) => return fill(row),
        CellSource::Field(field) => field,
    };
    let cell = row.cell(field);
    match (cell, T::column(field).map(|column| column.quantity), cell.number()) {
        (Cell::Text(text), _, _) => text.into(),
        // A seed, with all its digits.
        (Cell::Whole(value), Some(Quantity::Name), _) => value.to_string(),
        (_, None, _) | (_, _, None) => "–".into(),
        (_, Some(quantity), Some(value)) => match quantity {
            Quantity::Requests | Quantity::Messages => thousands(value),
            Quantity::Share => percent(value),
            Quantity::Count => grouped(value, 0),
            Quantity::Name => format!("{value:.0}"),
            _ => number(value),
        },
    }
}

fn thousands(value: f64) -> String {
    if value.is_finite() && value.abs() < 1e12 { grouped(value / 1e3, 1) } else { number(value) }
}

fn percent(share: f64) -> String {
    if share.is_finite() && share.abs() < 1e6 { grouped(share * 100.0, 2) } else { number(share * 100.0) }
}

/// Draws the shifts of demand; empty for scenarios with steady demand.
pub(crate) fn shifts(results: &Results, palette: &Palette) -> Markup {
    html! {
        @if !results.shifts.is_empty() {
            section {
                h2 { "Shifts of demand" }
                p.explain {
                    "\"Settles at\" is reached in the first 20 ms with at least 95 % of the settled goodput, whatever follows. "
                    "A controller has recovered in the first 20 ms with at least 95 % of the settled goodput after which goodput "
                    "does not fall below 80 % again. The lowest goodput is of 20 ms; the highest latencies are of the time series' windows."
                }
                (table(&results.shifts, &SHIFTS, palette))
            }
        }
    }
}

/// Draws a section with a collapsed table under `summary`; empty without rows.
fn collapsible_table<T: TableRow>(
    (title, explanation, summary): (&str, Markup, Markup),
    rows: &[T],
    columns: &[Column<T>],
    palette: &Palette,
) -> Markup {
    html! {
        @if !rows.is_empty() {
            section {
                h2 { (title) }
                (explanation)
                details {
                    summary { (summary) }
                    (table(rows, columns, palette))
                }
            }
        }
    }
}

/// Draws the table of all runs.
pub(crate) fn points(results: &Results, palette: &Palette) -> Markup {
    let summary = html! { "All " (results.points.len()) " runs" };
    collapsible_table(("Numbers", html! {}, summary), &results.points, &POINTS, palette)
}

/// Draws the locks; empty for applications without locks.
pub(crate) fn locks(results: &Results, palette: &Palette) -> Markup {
    let explanation = html! {
        p.explain {
            "The wait of a request that gets a lock at once counts as 0. "
            @if results.plant == "real" {
                "Locks of the same name are one row, sorted by total wait; percentiles may be up to twice too large. "
                "The time for which a lock is held is not measured."
            } @else {
                "A request that gets a mutex after a wait also holds it while it waits for a core."
            }
        }
    };
    collapsible_table(("Locks", explanation, html! { "Each lock of each run" }), &results.locks, &LOCKS, palette)
}

/// Draws the servers; empty for a single server.
pub(crate) fn replicas(results: &Results, palette: &Palette) -> Markup {
    let explanation = html! {
        p.explain {
            "A request that one server rejects, or does not give a credit in time, is sent once to another. This table counts "
            "such attempts, with latencies from the attempt; all other tables count a request once, from its issue."
        }
    };
    collapsible_table(
        ("Servers", explanation, html! { "Each server of each run" }),
        &results.replicas,
        &REPLICAS,
        palette,
    )
}

/// Draws a graph's services; empty without a graph.
pub(crate) fn services(results: &Results, palette: &Palette) -> Markup {
    let explanation = html! {
        p.explain {
            "Latencies are those that a service's callers see, its own calls included. A rejection is counted at the service that "
            "rejects and at each service upstream of it."
        }
    };
    collapsible_table(
        ("Services", explanation, html! { "Each service of each run" }),
        &results.services,
        &SERVICES,
        palette,
    )
}

/// Draws the kinds of requests; empty if there is only one.
pub(crate) fn kinds(results: &Results, palette: &Palette) -> Markup {
    let explanation = html! {
        p.explain {
            "Shares are of the requests of a kind that were issued. A response is in time within the kind's own objective, from "
            "the request's issue."
        }
    };
    collapsible_table(
        ("Kinds of requests", explanation, html! { "Each kind of each run" }),
        &results.kinds,
        &KINDS,
        palette,
    )
}

fn table<T: TableRow>(rows: &[T], columns: &[Column<T>], palette: &Palette) -> Markup {
    let label = |row: &T| row.run().label.clone();
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
                            th scope="row" { i.dot.(palette.style("label", &label(row), 0).class()) {} (label(row)) }
                            @for column in columns { td { (cell_text(column, row)) } }
                        }
                    }
                }
            }
        }
    }
}
