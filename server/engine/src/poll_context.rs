//! A protocol's access to the engine while it handles one connection.

use crate::free_buffers::{self, FreeBuffers};
use crate::job::{ConnectionId, Job, ReplyAddress};
use crate::limits::Limits;
use leeward_core::server::{Admission, RejectReason};
use leeward_core::units::{Method, Nanos, Time};
use leeward_host::{ConnectionContext, Counters, FastRng, add, reason_of};
use leeward_observe::{Answer, Decision, DecisionReason, LifecycleStage, WaitStage, Watch};
use leeward_runtime::cores::Shared;
use leeward_runtime::tasks::Work;
use leeward_wire::RejectCode;

/// Context of one connection, whose requests are `C`: its core's state, and the connection's
/// output.
pub struct PollContext<'a, C> {
    /// Current time.
    pub now: Time,
    /// Wait of the last received bytes since their packet arrived.
    pub wait: Nanos,
    /// The connection.
    pub id: ConnectionId,
    /// The connection's core.
    pub core: usize,
    /// Limits of the connection.
    pub limits: &'a Limits,
    /// The core's counters.
    pub counters: &'a Counters,
    /// Free buffers.
    pub free_buffers: &'a mut FreeBuffers,
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) longest_answer: usize,
    pub(crate) is_stopping: bool,
    pub(crate) admission: &'a mut dyn Admission,
    pub(crate) rng: &'a mut FastRng,
    pub(crate) shared: &'a Shared<Job<C>>,
    /// Place for a call that this core runs next, during its connection's turn.
    pub(crate) next: Option<&'a mut Option<Job<C>>>,
    pub(crate) watch: Option<&'a Watch>,
}

impl<C> PollContext<'_, C> {
    /// Longest response, in bytes, for which there is memory, if the protocol
    /// [bounds](crate::Protocol::BOUNDS_ANSWERS) its responses.
    pub fn longest_answer(&self) -> usize {
        self.longest_answer
    }

    /// Appends a message that has a buffer of its own. A long message is not copied if the output
    /// is empty.
    pub fn write_owned(&mut self, message: Vec<u8>) {
        if self.out.is_empty() && message.len() >= free_buffers::LARGEST {
            *self.out = message;
        } else {
            self.out.extend_from_slice(&message);
            self.free_buffers.keep(message);
        }
    }

    /// Arrival time of the last received bytes.
    pub fn arrival(&self) -> Time {
        Time(self.now.0.saturating_sub(self.wait.0))
    }

    /// Counts an executed request, `succeeded` or not, that is answered `sojourn` after its
    /// arrival. `method`: its method, if it exists.
    pub fn count_completed(&self, method: Option<Method>, succeeded: bool, sojourn: Nanos) {
        let answer = Answer::classify(succeeded, sojourn <= self.limits.slo);
        self.counters.complete(answer, sojourn);
        if let Some(watch) = self.watch {
            match method {
                Some(method) => watch.record_answer(self.core, method, answer),
                None => watch.record_unknown_answer(self.core, answer),
            }
        }
    }

    /// Counts an arrived request.
    pub fn count_received(&self) {
        add(&self.counters.received, 1);
        if let Some(watch) = self.watch {
            watch.record_wait(self.core, WaitStage::Socket, self.wait);
        }
    }

    /// Counts a request rejected `sojourn` after its arrival. The watch records rejections that are
    /// not the controller's. The controller's own are recorded where it makes them.
    pub fn count_refused(&self, reason: RejectCode, sojourn: Nanos) {
        let reason = reason_of(reason);
        self.counters.reject(reason);
        let Some(watch) = self.watch else { return };
        let stage = match reason {
            DecisionReason::Lock => LifecycleStage::Execution,
            DecisionReason::Credit | DecisionReason::Stopping => LifecycleStage::Arrival,
            DecisionReason::Cancelled => LifecycleStage::Dequeue,
            _ => return,
        };
        let mut decision = Decision::rejected(self.now, reason);
        (decision.stage, decision.wait, decision.delay) = (stage, sojourn, self.delay());
        watch.record_rejection(self.core, &decision);
    }

    /// Counts a rejection by the controller, and returns its reject code.
    pub fn count_controller_reject(&self, reason: RejectReason) -> RejectCode {
        self.counters.reject(reason.into());
        reason.into()
    }

    /// Queues a call on this core. During its connection's turn, the core runs it next.
    pub(crate) fn queue(&mut self, call: C, is_admitted: bool) {
        let address = ReplyAddress { core: self.core, connection: self.id };
        let job = Job { reply_to: address, arrival: self.arrival(), queued: self.now, is_admitted, call };
        match self.next.take() {
            Some(next) => *next = Some(job),
            None => _ = self.shared.queues.push(self.core, self.now, Work::Job(job)),
        }
    }
}

impl<C> ConnectionContext for PollContext<'_, C> {
    fn now(&self) -> Time {
        self.now
    }

    fn delay(&self) -> Nanos {
        self.shared.delay(self.now)
    }

    fn random(&mut self) -> u64 {
        self.rng.next_u64()
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    fn admission(&mut self) -> &mut dyn Admission {
        self.admission
    }

    fn refusal(&self) -> Option<u64> {
        self.watch.and_then(|watch| watch.last_rejection(self.core)).map(|id| id.0)
    }

    fn out(&mut self) -> &mut Vec<u8> {
        self.out
    }
}
