//! Explains the numbers of a demo in a few sentences, with their limits.

use leeward_lab::results::Machine;

use super::events::{Load, RunResult};
use super::format::{controller, format_us, multiple, percent, rate};
use crate::table::{WIDTH, wrap};

/// Largest relative error of a prediction that counts as right.
const CLOSE_ERROR_MAX: f64 = 0.1;

/// Share of CPU time lost to stalls above which the machine disturbs the measurement.
const STALLED_MAX: f64 = 0.02;

/// Least share of the demand that a server answers whose queue does not grow.
const KEEPS_UP_MIN: f64 = 0.95;

/// True if other load on the machine disturbs the measurement.
pub(crate) fn is_disturbed(machine: &Machine) -> bool {
    machine.stalled > STALLED_MAX
}

/// Warning about runs whose clients were late; empty if there were none.
pub(crate) fn late_clients_warning(runs: usize, of: usize) -> String {
    if runs == 0 {
        return String::new();
    }
    let text = format!(
        "In {runs} of {of} runs the clients sent late, because other programs kept their CPU busy: those runs do not \
         measure the server, and whether it was in time is unknown."
    );
    wrap(&text, 0, WIDTH) + "\n"
}

/// Describes the measurements before the runs.
pub(crate) fn machine(machine: &Machine, slo_us: f64) -> String {
    let cores = if machine.cores == 1 { "one core serves".into() } else { format!("{} cores serve", machine.cores) };
    let mut text = format!(
        "This machine: {cores} at most {} ({} of work each, and {} for the sockets); a round trip takes {}. ",
        rate(machine.capacity_rps),
        describe_work(&machine.service),
        format_us(machine.cost_us),
        format_us(machine.rtt_us),
    );
    if machine.stalled > 0.0 {
        text += &format!("Other programs take {} of a busy CPU's time. ", percent(machine.stalled));
    }
    text += &format!("Objective: 99 of 100 requests answered within {}.", format_us(slo_us));
    wrap(&text, 0, WIDTH)
}

/// Describes the work of a service such as `exp:10us`.
fn describe_work(service: &str) -> String {
    let mean = service.split(':').nth(1).unwrap_or(service);
    format!("about {}", mean.replace("us", " µs").replace("ms", " ms"))
}

/// Legend of the columns.
pub(crate) fn legend() -> String {
    let columns = "k/s in time: thousands of requests per second answered within the objective (goodput). p99: 99 of 100 \
                   responses came within this time. Rejected: by the server, of the requests that reached it. Expired: at \
                   the client, before it could send them, of all requests.";
    wrap(columns, 0, WIDTH)
}

/// Explains the outcome, a paragraph for each finding. Runs with late clients have none.
pub(crate) fn text(rows: &[RunResult], machines: &[Machine]) -> String {
    let paragraphs = [comparison(rows), spike(rows), prediction(rows), caveats(machines)];
    let parts = paragraphs.iter().flatten().map(|paragraph| wrap(&format!("- {paragraph}"), 0, WIDTH));
    parts.collect()
}

/// Compares the controllers at the highest steady demand.
fn comparison(rows: &[RunResult]) -> Option<String> {
    let ratio = |row: &RunResult| if let Load::Steady(ratio) = row.load { Some(ratio) } else { None };
    let highest = rows.iter().filter_map(ratio).fold(0.0, f64::max);
    let at = |label: &str| {
        let mut measured = rows.iter().filter(|row| row.is_measured());
        measured.find(|row| row.point.run.label == label && ratio(row) == Some(highest))
    };
    let (none, auto, breakwater) = (at("none")?, at("auto")?, at("breakwater")?);
    let share = |row: &RunResult| {
        let (rate, share) = (rate(row.point.goodput_rps), percent(row.capacity_share()));
        format!("{rate} with {} ({share} of the capacity)", controller(&row.point.run.label))
    };
    let keeps_up = none.point.throughput_rps >= KEEPS_UP_MIN * highest * none.point.capacity_rps;
    let without = if keeps_up { "it can do more than was measured before the runs" } else { "its queue only grows" };
    let with = if [auto, breakwater].iter().all(|row| row.is_in_time() == Some(true)) {
        ": clients send when the server has granted them a credit, and the server grants as many as keep its queue short"
    } else {
        ""
    };
    Some(format!(
        "At {} the capacity the server without control answers {}, {} of them in time: {without}. In time are {} and \
         {}{with}.",
        multiple(highest),
        rate(none.point.throughput_rps),
        rate(none.point.goodput_rps),
        share(auto),
        share(breakwater),
    ))
}

fn spike(rows: &[RunResult]) -> Option<String> {
    let back = |label: &str| {
        let mut measured = rows.iter().filter(|row| row.is_measured());
        let row = measured.find(|row| matches!(row.load, Load::Spike { .. }) && row.point.run.label == label)?;
        Some(row.recovery_ms(0).map_or("not at all while it lasts".into(), |ms| format!("after {ms:.0} ms")))
    };
    Some(format!(
        "After the start of a spike, goodput reaches its settled level {} with {}, {} with {}, and {} {}.",
        back("auto")?,
        controller("auto"),
        back("breakwater")?,
        controller("breakwater"),
        back("none")?,
        controller("none"),
    ))
}

