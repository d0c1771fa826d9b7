//! A FIFO backend with constant times behind a proxy, in virtual time. Its best number is known: a
//! request for each core, and those that wait without one.

use leeward_concurrency::{ConcurrencyLimit, LimitEnvironment, Outcome, Response, TICK, Tick, registry};
use leeward_core::units::{Nanos, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A limit that is registered as `name`, with default parameters.
pub(crate) fn build(name: &str, objective: Nanos) -> Box<dyn ConcurrencyLimit> {
    let policy = registry::find(name).unwrap();
    policy.build(&policy.params(&[]).unwrap(), &LimitEnvironment { objective, seed: 1 })
}

/// A limit, a proxy and a backend.
pub(crate) struct Proxy {
    pub(crate) limit: Box<dyn ConcurrencyLimit>,
    pub(crate) now: Time,
    /// Time that each request waits without a core before its work.
    pub(crate) awaiting: Nanos,
    pub(crate) work: Nanos,
    /// Age that the kernel tells of unread bytes.
    pub(crate) oldest_unread: Option<Nanos>,
    /// Limits at the ticks, when they changed.
    pub(crate) limits: Vec<u32>,
    /// Ticks at which requests waited in the proxy.
    pub(crate) queued_ticks: u32,
    free: Vec<Time>,
    ends: BinaryHeap<Reverse<(Time, Time)>>,
    queued: u32,
    next_arrival: Time,
}

impl Proxy {
    pub(crate) fn new(limit: Box<dyn ConcurrencyLimit>, cores: usize, work: Nanos) -> Self {
        Proxy {
            limit,
            now: Time::ZERO,
            awaiting: Nanos::ZERO,
            work,
            oldest_unread: None,
            limits: Vec::new(),
            queued_ticks: 0,
            free: vec![Time::ZERO; cores],
            ends: BinaryHeap::new(),
            queued: 0,
            next_arrival: Time::ZERO,
        }
    }

    /// No core executes anything before `until`, and the kernel tells of unread bytes if `is_told`.
    pub(crate) fn stop(&mut self, until: Time, gap: Nanos, is_told: bool) {
        let lost = until.since(self.now);
        self.free.iter_mut().for_each(|free| *free = (*free).max(self.now) + lost);
        self.ends = self.ends.drain().map(|Reverse((end, dispatched))| Reverse((end + lost, dispatched))).collect();
        let begun = self.now;
        while self.now < until {
            self.oldest_unread = is_told.then(|| self.now.since(begun));
            self.run(TICK, gap);
        }
        self.oldest_unread = None;
    }

    /// Runs for a span, with a request each `gap`. The queue of the proxy holds at most 100.
    pub(crate) fn run(&mut self, span: Nanos, gap: Nanos) {
        let end = self.now + span;
        let mut tick = self.now + TICK;
        self.next_arrival = self.next_arrival.max(self.now);
        let mut has_starved = false;
        while self.now < end {
            while self.queued > 0 && self.in_flight() < self.limit.limit() {
                self.queued -= 1;
                self.dispatch();
            }
            has_starved |= self.in_flight() < self.limit.limit();
            let next_end = self.ends.peek().map_or(Time::NEVER, |Reverse((end, _))| *end);
            self.now = next_end.min(self.next_arrival).min(tick);
            if self.now == next_end {
                let Some(Reverse((now, dispatched))) = self.ends.pop() else { unreachable!("it was there") };
                let in_flight = self.in_flight();
                self.limit.on_response(&Response { now, dispatched, outcome: Outcome::Completed, in_flight });
            } else if self.now == self.next_arrival {
                self.queued = (self.queued + 1).min(100);
                self.next_arrival = self.now + gap;
            } else {
                tick = self.now + TICK;
                self.queued_ticks += u32::from(self.queued > 0);
                let (now, in_flight, queued, oldest_unread) =
                    (self.now, self.in_flight(), self.queued, self.oldest_unread);
                self.limit.on_tick(&Tick { now, in_flight, queued, has_starved, oldest_unread });
                has_starved = false;
                if self.limits.last() != Some(&self.limit.limit()) {
                    self.limits.push(self.limit.limit());
                }
            }
        }
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.ends.len() as u32
    }

    fn dispatch(&mut self) {
        let ready = self.now + self.awaiting;
        let core = self.free.iter_mut().min().expect("a backend has cores");
        *core = (*core).max(ready) + self.work;
        self.ends.push(Reverse((*core, self.now)));
        let in_flight = self.in_flight();
        self.limit.on_dispatch(self.now, in_flight);
    }
}
