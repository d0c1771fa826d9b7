//! Invariants of a dispatcher whose backends, limits and settings change. Does not contain the
//! order of the queue.

use leeward_concurrency::dispatch::{Answer, Arrival, Dispatch, DispatchSettings, Dispatcher, QueuedRequest, Refusal};
use leeward_concurrency::{ConcurrencyLimit, LimitEnvironment, Outcome, registry};
use leeward_core::units::{Nanos, Tenant, Time};
use proptest::prelude::*;

const OBJECTIVE: Nanos = Nanos::from_secs(10);

#[derive(Clone, Debug)]
enum Step {
    Arrive,
    /// An answer to one of the requests at the backends, and its end.
    Answer(usize),
    Add(usize),
    Remove(usize),
    Restore(usize),
    SetLimits(bool, bool),
    SetSettings(u64, usize),
    SendAll,
    Tick(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Arrive),
        6 => any::<usize>().prop_map(Step::Answer),
        1 => (1usize..4).prop_map(Step::Add),
        1 => any::<usize>().prop_map(Step::Remove),
        1 => any::<usize>().prop_map(Step::Restore),
        1 => any::<(bool, bool)>().prop_map(|(is_shared, is_fixed)| Step::SetLimits(is_shared, is_fixed)),
        1 => (1u64..20_000, 0usize..20).prop_map(|(objective_ms, capacity)| Step::SetSettings(objective_ms, capacity)),
        1 => Just(Step::SendAll),
        2 => (0u64..30).prop_map(Step::Tick),
    ]
}

fn limit(is_fixed: bool) -> Box<dyn ConcurrencyLimit> {
    let policy = registry::find(if is_fixed { "static" } else { "knee" }).unwrap();
    let environment = LimitEnvironment { objective: OBJECTIVE, seed: 1 };
    policy.build(&policy.params(&[]).unwrap(), &environment)
}

struct Model {
    dispatcher: Dispatcher<u64>,
    now: Time,
    arrived: u64,
    waiting: Vec<u64>,
    /// Backends of the requests in flight.
    sent: Vec<usize>,
}

impl Model {
    fn active(&self) -> Vec<usize> {
        (0..self.dispatcher.backends()).filter(|backend| !self.dispatcher.is_removed(*backend)).collect()
    }

    fn take(&mut self, done: Vec<Dispatch<u64>>) {
        for Dispatch { token, result } in done {
            let at = self.waiting.iter().position(|waiting| *waiting == token).expect("it waits");
            self.waiting.swap_remove(at);
            match result {
                Ok(backend) => self.send(backend),
                Err(refusal) => assert!(matches!(refusal, Refusal::Full | Refusal::Late), "{refusal:?}"),
            }
        }
    }

    fn send(&mut self, backend: usize) {
        assert!(!self.dispatcher.is_removed(backend), "a removed backend gets a request");
        self.sent.push(backend);
    }

    fn play(&mut self, step: &Step) {
        let (now, mut done) = (self.now, Vec::new());
        match *step {
            Step::Arrive => {
                self.arrived += 1;
                let (timeout, tenant) = (Nanos::MAX, Tenant::DEFAULT);
                let request = QueuedRequest { arrived: now, timeout, class: 3, tenant, bytes: 1 };
                match self.dispatcher.arrive(now, &request, || self.arrived, &mut done) {
                    Arrival::Sent(backend) => self.send(backend),
                    Arrival::Queued(_) => self.waiting.push(self.arrived),
                    Arrival::Rejected(_) => {}
                }
            }
            Step::Answer(_) if self.sent.is_empty() => {}
            Step::Answer(of) => {
                let backend = self.sent.swap_remove(of % self.sent.len());
                let dispatched = Time(now.0.saturating_sub(1_000_000));
                self.dispatcher.answer(backend, &Answer { now, dispatched, outcome: Outcome::Completed });
                self.dispatcher.release(now, backend, &mut done);
            }
            Step::Add(count) => {
                for _ in 0..count.min(8usize.saturating_sub(self.active().len())) {
                    let added = self.dispatcher.add_backend(now, limit(true));
                    assert!(!self.sent.contains(&added), "the number of a backend with requests");
                    assert_eq!(self.dispatcher.in_flight(added), 0);
                }
            }
            Step::Remove(of) => {
                let active = self.active();
                if active.len() > 1 {
                    self.dispatcher.remove_backend(active[of % active.len()]);
                }
            }
            Step::Restore(of) => {
                let backend = of % self.dispatcher.backends();
                if self.dispatcher.is_removed(backend) {
                    self.dispatcher.restore_backend(now, backend, limit(true));
                }
            }
            Step::SetLimits(is_shared, is_fixed) => self.dispatcher.set_limits(now, is_shared, |_| limit(is_fixed)),
            Step::SetSettings(objective_ms, capacity) => {
                let objective = Nanos::from_millis(objective_ms);
                let settings = DispatchSettings { objective, capacity, capacity_bytes: 1_000 };
                self.dispatcher.set_settings(now, settings, &mut done);
                assert!(self.dispatcher.queued() <= capacity);
            }
            Step::SendAll => {
                self.dispatcher.send_all(now, &mut done);
                assert_eq!(self.dispatcher.queued(), 0);
            }
            Step::Tick(ms) => {
                self.now += Nanos::from_millis(ms);
                self.dispatcher.tick(self.now, None, &mut done);
            }
        }
        self.take(done);
        assert_eq!(self.dispatcher.queued(), self.waiting.len());
        for backend in 0..self.dispatcher.backends() {
            let sent = self.sent.iter().filter(|of| **of == backend).count();
            assert_eq!(self.dispatcher.in_flight(backend) as usize, sent, "backend {backend}");
        }
        assert!(!self.dispatcher.is_removed(self.dispatcher.least_loaded(None)));
        assert!(self.dispatcher.backends() <= 8 + self.sent.len() + 8);
    }
}

proptest! {
    #[test]
    fn any_change_keeps_requests_and_places(steps in prop::collection::vec(step(), 0..200), is_shared in any::<bool>()) {
        let settings = DispatchSettings { objective: OBJECTIVE, capacity: 12, capacity_bytes: 1_000 };
        let dispatcher = match is_shared {
            true => Dispatcher::shared(settings, limit(true), 2),
            false => Dispatcher::new(settings, vec![limit(true), limit(false)]),
        };
        let now = Time::ZERO + Nanos::from_secs(1);
        let mut model = Model { dispatcher, now, arrived: 0, waiting: Vec::new(), sent: Vec::new() };
        steps.iter().for_each(|step| model.play(step));
        // All requests end.
        while !model.sent.is_empty() || !model.waiting.is_empty() {
            model.play(&Step::Answer(0));
            model.play(&Step::Tick(1_000));
        }
    }
}

#[test]
fn a_limit_that_begins_late_begins_without_a_limit() {
    let settings = DispatchSettings { objective: OBJECTIVE, capacity: 12, capacity_bytes: 1_000 };
    let mut dispatcher: Dispatcher<u64> = Dispatcher::new(settings, vec![limit(true)]);
    let now = Time::ZERO + Nanos::from_secs(3_600);
    let added = dispatcher.add_backend(now, limit(false));
    dispatcher.remove_backend(0);
    for _ in 0..50 {
        dispatcher.begin(now, added);
    }
    let before = dispatcher.limit(added);
    dispatcher.tick(now + Nanos::from_millis(10), None, &mut Vec::new());
    assert_eq!(dispatcher.limit(added), before, "an hour without answers is none of this backend");
}
