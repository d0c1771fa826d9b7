//! Benchmark of mutexes that can reject a request, beside those of std and parking_lot:
//! uncontended on one thread, and contended by two threads with short critical sections. Criterion
//! measures each mutex by itself. The ratios at the end are from rounds that measure all mutexes in
//! turn, so that a slow moment of the machine slows all of them.

use criterion::{Criterion, criterion_group};
use leeward_core::budget::Budget;
use leeward_core::units::Nanos;
use leeward_runtime::budget;
use leeward_runtime::locks::Mutex;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Budget that never runs out, so that contended rounds measure waits and not rejections.
const AMPLE: Budget = Budget::new(Nanos::from_secs(3_600));

/// A mutex under test. `count` adds one to the guarded counter and does `rounds` of work with it.
trait Counter: Sync {
    const NAME: &'static str;
    fn new() -> Self;
    fn count(&self, rounds: u32);
}

/// Adds one, and then works for one or two nanoseconds per round.
#[inline]
fn work(counter: &mut u64, rounds: u32) {
    *counter += 1;
    (0..rounds).for_each(|_| *counter = black_box(*counter));
}

struct Std(std::sync::Mutex<u64>);
struct ParkingLot(parking_lot::Mutex<u64>);
struct Plain(Mutex<u64>);
struct UnlessCongested(Mutex<u64>);
/// The asynchronous form, as a task uses it: one poll of the future.
struct Async(Mutex<u64>);

impl Counter for Std {
    const NAME: &'static str = "std";
    fn new() -> Self {
        Std(std::sync::Mutex::new(0))
    }
    fn count(&self, rounds: u32) {
        work(&mut self.0.lock().unwrap(), rounds);
    }
}

impl Counter for ParkingLot {
    const NAME: &'static str = "parking_lot";
    fn new() -> Self {
        ParkingLot(parking_lot::Mutex::new(0))
    }
    fn count(&self, rounds: u32) {
        work(&mut self.0.lock(), rounds);
    }
}

impl Counter for Plain {
    const NAME: &'static str = "lock_blocking";
    fn new() -> Self {
        Plain(Mutex::new("plain", 0))
    }
    fn count(&self, rounds: u32) {
        work(&mut self.0.lock_blocking(), rounds);
    }
}

impl Counter for UnlessCongested {
    const NAME: &'static str = "lock_blocking_unless_congested";
    fn new() -> Self {
        UnlessCongested(Mutex::new("unless congested", 0))
    }
    fn count(&self, rounds: u32) {
        work(&mut self.0.lock_blocking_unless_congested().unwrap(), rounds);
    }
}

impl Counter for Async {
    const NAME: &'static str = "lock_unless_congested (async)";
    fn new() -> Self {
        Async(Mutex::new("async", 0))
    }
    fn count(&self, rounds: u32) {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(self.0.lock_unless_congested()).poll(&mut context) {
            Poll::Ready(guard) => work(&mut guard.unwrap(), rounds),
            // No other thread uses this mutex.
            Poll::Pending => unreachable!(),
        }
    }
}

/// Time of `times` acquisitions in sequence on one thread.
fn uncontended<C: Counter>(times: u64) -> Duration {
    let counter = C::new();
    let began = Instant::now();
    budget::with(AMPLE, || (0..times).for_each(|_| black_box(&counter).count(0)));
    began.elapsed()
}

/// Time in which two threads make `times` acquisitions each, with no other work.
fn contended<C: Counter>(times: u64) -> Duration {
    two_threads::<C>(times, 0)
}

/// Like [`contended`], with some hundred nanoseconds of work with the lock and as much without it.
fn at_work<C: Counter>(times: u64) -> Duration {
    two_threads::<C>(times, 100)
}

