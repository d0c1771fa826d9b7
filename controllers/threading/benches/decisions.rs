//! Nanoseconds per arrival in the ring, alone and beside another recording thread, and per decision
//! of every threading policy. Compare within one run only: machines differ.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures time, and here with a thread beside")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use leeward_core::units::{Nanos, Rate, Time};
use leeward_threading::curves::{Curve, CurvePoint, Curves};
use leeward_threading::registry::POLICIES;
use leeward_threading::{ArrivalRing, ThreadEnvironment, ThreadSignals, ThreadingSetup};

/// As many setups and points as a long training gives.
fn curves() -> Curves {
    let mut all = Vec::new();
    for model in ["SIB", "SIP", "SDB1-", "SDP1-", "AIB1-0-", "AIP1-0-", "ADB1-4-", "ADP1-4-"] {
        for pool in [1, 2, 4, 8, 16, 32, 50] {
            let setup: ThreadingSetup = format!("{model}{pool}").parse().expect("a setup");
            let rank = all.len() as f64;
            let limit = 1_000.0 * (1.0 + rank);
            let points = (1..=10).map(|step| {
                let us = 300.0 + rank * 10.0 + f64::from(step * step);
                let load = limit * f64::from(step) / 10.0;
                CurvePoint { load, p50_us: us, p99_us: us, p999_us: us, cpu: 1.0, samples: 2_000, spread: 0.02 }
            });
            all.push(Curve { setup, points: points.collect(), max_load: limit });
        }
    }
    Curves::new(all).expect("sound")
}

fn ring(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("threading: record an arrival");
    let ring = Arc::new(ArrivalRing::new());
    let mut now = 0;
    group.bench_function("alone", |bencher| {
        bencher.iter(|| {
            now += 1;
            black_box(ring.record(Time(now)))
        });
    });
    let stop = Arc::new(AtomicBool::new(false));
    let other = (Arc::clone(&ring), Arc::clone(&stop));
    let recorder = std::thread::spawn(move || {
        let mut now = 0;
        while !other.1.load(Ordering::Relaxed) {
            now += 1;
            black_box(other.0.record(Time(now)));
        }
    });
    group.bench_function("beside another thread that does nothing else", |bencher| {
        bencher.iter(|| {
            now += 1;
            black_box(ring.record(Time(now)))
        });
    });
    stop.store(true, Ordering::Relaxed);
    recorder.join().expect("it only counts");
    (0..64).for_each(|_| _ = ring.record(Time(now)));
    for entries in [5, 64] {
        group.bench_function(format!("copy of {entries}"), |bencher| bencher.iter(|| black_box(ring.window(entries))));
    }
}

fn decide(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("threading: decide");
    let environment =
        ThreadEnvironment::new(Some(Arc::new(curves())), ThreadingSetup::Cores(2), 2).with_slo(Nanos::from_millis(1));
    for spec in POLICIES {
        let mut policy = spec.build(&spec.params(&[]).expect("defaults"), &environment).expect("curves");
        let ring = ArrivalRing::new();
        let mut signals = ThreadSignals::idle(Time::ZERO, policy.initial());
        signals.demand = Some(Rate(8_000.0));
        let (mut now, mut random) = (0, 1u64);
        // Prepares inputs by the hundred, so that copies of the ring are not measured here.
        let mut inputs = vec![signals; 128];
        group.bench_function(spec.name, |bencher| {
            bencher.iter_custom(|iterations| {
                let mut spent = Duration::ZERO;
                for _ in 0..iterations.div_ceil(inputs.len() as u64) {
                    for input in &mut inputs {
                        // Four arrivals at about 8,000 per second, with gaps of up to twice the
                        // mean.
                        for _ in 0..4 {
                            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                            now += random >> 46;
                            ring.record(Time(now));
                        }
                        input.now = Time(now);
                        input.arrivals = ring.window(policy.window());
                    }
                    let begun = Instant::now();
                    for input in &mut inputs {
                        (input.current, input.current_since) = (signals.current, signals.current_since);
                        if let Some(setup) = policy.decide(black_box(input)) {
                            (signals.current, signals.current_since) = (setup, input.now);
                        }
                    }
                    spent += begun.elapsed();
                }
                spent.mul_f64(iterations as f64 / (iterations.div_ceil(128) * 128) as f64)
            });
        });
    }
}

criterion_group! {
    name = threading;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30)
        .without_plots();
    targets = ring, decide
}
criterion_main!(threading);
