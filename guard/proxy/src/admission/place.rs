//! A request at a backend: its place, and its end. Does not contain the queue ([`super`]).

use super::{Admission, Facts};
use leeward_concurrency as concurrency;
use leeward_concurrency::dispatch::Answer;
use leeward_core::units::{Nanos, Time};
use leeward_gate::{Mode, Outcome};
use leeward_host::sync::lock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Waits for the client that are not summed up: the time in which its socket takes a piece.
const SHORT: Nanos = Nanos::from_millis(1);

/// A place at a backend. Dropping it frees the place.
pub(crate) struct Slot {
    admission: Admission,
    backend: usize,
    dispatched: Time,
    stream: Arc<Stream>,
}

/// The part of a request that its bodies and the ticker look at, too.
#[derive(Default)]
pub(crate) struct Stream {
    /// One more than the number of the backend where it holds a place; 0: it holds none.
    held: AtomicUsize,
    /// Time since which the proxy has waited for the client, ns; 0: it waits for the backend.
    client_since: AtomicU64,
    /// Sum of its earlier waits for the client, ns.
    client_waits: AtomicU64,
    /// Time at which the client had sent the whole request, ns, if that took longer.
    sent: AtomicU64,
    /// Time of the last piece of the request, ns.
    last_piece: AtomicU64,
    /// Number of its pieces.
    pieces: AtomicU32,
    /// Whether the head of the answer is there, and whether its end is.
    has_begun: AtomicBool,
    has_ended: AtomicBool,
    /// Time of the head of an answer to a gRPC call, ns; 0: it is none, or is not there.
    call_since: AtomicU64,
    /// Whether that call has proved to be a stream.
    is_open_call: AtomicBool,
    /// Whether it hangs at the backend: others overtake it.
    is_hung: AtomicBool,
    /// Whether the ticker looks at it.
    is_watched: AtomicBool,
    /// How the client failed to send the request: 0: it did not; else a [`ClientFailure`].
    client_failure: AtomicU8,
    /// Whether the client has not sent the whole request yet.
    is_uploading: AtomicBool,
    /// Its number in the shadow queue, if it is there.
    shadow_number: Option<u64>,
}

/// How a client fails to send its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientFailure {
    /// It has sent nothing for too long.
    Idle = 1,
    /// It has gone, or its body is malformed.
    Broken = 2,
    /// It waits for leave to send the body, which it does not get.
    Unmet = 3,
}

impl Stream {
    /// The backend, the first time that this is asked: the caller then frees the place.
    pub(super) fn take_backend(&self) -> Option<usize> {
        self.held.swap(0, Ordering::AcqRel).checked_sub(1)
    }

    /// The backend where it holds a place.
    pub(super) fn backend(&self) -> Option<usize> {
        self.held.load(Ordering::Acquire).checked_sub(1)
    }

    /// Its number in the shadow queue.
    pub(super) fn shadow_number(&self) -> Option<u64> {
        self.shadow_number
    }

    /// Records that it hangs.
    pub(super) fn record_hang(&self) {
        self.is_hung.store(true, Ordering::Relaxed);
    }

    /// Whether the proxy has waited for the client for longer than this in all. A client that sends
    /// or reads a byte now and then is as slow as one that does nothing.
    pub(super) fn is_stalled(&self, now: Time, longest: Nanos) -> bool {
        let since = self.client_since.load(Ordering::Relaxed);
        let present = if since > 0 { now.since(Time(since)).0 } else { 0 };
        self.client_waits.load(Ordering::Relaxed).saturating_add(present) > longest.0
    }

    /// Records that the head of an answer to a gRPC call is there.
    pub(crate) fn record_call(&self, now: Time) {
        self.call_since.store(now.0.max(1), Ordering::Relaxed);
    }

    /// Whether a gRPC call is a stream. Heads don't say so, but the answer to any other call ends
    /// with its head or soon afterwards; a stream that is open is no work for the backend.
    pub(super) fn is_open_call(&self, now: Time, objective: Nanos) -> bool {
        let since = self.call_since.load(Ordering::Relaxed);
        let is_open = since > 0 && now.since(Time(since)) > objective;
        if is_open {
            self.is_open_call.store(true, Ordering::Relaxed);
        }
        is_open
    }

    /// Time at which a gRPC call that has proved to be a stream has begun with its answer.
    fn open_call(&self) -> Option<Time> {
        let is_open = self.is_open_call.load(Ordering::Relaxed);
        is_open.then(|| Time(self.call_since.load(Ordering::Relaxed)))
    }

