//! How long a thread on another CPU takes to wake, by how long that CPU was idle, and what a change of threads on one CPU takes.

use super::{has_drifted, median, pin, quantile};
use leeward_core::units::{Nanos, Time};
use leeward_engine::wait::{ThreadWaker, wait};
use leeward_runtime::Clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// Samples per class of idleness and way of sleeping: `(idle, samples)`. Sleeps of milliseconds are few, for they last.
const CLASSES: [(Nanos, usize); 3] =
    [(Nanos::from_micros(20), 4_000), (Nanos::from_micros(500), 2_000), (Nanos::from_millis(5), 400)];
/// A sleep that nobody ends is over after this: a sample is lost with it, not the measurement.
const MAX_SLEEP: Duration = Duration::from_millis(200);
/// Changes of threads on one CPU.
const SWITCHES: u64 = 20_000;
/// Samples of a wake-up on a CPU that another thread keeps busy.
const BUSY_SAMPLES: usize = 200;
/// Two threads share a CPU for this long to see how it is shared.
const SLICE_DURATION: Nanos = Nanos::from_millis(400);
/// A thread that misses more than this was not running.
const PREEMPTION_GAP: Nanos = Nanos::from_micros(300);

/// Ways to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SleepMethod {
    /// As a worker does, on a futex.
    Futex,
    /// As a thread at sockets does, on descriptors.
    Descriptor,
}

const SLEEP_METHODS: [SleepMethod; 2] = [SleepMethod::Futex, SleepMethod::Descriptor];

/// Wake-ups, by class of idleness and way.
pub(super) struct WakeupSamples {
    /// Sorted, ns.
    latencies: [[Vec<u64>; 2]; 3],
    /// Medians of the first and the second half of the futex's samples.
    half_medians: [[Nanos; 2]; 3],
    call_times: Vec<u64>,
}

/// Measures wake-ups of a thread on the first CPU by one on the second.
pub(super) fn measure_wakeups(clock: &Clock, cpus: (usize, usize), stop: &AtomicBool) -> WakeupSamples {
    let mut wakes =
        WakeupSamples { latencies: Default::default(), half_medians: Default::default(), call_times: Vec::new() };
    for (class, (idle, samples)) in CLASSES.into_iter().enumerate() {
        for (way, took) in SLEEP_METHODS.into_iter().zip(&mut wakes.latencies[class]) {
            let (mut took_now, calls) = sample_wakeups(clock, cpus, way, idle, samples, stop);
            if way == SleepMethod::Futex {
                let (first, second) = took_now.split_at(took_now.len() / 2);
                wakes.half_medians[class] = [median(first.to_vec()), median(second.to_vec())];
                wakes.call_times.extend(calls);
            }
            took_now.sort_unstable();
            *took = took_now;
        }
    }
    wakes.call_times.sort_unstable();
    wakes
}

impl WakeupSamples {
    /// Rows of the simulator's table: both ways together.
    pub(super) fn rows(&self) -> [[Nanos; 6]; 3] {
        self.latencies.each_ref().map(|ways| {
            let mut all: Vec<u64> = ways.iter().flatten().copied().collect();
            all.sort_unstable();
            [10, 500, 900, 990, 999, 1_000].map(|permille| quantile(&all, permille))
        })
    }

    /// CPU time of the waker.
    pub(super) fn call_time(&self) -> Nanos {
        quantile(&self.call_times, 500)
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let classes = CLASSES.iter().zip(&self.latencies);
        classes
            .map(|((idle, _), [futex, descriptor])| {
                let of = |took: &[u64]| format!("p50 {}, p99 {}", quantile(took, 500), quantile(took, 990));
                let (futex_says, descriptor_says) = (of(futex), of(descriptor));
                let samples = futex.len() + descriptor.len();
                format!("waking a CPU that was idle for {idle}: futex {futex_says}; descriptor {descriptor_says} ({samples} samples)")
            })
            .collect()
    }

