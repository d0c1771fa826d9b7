//! Two replicas behind Envoy, one at half the speed: weights from reported load (ORCA) against
//! round robin.
//!
//! Envoy runs with the recipe of `packaging/recipes`. Its rows are left out if it is not installed
//! (`scripts/setup recipes`).

use super::{Bench, median};
use crate::args::Args;
use crate::child::Server;
use crate::guard::Guard;
use crate::load::{self, Demand, Plan, alike};
use anyhow::{Context, Result};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Service time at the fast replica, in ms; the other takes twice as long.
const FAST: u64 = 4;
/// Objective of both gates in ms, so long that a queue shows before any rejection.
const SLO_MS: u64 = 400;
/// Demand over the capacity of both replicas. Half of this demand exceeds the slow replica's
/// capacity.
const LOAD: f64 = 0.72;
/// The first weights arrive after a second, and take a few more to settle.
const WARMUP: Duration = Duration::from_secs(6);

/// Maximum share of unanswered requests with which a percentile of the others is meaningful.
const MOST_REFUSED: f64 = 0.1;

/// Load balancing policy of Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Turns,
    Orca,
}

impl Bench {
    /// Measures the 99th percentile under both policies, alternating.
    pub(super) fn envoy(&mut self) -> Result<()> {
        let Some(program) = program() else { return Ok(()) };
        let (mut turns, mut orca) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds.min(3) {
            turns.push(self.measure_choice(&program, Choice::Turns)?);
            orca.push(self.measure_choice(&program, Choice::Orca)?);
        }
        let of = |all: &[(f64, f64)], pick: fn(&(f64, f64)) -> f64| median(all.iter().map(pick).collect());
        let (turns_p99, orca_p99) = (of(&turns, |of| of.0), of(&orca, |of| of.0));
        let (turns_refused, orca_refused) = (of(&turns, |of| of.1), of(&orca, |of| of.1));
        let ratio = orca_p99 / turns_p99.max(1e-3);
        // With few responses a percentile means nothing, and rejections make it small.
        let is_answered = turns_refused.max(orca_refused) <= MOST_REFUSED;
        let got = format!(
            "{ratio:.2} ({orca_p99:.0} and {turns_p99:.0} ms; not answered {:.1} and {:.1} %)",
            orca_refused * 100.0,
            turns_refused * 100.0
        );
        self.row(
            "p99 by ORCA weights / in turns, one replica half as fast".into(),
            "<= 0.5",
            got,
            ratio,
            Some(ratio <= 0.5 && is_answered),
        );
        Ok(())
    }

