//! Rounds with and without an attack, beside the honest client.

use crate::attack::Attack;
use crate::honest::{self, ClientReport};
use crate::placement::{self, Role};
use crate::server::{ResourceUsage, Server};
use crate::target::Port;
use anyhow::Context;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Parameters of a trial.
pub(crate) struct Plan {
    pub(crate) rounds: u32,
    /// Duration of each run of the honest client.
    span: Duration,
    /// Pause after an attack: longer than connections linger.
    rest: Duration,
    /// Attempts per attack, until one is good.
    pub(crate) attempts: u32,
    /// Required share of the goodput without an attack.
    pub(crate) goodput_min: f64,
    /// Whether answers must be within the objective.
    pub(crate) checks_latency: bool,
    /// Share of requests that an honest client may send late by itself; a round with more is
    /// repeated.
    late: f64,
}

impl Plan {
    /// Returns the plan for measurements.
    pub(crate) fn full(rounds: u32) -> Self {
        Plan {
            rounds,
            span: Duration::from_secs(3),
            rest: Duration::from_millis(2_500),
            attempts: 1,
            goodput_min: 0.90,
            checks_latency: true,
            late: 0.05,
        }
    }

    /// Returns the plan for continuous integration, whose machines are shared: broken servers had a
    /// thousandth of the goodput left, or nothing.
    pub(crate) fn short() -> Self {
        Plan {
            rounds: 1,
            span: Duration::from_secs(1),
            rest: Duration::from_millis(1_200),
            attempts: 3,
            goodput_min: 0.2,
            checks_latency: false,
            late: f64::INFINITY,
        }
    }
}

/// Time by which the attack starts before the honest client and ends after it.
const LEAD: Duration = Duration::from_millis(800);
/// Time limit for closing ended connections: the server reads a flooder's remaining bytes under a
/// quota.
const SETTLES: Duration = Duration::from_secs(30);

/// Results of an attack.
pub(crate) struct Trial {
    pub(crate) attack: &'static Attack,
    /// Reports of the honest client without the attack and beside it, per round.
    pub(crate) rounds: Vec<(ClientReport, ClientReport)>,
    /// Rounds that show nothing, because the client itself was late; other rounds replaced them.
    pub(crate) late: u32,
    /// Report of the honest client after the last attack.
    pub(crate) recovery: ClientReport,
    pub(crate) resources_before: ResourceUsage,
    /// Greatest usage observed during an attack.
    pub(crate) resources_peak: ResourceUsage,
    pub(crate) resources_after: ResourceUsage,
}

impl Trial {
    /// Runs the attack on Leeward.
    pub(crate) fn run(attack: &'static Attack, program: &Path, plan: &Plan) -> anyhow::Result<Self> {
        Trial::on(Server::leeward(program, attack.port)?, attack, program, plan)
    }

    /// Runs the attack on memcached.
    pub(crate) fn run_memcached(attack: &'static Attack, program: &Path, plan: &Plan) -> anyhow::Result<Self> {
        Trial::on(Server::memcached(program)?, attack, program, plan)
    }

    fn on(mut server: Server, attack: &'static Attack, leeward: &Path, plan: &Plan) -> anyhow::Result<Self> {
        let run_client = |server: &Server| honest::run(attack.port, leeward, server.address, plan.span);
        let first = run_client(&server)?;
        let before = server.resource_usage()?;
        let mut trial = Trial {
            attack,
            rounds: Vec::new(),
            late: 0,
            recovery: first,
            resources_before: before,
            resources_peak: before,
            resources_after: before,
        };
        for round in 0..plan.rounds * 3 {
            if trial.rounds.len() == plan.rounds as usize {
                break;
            }
            let without = if round == 0 { first } else { run_client(&server)? };
            let mut attacker = Attacker::start(attack, &server, plan.span + 2 * LEAD)?;
            std::thread::sleep(LEAD);
            let beside = run_client(&server)?;
            let usage = server.resource_usage().context("the server is gone")?;
            trial.resources_peak.memory = trial.resources_peak.memory.max(usage.memory);
            trial.resources_peak.descriptors = trial.resources_peak.descriptors.max(usage.descriptors);
            attacker.end();
            std::thread::sleep(plan.rest);
            if without.late.max(beside.late) > plan.late {
                trial.late += 1;
            } else {
                trial.rounds.push((without, beside));
            }
        }
        trial.recovery = run_client(&server)?;
        trial.resources_after = settled(&server, before)?;
        anyhow::ensure!(server.is_running(), "{} has ended the server", attack.name);
        Ok(trial)
    }

    /// Returns the port's objective.
    pub(crate) fn objective(&self) -> Duration {
        honest::objective(self.attack.port)
    }

    pub(crate) fn is_on(&self, port: Port) -> bool {
        self.attack.port == port
    }
}

/// Returns the server's resources after ended connections had time to close.
fn settled(server: &Server, before: ResourceUsage) -> anyhow::Result<ResourceUsage> {
    let began = Instant::now();
    loop {
        let usage = server.resource_usage().context("the server is gone")?;
        if usage.descriptors <= before.descriptors || began.elapsed() > SETTLES {
            return Ok(usage);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// An attack's process.
struct Attacker(Child);

impl Attacker {
    fn start(attack: &Attack, server: &Server, span: Duration) -> anyhow::Result<Self> {
        let this = std::env::current_exe().context("where this program is")?;
        let mut command = placement::command(Role::Attacker, this);
        command.args(["attack", attack.name, &server.address.to_string()]);
        command.arg(span.as_secs_f64().to_string()).stdin(Stdio::null()).stderr(Stdio::null());
        Ok(Attacker(command.spawn().context("starting the attack")?))
    }

    fn end(&mut self) {
        let _ = self.0.wait();
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