    pub(super) fn warning(&self) -> Option<String> {
        let moved = self.half_medians.iter().any(|[first, second]| has_drifted(*first, *second));
        moved
            .then(|| "wake-ups took another time in the second half than in the first: the machine is not quiet".into())
    }
}

/// Place of a sleeper: what both threads know of it.
struct Sleeper {
    /// Sleeps so far.
    sleep_count: AtomicU64,
    /// When it woke last, ns; 0: it has not.
    woken_at: AtomicU64,
    is_stopped: AtomicBool,
    /// Set by the waker: a futex's wake-up may come early.
    is_notified: AtomicBool,
    alarm: Option<ThreadWaker>,
}

impl Sleeper {
    fn new() -> Self {
        let (slept, woke) = (AtomicU64::new(0), AtomicU64::new(0));
        let (over, called) = (AtomicBool::new(false), AtomicBool::new(false));
        Sleeper {
            sleep_count: slept,
            woken_at: woke,
            is_stopped: over,
            is_notified: called,
            alarm: ThreadWaker::new().ok(),
        }
    }

    /// Sleeps again and again, and says when it woke.
    fn sleep(&self, clock: &Clock, way: SleepMethod) {
        while !self.is_stopped.load(Ordering::Acquire) {
            self.sleep_count.fetch_add(1, Ordering::Release);
            match (way, &self.alarm) {
                (SleepMethod::Descriptor, Some(alarm)) => _ = wait(alarm, &[], MAX_SLEEP),
                _ => {
                    while !self.is_notified.swap(false, Ordering::AcqRel) && !self.is_stopped.load(Ordering::Acquire) {
                        thread::park_timeout(MAX_SLEEP);
                    }
                }
            }
            self.woken_at.store(clock.now().0, Ordering::Release);
        }
    }

    fn wake(&self, way: SleepMethod, sleeper: &Thread) {
        match (way, &self.alarm) {
            (SleepMethod::Descriptor, Some(alarm)) => alarm.wake(),
            _ => {
                self.is_notified.store(true, Ordering::Release);
                sleeper.unpark();
            }
        }
    }
}

/// So many wake-ups of a CPU that has been idle for `idle`: how long each took, and the waker's part of it, ns.
fn sample_wakeups(
    clock: &Clock,
    (sleeper_cpu, waker_cpu): (usize, usize),
    way: SleepMethod,
    idle: Nanos,
    samples: usize,
    stop: &AtomicBool,
) -> (Vec<u64>, Vec<u64>) {
    let place = &Sleeper::new();
    thread::scope(|scope| {
        let sleeper = scope.spawn(move || {
            pin(sleeper_cpu);
            place.sleep(clock, way);
        });
        let sleeper = sleeper.thread().clone();
        let waker = scope.spawn(move || {
            pin(waker_cpu);
            let (mut took, mut calls) = (Vec::with_capacity(samples), Vec::with_capacity(samples));
            for turn in 1..=samples as u64 {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                spin_until(clock, MAX_SLEEP, || place.sleep_count.load(Ordering::Acquire) >= turn);
                let began = clock.now();
                while clock.now().since(began) < idle {
                    std::hint::spin_loop();
                }
                place.woken_at.store(0, Ordering::Release);
                let call = clock.now();
                place.wake(way, &sleeper);
                calls.push(clock.now().since(call).0);
                if spin_until(clock, MAX_SLEEP, || place.woken_at.load(Ordering::Acquire) != 0) {
                    took.push(Time(place.woken_at.load(Ordering::Acquire)).since(call).0);
                }
            }
            place.is_stopped.store(true, Ordering::Release);
            place.wake(way, &sleeper);
            (took, calls)
        });
        waker.join().unwrap_or_default()
    })
}

