//! A worker in virtual time behind a gate with and without a wait queue. Work takes 50 us; the
//! costs of reading and rejecting over TCP were measured at this load. The queue changes the order
//! of requests, and hardly the throughput.

#![cfg(not(loom))]

use leeward_core::units::Time;
use leeward_gate::{Class, Gate, Outcome, Permit, RequestInfo, Waiter};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const SLO_NS: u64 = 20_000_000;
const HASTY_NS: u64 = 6_000_000;
/// Costs in ns: read a request, execute and answer it, send a rejection, poll sockets once, call a
/// request.
const READ: u64 = 8_000;
const EXECUTE: u64 = 62_000;
const REFUSE: u64 = 9_000;
const LOOK: u64 = 1_000;
const CALLED: u64 = 1_500;
/// Most requests that Tokio reads between two polls of the sockets.
const LAP: usize = 61;

#[derive(Clone, Copy)]
struct Request {
    arrival: u64,
    /// Time after which the client gives up, in ns.
    left: u64,
    class: u8,
}

/// Requests of two seconds at this demand relative to the capacity.
///
/// With `hasty`, a quarter has a short deadline. Otherwise, a fifth is in the first of three
/// classes and a half in the last.
fn requests(demand: f64, hasty: bool) -> Vec<Request> {
    let (mut random, mut now, mut all) = (0x1EE_3A2Du64, 0.0, Vec::new());
    while now < 2e9 {
        let mut draw = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
        };
        now += -(1.0 - draw()).ln() * (READ + EXECUTE) as f64 / demand;
        let kind = draw();
        let left = if hasty && kind < 0.25 { HASTY_NS } else { SLO_NS };
        let class = match kind {
            _ if hasty => 3,
            ..0.2 => 0,
            0.2..0.5 => 3,
            _ => 7,
        };
        all.push(Request { arrival: now as u64, left, class });
    }
    all
}

/// By group: requests answered in time, the sum of their latencies in ns, and all requests.
#[derive(Clone, Copy, Debug, Default)]
struct ResponseStats {
    in_time: [u64; 8],
    latency: [u64; 8],
    all: [u64; 8],
}

impl ResponseStats {
    fn count(&mut self, request: &Request, answered: Option<u64>) {
        // The first half second is not counted.
        if request.arrival < 500_000_000 {
            return;
        }
        let group = if request.left == HASTY_NS { 1 } else { usize::from(request.class) };
        self.all[group] += 1;
        if let Some(latency) = answered.map(|at| at - request.arrival).filter(|latency| *latency <= request.left) {
            self.in_time[group] += 1;
            self.latency[group] += latency;
        }
    }

    /// Mean latency of requests in time, in ms.
    fn latency_ms(&self, group: usize) -> f64 {
        self.latency[group] as f64 / self.in_time[group] as f64 / 1e6
    }

    fn share(&self, group: usize) -> f64 {
        self.in_time[group] as f64 / self.all[group] as f64
    }

    /// Goodput divided by the capacity.
    fn goodput(&self) -> f64 {
        self.in_time.iter().sum::<u64>() as f64 * (READ + EXECUTE) as f64 / 1.5e9
    }
}

struct TaskWaker(Arc<Mutex<Vec<usize>>>, usize);

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().push(self.1);
    }
}

struct Worker<'a> {
    gate: Gate,
    requests: &'a [Request],
    now: u64,
    stats: ResponseStats,
    /// Requests that wait in the queue and were not called at their last poll.
    waits: BTreeMap<usize, (Permit, Waiter)>,
    timers: BTreeSet<(u64, usize)>,
    woken: Arc<Mutex<Vec<usize>>>,
    /// Called requests, which begin after the next poll of the sockets.
    called: Vec<(usize, Permit, Waiter)>,
}

fn run(requests: &[Request], has_queue: bool) -> ResponseStats {
    let builder = Gate::builder(Duration::from_nanos(SLO_NS)).workers(1);
    run_at(if has_queue { builder.queue(10_000) } else { builder }.build().unwrap(), requests)
}

fn run_at(gate: Gate, requests: &[Request]) -> ResponseStats {
    let (empty, waits) = (ResponseStats::default(), BTreeMap::new());
    let mut worker = Worker {
        gate,
        requests,
        now: 0,
        stats: empty,
        waits,
        timers: BTreeSet::new(),
        woken: Arc::default(),
        called: Vec::new(),
    };
    worker.serve();
    let counts = worker.gate.counts();
    assert_eq!((counts.in_flight(), worker.gate.waiting()), (0, 0), "{counts:?}");
    assert_eq!(counts.arrived, requests.len() as u64);
    worker.stats
}

