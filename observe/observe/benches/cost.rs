//! Cost of observation in nanoseconds per request: two waits, an admission (one in 64 is kept), a
//! cost and an answer; and a rejection.

use criterion::{Criterion, criterion_group, criterion_main};
use leeward_core::units::{Method, Nanos, Time};
use leeward_observe::{Answer, Decision, DecisionReason, LatencyHistogram, RING_CAPACITY, WaitStage, Watch};
use std::hint::black_box;

fn cost(criterion: &mut Criterion) {
    let watch = Watch::new(2, RING_CAPACITY);
    let mut now = 0_u64;
    criterion.bench_function("an admitted request", |bench| {
        bench.iter(|| {
            now = now.wrapping_add(1_733);
            let watch = black_box(&watch);
            watch.record_wait(0, WaitStage::Socket, Nanos(now % 40_000));
            watch.record_admission(0, || {
                let mut decision = Decision::admitted(Time(now));
                decision.delay = Nanos(now % 90_000);
                decision
            });
            watch.record_wait(0, WaitStage::Worker, Nanos(now % 80_000));
            watch.record_cost(0, Method(0), Nanos(now % 50_000));
            watch.record_answer(0, Method(0), Answer::classify(true, now.is_multiple_of(2)));
        });
    });
    let latencies = LatencyHistogram::default();
    criterion.bench_function("the latency of a result", |bench| {
        bench.iter(|| {
            now = now.wrapping_add(1_733);
            black_box(&latencies).record(Nanos(now % 3_000_000));
        });
    });
    criterion.bench_function("a refused request", |bench| {
        bench.iter(|| {
            now = now.wrapping_add(1_733);
            let watch = black_box(&watch);
            watch.record_wait(0, WaitStage::Socket, Nanos(now % 40_000));
            let mut decision = Decision::rejected(Time(now), DecisionReason::Delay);
            decision.delay = Nanos(now % 90_000);
            black_box(watch.record_rejection(0, &decision));
        });
    });
}

criterion_group!(benches, cost);
criterion_main!(benches);
