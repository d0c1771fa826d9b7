//! Searches lock-outs in random scenarios, for every pair of admission controller and core
//! allocation policy.
//!
//! `cargo run --release -p leeward-sim --example lockout -- 1000` checks the seeds 1 to 1000; two
//! numbers give a range. `… -- aware 1000` checks only Breakwater with knowledge of the allocator.
//! The bounded form is a test: `lab/sim/tests/suite/lockout.rs`.

#[path = "../tests/suite/common/lockout.rs"]
mod lockout;

use std::collections::BTreeMap;

#[allow(clippy::disallowed_methods)] // a program's arguments
fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let (first, last) = match numbers[..] {
        [last] => (1, last),
        [first, last] => (first, last),
        _ => (1, 20),
    };
    let only_aware = std::env::args().any(|text| text == "aware");
    let mut found: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    for seed in first..=last {
        let drawn = lockout::draw(seed);
        for admission in lockout::admissions().into_iter().filter(|(_, aware)| !only_aware || *aware == "on") {
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
    println!("lock-outs of {} scenarios: admission, allocation, how many, the first seeds", last - first + 1);
    for ((admission, allocator), seeds) in found {
        println!("{admission:<18} {allocator:<12} {:>4}  {:?}", seeds.len(), &seeds[..seeds.len().min(6)]);
    }
}
