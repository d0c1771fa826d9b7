//! `leeward calibrate`: measures this machine and writes it down for the simulator.

use std::path::PathBuf;

use anyhow::anyhow;
use leeward_core::units::Nanos;
use leeward_lab::real;
use leeward_lab::run::RunError;
use leeward_lab::scenario::{machine, machine_threads};
use leeward_plant::{Machine, MeasuredThreadCosts, Placement, Stalls};
use leeward_services::synthetic;
use leeward_workload::ServiceTime;

use super::output_files;
use crate::demo::format::rate;
use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::progress::Spinner;
use crate::stdout;

/// Measure this machine, and write the results for the simulator
///
/// Starts a server and its clients on separate CPUs. Measures the capacity of a core without
/// control, the cost of a message, the empty round trip and the stalls of a busy CPU. With the
/// written file the simulator predicts this machine: `leeward run SCENARIO --machine FILE`. Takes
/// some seconds.
#[derive(Debug, clap::Args)]
pub(crate) struct CalibrateArgs {
    /// File to write, such as machine.toml; by default the results are printed
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Cores of the server; at most the CPUs that the clients leave free
    #[arg(long, default_value_t = 1, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=128))]
    pub(crate) cores: u16,
    /// Number of connections
    #[arg(long, default_value_t = 1000, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) clients: u32,
    /// Service to measure with, in the syntax of scenarios
    #[arg(long, default_value = "exp:10us", value_name = "SERVICE")]
    pub(crate) service: String,
    /// Also measure the costs of threads, for the simulator's tiers: about 20 s more
    #[arg(long)]
    pub(crate) threads: bool,
}

/// Runs the command.
pub(crate) fn calibrate(args: &CalibrateArgs) -> Result<(), Failure> {
    let service = ServiceTime::parse(&args.service).map_err(|error| Failure::Input(anyhow!("--service: {error}")))?;
    if let Some(path) = &args.out {
        // Check the file before the measurement, not after it.
        output_files::check_file("--out", path)?;
    }
    let failed = |source| match source {
        leeward_plant::RealError::Cancelled => Failure::Interrupted,
        source => Failure::from(RunError::Real { run: "measuring this machine".into(), source }),
    };
    let interrupt = Interrupt::listen(StopMode::Prompt)?;
    let placement = Placement::choose(args.cores.into()).map_err(failed)?;
    let measured = {
        let steps = Spinner::with_interrupt("calibrate", &interrupt);
        let step = |step: &str| steps.show(step);
        Machine::measure(&placement, &synthetic::in_process(), &service, args.clients, interrupt.flag(), step)
            .map_err(failed)?
    };
    let threads = match args.threads {
        false => None,
        true => {
            let steps = Spinner::with_interrupt("calibrate", &interrupt);
            let costs = (measured.costs.receive, measured.costs.send);
            let step = |step: &str| steps.show(step);
            Some(MeasuredThreadCosts::measure(&placement, costs, interrupt.flag(), step).map_err(failed)?)
        }
    };
    interrupt.finish()?;
    let (server, network) = real::to_sim_models(&measured, &placement);
    let mut description = describe_machine(args, &measured, &placement);
    let mut text = String::new();
    if let Some(threads) = &threads {
        description += &describe_threads(threads);
        text = machine_threads::to_toml(&threads.costs);
    }
    let text = machine::to_toml(&description, &server, &network) + &text;
    match &args.out {
        None => stdout::print(text.trim_end()),
        Some(path) => {
            output_files::write(path, &text)?;
            stdout::print(&format!("{description}\n\nWritten to {}", path.display()))
        }
    }
}

/// Describes the costs of threads, and reasons to doubt them.
fn describe_threads(threads: &MeasuredThreadCosts) -> String {
    let mut text: String = threads.notes.iter().map(|note| format!("\n{note}.")).collect();
    for doubt in &threads.warnings {
        text += &format!("\nDOUBTFUL: {doubt}.");
    }
    text
}

/// Describes the stalls, and says whether they make the measurements doubtful.
fn describe_stalls(stalls: Option<Stalls>) -> String {
    let Some(stalls) = stalls else { return "A busy CPU had no stalls.".into() };
    let (between, length, stalled) = (stalls.mean_interval, stalls.mean_length, 1.0 - stalls.available());
    let percent = stalled * 100.0;
    let doubt = machine::doubt(stalled).map(|doubt| format!("\nDOUBTFUL: {doubt}.")).unwrap_or_default();
    format!(
        "A busy CPU loses {percent:.1} % of its time, mostly to stalls of about {length} with {between} between them.{doubt}"
    )
}

/// Describes the measurements.
fn describe_machine(args: &CalibrateArgs, measured: &Machine, placement: &Placement) -> String {
    let cores = placement.server.len();
    let stalls = describe_stalls(measured.stalls);
    let mut text = format!(
        "Measured with {} connections, service {}, over loopback.\n\
         {cores} core{} serve{} {} without control; an empty round trip takes {}.\n\
         {stalls}",
        args.clients,
        args.service,
        if cores == 1 { "" } else { "s" },
        if cores == 1 { "s" } else { "" },
        rate(measured.capacity.0),
        Nanos(measured.rtt.0),
    );
    if placement.shared {
        text += "\nServer and clients had to share the only CPU: these numbers mean little.";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_doubtful() {
        let of = |between, length| {
            describe_stalls(Some(Stalls { mean_interval: Nanos(between), mean_length: Nanos(length) }))
        };
        assert_eq!(
            of(4_730_000, 8_500_000),
            "A busy CPU loses 64.2 % of its time, mostly to stalls of about 8.5ms with 4.73ms between them.\n\
             DOUBTFUL: a busy CPU lost 64.2 % of its time to stalls, more than 3 %."
        );
        assert!(!of(97_500, 2_500).contains("DOUBTFUL"));
    }
}
