//! A machine file, as `leeward calibrate` writes it: the `[server]` and `[network]` sections of a
//! scenario.
//!
//! It is applied as overrides, so that it passes a scenario's checks and shows in the results.

use super::document::{Origin, Source, parse, read_text};
use super::reader::Reader;
use super::{ScenarioError, machine_threads, workload};
use leeward_core::units::Nanos;
use leeward_sim::config::{NetworkModel, ServerModel};
use std::path::Path;

/// Maximum file size; a machine has a dozen lines.
const MAX_BYTES: u64 = 100_000;

/// Maximum share of a busy CPU that the machine may take; above it, measured costs are doubtful,
/// and a run does not test the simulator.
pub const MAX_STALLED: f64 = 0.03;

/// What a machine file says.
#[derive(Clone, Debug, Default)]
pub struct MachineFile {
    /// Overrides that apply the machine to a scenario.
    pub overrides: Vec<String>,
    /// Reason to doubt the machine's measurements.
    pub doubt: Option<String>,
}

/// Reason to doubt measurements of a machine that takes the share `stalled` of a busy CPU.
pub fn doubt(stalled: f64) -> Option<String> {
    let percent = |share: f64| share * 100.0;
    let text = || {
        let (lost, most) = (percent(stalled), percent(MAX_STALLED));
        format!("a busy CPU lost {lost:.1} % of its time to stalls, more than {most} %")
    };
    (stalled > MAX_STALLED).then(text)
}

/// Reads the machine file at `path`.
///
/// # Errors
/// The file can't be read, or has keys that a scenario's sections don't have.
pub fn read(path: &Path) -> Result<MachineFile, ScenarioError> {
    let file = path.display().to_string();
    match read_text(path, MAX_BYTES, "longer than 100 kB; a machine has a dozen lines") {
        Ok(text) => parse_machine(&file, &text),
        Err(error) => Err(ScenarioError::Invalid { place: file, key: "file".into(), problem: error.to_string() }),
    }
}

fn parse_machine(file: &str, text: &str) -> Result<MachineFile, ScenarioError> {
    let source = Source { file, overrides: &[] };
    let table = parse(&source, text)?;
    let root = Reader::new(&source, &table, "", Origin::Line(1), &["server", "network"])?;
    let server_item = root.require("server", "a section [server], as `leeward calibrate` writes it")?;
    let server = workload::server(Some(server_item))?;
    if server.scheduling.is_some() {
        let item = root.require("server", "")?;
        return Err(item.error("has an allocator; accepted: in a scenario, a machine has none"));
    }
    let network_item = root.require("network", "a section [network]")?;
    let (network, rtts) = workload::network(Some(network_item))?;
    if rtts.len() > 1 {
        return Err(root.require("network", "")?.error("has several round trips; accepted: one"));
    }
    let mut lines = to_overrides(&server, &network);
    if root.require("server", "")?.open_table()?.find("threads").is_some() {
        let costs = workload::thread_costs(Some(root.require("server", "")?))?;
        lines.extend(
            machine_threads::pairs(&costs).into_iter().map(|(key, value)| format!("server.threads.{key}={value}")),
        );
    }
    Ok(MachineFile { overrides: lines, doubt: doubt(server.stalls.map_or(0.0, |stalls| 1.0 - stalls.available())) })
}

fn to_overrides(server: &ServerModel, network: &NetworkModel) -> Vec<String> {
    let costs = &server.costs;
    let mut lines = vec![format!("server.cores={}", server.cores), format!("server.batch={}", server.batch)];
    let span = |key: &str, span: Nanos| format!("{key}={}ns", span.0);
    lines.extend([
        span("server.costs.receive", costs.receive),
        span("server.costs.spawn", costs.spawn),
        span("server.costs.send", costs.send),
        span("server.costs.reject", costs.reject),
        span("server.costs.steal", costs.steal),
    ]);
    if let Some(sockets) = server.sockets {
        lines.extend([
            span("server.sockets.receive", sockets.receive),
            span("server.sockets.send", sockets.send),
            span("server.sockets.together", sockets.batched_write),
        ]);
    }
    if let Some(stalls) = server.stalls {
        lines.extend([
            span("server.stalls.every", stalls.mean_interval),
            span("server.stalls.lasts", stalls.mean_length),
        ]);
    }
    lines.extend([span("network.rtt", network.rtt), span("network.jitter", network.jitter)]);
    lines
}