impl Worker<'_> {
    fn serve(&mut self) {
        let mut next = 0;
        loop {
            for _ in 0..LAP {
                if next >= self.requests.len() || self.requests[next].arrival > self.now {
                    break;
                }
                self.read(next);
                next += 1;
                self.poll_woken();
            }
            self.now += LOOK;
            for (number, permit, mut waiter) in std::mem::take(&mut self.called) {
                match waiter.begin(Time(self.now)) {
                    Poll::Ready(result) => self.begin(number, permit, result, Some(waiter)),
                    Poll::Pending => self.poll(number, permit, waiter),
                }
            }
            self.poll_woken();
            let is_idle = self.called.is_empty() && self.waits.is_empty();
            match self.requests.get(next) {
                Some(request) if is_idle => self.now = self.now.max(request.arrival),
                None if is_idle => return,
                _ => {}
            }
        }
    }

    fn read(&mut self, number: usize) {
        let request = self.requests[number];
        self.now += READ;
        let info = RequestInfo::default()
            .with_age(Duration::from_nanos(self.now - READ - request.arrival))
            .with_timeout(Duration::from_nanos(request.left))
            .with_class(Class::new(request.class));
        match self.gate.admit_at(Time(self.now), &info) {
            Err(_) => self.refuse(number),
            Ok(permit) => match permit.enqueue(Time(self.now)) {
                Ok(Some(waiter)) if !waiter.has_begun() => self.poll(number, permit, waiter),
                Ok(waiter) => self.begin(number, permit, Ok(()), waiter),
                Err(error) => self.begin(number, permit, Err(error), None),
            },
        }
    }

    fn refuse(&mut self, number: usize) {
        self.now += REFUSE;
        self.stats.count(&self.requests[number], None);
    }

    fn poll(&mut self, number: usize, permit: Permit, mut waiter: Waiter) {
        let waker = Waker::from(Arc::new(TaskWaker(Arc::clone(&self.woken), number)));
        match waiter.poll_ready(Time(self.now), &mut Context::from_waker(&waker)) {
            Poll::Ready(Ok(())) => {
                self.now += CALLED;
                self.called.push((number, permit, waiter));
            }
            Poll::Ready(Err(error)) => self.begin(number, permit, Err(error), Some(waiter)),
            Poll::Pending => {
                self.timers.insert((waiter.start_deadline().0, number));
                self.waits.insert(number, (permit, waiter));
            }
        }
    }

    /// Polls requests that were woken or whose timer has expired.
    fn poll_woken(&mut self) {
        loop {
            let mut woken = std::mem::take(&mut *self.woken.lock().unwrap());
            while let Some((at, number)) = self.timers.first().copied().filter(|(at, _)| *at <= self.now) {
                self.timers.remove(&(at, number));
                woken.push(number);
            }
            if woken.is_empty() {
                return;
            }
            for number in woken {
                if let Some((permit, waiter)) = self.waits.remove(&number) {
                    self.timers.remove(&(waiter.start_deadline().0, number));
                    self.poll(number, permit, waiter);
                }
            }
        }
    }

    fn begin(
        &mut self,
        number: usize,
        permit: Permit,
        wait_result: Result<(), leeward_gate::WaitError>,
        waiter: Option<Waiter>,
    ) {
        match permit.begin_at(Time(self.now), wait_result) {
            Ok(mut permit) => {
                self.now += EXECUTE;
                permit.record_cpu_time(Duration::from_nanos(EXECUTE));
                permit.finish_at(Time(self.now), Outcome::Completed);
                self.stats.count(&self.requests[number], Some(self.now));
            }
            Err(_) => self.refuse(number),
        }
        drop(waiter);
    }
}

#[test]
fn requests_with_short_deadlines_are_served_first() {
    let requests = requests(2.0, true);
    let (without, with) = (run(&requests, false), run(&requests, true));
    // Without a wait queue, they wait as long as the others; the answers take about 8 ms.
    assert!(without.share(1) < 0.75 * without.share(3), "{without:?}");
    assert!(with.share(1) > 0.95 * with.share(3), "{with:?}");
    assert!(with.latency_ms(1) < 0.4 * without.latency_ms(3), "{with:?} {without:?}");
    check_goodput(without, with);
}

#[test]
fn the_most_important_requests_wait_least() {
    let requests = requests(2.0, false);
    let (without, with) = (run(&requests, false), run(&requests, true));
    assert!(with.share(0) > 0.995, "{with:?}");
    assert!(with.latency_ms(0) < 0.3 * without.latency_ms(0), "{with:?} {without:?}");
    check_goodput(without, with);
}

/// The order costs little goodput: 0.66 instead of 0.68 of the capacity. The cost of rejections
/// leaves 0.68.
fn check_goodput(without: ResponseStats, with: ResponseStats) {
    assert!(without.goodput() > 0.66 && without.goodput() < 0.69, "{}", without.goodput());
    assert!(with.goodput() > 0.95 * without.goodput(), "{} {}", with.goodput(), without.goodput());
}

#[test]
fn without_overload_the_queue_has_no_effect() {
    let requests = requests(0.7, true);
    let (without, with) = (run(&requests, false), run(&requests, true));
    assert_eq!((without.share(3), with.share(3)), (1.0, 1.0));
    assert!(with.share(1) > 0.999, "{}", with.share(1));
}

/// Reading and rejecting could take all of the worker's time; admitted requests still get their
/// part.
#[test]
fn a_flood_of_rejections_does_not_starve_admitted_requests() {
    let requests = requests(3.5, false);
    let (without, with) = (run(&requests, false), run(&requests, true));
    assert!(with.goodput() > 0.95 * without.goodput(), "{with:?} {without:?}");
}

/// Without a priority level, the wait queue alone keeps the most important requests in time.
#[test]
fn the_queue_keeps_important_requests_in_time_without_a_level() {
    let gate = |has_queue: bool| {
        let builder = Gate::builder(Duration::from_nanos(SLO_NS)).workers(1).set("level", "off");
        if has_queue { builder.queue(10_000) } else { builder }.build().unwrap()
    };
    let requests = requests(2.0, false);
    let (without, with) = (run_at(gate(false), &requests), run_at(gate(true), &requests));
    assert!(with.share(0) > 0.995 && without.share(0) < 0.5, "{with:?} {without:?}");
}
