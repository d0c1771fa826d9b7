//! Costs of a thread's own operations (poll, queue, ring, decision), and of memory that another CPU
//! or thread has used.

use super::{median, pin};
use crate::error::RealError;
use leeward_core::units::{Nanos, Time};
use leeward_runtime::Clock;
use leeward_runtime::queues::RunQueues;
use leeward_threading::curves::{Curve, CurvePoint, Curves};
use leeward_threading::{ArrivalRing, ThreadEnvironment, ThreadSignals, registry};
use rustix::event::epoll;
use std::hint::black_box;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Rounds of each measurement; the result is their median.
const ROUNDS: usize = 31;
/// Repetitions within a round.
const REPETITIONS: u64 = 1_000;
/// Numbers of sockets for which a poll is measured.
const SOCKETS: [usize; 3] = [1, 64, 1_000];
/// Bytes that a request uses, and bytes that another thread writes meanwhile.
const WORKING_SET: usize = 16 * 1024;
const DIRTY_SET: usize = 256 * 1024;
const CACHE_LINE: usize = 64;

/// Costs of memory and of bookkeeping.
#[derive(Debug)]
pub(super) struct MemoryCosts {
    pub(super) push_pop: Nanos,
    pub(super) cache_line: Nanos,
    pub(super) cold_cache: Nanos,
    pub(super) record: Nanos,
    pub(super) decide: Nanos,
}

/// Time of one repetition, in the median round.
fn median_time(clock: &Clock, mut work: impl FnMut()) -> Nanos {
    let round = |_| {
        let began = clock.now();
        (0..REPETITIONS).for_each(|_| work());
        clock.now().since(began).0 / REPETITIONS
    };
    median((0..ROUNDS).map(round).collect())
}

/// Time of a poll of 1, 64 and 1,000 idle sockets.
pub(super) fn poll_costs(clock: &Clock, cpu: usize) -> Result<[Nanos; 3], RealError> {
    let failed = |error: rustix::io::Errno| RealError::Cpus(error.into());
    let measure = |sockets: usize| {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        // As many as the system allows.
        let pairs: Vec<_> = (0..sockets).map_while(|_| UnixStream::pair().ok()).collect();
        for (near, _) in &pairs {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&poll, near, data, epoll::EventFlags::IN | epoll::EventFlags::ET).map_err(failed)?;
        }
        let mut events = Vec::with_capacity(16);
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        Ok::<_, RealError>(median_time(clock, || {
            events.clear();
            _ = epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&now));
        }))
    };
    thread::scope(|scope| {
        let all = scope.spawn(|| {
            pin(cpu);
            let [one, some, many] = SOCKETS.map(measure);
            Ok([one?, some?, many?])
        });
        all.join().unwrap_or(Err(RealError::NoResponses))
    })
}

/// Measures on the first CPU, with a helper thread on the second.
pub(super) fn measure_memory(clock: &Clock, cpus: (usize, usize)) -> MemoryCosts {
    thread::scope(|scope| {
        let all = scope.spawn(|| {
            pin(cpus.0);
            let queue = RunQueues::new(1);
            let pair_time = median_time(clock, || {
                queue.push(0, Time(1), 1u64);
                black_box(queue.pop(0));
            });
            let ring = ArrivalRing::new();
            let record = median_time(clock, || _ = black_box(ring.record(clock.now())));
            // The time of reading the clock is subtracted.
            let reading = median_time(clock, || _ = black_box(clock.now()));
            let record = record.saturating_sub(reading);
            MemoryCosts {
                push_pop: pair_time / 2,
                cache_line: cache_line_transfer(clock, cpus),
                cold_cache: cold_cache_penalty(clock),
                record,
                decide: policy_decision_time(clock),
            }
        });
        all.join().unwrap_or(MemoryCosts {
            push_pop: Nanos::ZERO,
            cache_line: Nanos::ZERO,
            cold_cache: Nanos::ZERO,
            record: Nanos::ZERO,
            decide: Nanos::ZERO,
        })
    })
}

/// Value that ends the helper thread.
const STOP: u64 = u64::MAX;

/// Half of a cache line's round trip to the other CPU. Called on the first CPU.
fn cache_line_transfer(clock: &Clock, cpus: (usize, usize)) -> Nanos {
    if cpus.0 == cpus.1 {
        return Nanos::ZERO;
    }
    let word = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(cpus.1);
            loop {
                match word.load(Ordering::Acquire) {
                    STOP => return,
                    seen if seen % 2 == 1 => word.store(seen + 1, Ordering::Release),
                    _ => std::hint::spin_loop(),
                }
            }
        });
        let mut next = 0;
        let round_trip = median_time(clock, || {
            word.store(next + 1, Ordering::Release);
            while word.load(Ordering::Acquire) != next + 2 {
                std::hint::spin_loop();
            }
            next += 2;
        });
        word.store(STOP, Ordering::Release);
        round_trip / 2
    })
}

/// Additional time of a walk over a request's memory after another thread's writes.
fn cold_cache_penalty(clock: &Clock) -> Nanos {
    let (mut request_memory, mut other_memory) = (vec![1u8; WORKING_SET], vec![1u8; DIRTY_SET]);
    let mut walk = |dirty: bool| {
        if dirty {
            other_memory.iter_mut().step_by(CACHE_LINE).for_each(|byte| *byte = byte.wrapping_add(1));
            black_box(&mut other_memory);
        }
        let began = clock.now();
        let sum: u64 = request_memory.iter_mut().step_by(CACHE_LINE).map(|byte| u64::from(*byte)).sum();
        black_box((sum, &mut request_memory));
        clock.now().since(began).0
    };
    // The first walks are not warm yet and are skipped.
    let warm: Vec<u64> = (0..10 * ROUNDS).map(|_| walk(false)).skip(ROUNDS).collect();
    let dirty: Vec<u64> = (0..10 * ROUNDS).map(|_| walk(true)).collect();
    median(dirty).saturating_sub(median(warm))
}

/// Time of a decision of µTune's policy between two setups.
fn policy_decision_time(clock: &Clock) -> Nanos {
    let point =
        |load| CurvePoint { load, p50_us: 50.0, p99_us: 90.0, p999_us: 99.0, cpu: 1.0, samples: 2_000, spread: 0.0 };
    let curve = |text: &str, max_load_rps: f64| {
        let setup = text.parse().ok()?;
        Some(Curve { setup, points: vec![point(1.0), point(max_load_rps)], max_load: max_load_rps })
    };
    let curves = [("SIP1", 1_000.0), ("SDB1-16", 9_000.0)]
        .into_iter()
        .filter_map(|(text, max_load_rps)| curve(text, max_load_rps));
    let built = Curves::new(curves.collect()).ok().and_then(|curves| {
        let spec = registry::find("utune").ok()?;
        let first = curves.all().first()?.setup;
        let environment = ThreadEnvironment::new(Some(Arc::new(curves)), first, 2);
        spec.build(&spec.params(&[]).ok()?, &environment).ok()
    });
    let Some(mut policy) = built else { return Nanos::ZERO };
    let ring = ArrivalRing::new();
    (1..=16u64).for_each(|step| _ = ring.record(Time(step * 2_000_000)));
    let mut signals = ThreadSignals::idle(Time(40_000_000), policy.initial());
    median_time(clock, || {
        signals.arrivals = ring.window(policy.window());
        black_box(policy.decide(&signals));
    })
}
