//! Means of a protocol while it handles one connection.

use crate::job::{ConnectionId, Job, Parcel};
use crate::limits::Limits;
use crate::spares::{self, Spares};
use leeward_core::server::{Admission, RejectReason};
use leeward_core::units::{Method, Nanos, Time};
use leeward_host::{Choices, Counters, Desk, add};
use leeward_observe::{Answer, Decision, Moment, Reason, Stage, Watch};
use leeward_runtime::cores::Shared;
use leeward_runtime::tasks::Work;
use leeward_wire::DropReason;

/// A look at one connection, whose requests are `C`: its core's means, and the connection's output.
pub struct Visit<'a, C> {
    /// Now.
    pub now: Time,
    /// How long what came last had waited since its packet arrived.
    pub waited: Nanos,
    /// The connection.
    pub id: ConnectionId,
    /// Its core.
    pub core: usize,
    /// Bounds of the connection.
    pub limits: &'a Limits,
    /// The core's counters.
    pub counters: &'a Counters,
    /// Buffers to use again.
    pub spares: &'a mut Spares,
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) longest_answer: usize,
    pub(crate) is_stopping: bool,
    pub(crate) admission: &'a mut dyn Admission,
    pub(crate) choices: &'a mut Choices,
    pub(crate) shared: &'a Shared<Job<C>>,
    pub(crate) watch: Option<&'a Watch>,
}

impl<C> Visit<'_, C> {
    /// The longest answer that there is memory for, in bytes, if the protocol [bounds](crate::Protocol::BOUNDS_ANSWERS) its answers.
    pub fn longest_answer(&self) -> usize {
        self.longest_answer
    }

    /// Says `words` that have a buffer of their own. A long answer is not copied for it.
    pub fn say(&mut self, words: Vec<u8>) {
        if self.out.is_empty() && words.len() >= spares::LARGEST {
            *self.out = words;
        } else {
            self.out.extend_from_slice(&words);
            self.spares.keep(words);
        }
    }

    /// When what came last had come.
    pub fn arrived(&self) -> Time {
        Time(self.now.0.saturating_sub(self.waited.0))
    }

    /// Counts a request that was executed, whether it has `succeeded` or not, and is answered `sojourn` after it came; of a method, if
    /// there is the one that it names.
    pub fn count_completed(&self, method: Option<Method>, succeeded: bool, sojourn: Nanos) {
        let answer = Answer::of(succeeded, sojourn <= self.limits.slo);
        self.counters.complete(answer, sojourn);
        if let Some(watch) = self.watch {
            match method {
                Some(method) => watch.answered(self.core, method, answer),
                None => watch.answered_unknown(self.core, answer),
            }
        }
    }

    /// Counts a request that has come.
    pub fn count_received(&self) {
        add(&self.counters.received, 1);
        if let Some(watch) = self.watch {
            watch.waited(self.core, Stage::Socket, self.waited);
        }
    }

    /// Counts a request that is dropped `sojourn` after it came. Whatever the controller did not refuse is kept for those who ask
    /// why: a controller's refusals are kept where it makes them.
    pub fn count_dropped(&self, reason: DropReason, sojourn: Nanos) {
        self.counters.drop_for(reason);
        let Some(watch) = self.watch else { return };
        let (reason, moment) = match reason {
            DropReason::Lock => (Reason::Lock, Moment::Work),
            DropReason::NoCredit => (Reason::Credit, Moment::Arrival),
            DropReason::ShuttingDown => (Reason::Stopping, Moment::Arrival),
            DropReason::Cancelled => (Reason::Cancelled, Moment::Turn),
            _ => return,
        };
        let mut decision = Decision::refused(self.now, reason);
        (decision.moment, decision.waited, decision.delay) = (moment, sojourn, self.delay());
        watch.refuse(self.core, &decision);
    }

    /// Counts a request that is dropped because the controller says so, and says under which reason.
    pub fn count_rejected(&self, reason: RejectReason) -> DropReason {
        let reason = DropReason::from(reason);
        self.counters.drop_for(reason);
        reason
    }

    /// Queues a call on this core.
    pub(crate) fn queue(&mut self, call: C, is_admitted: bool) {
        let parcel = Parcel { home: self.core, to: self.id };
        let job = Job { parcel, arrived: self.arrived(), queued: self.now, is_admitted, call };
        self.shared.queues.push(self.core, self.now, Work::Job(job));
    }
}

impl<C> Desk for Visit<'_, C> {
    fn now(&self) -> Time {
        self.now
    }

    fn delay(&self) -> Nanos {
        self.shared.delay(self.now)
    }

    fn random(&mut self) -> u64 {
        self.choices.draw()
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    fn admission(&mut self) -> &mut dyn Admission {
        self.admission
    }

    fn refusal(&self) -> Option<u64> {
        self.watch.and_then(|watch| watch.last_refusal(self.core)).map(|id| id.0)
    }

    fn out(&mut self) -> &mut Vec<u8> {
        self.out
    }
}
