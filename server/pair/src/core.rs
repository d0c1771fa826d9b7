//! A pair's server core: the controller's halves, the calls that wait, and the workers that execute them.

use super::config::{Handler, PairConfig, Work};
use super::rng::Rng;
use leeward_core::server::{Admission, CoreId, Gauges, ServerHalves, SessionSlot, Verdict};
use leeward_core::units::{Nanos, Time};
use leeward_host::{ConnectionContext, ControlTicker, Counters, RequestCounts};
use leeward_session::server::{Permit, ServerConfig, ServerConnection};
use leeward_wire::{Regime, RequestId};
use std::collections::VecDeque;

/// An admitted call that waits for a worker, or is with one.
#[derive(Debug)]
pub(super) struct Job {
    /// Link that it belongs to.
    pub(super) link: usize,
    pub(super) ticket: Permit,
    payload: Vec<u8>,
    queued: Time,
}

/// A call that is with a worker.
pub(super) struct RunningJob {
    pub(super) job: Job,
    pub(super) work: Work,
}

/// Counts of calls, each counted once at each of its stations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) admitted: u64,
    pub(super) answered: u64,
    pub(super) abandoned: u64,
    /// Calls of the answered that were cancelled before their turn.
    pub(super) cancelled: u64,
}

/// A core: all that the connections of a server share.
pub(super) struct Core {
    admission: Box<dyn Admission>,
    pub(super) pulse: ControlTicker,
    pub(super) counters: [Counters; 1],
    pub(super) tally: Tally,
    pub(super) rng: Rng,
    handler: Handler,
    queue: VecDeque<Job>,
    pub(super) workers: Vec<Option<RunningJob>>,
    /// Link of each session's place.
    pub(super) session_slots: Vec<Option<usize>>,
    pub(super) stopping_since: Option<Time>,
    regime: Regime,
    config: PairConfig,
}

/// Next step of a worker.
pub(super) enum Dispatch {
    /// The controller says no now.
    Rejected(Job, leeward_core::server::RejectReason),
    /// This worker executes the call, and is done then.
    Started(usize, Time),
    /// The call is never done.
    Hung,
}

impl Core {
    pub(super) fn new(mut halves: ServerHalves, handler: Handler, config: PairConfig) -> Self {
        let has_credits = halves.control.gauges().credit_pool.is_some();
        Core {
            admission: halves.cores.swap_remove(0),
            pulse: ControlTicker::new(halves.control),
            counters: [Counters::default()],
            tally: Tally::default(),
            rng: Rng::new(config.seed ^ 0x5E4E),
            handler,
            queue: VecDeque::new(),
            workers: (0..config.workers.max(1)).map(|_| None).collect(),
            session_slots: Vec::new(),
            stopping_since: None,
            regime: if has_credits { Regime::Credits } else { Regime::Open },
            config,
        }
    }

    /// A connection in a place of its own, the first that is free: places are dense.
    pub(super) fn open(&mut self, link: usize) -> (u32, ServerConnection) {
        let free = self.session_slots.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.session_slots.push(None);
            self.session_slots.len() - 1
        });
        self.session_slots[place] = Some(link);
        let connection = ServerConnection::new(ServerConfig {
            slot: SessionSlot(place as u32),
            core: CoreId(0),
            regime: self.regime,
            payload_max: self.config.payload_max,
            unanswered_max: self.config.unanswered_max,
            max_version: self.config.max_version,
            tracks_call_age: false,
        });
        (place as u32, connection)
    }

    /// A look at one connection, whose unsent bytes are `out`.
    pub(super) fn context<'a>(&'a mut self, now: Time, out: &'a mut Vec<u8>) -> PairContext<'a> {
        let delay = self.run_delay(now);
        let is_stopping = self.stopping_since.is_some();
        PairContext { now, delay, is_stopping, rng: &mut self.rng, admission: self.admission.as_mut(), out }
    }

    pub(super) fn queue(&mut self, link: usize, ticket: Permit, payload: Vec<u8>, now: Time) {
        self.queue.push_back(Job { link, ticket, payload, queued: now });
    }

    /// Takes a call back that waits.
    pub(super) fn remove_queued(&mut self, link: usize, request: RequestId) -> Option<Job> {
        let is_it = |job: &Job| job.link == link && job.ticket.request() == request;
        self.queue.iter().position(is_it).and_then(|place| self.queue.remove(place))
    }

    /// Gives the longest waiting call to a free worker.
    pub(super) fn dispatch(&mut self, now: Time) -> Option<Dispatch> {
        let worker = self.workers.iter().position(Option::is_none)?;
        let job = self.queue.pop_front()?;
        if let Verdict::Reject(reason) = self.admission.on_dequeue(now.since(job.ticket.arrival())) {
            return Some(Dispatch::Rejected(job, reason));
        }
        let work = (self.handler)(&job.payload, &mut self.rng);
        let takes = match &work {
            Work::Result(takes, _) | Work::Failure(takes, _) | Work::Congested(takes, _) => *takes,
            Work::Hang => return Some(Dispatch::Hung),
        };
        self.workers[worker] = Some(RunningJob { job, work });
        Some(Dispatch::Started(worker, now + takes))
    }

    /// The slow half's turn.
    pub(super) fn tick(&mut self, now: Time) {
        let delay = self.run_delay(now);
        let counts = self.counts();
        self.pulse.tick(now, || counts.load(), || (Nanos::ZERO, delay));
    }

    /// The connection that the controller wants to give credit to next.
    pub(super) fn next_to_wake(&mut self) -> Option<Option<usize>> {
        let random = self.rng.bits();
        let SessionSlot(place) = self.admission.next_to_wake(random)?;
        Some(self.session_slots.get(place as usize).copied().flatten())
    }

    fn run_delay(&self, now: Time) -> Nanos {
        self.queue.front().map_or(Nanos::ZERO, |job| now.since(job.queued))
    }

    pub(super) fn counts(&self) -> RequestCounts {
        Counters::sum(&self.counters)
    }

    pub(super) fn gauges(&self) -> Gauges {
        self.pulse.gauges()
    }
}

/// A look at one connection: the desk that its session works at.
pub(super) struct PairContext<'a> {
    now: Time,
    delay: Nanos,
    is_stopping: bool,
    rng: &'a mut Rng,
    admission: &'a mut dyn Admission,
    out: &'a mut Vec<u8>,
}

impl ConnectionContext for PairContext<'_> {
    fn now(&self) -> Time {
        self.now
    }

    fn delay(&self) -> Nanos {
        self.delay
    }

    fn random(&mut self) -> u64 {
        self.rng.bits()
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    fn admission(&mut self) -> &mut dyn Admission {
        self.admission
    }

    fn out(&mut self) -> &mut Vec<u8> {
        self.out
    }
}