fn spin_until(clock: &Clock, longest: Duration, holds: impl Fn() -> bool) -> bool {
    let began = clock.now();
    while !holds() {
        if clock.now().since(began).0 > longest.as_nanos() as u64 {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

/// Changes of threads on one CPU.
pub(super) struct Switches {
    /// From one thread to another that waits for it, less the waker's call.
    pub(super) switch: Nanos,
    /// Until a woken thread gets a CPU that another keeps busy.
    pub(super) preempt: Nanos,
    /// How long a thread runs beside another; `None` if the CPU never changed hands.
    pub(super) slice: Option<Nanos>,
    rounds: [Nanos; 2],
}

impl Switches {
    pub(super) fn warning(&self) -> Option<String> {
        let [first, second] = self.rounds;
        has_drifted(first, second).then(|| {
            format!("a change of threads took {first} in one round and {second} in the next: the machine is not quiet")
        })
    }
}

/// Measures changes of threads on the first CPU.
pub(super) fn measure_switches(clock: &Clock, cpus: (usize, usize), stop: &AtomicBool) -> Switches {
    let rounds = [(); 2].map(|()| ping_pong(clock, cpus.0));
    let busy = AtomicBool::new(true);
    let (took, quiet) = thread::scope(|scope| {
        scope.spawn(|| {
            pin(cpus.0);
            while busy.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let (took, _) = sample_wakeups(clock, cpus, SleepMethod::Futex, Nanos::from_micros(500), BUSY_SAMPLES, stop);
        busy.store(false, Ordering::Relaxed);
        let (quiet, _) = sample_wakeups(clock, cpus, SleepMethod::Futex, Nanos::from_micros(500), BUSY_SAMPLES, stop);
        (median(took), median(quiet))
    });
    // A change is a system call of the one and the return of the other; what the call takes by itself is counted as the waker's.
    let (_, calls) = sample_wakeups(clock, (cpus.0, cpus.0), SleepMethod::Futex, Nanos::ZERO, BUSY_SAMPLES, stop);
    let switch = rounds[0].min(rounds[1]).saturating_sub(median(calls).min(rounds[0] / 2));
    Switches { switch, preempt: took.saturating_sub(quiet), slice: measure_slice(clock, cpus.0), rounds }
}

/// Time of a change between two threads on one CPU that wake each other in turn.
fn ping_pong(clock: &Clock, cpu: usize) -> Nanos {
    let turn = AtomicU64::new(0);
    let began = clock.now();
    let play = |mine: u64, other: &Thread| {
        pin(cpu);
        while turn.load(Ordering::Acquire) < SWITCHES {
            if turn.load(Ordering::Acquire) % 2 == mine {
                turn.fetch_add(1, Ordering::Release);
                other.unpark();
            } else {
                thread::park_timeout(MAX_SLEEP);
            }
        }
        other.unpark();
    };
    let play = &play;
    thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel::<Thread>();
        let first = scope.spawn(move || {
            let other = receiver.recv().unwrap_or_else(|_| thread::current());
            play(0, &other);
        });
        let to_first = first.thread().clone();
        let second = scope.spawn(move || play(1, &to_first));
        let _ = sender.send(second.thread().clone());
    });
    Nanos(clock.now().since(began).0 / SWITCHES)
}

/// How long a thread is away while another has its CPU: the other's slice.
fn measure_slice(clock: &Clock, cpu: usize) -> Option<Nanos> {
    let watch = || {
        pin(cpu);
        let (began, mut gaps) = (clock.now(), Vec::new());
        let mut last = began;
        while last.since(began) < SLICE_DURATION {
            let now = clock.now();
            if now.since(last) > PREEMPTION_GAP {
                gaps.push(now.since(last).0);
            }
            last = now;
        }
        gaps
    };
    let gaps = thread::scope(|scope| {
        let both = [scope.spawn(watch), scope.spawn(watch)];
        both.into_iter().flat_map(|one| one.join().unwrap_or_default()).collect::<Vec<u64>>()
    });
    (!gaps.is_empty()).then(|| median(gaps))
}
