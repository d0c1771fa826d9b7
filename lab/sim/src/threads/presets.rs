//! Thread costs of known machines. Each number has a note on its measurement or assumption.
//! - `leeward`: Leeward's own server on the project's virtual machine.
//! - `grpc`: a server with the message costs of gRPC, as in the paper.
//! - `utune`: the same on the paper's machine, as far as the paper has measured it.
//!
//! The meaning of each cost is in [`super::model`].

use super::model::ThreadCosts;
use super::wakes::WakeTable;
use leeward_core::units::Nanos;

/// Names of the presets.
pub const NAMES: [&str; 3] = ["leeward", "grpc", "utune"];

/// Quantiles of a wake-up, ns: p1, p50, p90, p99, p99.9, maximum.
///
/// Assumed until `leeward calibrate --threads` has measured them. A futex wakes in some 5 to 50 us
/// on this virtual machine, later the longer the CPU has halted. µTune reports 5 us for fast
/// wake-ups. It reports 32 to 64 us for many wake-ups of a blocked server at 64 requests a second
/// (§6, Fig. 9).
const WAKES: [[u64; 6]; 3] = [
    // Idle for less than 50 us.
    [2_000, 5_000, 8_000, 15_000, 40_000, 60_000],
    // Idle for less than 1 ms.
    [4_000, 10_000, 18_000, 32_000, 50_000, 80_000],
    // Idle for longer: the CPU sleeps deeply.
    [8_000, 25_000, 40_000, 55_000, 80_000, 120_000],
];

/// Quantiles on µTune's machine. At 64 requests a second CPUs have long been idle: fast wake-ups
/// take some 5 us, and those of blocked servers often 32 to 64 us (Fig. 9).
///
/// For shorter idle times the paper has no numbers, so those above are assumed.
const WAKES_OF_UTUNE: [[u64; 6]; 3] = [WAKES[0], WAKES[1], [5_000, 45_000, 60_000, 64_000, 80_000, 120_000]];

fn table(rows: [[u64; 6]; 3]) -> WakeTable {
    WakeTable::new(rows.map(|row| row.map(Nanos))).unwrap_or_else(|| WakeTable::constant(Nanos::ZERO))
}

/// The costs of the preset `name`, one of [`NAMES`].
pub fn preset(name: &str) -> Option<ThreadCosts> {
    let leeward = ThreadCosts {
        // Assumed: a futex call that wakes a thread.
        wake_call: Nanos(1_500),
        wake: table(WAKES),
        // Assumed; µTune §1 reports 5 to 20 us, caches included.
        switch: Nanos(2_000),
        // Linux's defaults: base slice 2.8 ms to 3 ms, and as much before a woken thread preempts.
        slice: Nanos::from_millis(3),
        preempt: Nanos::from_millis(1),
        // Assumed: epoll_wait(0) without events.
        poll: Nanos(400),
        // Measured over loopback: experiments/real-spike.toml.
        receive: Nanos(2_000),
        send: Nanos(6_300),
        // The holder of an exclusive claim writes itself: the whole system call is under the lock.
        locked_permille: 1_000,
        // Assumed.
        push_pop: Nanos(100),
        cache_line: Nanos(80),
        // Not measured, so zero.
        cold_cache: Nanos::ZERO,
        // The design's bounds for the ring and the decision.
        record: Nanos(60),
        decide: Nanos(300),
    };
    let grpc = ThreadCosts {
        // `make compare` on this machine: 43 us of CPU per RPC of tonic at 23,000/s, both ends;
        // assumed to halve.
        receive: Nanos(21_500),
        send: Nanos(21_500),
        // Assumed: gRPC holds a set's lock for a tenth of the work on a message.
        locked_permille: 100,
        ..leeward.clone()
    };
    match name {
        "leeward" => Some(leeward),
        "grpc" => Some(grpc),
        // µTune §1: a context switch takes 5 to 20 us, caches included: their geometric mean.
        "utune" => Some(ThreadCosts { wake: table(WAKES_OF_UTUNE), switch: Nanos(10_000), ..grpc }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_wake_ups_that_take_time() {
        for name in NAMES {
            let costs = preset(name).unwrap();
            assert!(costs.wake.at(Nanos::ZERO, 0.5) > Nanos::ZERO, "{name}");
        }
        assert_eq!(preset("none"), None);
    }
}
