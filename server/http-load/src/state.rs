//! State of a run that the driver and the connections share: waiting requests, idle connections,
//! requests in flight, and the counters.

use std::collections::VecDeque;
use std::mem;
use std::task::{Context, Poll, Waker};

use leeward_core::units::{Nanos, Time};
use leeward_load::report::ClassReport;
use leeward_load::{Recorder, RunEnd, RunResults};
use leeward_workload::rng::Rng;

use crate::mix::{Mix, RequestKind};
use crate::response::{Label, Outcome};

/// A request that is not sent yet, or in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// Due time, from the start of the run.
    pub(crate) due: Time,
    pub(crate) kind: RequestKind,
    /// A connection has taken it before, and has not sent it.
    pub(crate) was_taken: bool,
}

/// Where a connection's or stream's requests come from, and where its state is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Index of the endpoint.
    pub(crate) endpoint: usize,
    /// Index of the slot.
    pub(crate) slot: usize,
}

/// State of a connection, or of a stream of HTTP/2.
#[derive(Default)]
struct Slot {
    /// Wakes the task of the connection or stream.
    waker: Option<Waker>,
    /// The request in flight.
    job: Option<Job>,
    /// Number of requests begun here. Tells a deadline of an earlier request apart.
    sequence: u64,
    /// Whether the request in flight is to be given up.
    is_aborted: bool,
    /// Whether the slot is among the idle ones of its endpoint.
    is_idle: bool,
}

/// Waiting requests and idle connections of an endpoint. One of both is empty, except while a
/// woken connection has not run yet.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    idle: VecDeque<usize>,
}

/// Source of a closed loop's requests.
pub(crate) struct ClosedLoop {
    pub(crate) mix: Mix,
    /// Random bits of the requests.
    pub(crate) bits: Rng,
    /// Time of the last request, from the start.
    pub(crate) end: Time,
}

/// Counters of connections.
#[derive(Default)]
pub(crate) struct ConnectionState {
    /// Connections that have been open at least once.
    pub(crate) opened: usize,
    /// Connections that could not be opened again.
    pub(crate) failing: usize,
    /// Error of the last attempt that failed.
    pub(crate) last_error: Option<String>,
}

/// State that the driver and the connections share.
pub(crate) struct State {
    recorder: Recorder,
    /// A recorder per class, with the class's name.
    classes: Vec<(String, Recorder)>,
    queues: Vec<Queue>,
    slots: Vec<Slot>,
    /// Unused slots of streams.
    free: Vec<usize>,
    closed: Option<ClosedLoop>,
    /// Whether a closed loop's requests are issued.
    is_issuing: bool,
    /// Time-outs of requests in flight, in the order of sending: time, slot and sequence number.
    deadlines: VecDeque<(Time, usize, u64)>,
    timeout: Option<Nanos>,
    budget: Option<Nanos>,
    slo: Nanos,
    pub(crate) connections: ConnectionState,
}

impl State {
    /// Creates the state of a run with these endpoints.
    pub(crate) fn new(
        recorders: (Recorder, Vec<(String, Recorder)>),
        endpoints: usize,
        connections: usize,
        (timeout, budget, slo): (Option<Nanos>, Option<Nanos>, Nanos),
        closed: Option<ClosedLoop>,
    ) -> Self {
        State {
            recorder: recorders.0,
            classes: recorders.1,
            queues: (0..endpoints).map(|_| Queue::default()).collect(),
            slots: (0..connections).map(|_| Slot::default()).collect(),
            free: Vec::new(),
            closed,
            is_issuing: false,
            deadlines: VecDeque::new(),
            timeout,
            budget,
            slo,
            connections: ConnectionState::default(),
        }
    }

    pub(crate) fn recorder(&mut self) -> &mut Recorder {
        &mut self.recorder
    }

    /// Performs `count` on the counters of all requests, and on those of the class.
    fn record(&mut self, kind: RequestKind, count: impl Fn(&mut Recorder)) {
        count(&mut self.recorder);
        if let Some((_, recorder)) = self.classes.get_mut(usize::from(kind.class)) {
            count(recorder);
        }
    }

    // ---- requests that are not sent yet ----

    /// Issues a request. It waits for an idle connection, if there is none.
    pub(crate) fn submit(&mut self, now: Time, endpoint: usize, job: Job) {
        self.record(job.kind, |recorder| recorder.record_issue(now, job.due));
        self.queues[endpoint].waiting.push_back(job);
        self.wake_idle(endpoint);
    }

