//! Wake-up latency of a thread on another CPU, by that CPU's idle time, and cost of a switch
//! between threads on one CPU.

use super::{has_drifted, median, pin, quantile};
use leeward_core::units::{Nanos, Time};
use leeward_engine::wait::{ThreadWaker, wait};
use leeward_runtime::Clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// Samples per idle time and sleep method: `(idle, samples)`. Long idle times have few samples,
/// because each takes milliseconds.
const CLASSES: [(Nanos, usize); 3] =
    [(Nanos::from_micros(20), 4_000), (Nanos::from_micros(500), 2_000), (Nanos::from_millis(5), 400)];
/// Longest sleep without a wake-up; it loses one sample, not the measurement.
const MAX_SLEEP: Duration = Duration::from_millis(200);
/// Switches between threads on one CPU.
const SWITCHES: u64 = 20_000;
/// Samples of wake-ups on a CPU that another thread keeps busy.
const BUSY_SAMPLES: usize = 200;
/// Time for which two threads share a CPU, to measure the scheduler's slice.
const SLICE_DURATION: Nanos = Nanos::from_millis(400);
/// Gap between two clock readings that shows a preemption.
const PREEMPTION_GAP: Nanos = Nanos::from_micros(300);

/// Ways to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SleepMethod {
    /// On a futex, like a worker.
    Futex,
    /// On descriptors, like a thread that polls sockets.
    Descriptor,
}

const SLEEP_METHODS: [SleepMethod; 2] = [SleepMethod::Futex, SleepMethod::Descriptor];

/// Wake-up samples, by idle time and sleep method.
pub(super) struct WakeupSamples {
    /// Sorted latencies, in ns.
    latencies: [[Vec<u64>; 2]; 3],
    /// Medians of the first and the second half of the futex samples.
    half_medians: [[Nanos; 2]; 3],
    call_times: Vec<u64>,
}

/// Measures wake-ups of a thread on the first CPU by a thread on the second.
pub(super) fn measure_wakeups(clock: &Clock, cpus: (usize, usize), stop: &AtomicBool) -> WakeupSamples {
    let mut wakes =
        WakeupSamples { latencies: Default::default(), half_medians: Default::default(), call_times: Vec::new() };
    for (class, (idle, samples)) in CLASSES.into_iter().enumerate() {
        for (method, sorted) in SLEEP_METHODS.into_iter().zip(&mut wakes.latencies[class]) {
            let (mut latencies, calls) = sample_wakeups(clock, cpus, method, idle, samples, stop);
            if method == SleepMethod::Futex {
                let (first, second) = latencies.split_at(latencies.len() / 2);
                wakes.half_medians[class] = [median(first.to_vec()), median(second.to_vec())];
                wakes.call_times.extend(calls);
            }
            latencies.sort_unstable();
            *sorted = latencies;
        }
    }
    wakes.call_times.sort_unstable();
    wakes
}

impl WakeupSamples {
    /// Rows of the simulator's table, over both sleep methods.
    pub(super) fn rows(&self) -> [[Nanos; 6]; 3] {
        self.latencies.each_ref().map(|ways| {
            let mut all: Vec<u64> = ways.iter().flatten().copied().collect();
            all.sort_unstable();
            [10, 500, 900, 990, 999, 1_000].map(|permille| quantile(&all, permille))
        })
    }

    /// Median CPU time of the waker's call.
    pub(super) fn call_time(&self) -> Nanos {
        quantile(&self.call_times, 500)
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let classes = CLASSES.iter().zip(&self.latencies);
        classes
            .map(|((idle, _), [futex, descriptor])| {
                let format_quantiles = |latencies: &[u64]| format!("p50 {}, p99 {}", quantile(latencies, 500), quantile(latencies, 990));
                let (futex_text, descriptor_text) = (format_quantiles(futex), format_quantiles(descriptor));
                let samples = futex.len() + descriptor.len();
                format!("waking a CPU that was idle for {idle}: futex {futex_text}; descriptor {descriptor_text} ({samples} samples)")
            })
            .collect()
    }

    pub(super) fn warning(&self) -> Option<String> {
        let has_moved = self.half_medians.iter().any(|[first, second]| has_drifted(*first, *second));
        has_moved.then(|| "wake-up times differ between the first and the second half: the machine is not quiet".into())
    }
}

/// State that a sleeper and its waker share.
struct Sleeper {
    /// Sleeps so far.
    sleep_count: AtomicU64,
    /// Time of the last wake-up, in ns; 0: none since the waker's reset.
    woken_at: AtomicU64,
    is_stopped: AtomicBool,
    /// Set by the waker, because a futex may wake early.
    is_notified: AtomicBool,
    alarm: Option<ThreadWaker>,
}

