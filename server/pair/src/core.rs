//! A pair's server core: the controller's halves, the queue of calls, and the workers that execute
//! them.

use super::config::{Handler, PairConfig, Work};
use super::rng::Rng;
use leeward_core::server::{Admission, CoreId, Gauges, ServerHalves, SessionSlot, Verdict};
use leeward_core::units::{Nanos, Time};
use leeward_host::{ConnectionContext, ControlTicker, Counters, RequestCounts};
use leeward_session::server::{Permit, ServerConfig, ServerConnection};
use leeward_wire::{Regime, RequestId};
use std::collections::VecDeque;

/// An admitted call that waits for a worker, or is executed by one.
#[derive(Debug)]
pub(super) struct Job {
    /// The call's connection.
    pub(super) link: usize,
    pub(super) permit: Permit,
    payload: Vec<u8>,
    queued: Time,
}

/// A call in execution.
pub(super) struct RunningJob {
    pub(super) job: Job,
    pub(super) work: Work,
}

/// Counters of calls, each counted once per stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) admitted: u64,
    pub(super) answered: u64,
    pub(super) abandoned: u64,
    /// Answered calls that were cancelled before their execution.
    pub(super) cancelled: u64,
}

/// State shared by all connections of the server.
pub(super) struct Core {
    admission: Box<dyn Admission>,
    pub(super) pulse: ControlTicker,
    pub(super) counters: [Counters; 1],
    pub(super) tally: Tally,
    pub(super) rng: Rng,
    handler: Handler,
    queue: VecDeque<Job>,
    pub(super) workers: Vec<Option<RunningJob>>,
    /// Connection of each session slot.
    pub(super) session_slots: Vec<Option<usize>>,
    pub(super) stopping_since: Option<Time>,
    regime: Regime,
    config: PairConfig,
}

/// Result of dispatching a job.
pub(super) enum Dispatch {
    /// The controller rejects the call at the dequeue.
    Rejected(Job, leeward_core::server::RejectReason),
    /// This worker executes the call until then.
    Started(usize, Time),
    /// The call never completes.
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

    /// Opens a connection in the first free slot: slots are dense.
    pub(super) fn open(&mut self, link: usize) -> (u32, ServerConnection) {
        let free = self.session_slots.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            self.session_slots.push(None);
            self.session_slots.len() - 1
        });
        self.session_slots[slot] = Some(link);
        let connection = ServerConnection::new(ServerConfig {
            slot: SessionSlot(slot as u32),
            core: CoreId(0),
            regime: self.regime,
            payload_max: self.config.payload_max,
            unanswered_max: self.config.unanswered_max,
            max_version: self.config.max_version,
            tracks_call_age: false,
        });
        (slot as u32, connection)
    }

    /// Context of one connection, whose output is `out`.
    pub(super) fn context<'a>(&'a mut self, now: Time, out: &'a mut Vec<u8>) -> PairContext<'a> {
        let delay = self.run_delay(now);
        let is_stopping = self.stopping_since.is_some();
        PairContext { now, delay, is_stopping, rng: &mut self.rng, admission: self.admission.as_mut(), out }
    }

    pub(super) fn queue(&mut self, link: usize, permit: Permit, payload: Vec<u8>, now: Time) {
        self.queue.push_back(Job { link, permit, payload, queued: now });
    }

    /// Removes a waiting call.
    pub(super) fn remove_queued(&mut self, link: usize, request: RequestId) -> Option<Job> {
        let matches_call = |job: &Job| job.link == link && job.permit.request() == request;
        self.queue.iter().position(matches_call).and_then(|index| self.queue.remove(index))
    }

    /// Starts the longest waiting call on a free worker.
    pub(super) fn dispatch(&mut self, now: Time) -> Option<Dispatch> {
        let worker = self.workers.iter().position(Option::is_none)?;
        let job = self.queue.pop_front()?;
        if let Verdict::Reject(reason) = self.admission.on_dequeue(now.since(job.permit.arrival())) {
            return Some(Dispatch::Rejected(job, reason));
        }
        let work = (self.handler)(&job.payload, &mut self.rng);
        let service = match &work {
            Work::Result(service, _) | Work::Failure(service, _) | Work::Congested(service, _) => *service,
            Work::Hang => return Some(Dispatch::Hung),
        };
        self.workers[worker] = Some(RunningJob { job, work });
        Some(Dispatch::Started(worker, now + service))
    }

    /// Ticks the slow half.
    pub(super) fn tick(&mut self, now: Time) {
        let delay = self.run_delay(now);
        let counts = self.counts();
        self.pulse.tick(now, || counts.load(), || (Nanos::ZERO, delay));
    }

    /// The connection to which the controller sends an explicit credit next.
    pub(super) fn next_to_wake(&mut self) -> Option<Option<usize>> {
        let random = self.rng.bits();
        let SessionSlot(slot) = self.admission.next_to_wake(random)?;
        Some(self.session_slots.get(slot as usize).copied().flatten())
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

/// Context of one connection's session, for one poll.
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
