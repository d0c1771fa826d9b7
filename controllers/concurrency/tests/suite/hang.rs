//! A backend that swallows all requests for a time and is well afterwards, in virtual time: how
//! soon the others get places, and what becomes of them meanwhile. Does not contain a backend that
//! answers late.

use crate::backend::build;
use leeward_concurrency::dispatch::{Answer, Arrival, Dispatch, DispatchSettings, Dispatcher, QueuedRequest, Refusal};
use leeward_concurrency::{Outcome, TICK};
use leeward_core::units::{Nanos, Tenant, Time};
use std::collections::VecDeque;
use std::ops::Range;

const MS: Nanos = Nanos::from_millis(1);
const OBJECTIVE: Nanos = Nanos::from_millis(100);
/// Time between two requests, and that of each at the backend.
const GAP: Nanos = Nanos::from_millis(5);
const WORK: Nanos = Nanos::from_millis(10);

/// A request that hangs: when it was sent, the wait after which it is looked at, and the answers by
/// which others overtake it.
struct Hanging {
    sent: Time,
    look: Nanos,
    overtaken_at: u64,
}

/// What becomes of the requests that arrive in a second.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    answered: u32,
    at_once: u32,
    after_a_wait: u32,
}

/// A proxy that loses what it sends between two times.
struct Proxy {
    dispatcher: Dispatcher<()>,
    now: Time,
    hang: Range<Time>,
    working: VecDeque<Time>,
    hanging: Vec<Hanging>,
    seconds: Vec<Second>,
}

impl Proxy {
    fn second(&mut self) -> &mut Second {
        let index = (self.now.0 / Nanos::from_secs(1).0) as usize;
        self.seconds.resize(self.seconds.len().max(index + 1), Second::default());
        &mut self.seconds[index]
    }

    fn send(&mut self) {
        if self.hang.contains(&self.now) {
            let (look, overtaken_at) = (self.dispatcher.hang_after(0), self.dispatcher.overtaken_at(0));
            self.hanging.push(Hanging { sent: self.now, look, overtaken_at });
        } else {
            self.working.push_back(self.now);
        }
    }

    fn take(&mut self, done: Vec<Dispatch<()>>) {
        for Dispatch { result, .. } in done {
            match result {
                Ok(_) => self.send(),
                Err(_) => self.second().after_a_wait += 1,
            }
        }
    }

    fn release(&mut self) {
        let mut done = Vec::new();
        self.dispatcher.release(self.now, 0, &mut done);
        self.take(done);
    }

    /// Goes on to the next request.
    fn step(&mut self) {
        self.now += GAP;
        let now = self.now;
        while self.working.front().is_some_and(|sent| now.since(*sent) >= WORK) {
            let dispatched = self.working.pop_front().unwrap();
            self.dispatcher.answer(0, &Answer { now, dispatched, outcome: Outcome::Completed });
            self.second().answered += 1;
            self.release();
        }
        for mut request in std::mem::take(&mut self.hanging) {
            let waited = now.since(request.sent);
            if waited < request.look {
                self.hanging.push(request);
            } else if self.dispatcher.gives_up_place(now, 0, waited, request.overtaken_at) {
                self.release();
            } else {
                request.look = Dispatcher::<()>::next_look(waited);
                self.hanging.push(request);
            }
        }
        let mut done = Vec::new();
        if now.0.is_multiple_of(TICK.0) {
            self.dispatcher.tick(now, None, &mut done);
        }
        let tenant = Tenant::DEFAULT;
        let request = QueuedRequest { arrived: now, timeout: Nanos::MAX, class: 3, tenant, bytes: 1 };
        let arrival = self.dispatcher.arrive(now, &request, || (), &mut done);
        self.take(done);
        match arrival {
            Arrival::Sent(_) => self.send(),
            Arrival::Queued(_) => {}
            Arrival::Rejected(refusal) => {
                assert_ne!(refusal, Refusal::Full);
                self.second().at_once += 1;
            }
        }
    }
}

/// What becomes of 200 requests a second if the backend swallows those of some seconds.
fn play(hang: Range<u64>, seconds: u64) -> Vec<Second> {
    let settings = DispatchSettings { objective: OBJECTIVE, capacity: 10_000, capacity_bytes: usize::MAX };
    let mut proxy = Proxy {
        dispatcher: Dispatcher::new(settings, vec![build("knee", OBJECTIVE)]),
        now: Time::ZERO,
        hang: Time::ZERO + MS * (hang.start * 1_000)..Time::ZERO + MS * (hang.end * 1_000),
        working: VecDeque::new(),
        hanging: Vec::new(),
        seconds: Vec::new(),
    };
    while proxy.now < Time::ZERO + MS * (seconds * 1_000) {
        proxy.step();
    }
    proxy.seconds
}

#[test]
fn a_long_hang_is_recovered_from_as_soon_as_a_short_one() {
    for hang in [0..3, 3..6, 0..23, 3..23, 3..63] {
        let end = hang.end;
        let seconds = play(hang.clone(), end + 10);
        for second in &seconds[end as usize + 3..end as usize + 10] {
            assert!(second.answered >= 199, "{hang:?}: {:?}", &seconds[end as usize..]);
        }
    }
}

#[test]
fn nobody_waits_an_objective_for_a_backend_that_has_stopped() {
    for hang in [0..20, 3..23] {
        let seconds = play(hang.clone(), hang.end);
        // Once the places are taken and the silence is long.
        for second in &seconds[hang.start as usize + 2..hang.end as usize] {
            assert!(second.after_a_wait <= 20 && second.at_once >= 150, "{hang:?}: {second:?}");
        }
    }
}