    /// Records that the proxy waits for the client from now on.
    pub(crate) fn wait_for_client(&self, now: Time) {
        self.wait_for_backend(now);
        self.client_since.store(now.0.max(1), Ordering::Relaxed);
    }

    /// Records that the proxy waits for the backend.
    pub(crate) fn wait_for_backend(&self, now: Time) {
        let since = self.client_since.swap(0, Ordering::Relaxed);
        let wait = now.since(Time(since));
        if since > 0 && wait > SHORT {
            self.client_waits.fetch_add(wait.0, Ordering::Relaxed);
        }
    }

    /// Records a piece of the request.
    pub(crate) fn record_piece(&self, now: Time) {
        self.wait_for_backend(now);
        self.last_piece.store(now.0, Ordering::Relaxed);
        self.pieces.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of the request's pieces so far.
    pub(crate) fn pieces(&self) -> u32 {
        self.pieces.load(Ordering::Relaxed)
    }

    /// Records that the answer has begun.
    pub(crate) fn record_begun(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// Records that the answer is over.
    pub(crate) fn record_ended(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Whether the answer has begun and goes on: then each side may be silent while the other is
    /// not.
    pub(crate) fn is_answering(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed) && !self.has_ended.load(Ordering::Relaxed)
    }

    /// Records that the client has still to send a part of the request.
    pub(crate) fn record_upload(&self) {
        self.is_uploading.store(true, Ordering::Relaxed);
    }

    /// Records that the client has sent the last byte of the request only now.
    pub(crate) fn record_sent(&self, now: Time) {
        self.is_uploading.store(false, Ordering::Relaxed);
        self.record_piece(now);
        self.sent.store(now.0, Ordering::Relaxed);
    }

    /// Time for which the backend has had what there is of the request; zero while the proxy waits
    /// for the client.
    pub(crate) fn backend_wait(&self, now: Time) -> Nanos {
        match self.client_since.load(Ordering::Relaxed) {
            0 => now.since(Time(self.last_piece.load(Ordering::Relaxed))),
            _ => Nanos::ZERO,
        }
    }

    /// Whether its answer says nothing about the backend's speed: that of a stream, of a request
    /// that the others have overtaken, or that the client has not sent yet.
    fn says_nothing(&self) -> bool {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        self.open_call().is_some() || is_set(&self.is_hung) || is_set(&self.is_uploading)
    }

    /// Records that the client failed to send the request.
    pub(crate) fn record_client_failure(&self, failure: ClientFailure) {
        self.client_failure.store(failure as u8, Ordering::Relaxed);
    }

    /// How the client failed to send the request.
    pub(crate) fn client_failure(&self) -> Option<ClientFailure> {
        match self.client_failure.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(ClientFailure::Idle),
            2 => Some(ClientFailure::Broken),
            _ => Some(ClientFailure::Unmet),
        }
    }
}

impl Slot {
    pub(super) fn new(admission: Admission, backend: usize, dispatched: Time, shadow_number: Option<u64>) -> Self {
        let stream = Stream { held: AtomicUsize::new(backend + 1), shadow_number, ..Stream::default() };
        Slot { admission, backend, dispatched, stream: Arc::new(stream) }
    }

    pub(super) fn backend(&self) -> usize {
        self.backend
    }

    pub(super) fn dispatched(&self) -> Time {
        self.dispatched
    }

