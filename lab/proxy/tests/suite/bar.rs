//! The bar of `knee` over 40 random cases, a little below what it reaches, and a canary.

use leeward_concurrency::fixed::Static;
use leeward_concurrency::registry;
use leeward_proxy_sim::benchmark::{BestStatic, compare, play};
use leeward_proxy_sim::case::Case;
use leeward_proxy_sim::proxy::run;

/// Best static numbers of the cases 1 to 40, as `best_static` finds them.
const BEST: [u32; 40] = [
    4, 6, 4, 96, 32, 2, 4, 128, 8, 2, 96, 1, 256, 2, 2, 32, 8, 128, 4, 4, 4, 6, 4, 4, 192, 8, 32, 96, 6, 8, 1, 8, 8, 8,
    4, 8, 2, 16, 2, 6,
];

/// Goodput of a limit in the first `count` cases, relative to the best static number's, sorted.
fn shares(limit: &str, count: usize) -> Vec<f64> {
    let policy = registry::find(limit).unwrap();
    let share = |(index, number): (usize, &u32)| {
        let seed = index as u64 + 1;
        let case = Case::random(seed);
        let best = BestStatic { number: *number, result: run(&case, Box::new(Static(*number)), seed) };
        compare(limit, play(&case, policy, seed), &best).share
    };
    let mut shares: Vec<f64> = BEST.iter().take(count).enumerate().map(share).collect();
    shares.sort_by(f64::total_cmp);
    shares
}

#[test]
fn knee_is_nearly_as_good_as_the_best_number() {
    let shares = shares("knee", 40);
    assert!(shares[20] >= 0.98, "median {}", shares[20]);
    assert!(shares[4] >= 0.94, "tenth {}", shares[4]);
    assert!(shares[0] >= 0.9, "worst {}", shares[0]);
}

#[test]
fn a_worse_limit_does_not_pass_the_bar() {
    let shares = shares("aimd", 20);
    assert!(shares[10] < 0.98, "median {}", shares[10]);
}
