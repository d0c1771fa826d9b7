//! The queue of shadow mode, in virtual time: it foresees what the same queue rejects when it holds
//! requests back, and rejects nothing before an idle backend, whatever has been. Does not contain
//! the queue's order.

use crate::backend::build;
use leeward_concurrency::dispatch::shadow::ShadowQueue;
use leeward_concurrency::dispatch::{Answer, Arrival, Dispatch, DispatchSettings, Dispatcher, QueuedRequest};
use leeward_concurrency::{Outcome, TICK};
use leeward_core::units::{Nanos, Tenant, Time};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const MS: Nanos = Nanos::from_millis(1);
const OBJECTIVE: Nanos = Nanos::from_millis(50);

fn dispatcher<T>(backends: usize) -> Dispatcher<T> {
    let settings = DispatchSettings { objective: OBJECTIVE, capacity: 1_000, capacity_bytes: usize::MAX };
    Dispatcher::new(settings, (0..backends).map(|_| build("knee", OBJECTIVE)).collect())
}

fn request(now: Time, class: u8, timeout: Nanos) -> QueuedRequest {
    QueuedRequest { arrived: now, timeout, class, tenant: Tenant::DEFAULT, bytes: 1 }
}

/// A queue in front of a backend: it holds requests back, or only says which it would reject.
enum Queue {
    Enforced(Dispatcher<u64>),
    Shadow(ShadowQueue<()>),
}

/// A backend with cores that serve requests in the order of their arrival.
struct Backend {
    now: Time,
    work: Nanos,
    free: Vec<Time>,
    /// End, number and beginning of the requests that are there.
    ends: BinaryHeap<Reverse<(Time, u64, Time)>>,
    queue: Queue,
    arrived: u64,
    rejected: u64,
}

impl Backend {
    fn new(cores: usize, work: Nanos, queue: Queue) -> Self {
        let (free, ends) = (vec![Time::ZERO; cores], BinaryHeap::new());
        Backend { now: Time::ZERO, work, free, ends, queue, arrived: 0, rejected: 0 }
    }

    fn send(&mut self, number: u64) {
        let core = self.free.iter_mut().min().expect("a backend has cores");
        *core = (*core).max(self.now) + self.work;
        self.ends.push(Reverse((*core, number, self.now)));
    }

    fn take(&mut self, done: Vec<Dispatch<u64>>) {
        for Dispatch { token, result } in done {
            match result {
                Ok(_) => self.send(token),
                Err(_) => self.rejected += 1,
            }
        }
    }

    fn arrive(&mut self) {
        let (mut done, mut late, number) = (Vec::new(), Vec::new(), self.arrived);
        self.arrived += 1;
        let request = request(self.now, 3, Nanos::MAX);
        let sent = match &mut self.queue {
            Queue::Enforced(dispatcher) => match dispatcher.arrive(self.now, &request, || number, &mut done) {
                Arrival::Sent(_) => Some(number),
                Arrival::Queued(_) => None,
                Arrival::Rejected(_) => {
                    self.rejected += 1;
                    None
                }
            },
            Queue::Shadow(shadow) => {
                let (number, refusal) = shadow.arrive(self.now, &request, (), &mut late);
                self.rejected += u64::from(refusal.is_some());
                Some(number)
            }
        };
        if let Some(number) = sent {
            self.send(number);
        }
        self.rejected += late.len() as u64;
        self.take(done);
    }

    fn end(&mut self, number: u64, dispatched: Time) {
        let answer = Answer { now: self.now, dispatched, outcome: Outcome::Completed };
        let (mut done, mut late) = (Vec::new(), Vec::new());
        match &mut self.queue {
            Queue::Enforced(dispatcher) => {
                dispatcher.answer(0, &answer);
                dispatcher.release(self.now, 0, &mut done);
            }
            Queue::Shadow(shadow) => {
                shadow.answer(number, &answer);
                shadow.end(self.now, number, &mut late);
            }
        }
        self.rejected += late.len() as u64;
        self.take(done);
    }

    fn tick(&mut self) {
        let (mut done, mut late) = (Vec::new(), Vec::new());
        match &mut self.queue {
            Queue::Enforced(dispatcher) => dispatcher.tick(self.now, None, &mut done),
            Queue::Shadow(shadow) => shadow.tick(self.now, &mut late),
        }
        self.rejected += late.len() as u64;
        self.take(done);
    }

    /// Runs for a span with a request each `gap`; returns the share that was rejected.
    fn run(&mut self, span: Nanos, gap: Nanos) -> f64 {
        let (end, arrived, rejected) = (self.now + span, self.arrived, self.rejected);
        let (mut next_arrival, mut tick) = (self.now + gap, self.now + TICK);
        while self.now < end {
            let next_end = self.ends.peek().map_or(Time::NEVER, |Reverse((end, ..))| *end);
            self.now = next_end.min(next_arrival).min(tick);
            if self.now == next_end {
                let Some(Reverse((_, number, dispatched))) = self.ends.pop() else { unreachable!("it was there") };
                self.end(number, dispatched);
            } else if self.now == next_arrival {
                next_arrival = self.now + gap;
                self.arrive();
            } else {
                tick = self.now + TICK;
                self.tick();
            }
        }
        (self.rejected - rejected) as f64 / (self.arrived - arrived) as f64
    }
}

