//! Attacks on Leeward's ports, beside an honest client: a misbehaving peer must not delay others.
//!
//! - `attack`: the type of an attack. `target`: the attacked server. `rpc`, `udp`, `encrypted`,
//!   `memcached`: the attacks on each port. `connections`: sockets that write and read at once.
//! - `honest`: the honest client. `certificate`: the TLS port's certificate. `server`: the program
//!   under attack, and its use of system resources.
//! - `placement`: CPUs of the processes.
//! - `trial`: repeated rounds, each with and without an attack; `verdict`: the requirements on the
//!   results.
//!
//! Attack, client and server are separate processes: none uses another's memory, and each has its
//! own placement on the CPUs.

mod attack;
mod certificate;
mod connections;
mod encrypted;
mod honest;
mod memcached;
mod placement;
mod rpc;
mod server;
mod target;
mod trial;
mod udp;
mod verdict;

use anyhow::{Context, bail};
use attack::{ATTACKS, Attack};
use clap::{Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use target::{Port, Target};
use trial::{Plan, Trial};

/// Attack Leeward's ports beside an honest client, in turns with runs without an attack
#[derive(Debug, Parser)]
#[command(name = "hostile", after_help = EXAMPLES)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  hostile run                                        every attack on both ports, three rounds each: an hour
  hostile run --short                                each once, for a second: is the server well afterwards?
  hostile run --attacks pings,stats --rounds 5
  hostile run --memcached memcached                  the second port's attacks on memcached, too
  hostile list";

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure
    Run(RunArgs),
    /// List the attacks
    List,
    /// Ask a memcached as the honest client does, and print what came of it
    #[command(hide = true)]
    Ask {
        /// Where
        address: SocketAddr,
        /// How long
        seconds: f64,
    },
    /// Attack a server that is there already
    Attack {
        /// Which
        name: String,
        /// Where
        address: SocketAddr,
        /// How long
        seconds: f64,
    },
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// The program under attack
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/leeward")]
    leeward: PathBuf,
    /// Attacks, by name; by default all
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    attacks: Vec<String>,
    /// Only those on this port: rpc, udp, tls or memcached
    #[arg(long, value_name = "PORT")]
    port: Option<Port>,
    /// Rounds, each with and without the attack
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Ask only whether the server is well during and after each attack; one round of a second
    #[arg(long)]
    short: bool,
    /// Have memcached (this program) stand the attacks on the second port, too
    #[arg(long, value_name = "PROGRAM")]
    memcached: Option<PathBuf>,
}

/// Exit code of a run whose client could not keep its schedule: the run shows nothing about the
/// server.
const UNMEASURED: u8 = 3;

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) if error.is::<Unmeasured>() => {
            eprintln!("error: {error}");
            ExitCode::from(UNMEASURED)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs a command; returns whether every result was as required.
fn run(command: Command) -> anyhow::Result<bool> {
    match command {
        Command::List => {
            for attack in ATTACKS {
                println!("{:10} {:14} {}", attack.port.name(), attack.name, attack.summary);
            }
            Ok(true)
        }
        Command::Attack { name, address, seconds } => {
            let attack = find(&name)?;
            let until = Instant::now() + Duration::try_from_secs_f64(seconds).context("how long to attack")?;
            let summary = (attack.run)(&Target::new(address, until, 1));
            eprintln!("{name}: {summary}");
            Ok(true)
        }
        Command::Ask { address, seconds } => {
            let span = Duration::try_from_secs_f64(seconds).context("how long to ask")?;
            println!("{}", honest::run_pairs(address, span)?.to_json());
            Ok(true)
        }
        Command::Run(args) => {
            let judged = trials(&args);
            certificate::remove();
            judged
        }
    }
}

/// The honest client itself was late.
#[derive(Debug)]
struct Unmeasured(u32);

impl std::error::Error for Unmeasured {}

impl std::fmt::Display for Unmeasured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} of the attacks say nothing of the server: the honest client was late itself; others use the CPUs",
            self.0
        )
    }
}

fn find(name: &str) -> anyhow::Result<&'static Attack> {
    match ATTACKS.iter().find(|attack| attack.name == name) {
        Some(attack) => Ok(attack),
        None => bail!("no attack `{name}`; `hostile list` shows them"),
    }
}

fn trials(args: &RunArgs) -> anyhow::Result<bool> {
    let named = args.attacks.iter().map(|name| find(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let attacks = if named.is_empty() { ATTACKS.iter().collect() } else { named };
    let plan = if args.short { Plan::short() } else { Plan::full(args.rounds) };
    let (mut all_well, mut unmeasured) = (true, 0);
    println!("{}", verdict::HEADING);
    for attack in attacks.into_iter().filter(|attack| args.port.is_none_or(|port| port == attack.port)) {
        // One good attempt suffices: other load on the machine can only worsen the result.
        let mut judgement = verdict::Judgement::Failed;
        for _ in 0..plan.attempts {
            if judgement != verdict::Judgement::Passed {
                judgement = try_once(attack, args, &plan)?;
            }
        }
        all_well &= judgement != verdict::Judgement::Failed;
        unmeasured += u32::from(judgement == verdict::Judgement::Unmeasured);
    }
    println!(
        "{}",
        match (all_well, unmeasured) {
            (false, _) => "NOT ALL WELL",
            (true, 0) => "all well",
            (true, _) => "all well, where it was measured",
        }
    );
    if all_well && unmeasured > 0 {
        return Err(Unmeasured(unmeasured).into());
    }
    Ok(all_well)
}

fn try_once(attack: &'static Attack, args: &RunArgs, plan: &Plan) -> anyhow::Result<verdict::Judgement> {
    let trial = Trial::run(attack, &args.leeward, plan)?;
    let other = match (&args.memcached, attack.port) {
        (Some(program), Port::Memcached) => Some(Trial::run_memcached(attack, program, plan)?),
        _ => None,
    };
    let verdict = verdict::judge(&trial, other.as_ref(), plan);
    println!("{}", verdict.line);
    Ok(verdict.judgement)
}
