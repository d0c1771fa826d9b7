//! Threading models of a tier beside the same tier on Tokio.
//!
//! All contenders get the same load and leaves, and the tier has a CPU of its own. Latency and CPU
//! time per request are measured at shares of the best contender's capacity.
//!
//! - `turn`: one measurement of a contender. `table`: the output.

mod table;
mod turn;

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::time::Duration;

use crate::args::ThreadingArgs;
use crate::load::Times;
use crate::report;
use crate::servers::ServerKind;
use crate::statistics::Spread;
use crate::system;
use turn::{Bench, Point};

/// A way to run the tier.
#[derive(Clone, Debug, Serialize)]
struct Contender {
    /// Name in the table; for Leeward's tier, the threading setup.
    name: String,
    #[serde(skip)]
    kind: ServerKind,
    /// Requests per second in a closed loop, per round.
    capacity: Vec<f64>,
    /// Results of each load, per round.
    points: Vec<Vec<Point>>,
}

#[derive(Serialize)]
struct Whole<'a> {
    cpus: (usize, usize),
    leaves: u16,
    wait: &'a str,
    /// Capacity of the best contender, in requests per second.
    reference: f64,
    loads: &'a [f64],
    contenders: &'a [Contender],
}

/// Runs the comparison, prints the table and writes the numbers.
///
/// # Errors
/// A contender does not start or does not answer, or the numbers can't be written.
pub(crate) fn compare(args: &ThreadingArgs) -> Result<()> {
    let cpus = system::cpus();
    let (first, last) = (cpus.first().copied().unwrap_or(0), cpus.last().copied().unwrap_or(0));
    let (tier, load) = (args.server_cpu.unwrap_or(first), args.load_cpu.unwrap_or(last));
    for cpu in [tier, load] {
        ensure!(cpus.contains(&cpu), "this program may not use CPU {cpu}; it may use {cpus:?}");
    }
    ensure!(!args.loads.is_empty(), "--loads: accepted: one share or more, such as 0.02,0.5");
    for share in &args.loads {
        ensure!((0.001..=1.5).contains(share), "--loads {share}: accepted: shares from 0.001 to 1.5");
    }
    if tier == load {
        eprintln!("warning: tier and load share one CPU: these numbers mean little. Two CPUs are needed.");
    }
    report::prepare(&args.out)?;
    system::allow_connections(4_096);
    system::pin(load)?;
    let scale = if args.quick { 3 } else { 1 };
    let times = Times { warmup: Duration::from_millis(450) / scale, measured: Duration::from_millis(1_800) / scale };
    let bench = Bench::new(tier, load, args, times)?;
    let mut contenders: Vec<Contender> = args
        .setups
        .iter()
        .map(|setup| (setup.to_string(), ServerKind::Tier))
        .chain([("Tokio, one runtime".into(), ServerKind::TokioShared)])
        .chain([("Tokio, one per core".into(), ServerKind::TokioApart)])
        .map(|(name, kind)| Contender { name, kind, capacity: Vec::new(), points: Vec::new() })
        .collect();
    let bar = progress((contenders.len() * args.rounds as usize * (1 + args.loads.len())) as u64);
    in_turns(&mut contenders, args.rounds, |contender, round| {
        bar.set_message(format!("{}: how much at most", contender.name));
        let capacity = bench.capacity(contender.kind, &contender.name, u64::from(round));
        contender.capacity.push(capacity.with_context(|| contender.name.clone())?);
        bar.inc(1);
        Ok(())
    })?;
    let medians = contenders.iter().map(|contender| Spread::of(contender.capacity.iter().copied()).median);
    let reference = medians.fold(0.0, f64::max);
    in_turns(&mut contenders, args.rounds, |contender, round| {
        let mut points = Vec::new();
        for share in &args.loads {
            bar.set_message(format!("{}: {share} x", contender.name));
            let point = bench.point(contender.kind, &contender.name, reference * share, u64::from(round));
            points.push(point.with_context(|| contender.name.clone())?);
            bar.inc(1);
        }
        contender.points.push(points);
        Ok(())
    })?;
    bar.finish_and_clear();
    print!("{}", table::text(&contenders, &args.loads, reference, args.quick));
    let whole = Whole {
        cpus: (tier, load),
        leaves: args.leaves,
        wait: &args.wait,
        reference,
        loads: &args.loads,
        contenders: &contenders,
    };
    let text = serde_json::to_string_pretty(&whole)? + "\n";
    std::fs::write(&args.out, text).with_context(|| args.out.display().to_string())?;
    println!("Every round's numbers: {}", args.out.display());
    Ok(())
}

/// Measures each contender once per round, in rotating order.
fn in_turns(
    contenders: &mut [Contender],
    rounds: u32,
    mut turn: impl FnMut(&mut Contender, u32) -> Result<()>,
) -> Result<()> {
    for round in 0..rounds {
        for step in 0..contenders.len() {
            let index = (round as usize + step) % contenders.len();
            turn(&mut contenders[index], round)?;
        }
    }
    Ok(())
}

fn progress(turns: u64) -> ProgressBar {
    // The bar hides itself if stderr is no terminal.
    let bar = ProgressBar::new(turns);
    if let Ok(style) = ProgressStyle::with_template("{msg:40}  {bar:30}  {pos}/{len} turns, {eta} left") {
        bar.set_style(style);
    }
    bar
}