/// Text of the file for a machine, which [`read`] reads. `words` become comments at the top.
pub fn to_toml(comment: &str, server: &ServerModel, network: &NetworkModel) -> String {
    let mut text: String = comment.lines().map(|line| format!("# {line}\n")).collect();
    let costs = &server.costs;
    text += &format!("\n[server]\ncores = {}\nbatch = {}\n", server.cores, server.batch);
    for (key, span) in [
        ("receive", costs.receive),
        ("spawn", costs.spawn),
        ("send", costs.send),
        ("reject", costs.reject),
        ("steal", costs.steal),
    ] {
        text += &format!("costs.{key} = \"{}ns\"\n", span.0);
    }
    if let Some(sockets) = server.sockets {
        let (receive, send, together) = (sockets.receive.0, sockets.send.0, sockets.batched_write.0);
        text += &format!(
            "sockets.receive = \"{receive}ns\"\nsockets.send = \"{send}ns\"\nsockets.together = \"{together}ns\"\n"
        );
    }
    if let Some(stalls) = server.stalls {
        text += &format!(
            "stalls.every = \"{}ns\"\nstalls.lasts = \"{}ns\"\n",
            stalls.mean_interval.0, stalls.mean_length.0
        );
    }
    text + &format!("\n[network]\nrtt = \"{}ns\"\n", network.rtt.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use leeward_sim::config::{SocketCosts, Stalls};
    use leeward_sim::threads::model::ThreadCosts;
    use leeward_sim::threads::presets;

    #[test]
    fn a_machine_file_round_trips() {
        let mut server = ServerModel { cores: 3, ..ServerModel::default() };
        server.costs.send = Nanos(6_543);
        server.stalls = Some(Stalls { mean_interval: Nanos::from_millis(20), mean_length: Nanos::from_micros(600) });
        server.sockets = Some(SocketCosts { receive: Nanos(310), send: Nanos(87), batched_write: Nanos(4_321) });
        let network = NetworkModel { rtt: Nanos(16_575), ..NetworkModel::default() };
        let costs = ThreadCosts { switch: Nanos(1_234), locked_permille: 125, ..presets::preset("grpc").unwrap() };
        let written = to_toml("Measured.\nTwice.", &server, &network) + &machine_threads::to_toml(&costs);
        let MachineFile { overrides: lines, doubt } = parse_machine("machine.toml", &written).unwrap();
        assert_eq!(doubt, None, "2.9 % of the time");
        let tier = Scenario::builtin("mt-null", &lines, true).unwrap();
        assert_eq!(tier.tiers.first().map(|spec| &spec.tier.costs), Some(&costs), "its tiers have its threads");
        let scenario = Scenario::builtin("bw-overall", &lines, true).unwrap();
        assert_eq!((scenario.server, scenario.network), (server, network));
    }

    #[test]
    fn a_machine_that_takes_much_time_is_doubtful() {
        let text = "[server]\nstalls.every = \"10ms\"\nstalls.lasts = \"5ms\"\n[network]\n";
        let doubt = parse_machine("machine.toml", text).unwrap().doubt;
        assert_eq!(doubt.as_deref(), Some("a busy CPU lost 33.3 % of its time to stalls, more than 3 %"));
    }

    #[test]
    fn errors_in_a_machine_file_name_their_line() {
        for (text, words) in [
            ("[server]\ncores = 1\n", "network"),
            ("[server]\ncors = 1\n[network]\n", "machine.toml:2"),
            ("[server]\n[network]\nrtt = 3\n", "machine.toml:3"),
            ("[workload]\n", "machine.toml:1"),
            ("[server]\nallocator.policy = \"delay\"\n[network]\n", "a machine has none"),
            ("[server]\n[network]\nrtt = [\"1us\", \"2us\"]\n", "several round trips"),
        ] {
            let error = parse_machine("machine.toml", text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
