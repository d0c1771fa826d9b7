//! Searches lock-outs in random scenarios, for every pair of admission controller and core
//! allocation policy.
//!
//! `cargo run --release -p leeward-sim --example lockout -- 1000` checks the seeds 1 to 1000; two
//! numbers give a range. `… -- aware 1000` checks only Breakwater with knowledge of the allocator.
//! The bounded form is a test: `lab/sim/tests/suite/lockout.rs`.

#[path = "../tests/suite/common/lockout.rs"]
mod lockout;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::process::ExitCode;

/// Arguments of the program.
#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    seeds: RangeInclusive<u64>,
    only_aware: bool,
}

/// Parses the arguments. Without numbers, the seeds are 1 to 20.
fn parse(arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    const ACCEPTED: &str = "accepted: [aware] [FIRST] [LAST]";
    let (mut numbers, mut only_aware) = (Vec::new(), false);
    for argument in arguments {
        match argument.parse::<u64>() {
            Ok(number) => numbers.push(number),
            Err(_) if argument == "aware" => only_aware = true,
            Err(error) => return Err(format!("`{argument}`: {error}; {ACCEPTED}")),
        }
    }
    let seeds = match numbers[..] {
        [] => 1..=20,
        [last] => 1..=last,
        [first, last] => first..=last,
        _ => return Err(format!("{} numbers; {ACCEPTED}", numbers.len())),
    };
    if seeds.is_empty() {
        return Err(format!("no seed is in {} to {}", seeds.start(), seeds.end()));
    }
    Ok(Arguments { seeds, only_aware })
}

/// Admission controllers, with two variants of Breakwater: with and without knowledge of the
/// allocator.
fn admissions() -> Vec<(&'static str, &'static str)> {
    let others = leeward_controllers::builtin().names().filter(|name| *name != "breakwater").collect::<Vec<_>>();
    let breakwater = [("breakwater aware", "on"), ("breakwater", "off")];
    breakwater.into_iter().chain(others.into_iter().map(|name| (name, ""))).collect()
}

#[allow(clippy::disallowed_methods)] // a program's arguments
fn main() -> ExitCode {
    let Arguments { seeds, only_aware } = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("lockout: {message}");
            return ExitCode::from(2);
        }
    };
    let mut found: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    for seed in seeds.clone() {
        let drawn = lockout::draw(seed);
        for admission in admissions().into_iter().filter(|(_, aware)| !only_aware || *aware == "on") {
            for allocator in lockout::allocators() {
                let report = lockout::run(&drawn, admission, allocator);
                assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}: {drawn:?}");
                let seeds = found.entry((admission.0, allocator)).or_default();
                if lockout::is_locked_out(&drawn, &report) {
                    seeds.push(seed);
                    if admission.1 == "on" {
                        println!("{admission:?} with {allocator}: {drawn:?}");
                    }
                }
            }
        }
    }
    println!(
        "lock-outs of {} scenarios: admission, allocation, how many, the first seeds",
        seeds.end() - seeds.start() + 1
    );
    for ((admission, allocator), seeds) in found {
        println!("{admission:<18} {allocator:<12} {:>4}  {:?}", seeds.len(), &seeds[..seeds.len().min(6)]);
    }
    ExitCode::SUCCESS
}