    fn release(&self) -> bool {
        self.admission.free_place(&self.stream)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

/// A request at a backend, until it ends. Dropping it ends it as [`Outcome::Abandoned`].
#[must_use = "a place that is dropped is an abandoned request"]
pub(crate) struct Place {
    slot: Slot,
    facts: Facts,
    has_answer: bool,
    has_ended: bool,
    /// Time that it has kept the backend busy, as far as it is known.
    cost: Nanos,
    /// Time at which its place was freed before its end.
    released: Option<Time>,
}

impl Place {
    pub(super) fn new(slot: Slot, facts: Facts) -> Self {
        Place { slot, facts, has_answer: false, has_ended: false, cost: Nanos::ZERO, released: None }
    }

    /// The backend.
    pub(crate) fn backend(&self) -> usize {
        self.slot.backend()
    }

    /// The number of the request's route.
    pub(crate) fn route(&self) -> u8 {
        self.facts.route
    }

    /// The queue that gave the place.
    pub(crate) fn admission(&self) -> &Admission {
        &self.slot.admission
    }

    /// Records whom the proxy waits for.
    pub(crate) fn stream(&self) -> Arc<Stream> {
        Arc::clone(&self.slot.stream)
    }

    /// Has the ticker look at this place: the client may be slow.
    pub(crate) fn watch(&self) {
        if !self.slot.stream.is_watched.swap(true, Ordering::Relaxed) {
            lock(&self.admission().0.streams).push(Arc::downgrade(&self.slot.stream));
        }
    }

    /// Goes to another backend, which gets a request more than its limit. A place that is free
    /// already, because the client is slow, is not taken again.
    pub(crate) fn move_to(&mut self, backend: usize) {
        let (now, mut done) = (self.admission().now(), Vec::new());
        if let Some(former) = self.slot.stream.take_backend() {
            let mut state = lock(&self.admission().0.state);
            state.dispatcher.release(now, former, &mut done);
            state.dispatcher.begin(now, backend);
            drop(state);
            self.slot.stream.held.store(backend + 1, Ordering::Release);
            self.admission().deliver(now, done);
        }
        (self.slot.backend, self.slot.dispatched) = (backend, now);
    }

    /// Records that its backend has failed, for it goes to another one.
    pub(crate) fn record_failure(&self) {
        let (now, dispatched, outcome) = (self.admission().now(), self.slot.dispatched(), concurrency::Outcome::Failed);
        let mut state = lock(&self.admission().0.state);
        let has_changed = state.judge(self.slot.backend(), &Answer { now, dispatched, outcome });
        drop(state);
        if has_changed {
            self.admission().report_backends();
        }
    }

    /// Records the time of the answer, once: the time from which the law learns.
    pub(crate) fn record_answer(&mut self, now: Time, outcome: Outcome) {
        if std::mem::replace(&mut self.has_answer, true) || self.slot.stream.client_failure().is_some() {
            return;
        }
        let of = match outcome {
            Outcome::Completed => concurrency::Outcome::Completed,
            Outcome::Failed => concurrency::Outcome::Failed,
            // It ended for a reason of its client's, or of the proxy's own.
            Outcome::Abandoned | Outcome::Rejected => return,
        };
        let answer = Answer {
            now,
            // A slow client is no slowness of the backend.
            dispatched: self.slot.dispatched().max(Time(self.slot.stream.sent.load(Ordering::Relaxed))).min(now),
            outcome: of,
        };
        let says_nothing = self.slot.stream.says_nothing();
        if !says_nothing {
            self.cost = now.since(answer.dispatched);
        }
        let mut state = lock(&self.admission().0.state);
        let has_changed = state.judge(self.slot.backend(), &answer);
        if !says_nothing {
            state.dispatcher.answer(self.slot.backend(), &answer);
            if let Some(number) = self.slot.stream.shadow_number {
                state.shadow.answer(number, &answer);
            }
        }
        drop(state);
        if has_changed {
            self.admission().report_backends();
        }
    }

    /// Frees the place before the request ends: its answer is in time if it has begun in time, and
    /// costs what it takes until its end.
    pub(crate) fn release(&mut self, now: Time) {
        let _ = self.slot.release();
        self.released = Some(now);
    }

    /// Whether its place was freed before its end.
    pub(crate) fn is_released(&self) -> bool {
        self.released.is_some()
    }

    /// Ends the request.
    pub(crate) fn finish(mut self, now: Time, outcome: Outcome) {
        self.record_answer(now, outcome);
        self.end(now, outcome);
    }

    fn end(&mut self, now: Time, outcome: Outcome) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let admission = self.admission().clone();
        let released = self.released.or_else(|| self.slot.stream.open_call());
        let latency = released.unwrap_or(now).since(self.facts.arrived);
        let cost = if released.is_some() { now.since(self.slot.dispatched()) } else { self.cost };
        let mut state = lock(&admission.0.state);
        let is_in_time = latency <= state.policy.slo;
        if cost > Nanos::ZERO {
            state.dispatcher.charge(self.facts.class, self.facts.tenant, cost);
            if state.policy.mode != Mode::Enforce {
                state.shadow.charge(self.facts.class, self.facts.tenant, cost);
            }
        }
        state.counts.end((self.facts.class, self.facts.route), outcome, latency, is_in_time);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let now = self.admission().now();
        self.end(now, Outcome::Abandoned);
    }
}
