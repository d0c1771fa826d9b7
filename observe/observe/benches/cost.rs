//! Nanoseconds per request that being watched costs: two waits, an admission with one in 64 kept, a cost and an answer; and a refusal.

use criterion::{Criterion, criterion_group, criterion_main};
use leeward_core::units::{Method, Nanos, Time};
use leeward_observe::{Answer, DECISIONS, Decision, Latencies, Reason, Stage, Watch};
use std::hint::black_box;

fn cost(criterion: &mut Criterion) {
    let watch = Watch::new(2, DECISIONS);
    let mut now = 0_u64;
    criterion.bench_function("an admitted request", |bench| {
        bench.iter(|| {
            now = now.wrapping_add(1_733);
            let watch = black_box(&watch);
            watch.waited(0, Stage::Socket, Nanos(now % 40_000));
            watch.admit(0, || {
                let mut decision = Decision::admitted(Time(now));
                decision.delay = Nanos(now % 90_000);
                decision
            });
            watch.waited(0, Stage::Worker, Nanos(now % 80_000));
            watch.worked(0, Method(0), Nanos(now % 50_000));
            watch.answered(0, Method(0), Answer::of(true, now.is_multiple_of(2)));
        });
    });
    let latencies = Latencies::default();
    criterion.bench_function("the latency of a result", |bench| {
        bench.iter(|| {
            now = now.wrapping_add(1_733);
            black_box(&latencies).note(Nanos(now % 3_000_000));
        });
    });
    criterion.bench_function("a refused request", |bench| {
        bench.iter(|| {
            now = now.wrapping_add(1_733);
            let watch = black_box(&watch);
            watch.waited(0, Stage::Socket, Nanos(now % 40_000));
            let mut decision = Decision::refused(Time(now), Reason::Delay);
            decision.delay = Nanos(now % 90_000);
            black_box(watch.refuse(0, &decision));
        });
    });
}

criterion_group!(benches, cost);
criterion_main!(benches);