fn prediction(rows: &[RunResult]) -> Option<String> {
    let measured = rows.iter().filter(|row| row.is_measured());
    // Ratios of negligible numbers are meaningless.
    let errors: Vec<(f64, &RunResult)> =
        measured.filter(|row| row.has_goodput()).filter_map(|row| Some((row.prediction_error()?, row))).collect();
    // If the queue filled earlier than predicted, nearly nothing was measured. No ratio tells that.
    let with_goodput = errors.iter().filter(|(_, row)| row.has_measured_goodput());
    let (worst, row) = with_goodput.max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))?;
    let close = errors.iter().filter(|(error, _)| error.abs() <= CLOSE_ERROR_MAX).count();
    Some(format!(
        "The simulator knew only the measurements taken before the runs. Its prediction of goodput was within {} in \
         {close} of {} runs; where goodput was measured, the largest error was {:+.0} % ({}, {}).",
        percent(CLOSE_ERROR_MAX),
        errors.len(),
        worst * 100.0,
        controller(&row.point.run.label),
        row.load.describe(),
    ))
}

fn caveats(machines: &[Machine]) -> Option<String> {
    let machine = machines.first()?;
    if is_disturbed(machine) && machine.clients_apart {
        return Some(format!(
            "This machine was busy: other programs took {} of a CPU's time while it was measured, and the numbers include \
             that. Run the demo again when the machine is quiet. `leeward run demo` simulates the same at any time.",
            percent(machine.stalled)
        ));
    }
    Some(if machine.clients_apart {
        "Server and clients share this machine, on different CPUs, over loopback: other programs that run here change the \
         numbers. Compare the rows of one demo, not demos of different machines."
            .into()
    } else {
        "There is only one CPU, and server and clients share it: these numbers mean little.".into()
    })
}

#[cfg(test)]
mod tests {
    use super::super::table::samples;
    use super::*;

    fn measured(clients_apart: bool) -> Machine {
        Machine {
            service: "exp:10us".into(),
            cores: 1,
            clients_apart,
            capacity_rps: 60e3,
            rtt_us: 34.0,
            cost_us: 6.6,
            stalled: 0.004,
            ..Machine::default()
        }
    }

    #[test]
    fn explains_the_numbers_of_the_rows() {
        let text = text(&samples::rows(), &[measured(true)]).replace('\n', " ");
        for part in [
            "At 2x the capacity",
            "55.0 k/s with auto (92 % of",
            "56.0 k/s with Breakwater (93 %",
            "after 7 ms",
            "8 of 8 runs",
            "was +5 %",
            "loopback",
        ] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
    }

    #[test]
    fn says_only_what_the_numbers_show() {
        let mut rows = samples::rows();
        let words = |rows: &[RunResult]| comparison(rows).unwrap();
        assert!(words(&rows).contains("its queue only grows") && words(&rows).contains("keep its queue short"));
        // `auto` is late at twice the capacity, and the server without control answers everything.
        rows[7].point.p99_us = 9e3;
        rows[6].point.throughput_rps = 119e3;
        assert!(words(&rows).contains("can do more than was measured"), "{}", words(&rows));
        assert!(!words(&rows).contains("queue"), "{}", words(&rows));
    }

    #[test]
    fn concludes_nothing_from_runs_with_late_clients() {
        let words = |rows: &[RunResult]| text(rows, &[measured(true)]).replace('\n', " ");
        let all = words(&samples::late(samples::rows()));
        assert!(all.starts_with("- Server and clients share this machine"), "{all}");
        // One late run of the highest demand: the spike is compared, and the others are predicted.
        let mut rows = samples::rows();
        rows[7] = samples::late(rows.clone())[7].clone();
        let some = words(&rows);
        assert!(!some.contains("At 2x") && some.contains("After the start of a spike"), "{some}");
        assert!(some.contains("7 of 7 runs"), "{some}");
    }

    #[test]
    fn says_that_the_machine_was_busy() {
        let busy = Machine { stalled: 0.3, ..measured(true) };
        assert!(text(&[], &[busy]).replace('\n', " ").contains("other programs took 30 %"));
    }

    #[test]
    fn warns_of_late_clients() {
        assert_eq!(late_clients_warning(0, 8), "");
        assert!(late_clients_warning(2, 8).replace('\n', " ").starts_with("In 2 of 8 runs the clients sent late"));
    }

    #[test]
    fn says_that_one_cpu_is_too_few() {
        assert!(text(&[], &[measured(false)]).replace('\n', " ").contains("mean little"));
        assert_eq!(text(&[], &[]), "");
    }

    #[test]
    fn the_machine_is_described_in_words() {
        let text = machine(&measured(true), 440.0).replace('\n', " ");
        for part in ["60.0 k/s (about 10 µs of work", "round trip takes 34 µs", "0.4 %", "within 440 µs"] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
    }
}