    /// Lets a request wait again that another connection has not sent.
    pub(crate) fn requeue(&mut self, endpoint: usize, job: Job) {
        self.queues[endpoint].waiting.push_front(Job { was_taken: true, ..job });
        self.wake_idle(endpoint);
    }

    /// Wakes an idle connection of the endpoint, if a request waits.
    pub(crate) fn wake_idle(&mut self, endpoint: usize) {
        let Queue { waiting, idle } = &mut self.queues[endpoint];
        if waiting.is_empty() {
            return;
        }
        if let Some(number) = idle.pop_front() {
            self.slots[number].is_idle = false;
            if let Some(waker) = &self.slots[number].waker {
                waker.wake_by_ref();
            }
        }
    }

    /// Begins a closed loop: wakes all idle connections.
    pub(crate) fn begin_closed_loop(&mut self) {
        self.is_issuing = true;
        for queue in &mut self.queues {
            for number in mem::take(&mut queue.idle) {
                self.slots[number].is_idle = false;
                if let Some(waker) = &self.slots[number].waker {
                    waker.wake_by_ref();
                }
            }
        }
    }

    /// Ends the issue of a closed loop's requests.
    pub(crate) fn end_closed_loop(&mut self) {
        self.is_issuing = false;
    }

    /// Takes the next request for a connection. Without one the connection is idle, and `cx` is
    /// woken when there is one.
    pub(crate) fn poll_job(&mut self, now: Time, place: Place, cx: &Context<'_>) -> Poll<Job> {
        let Place { endpoint, slot: number } = place;
        self.expire(now, endpoint);
        if let Some(job) = self.queues[endpoint].waiting.pop_front() {
            self.record_wait(now, &job);
            return Poll::Ready(job);
        }
        if let Some(closed) = self.closed.as_mut().filter(|closed| self.is_issuing && now < closed.end) {
            let kind = closed.mix.draw_for(endpoint, closed.bits.bits());
            let job = Job { due: now, kind, was_taken: false };
            self.record(job.kind, |recorder| recorder.record_issue(now, now));
            return Poll::Ready(job);
        }
        let slot = &mut self.slots[number];
        set_waker(&mut slot.waker, cx);
        if !mem::replace(&mut slot.is_idle, true) {
            self.queues[endpoint].idle.push_back(number);
        }
        Poll::Pending
    }

    /// Takes a closed connection out of the idle ones. A request that waits goes to another one.
    pub(crate) fn leave(&mut self, place: Place) {
        if mem::take(&mut self.slots[place.slot].is_idle) {
            self.queues[place.endpoint].idle.retain(|number| *number != place.slot);
        }
        self.wake_idle(place.endpoint);
    }

    /// Longest wait before sending.
    fn wait_max(&self) -> Option<Nanos> {
        self.timeout.into_iter().chain(self.budget).min()
    }

    /// Ends the endpoint's waiting requests whose time is over.
    fn expire(&mut self, now: Time, endpoint: usize) {
        let Some(limit) = self.wait_max() else { return };
        while let Some(job) = self.queues[endpoint].waiting.front().copied()
            && now.since(job.due) >= limit
        {
            self.queues[endpoint].waiting.pop_front();
            self.record_wait(now, &job);
            self.record(job.kind, |recorder| recorder.record_expiry(now));
        }
    }

    /// Counts a request that waited too long for its first connection.
    fn record_wait(&mut self, now: Time, job: &Job) {
        let most = self.wait_max().map_or(self.slo, |limit| limit.min(self.slo));
        if !job.was_taken && now.since(job.due) >= most {
            self.recorder.record_wait_for_connection();
        }
    }

    /// Ends all waiting requests whose time is over.
    pub(crate) fn expire_all(&mut self, now: Time) {
        (0..self.queues.len()).for_each(|endpoint| self.expire(now, endpoint));
    }

    /// Rest of a request's budget.
    pub(crate) fn rest_of_budget(&self, now: Time, job: &Job) -> Option<Nanos> {
        self.budget.map(|budget| budget.saturating_sub(now.since(job.due)))
    }

    // ---- requests in flight ----

