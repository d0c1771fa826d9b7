//! A request at a backend: its place, and its end. Does not contain the queue ([`super`]).

use super::{Admission, Facts};
use leeward_concurrency as concurrency;
use leeward_concurrency::dispatch::Answer;
use leeward_core::units::Time;
use leeward_gate::{Mode, Outcome};
use leeward_host::sync::lock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A place at a backend. Dropping it frees the place.
pub(crate) struct Slot {
    admission: Admission,
    stream: Arc<Stream>,
}

/// The part of a place that the ticker looks at, too.
pub(crate) struct Stream {
    backend: usize,
    dispatched: Time,
    is_held: AtomicBool,
    /// Time since which the proxy has waited for the client, ns; 0: it waits for the backend.
    client_since: AtomicU64,
    /// Time at which the client had sent the whole request, ns, if that took longer.
    sent: AtomicU64,
    /// Whether the client failed to send the request.
    has_client_failed: AtomicBool,
}

impl Stream {
    /// The backend, the first time that this is asked: the caller then frees the place.
    pub(super) fn take_backend(&self) -> Option<usize> {
        self.is_held.swap(false, Ordering::AcqRel).then_some(self.backend)
    }

    /// Whether the proxy has waited for the client since before this time.
    pub(super) fn is_stalled(&self, before: Time) -> bool {
        let since = self.client_since.load(Ordering::Relaxed);
        since > 0 && since < before.0
    }

    /// Records that the proxy waits for the client from now on.
    pub(crate) fn wait_for_client(&self, now: Time) {
        self.client_since.store(now.0.max(1), Ordering::Relaxed);
    }

    /// Records that the proxy waits for the backend.
    pub(crate) fn wait_for_backend(&self) {
        self.client_since.store(0, Ordering::Relaxed);
    }

    /// Records that the client has sent the last byte of the request only now.
    pub(crate) fn record_sent(&self, now: Time) {
        self.wait_for_backend();
        self.sent.store(now.0, Ordering::Relaxed);
    }

    /// Records that the client has gone, or has sent nothing for too long.
    pub(crate) fn record_client_failure(&self) {
        self.has_client_failed.store(true, Ordering::Relaxed);
    }

    /// Whether the client failed to send the request.
    pub(crate) fn has_client_failed(&self) -> bool {
        self.has_client_failed.load(Ordering::Relaxed)
    }
}

impl Slot {
    pub(super) fn new(admission: Admission, backend: usize, dispatched: Time) -> Self {
        let stream = Stream {
            backend,
            dispatched,
            is_held: AtomicBool::new(true),
            client_since: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            has_client_failed: AtomicBool::new(false),
        };
        Slot { admission, stream: Arc::new(stream) }
    }

    pub(super) fn backend(&self) -> usize {
        self.stream.backend
    }

    pub(super) fn dispatched(&self) -> Time {
        self.stream.dispatched
    }

    fn release(&self) {
        if let Some(backend) = self.stream.take_backend() {
            self.admission.free(backend);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.release();
    }
}

/// A request at a backend, until it ends. Dropping it ends it as [`Outcome::Abandoned`].
#[must_use = "a place that is dropped is an abandoned request"]
pub(crate) struct Place {
    slot: Slot,
    facts: Facts,
    has_answer: bool,
    has_ended: bool,
}

impl Place {
    pub(super) fn new(slot: Slot, facts: Facts) -> Self {
        Place { slot, facts, has_answer: false, has_ended: false }
    }

    /// The backend.
    pub(crate) fn backend(&self) -> usize {
        self.slot.backend()
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
        lock(&self.admission().0.streams).push(Arc::downgrade(&self.slot.stream));
    }

    /// Goes to another backend, which gets a request more than its limit.
    pub(crate) fn move_to(&mut self, backend: usize) {
        let admission = self.admission().clone();
        let now = admission.now();
        lock(&admission.0.state).dispatcher.begin(now, backend);
        self.slot = Slot::new(admission, backend, now);
    }

    /// Records the time of the answer, once: the time from which the law learns.
    pub(crate) fn record_answer(&mut self, now: Time, outcome: Outcome) {
        if std::mem::replace(&mut self.has_answer, true) {
            return;
        }
        let of = match outcome {
            Outcome::Completed | Outcome::Abandoned => concurrency::Outcome::Completed,
            Outcome::Failed | Outcome::Rejected => concurrency::Outcome::Failed,
        };
        let answer = Answer {
            now,
            // A slow client is no slowness of the backend.
            dispatched: self.slot.dispatched().max(Time(self.slot.stream.sent.load(Ordering::Relaxed))).min(now),
            outcome: of,
            class: self.facts.class,
            tenant: self.facts.tenant,
        };
        lock(&self.admission().0.state).dispatcher.answer(self.slot.backend(), &answer);
    }

    /// Frees the place before the request ends.
    pub(crate) fn release(&self) {
        self.slot.release();
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
        let latency = now.since(self.facts.arrived);
        let is_in_time = latency <= admission.0.slo;
        let mut state = lock(&admission.0.state);
        state.counts.end((self.facts.class, self.facts.route), outcome, latency, is_in_time);
        if admission.0.mode != Mode::Enforce {
            state.shadow.answer(now);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let now = self.admission().now();
        self.end(now, Outcome::Abandoned);
    }
}