impl Sleeper {
    fn new() -> Self {
        let (sleep_total, woken) = (AtomicU64::new(0), AtomicU64::new(0));
        let (stopped, notified) = (AtomicBool::new(false), AtomicBool::new(false));
        Sleeper {
            sleep_count: sleep_total,
            woken_at: woken,
            is_stopped: stopped,
            is_notified: notified,
            alarm: ThreadWaker::new().ok(),
        }
    }

    /// Sleeps repeatedly, and records each wake-up.
    fn sleep(&self, clock: &Clock, method: SleepMethod) {
        while !self.is_stopped.load(Ordering::Acquire) {
            self.sleep_count.fetch_add(1, Ordering::Release);
            match (method, &self.alarm) {
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

    fn wake(&self, method: SleepMethod, sleeper: &Thread) {
        match (method, &self.alarm) {
            (SleepMethod::Descriptor, Some(alarm)) => alarm.wake(),
            _ => {
                self.is_notified.store(true, Ordering::Release);
                sleeper.unpark();
            }
        }
    }
}

/// Takes `samples` wake-ups of a CPU that was idle for `idle`; returns latencies and the waker's
/// call times, in ns.
fn sample_wakeups(
    clock: &Clock,
    (sleeper_cpu, waker_cpu): (usize, usize),
    method: SleepMethod,
    idle: Nanos,
    samples: usize,
    stop: &AtomicBool,
) -> (Vec<u64>, Vec<u64>) {
    let state = &Sleeper::new();
    thread::scope(|scope| {
        let sleeper = scope.spawn(move || {
            pin(sleeper_cpu);
            state.sleep(clock, method);
        });
        let sleeper = sleeper.thread().clone();
        let waker = scope.spawn(move || {
            pin(waker_cpu);
            let (mut latencies, mut calls) = (Vec::with_capacity(samples), Vec::with_capacity(samples));
            for round in 1..=samples as u64 {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                spin_until(clock, MAX_SLEEP, || state.sleep_count.load(Ordering::Acquire) >= round);
                let began = clock.now();
                while clock.now().since(began) < idle {
                    std::hint::spin_loop();
                }
                state.woken_at.store(0, Ordering::Release);
                let call = clock.now();
                state.wake(method, &sleeper);
                calls.push(clock.now().since(call).0);
                if spin_until(clock, MAX_SLEEP, || state.woken_at.load(Ordering::Acquire) != 0) {
                    latencies.push(Time(state.woken_at.load(Ordering::Acquire)).since(call).0);
                }
            }
            state.is_stopped.store(true, Ordering::Release);
            state.wake(method, &sleeper);
            (latencies, calls)
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

/// Switches between threads on one CPU.
pub(super) struct Switches {
    /// Time from one thread to another that waits for it, less the waker's call.
    pub(super) switch: Nanos,
    /// Time until a woken thread gets a CPU that another thread keeps busy.
    pub(super) preempt: Nanos,
    /// Time for which a thread runs before another gets the CPU; `None` if the CPU never changed
    /// hands.
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

/// Measures switches between threads on the first CPU.
pub(super) fn measure_switches(clock: &Clock, cpus: (usize, usize), stop: &AtomicBool) -> Switches {
    let rounds = [(); 2].map(|()| ping_pong(clock, cpus.0));
    let busy = AtomicBool::new(true);
    let (busy_latency, quiet) = thread::scope(|scope| {
        scope.spawn(|| {
            pin(cpus.0);
            while busy.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let (busy_latency, _) =
            sample_wakeups(clock, cpus, SleepMethod::Futex, Nanos::from_micros(500), BUSY_SAMPLES, stop);
        busy.store(false, Ordering::Relaxed);
        let (quiet, _) = sample_wakeups(clock, cpus, SleepMethod::Futex, Nanos::from_micros(500), BUSY_SAMPLES, stop);
        (median(busy_latency), median(quiet))
    });
    // A switch is one thread's system call and the other's return. The call itself is counted as
    // the waker's.
    let (_, calls) = sample_wakeups(clock, (cpus.0, cpus.0), SleepMethod::Futex, Nanos::ZERO, BUSY_SAMPLES, stop);
    let switch = rounds[0].min(rounds[1]).saturating_sub(median(calls).min(rounds[0] / 2));
    Switches { switch, preempt: busy_latency.saturating_sub(quiet), slice: measure_slice(clock, cpus.0), rounds }
}

/// Time of a switch between two threads on one CPU that wake each other in turn.
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
            let second = receiver.recv().unwrap_or_else(|_| thread::current());
            play(0, &second);
        });
        let first_thread = first.thread().clone();
        let second = scope.spawn(move || play(1, &first_thread));
        let _ = sender.send(second.thread().clone());
    });
    Nanos(clock.now().since(began).0 / SWITCHES)
}

/// Measures how long a thread is preempted by another on the same CPU: the other's slice.
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
        both.into_iter().flat_map(|watcher| watcher.join().unwrap_or_default()).collect::<Vec<u64>>()
    });
    (!gaps.is_empty()).then(|| median(gaps))
}