    /// Returns the 99th percentile in ms, and the share of unanswered requests.
    fn measure_choice(&mut self, program: &Path, choice: Choice) -> Result<(f64, f64)> {
        let replica = |blocks| {
            let args =
                Args { guard: Guard::Level, blocks, reports: true, slo: SLO_MS, cpu: Some(0), ..Args::default() };
            Server::start(&args)
        };
        let (fast, slow) = (replica(FAST)?, replica(2 * FAST)?);
        let entry = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let folder = std::env::temp_dir().join(format!("leeward-envoy-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let config = folder.join("envoy.yaml");
        std::fs::write(&config, configured(RECIPE, choice, entry, [fast.address, slow.address])?)?;
        let envoy = Envoy::start(program, &config, entry)?;
        self.seed += 1;
        let capacity = 1e3 / FAST as f64 * 1.5;
        let span = WARMUP + self.span.max(Duration::from_secs(6)) * 2;
        let plan = Plan {
            address: entry,
            connections: 128,
            phases: vec![(Demand::Rate(capacity * LOAD), span)],
            warmup: WARMUP,
            objective: Duration::from_millis(SLO_MS),
            seed: self.seed,
            kind: alike,
        };
        let result = load::run(&plan)?;
        self.busiest = self.busiest.max(result.busy);
        drop(envoy);
        std::fs::remove_dir_all(&folder)?;
        let counts = [fast.stop()?, slow.stop()?];
        let all = result.all();
        let (p99, refused) =
            (all.latency.value_at_quantile(0.99) as f64 / 1e3, 1.0 - all.latency.len() as f64 / all.due.max(1) as f64);
        let admitted = counts.map(|report| report["admitted"].as_u64().unwrap_or(0));
        println!("    {choice:?}: p99 {p99:.0} ms, {:.1} % not answered, {admitted:?} admitted", refused * 100.0);
        Ok((p99, refused))
    }
}

const RECIPE: &str = include_str!("../../../packaging/recipes/envoy.yaml");

/// The recipe with these addresses and this policy, without health checks: the replicas have no
/// admin port.
fn configured(recipe: &str, choice: Choice, entry: SocketAddr, replicas: [SocketAddr; 2]) -> Result<String> {
    let mut text = recipe.to_owned();
    let mut replaced = |old: &str, new: String| -> Result<()> {
        anyhow::ensure!(text.matches(old).count() == 1, "the recipe has no `{old}`, or several");
        text = text.replace(old, &new);
        Ok(())
    };
    replaced("port_value: 8080 ", format!("port_value: {} ", entry.port()))?;
    replaced("port_value: 8081 ", format!("port_value: {} ", replicas[0].port()))?;
    replaced("port_value: 8082 ", format!("port_value: {} ", replicas[1].port()))?;
    let find = |text: &str, mark: &str| text.find(mark).with_context(|| format!("the recipe has no `{mark}`"));
    let (policy, checks) = (find(&text, "      load_balancing_policy:")?, find(&text, "      health_checks:")?);
    let assignment = find(&text, "      load_assignment:")?;
    let chosen = match choice {
        Choice::Turns => "      lb_policy: ROUND_ROBIN\n",
        Choice::Orca => &text[policy..checks],
    };
    let end = text[assignment..].lines().filter(|line| !line.contains("health_check_config")).collect::<Vec<_>>();
    Ok(format!("{}{chosen}{}\n", &text[..policy], end.join("\n")))
}

/// Path of Envoy; prints a note and returns `None` if it is not installed.
pub(super) fn program() -> Option<PathBuf> {
    let program = std::env::var_os("ENVOY").map_or_else(|| "target/recipes/envoy/_bin/envoy".into(), PathBuf::from);
    if !program.exists() {
        println!("no {} (scripts/setup recipes): Envoy is left out here", program.display());
        return None;
    }
    Some(program)
}

/// A running Envoy process.
pub(super) struct Envoy(Child);

impl Envoy {
    pub(super) fn start(program: &Path, config: &Path, entry: SocketAddr) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["--concurrency", "1", "--disable-hot-restart", "-l", "error", "-c"]).arg(config);
        let envoy = Envoy(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("Envoy")?);
        let start = Instant::now();
        while TcpStream::connect(entry).is_err() {
            anyhow::ensure!(start.elapsed() < Duration::from_secs(30), "Envoy does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(envoy)
    }

    /// CPU time of all its threads so far.
    pub(super) fn cpu_time(&self) -> Duration {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.0.id())) else { return Duration::ZERO };
        let ran = |thread: std::io::Result<std::fs::DirEntry>| {
            let times = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            times.split(' ').next()?.parse().ok().map(Duration::from_nanos)
        };
        threads.filter_map(ran).sum()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_envoy_config_is_the_recipe() {
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let of = |choice| configured(RECIPE, choice, address(1), [address(2), address(3)]).unwrap();
        let (turns, orca) = (of(Choice::Turns), of(Choice::Orca));
        assert!(orca.contains("client_side_weighted_round_robin") && !orca.contains("lb_policy"), "{orca}");
        assert!(turns.contains("lb_policy: ROUND_ROBIN") && !turns.contains("weighted"), "{turns}");
        for text in [turns, orca] {
            assert!(!text.contains("health") && text.contains("port_value: 3 "), "{text}");
        }
    }
}