fn two_threads<C: Counter>(times: u64, rounds: u32) -> Duration {
    let (counter, start) = (C::new(), Barrier::new(2));
    let run = || {
        start.wait();
        let began = Instant::now();
        budget::with(AMPLE, || {
            let mut own = 0;
            for _ in 0..times {
                black_box(&counter).count(rounds);
                work(&mut own, rounds);
            }
        });
        (began, Instant::now())
    };
    std::thread::scope(|threads| {
        let other = threads.spawn(run);
        let (one, two) = (run(), other.join().unwrap());
        one.1.max(two.1) - one.0.min(two.0)
    })
}

fn each(criterion: &mut Criterion) {
    fn one<C: Counter>(criterion: &mut Criterion) {
        let name = C::NAME;
        criterion.bench_function(&format!("uncontended/{name}"), |bencher| bencher.iter_custom(uncontended::<C>));
    }
    fn two<C: Counter>(criterion: &mut Criterion) {
        let name = C::NAME;
        criterion.bench_function(&format!("two threads/{name}"), |bencher| bencher.iter_custom(contended::<C>));
    }
    one::<Std>(criterion);
    one::<ParkingLot>(criterion);
    one::<Plain>(criterion);
    one::<UnlessCongested>(criterion);
    one::<Async>(criterion);
    two::<Std>(criterion);
    two::<ParkingLot>(criterion);
    two::<Plain>(criterion);
    two::<UnlessCongested>(criterion);
}

/// Lower quartile, median and upper quartile.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
}

/// A mutex's name, and the function that measures the time of a number of acquisitions.
type Measure = (&'static str, fn(u64) -> Duration);

/// Measures each mutex once per round. Prints quartiles of the times, and of their ratios to the
/// times of the first two `measures` in the same round.
fn ratios(title: &str, rounds: usize, times: u64, measures: &[Measure]) {
    println!("\n{title}: {rounds} rounds that take turns, ns per acquisition and as multiples of the rows of others");
    let spans: Vec<Vec<f64>> = (0..rounds)
        .map(|_| measures.iter().map(|(_, run)| run(times).as_nanos() as f64 / times as f64).collect())
        .collect();
    for (index, (name, _)) in measures.iter().enumerate() {
        let [low, median, high] = quartiles(spans.iter().map(|round| round[index]).collect());
        print!("  {name:32} {median:8.2} ns ({low:.2} to {high:.2})");
        for (base, (other, _)) in measures.iter().enumerate().take(2).filter(|(base, _)| *base != index) {
            let [low, median, high] = quartiles(spans.iter().map(|round| round[index] / round[base]).collect());
            print!("   {median:.2} x {other} ({low:.2} to {high:.2})");
        }
        println!();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(2));
    targets = each
}

fn main() {
    // `--ratios` skips Criterion's benchmarks.
    if !std::env::args().any(|argument| argument == "--ratios") {
        benches();
        Criterion::default().configure_from_args().final_summary();
    }
    let one: &[Measure] = &[
        (Std::NAME, uncontended::<Std>),
        (ParkingLot::NAME, uncontended::<ParkingLot>),
        (Plain::NAME, uncontended::<Plain>),
        (UnlessCongested::NAME, uncontended::<UnlessCongested>),
        (Async::NAME, uncontended::<Async>),
    ];
    let two: &[Measure] = &[
        (Std::NAME, contended::<Std>),
        (ParkingLot::NAME, contended::<ParkingLot>),
        (Plain::NAME, contended::<Plain>),
        (UnlessCongested::NAME, contended::<UnlessCongested>),
    ];
    let busy: &[Measure] = &[
        (Std::NAME, at_work::<Std>),
        (ParkingLot::NAME, at_work::<ParkingLot>),
        (Plain::NAME, at_work::<Plain>),
        (UnlessCongested::NAME, at_work::<UnlessCongested>),
    ];
    ratios("uncontended", 31, 1_000_000, one);
    ratios("two threads", 31, 300_000, two);
    ratios("two threads with work inside and outside", 31, 50_000, busy);
}