/// Shares that are rejected in 10 s by an enforced queue and by a shadow queue.
fn shares(cores: usize, work: Nanos, gap: Nanos) -> (f64, f64) {
    let queues = [Queue::Enforced(dispatcher(1)), Queue::Shadow(ShadowQueue::new(dispatcher(1)))];
    let [enforced, shadow] = queues.map(|queue| Backend::new(cores, work, queue).run(MS * 10_000, gap));
    (enforced, shadow)
}

#[test]
fn shadow_mode_foresees_what_is_rejected_when_it_is_enforced() {
    for (cores, work) in [(1, MS * 5), (4, MS * 5), (1, MS), (16, MS * 20)] {
        // Twice as many, and one and a half times as many as the cores can do.
        for percent in [50, 67] {
            let gap = Nanos(work.0 * percent / 100 / cores as u64);
            let (enforced, shadow) = shares(cores, work, gap);
            assert!(enforced > 0.2, "{cores} {work:?} {percent}: {enforced}");
            assert!((enforced - shadow).abs() < 0.05, "{cores} {work:?} {percent}: {enforced} {shadow}");
        }
    }
}

/// Also where requests take nearly the whole objective: that is no queue.
#[test]
fn shadow_mode_rejects_nothing_that_a_backend_can_do() {
    for (cores, work) in [(1, MS * 5), (4, MS * 5), (16, MS * 40)] {
        let gap = Nanos(work.0 * 2 / cores as u64);
        assert_eq!(shares(cores, work, gap), (0.0, 0.0), "{cores} {work:?}");
    }
}

#[test]
fn shadow_mode_recovers_from_an_overload() {
    let mut backend = Backend::new(1, MS * 5, Queue::Shadow(ShadowQueue::new(dispatcher(1))));
    assert!(backend.run(MS * 5_000, MS) > 0.5);
    // The requests of the overload have to leave the backend first.
    backend.run(MS * 25_000, MS * 20);
    assert_eq!(backend.run(MS * 5_000, MS * 10), 0.0);
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(u8, Option<u64>),
    /// An answer to the request of this number, modulo those at the backend, and its end.
    Answer(usize, bool),
    /// The end of a request without an answer.
    End(usize),
    Wait(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u8..8, prop::option::of(0u64..80)).prop_map(|(class, timeout)| Step::Arrive(class, timeout)),
        4 => (0usize..100, any::<bool>()).prop_map(|(number, is_well)| Step::Answer(number, is_well)),
        2 => (0usize..100).prop_map(Step::End),
        4 => prop_oneof![0u64..50, 0u64..5_000].prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    /// Whatever has been: an idle service is never refused, and answers at once are enough.
    #[test]
    fn nothing_is_rejected_before_an_idle_backend(
        steps in prop::collection::vec(step(), 0..300),
        backends in 1usize..4,
    ) {
        let mut shadow = ShadowQueue::new(dispatcher(backends));
        let (mut now, mut there, mut rejected) = (Time::ZERO, Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Arrive(class, timeout) => {
                    let timeout = timeout.map_or(Nanos::MAX, Nanos::from_millis);
                    let (number, _) = shadow.arrive(now, &request(now, class, timeout), (), &mut rejected);
                    there.push((number, now));
                }
                Step::Answer(at, is_well) if !there.is_empty() => {
                    let (number, dispatched) = there.remove(at % there.len());
                    let outcome = if is_well { Outcome::Completed } else { Outcome::Failed };
                    shadow.answer(number, &Answer { now, dispatched, outcome });
                    shadow.end(now, number, &mut rejected);
                }
                Step::End(at) if !there.is_empty() => {
                    let (number, _) = there.remove(at % there.len());
                    shadow.end(now, number, &mut rejected);
                }
                Step::Wait(ms) => {
                    for _ in 0..(MS * ms).0 / TICK.0 {
                        now += TICK;
                        shadow.tick(now, &mut rejected);
                    }
                }
                Step::Restart => shadow.restart(dispatcher(backends)),
                Step::Answer(..) | Step::End(_) => {}
            }
            let of = shadow.dispatcher();
            let in_flight: u32 = (0..backends).map(|backend| of.in_flight(backend)).sum();
            prop_assert!(of.queued() + in_flight as usize <= there.len());
        }
        for (number, _) in there {
            shadow.end(now, number, &mut rejected);
        }
        rejected.clear();
        for _ in 0..200 {
            let (number, refusal) = shadow.arrive(now, &request(now, 7, Nanos::MAX), (), &mut rejected);
            prop_assert_eq!(refusal, None);
            let dispatched = now;
            now += MS;
            shadow.tick(now, &mut rejected);
            shadow.answer(number, &Answer { now, dispatched, outcome: Outcome::Completed });
            shadow.end(now, number, &mut rejected);
        }
        prop_assert!(rejected.is_empty());
    }
}
