//! Nanoseconds per frame: encoding and decoding a call with a payload of 64 bytes, alone and as a
//! stream through the decoder's buffer. Compare within one run only; results differ between
//! machines.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use leeward_core::units::{Nanos, Priority};
use leeward_wire::{
    Budget, Call, CreditId, Decoder, Encoder, Frame, Method, PayloadLimit, RequestId, Side, Timestamp, decode,
};

/// Calls per read in the stream's benchmark, as many as the decoder's first buffer holds.
const CALLS_PER_READ: usize = 128;

fn call(payload: &[u8]) -> Frame<'_> {
    Frame::Call(Call {
        request: RequestId::new(7).expect("not zero"),
        timestamp: Timestamp(123_456_789),
        credit: CreditId(12),
        method: Method(3),
        demand: 2,
        budget: Budget::of(Nanos::from_micros(80)),
        priority: Priority::HIGHEST,
        payload,
    })
}

fn one_call(criterion: &mut Criterion) {
    let encoder = Encoder::new(PayloadLimit::DEFAULT);
    let payload = [7; 64];
    let mut group = criterion.benchmark_group("call, 64 B");
    let mut buffer = [0; 128];
    group.bench_function("encode into a slice", |bencher| {
        bencher.iter(|| encoder.write(black_box(&call(&payload)), black_box(&mut buffer)));
    });
    let mut out = Vec::with_capacity(128);
    group.bench_function("encode into a vector", |bencher| {
        bencher.iter(|| {
            out.clear();
            encoder.append(black_box(&call(&payload)), black_box(&mut out))
        });
    });
    encoder.write(&call(&payload), &mut buffer).expect("it fits");
    group.bench_function("decode", |bencher| {
        bencher.iter(|| black_box(decode(black_box(&buffer), Side::Client, PayloadLimit::DEFAULT)));
    });
    group.finish();
}

fn stream(criterion: &mut Criterion) {
    let mut bytes = Vec::new();
    for _ in 0..CALLS_PER_READ {
        Encoder::new(PayloadLimit::DEFAULT).append(&call(&[7; 64]), &mut bytes).expect("it fits");
    }
    let mut decoder = Decoder::new(Side::Client, PayloadLimit::DEFAULT);
    let mut group = criterion.benchmark_group("decoder");
    group.throughput(Throughput::Elements(CALLS_PER_READ as u64));
    group.bench_function("128 calls of 64 B, copied in", |bencher| {
        bencher.iter(|| {
            decoder.spare()[..bytes.len()].copy_from_slice(&bytes);
            decoder.advance(bytes.len());
            while let Some(frame) = decoder.next_frame().expect("good frames") {
                black_box(frame);
            }
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = one_call, stream
}
criterion_main!(benches);