    /// A slot for a stream.
    pub(crate) fn claim_slot(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        })
    }

    /// Returns a stream's slot.
    pub(crate) fn release_slot(&mut self, number: usize) {
        self.free.push(number);
    }

    /// Registers a request as in flight.
    pub(crate) fn begin(&mut self, number: usize, job: Job) {
        let slot = &mut self.slots[number];
        slot.sequence += 1;
        slot.job = Some(job);
        slot.is_aborted = false;
        if let Some(timeout) = self.timeout {
            self.deadlines.push_back((job.due + timeout, number, slot.sequence));
            // Otherwise one slow request would keep the entries of all later ones.
            self.drop_ended_deadlines();
        }
    }

    /// Whether the request in flight is to be given up; `cx` is woken when it is.
    pub(crate) fn poll_aborted(&mut self, number: usize, cx: &Context<'_>) -> bool {
        let slot = &mut self.slots[number];
        set_waker(&mut slot.waker, cx);
        slot.is_aborted
    }

    /// Counts the end of a request that was in flight. `sent` is the time of sending.
    pub(crate) fn end(&mut self, now: Time, place: Place, sent: Time, outcome: &Outcome, content_bytes: u64) {
        let Some(job) = self.slots[place.slot].job.take() else { return };
        let (due, round_trip) = (job.due, now.since(sent));
        self.recorder.record_content(content_bytes);
        match outcome {
            Outcome::Completed => {
                self.record(job.kind, |recorder| recorder.record_completion(now, due, round_trip, None));
            }
            Outcome::Rejected(reason) => {
                self.record(job.kind, |recorder| recorder.record_rejection(now, due, round_trip, reason));
            }
            Outcome::Failed(code) => self.record_failure(now, job, code),
            Outcome::TimedOut => self.record(job.kind, |recorder| recorder.record_timeout(now, due, round_trip)),
            Outcome::Unsent => self.requeue(place.endpoint, job),
        }
    }

    fn record_failure(&mut self, now: Time, job: Job, code: &Label) {
        self.record(job.kind, |recorder| recorder.record_failure(now, code));
    }

    fn drop_ended_deadlines(&mut self) {
        while let Some((_, number, sequence)) = self.deadlines.front()
            && !self.slots.get(*number).is_some_and(|slot| slot.job.is_some() && slot.sequence == *sequence)
        {
            self.deadlines.pop_front();
        }
    }

    /// Gives up the requests in flight whose time is over.
    pub(crate) fn abort_overdue(&mut self, now: Time) {
        loop {
            self.drop_ended_deadlines();
            let Some((_, number, _)) = self.deadlines.front().copied().filter(|(at, ..)| *at <= now) else { return };
            self.deadlines.pop_front();
            let slot = &mut self.slots[number];
            slot.is_aborted = true;
            if let Some(waker) = &slot.waker {
                waker.wake_by_ref();
            }
        }
    }

    /// Time at which the next request expires or is given up.
    pub(crate) fn next_deadline(&self) -> Time {
        let first = self.deadlines.front().map_or(Time::NEVER, |(at, ..)| *at);
        let Some(limit) = self.wait_max() else { return first };
        let waiting = self.queues.iter().filter_map(|queue| queue.waiting.front());
        waiting.map(|job| job.due + limit).min().map_or(first, |at| at.min(first))
    }

    // ---- the end ----

    /// Counts all requests that have not ended, and returns the results.
    pub(crate) fn finish(mut self, now: Time, run_end: &RunEnd) -> RunResults {
        let waiting: Vec<Job> = self.queues.iter_mut().flat_map(|queue| mem::take(&mut queue.waiting)).collect();
        let in_flight: Vec<Job> = self.slots.iter_mut().filter_map(|slot| slot.job.take()).collect();
        waiting.iter().for_each(|job| self.record_wait(now, job));
        for job in waiting.into_iter().chain(in_flight) {
            self.record(job.kind, |recorder| recorder.record_unfinished(now, job.due));
        }
        let mut results = self.recorder.finish(run_end);
        for (name, recorder) in self.classes {
            let report = recorder.finish(run_end).report;
            results.report.violations.extend(report.violations.iter().map(|text| format!("class {name}: {text}")));
            results.report.classes.push(ClassReport::new(name, report));
        }
        results
    }

    /// Ends the run early, at `at`.
    pub(crate) fn end_early(&mut self, at: Time) {
        self.recorder.end_early(at);
        self.classes.iter_mut().for_each(|(_, recorder)| recorder.end_early(at));
    }
}

/// Stores the waker of `cx`; does not clone it again if it is the same.
fn set_waker(waker: &mut Option<Waker>, cx: &Context<'_>) {
    if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *waker = Some(cx.waker().clone());
    }
}
