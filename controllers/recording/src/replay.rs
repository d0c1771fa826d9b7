//! Replay: makes the recorded calls to a controller again, and compares its decisions with the
//! recorded ones.

use super::codec::same_gauges;
use super::difference::Difference;
use super::entry::{Answer, Entry, SessionCall, SessionEntry};
use super::header::{Header, HeaderError};
use leeward_core::params::{ParamError, Params};
use leeward_core::registry::{Algorithm, Environment, Registry};
use leeward_core::server::{CoreId, Departure, Gauges, Outcome, ServerHalves, Session, SessionSlot, Verdict};
use leeward_core::units::{Nanos, Time};
use leeward_threading::{ThreadSignals, ThreadingPolicy, ThreadingSetup};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Error: no plant can have made this recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A call to a core that does not exist.
    #[error("entry {entry}: there is no core {core}")]
    Core {
        /// Number of the entry, from 1.
        entry: u64,
        /// The core.
        core: u32,
    },
    /// A call about a session that is not open, or an open of an open session.
    #[error("entry {entry}: {call} of session {slot} on core {core}, which is {}open", if *.open { "already " } else { "not " })]
    Session {
        /// Number of the entry, from 1.
        entry: u64,
        /// The call.
        call: &'static str,
        /// Core of the session.
        core: u32,
        /// Slot of the session.
        slot: u32,
        /// Whether it was open before the call.
        open: bool,
    },
    /// Slots so high that a controller's tables would be gigantic.
    #[error("entry {entry}: places for more than {MAX_SLOTS} sessions")]
    Slots {
        /// Number of the entry, from 1.
        entry: u64,
    },
    /// The controller panicked: it has a defect, or no plant would send these numbers.
    #[error("entry {entry}: the controller panicked")]
    Panicked {
        /// Number of the entry, from 1.
        entry: u64,
    },
}

/// Maximum slots of all cores together. Controllers index arrays by slot: a wrong one must not
/// allocate memory.
const MAX_SLOTS: u64 = 1 << 22;

/// Explicit credits that another controller may issue where the recorded one had none left.
const WAKES: u32 = 64;

/// Counts of a replay: calls made, and how the decisions compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayCounts {
    /// Replayed calls.
    pub entries: u64,
    /// Sessions that were opened.
    pub opened: u64,
    /// Sessions that were closed.
    pub closed: u64,
    /// Requests.
    pub requests: u64,
    /// Replies, including rejections.
    pub replies: u64,
    /// Ticks of the slow half.
    pub ticks: u64,
    /// Calls of the threading policy.
    pub threading: u64,
    /// Compared decisions: verdicts, feedback to clients, windows and state words of sessions,
    /// sessions to wake, states after ticks.
    pub compared: u64,
    /// Requests rejected on arrival in the recording.
    pub rejected_recorded: u64,
    /// Requests rejected on arrival in the replay.
    pub rejected_replayed: u64,
    /// Requests rejected on arrival in both.
    pub rejected_both: u64,
    /// Dequeued requests, on which the controller decided again.
    pub dequeues: u64,
    /// Dequeued requests rejected in the recording.
    pub late_recorded: u64,
    /// Dequeued requests rejected in the replay. Another controller also decides on those that it
    /// rejected on arrival.
    pub late_replayed: u64,
    /// Dequeued requests rejected in both.
    pub late_both: u64,
    /// Explicit credits in the recording.
    pub woken_recorded: u64,
    /// Explicit credits in the replay.
    pub woken_replayed: u64,
    /// Sum of the windows in replies and credits, in the recording.
    pub windows_recorded: u64,
    /// Sum of the windows in replies and credits, in the replay.
    pub windows_replayed: u64,
}

/// Sessions of one slot.
struct ReplaySession {
    /// Number of sessions opened in the slot.
    generation: u32,
    session: Option<Session>,
    /// Unanswered requests that the replayed controller admitted and rejected.
    admitted: u64,
    rejected: u64,
}

/// Makes recorded calls to a controller.
///
/// A replay of the *same* controller compares every decision and stops at the first difference:
/// later differences would only follow from it.
///
/// A replay of *another* controller counts its different decisions. This is open loop: signals and
/// demand come from the run under the recorded controller, regardless of the other's decisions. The
/// result is the other controller's judgement of these moments, not the server's behaviour under
/// it.
pub struct Replayer {
    halves: ServerHalves,
    /// The threading policy, if one was recorded and the controller is the same.
    threading: Option<Box<dyn ThreadingPolicy>>,
    is_same: bool,
    sessions: BTreeMap<(u32, u32), ReplaySession>,
    /// Per core: number of slots for which the controller may have allocated memory.
    allocated_slots: Vec<u64>,
    /// For another controller: unanswered requests that it admitted, on all slots.
    admitted: u64,
    /// Those that it rejected when they were dequeued. Their identity is unknown; the next replies
    /// are theirs.
    late: u64,
    now: Time,
    counts: ReplayCounts,
    difference: Option<Difference>,
}

impl Replayer {
    /// Creates a replay of the recorded controller.
    ///
    /// # Errors
    /// This version can't build the controller.
    pub fn from_header(header: &Header, registry: &Registry) -> Result<Self, HeaderError> {
        let (algorithm, params) = header.algorithm(registry)?;
        let halves = algorithm.server(&params, &header.environment);
        let halves = halves.map_err(|source| HeaderError::Params { algorithm: algorithm.name.into(), source })?;
        let threading = header.threading.as_ref().map(|threading| {
            let invalid = |source| HeaderError::Threading { policy: threading.policy.clone(), source };
            threading.build().map_err(invalid)
        });
        Ok(Replayer { threading: threading.transpose()?, ..Replayer::new(halves, true) })
    }

    /// Creates a replay of another controller, or of the same with other parameters. `environment`
    /// has as many cores as the recording's.
    ///
    /// # Errors
    /// Parameters that conflict with each other.
    pub fn with_algorithm(
        algorithm: &Algorithm,
        params: &Params,
        environment: &Environment,
    ) -> Result<Self, ParamError> {
        Ok(Replayer::new(algorithm.server(params, environment)?, false))
    }

    fn new(halves: ServerHalves, same: bool) -> Self {
        let slots = vec![0; halves.cores.len()];
        let (counts, difference) = (ReplayCounts::default(), None);
        let places = BTreeMap::new();
        Replayer {
            halves,
            threading: None,
            is_same: same,
            sessions: places,
            allocated_slots: slots,
            admitted: 0,
            late: 0,
            now: Time::ZERO,
            counts,
            difference,
        }
    }

    /// Counts of the replay so far.
    pub fn counts(&self) -> ReplayCounts {
        self.counts
    }

    /// The first decision that differs.
    pub fn difference(&self) -> Option<&Difference> {
        self.difference.as_ref()
    }

    /// Makes one call. With the same controller, calls after a difference do nothing.
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub fn step(&mut self, entry: &Entry) -> Result<(), ReplayError> {
        if self.is_same && self.difference.is_some() {
            return Ok(());
        }
        self.counts.entries += 1;
        self.now = entry.now().unwrap_or(self.now);
        // After a panic only the counts of the controller are read.
        catch_unwind(AssertUnwindSafe(|| self.apply(entry)))
            .unwrap_or(Err(ReplayError::Panicked { entry: self.counts.entries }))
    }

    fn apply(&mut self, entry: &Entry) -> Result<(), ReplayError> {
        match entry {
            Entry::Session(call) => self.session(entry, call),
            Entry::Dequeue { core, waited, verdict } => self.execute(entry, *core, *waited, *verdict),
            Entry::NextToWake { core, random, chosen } => self.next(entry, *core, *random, *chosen),
            Entry::Tick { signals, gauges } => {
                self.halves.control.tick(signals);
                self.counts.ticks += 1;
                self.compare_gauges(entry, gauges);
                Ok(())
            }
            Entry::CoreGrant { event, gauges } => {
                self.halves.control.on_core_grant(event);
                self.compare_gauges(entry, gauges);
                Ok(())
            }
            Entry::Downstream { event, gauges } => {
                self.halves.control.set_downstream(event);
                self.compare_gauges(entry, gauges);
                Ok(())
            }
            Entry::Threading { signals, wanted, timeout } => {
                self.threading(entry, signals, *wanted, *timeout);
                Ok(())
            }
        }
    }

    /// Calls the threading policy, and compares its setup and the time of its next call.
    fn threading(&mut self, entry: &Entry, signals: &ThreadSignals, wanted: Option<ThreadingSetup>, timeout: Time) {
        self.counts.threading += 1;
        let Some(policy) = &mut self.threading else { return };
        let (now, next) = (policy.decide(signals), policy.next_timeout());
        let name = |setup: Option<ThreadingSetup>| setup.map_or("the present one".into(), |setup| setup.to_string());
        self.compare(entry, 0, "wanted setup", wanted != now, || (name(wanted), name(now)));
        let name = |time: Time| if time == Time::NEVER { "never".into() } else { Nanos(time.0).to_string() };
        self.compare(entry, 0, "time-out", timeout != next, || (name(timeout), name(next)));
    }

    /// Compares the controller's state. Another controller has another state, so only its verdicts
    /// are compared.
    fn compare_gauges(&mut self, entry: &Entry, then: &Gauges) {
        if self.is_same {
            let now = self.halves.control.gauges();
            let differs = !same_gauges(then, &now);
            self.compare(entry, 0, "controller's state", differs, || (format_gauges(then), format_gauges(&now)));
        }
    }

    fn session(&mut self, entry: &Entry, call: &SessionEntry) -> Result<(), ReplayError> {
        let (core, slot) = (call.core.0, call.slot.0);
        self.check_core(call.core)?;
        let invalid = |number, open| ReplayError::Session { entry: number, call: call.call.name(), core, slot, open };
        let number = self.counts.entries;
        if let SessionCall::Open(_) = call.call {
            self.check_slot(call.core, call.slot)?;
            let new = || ReplaySession { generation: 0, session: None, admitted: 0, rejected: 0 };
            let state = self.sessions.entry((core, slot)).or_insert_with(new);
            if state.session.is_some() {
                return Err(invalid(number, true));
            }
            state.generation = state.generation.saturating_add(1);
            (state.admitted, state.rejected) = (0, 0);
            state.session = Some(Session::new(call.slot, call.core));
            self.counts.opened += 1;
        }
        let Some(state) = self.sessions.get_mut(&(core, slot)) else { return Err(invalid(number, false)) };
        let Some(mut session) = state.session.take() else { return Err(invalid(number, false)) };
        session.restore(call.pending, call.demand, call.method);
        let before = session.state::<[u64; 2]>();
        let outcome = match call.call {
            // Another controller's replies follow its own verdicts: as many requests end rejected
            // as it rejected.
            SessionCall::Reply(event) if !self.is_same => {
                Some(state.outcome(event.outcome, &mut self.admitted, &mut self.late))
            }
            _ => None,
        };
        let generation = state.generation;
        let half = self.halves.cores[core as usize].as_mut();
        let answer = match call.call {
            SessionCall::Open(event) => {
                half.open(&mut session, &event);
                Answer::Nothing
            }
            SessionCall::Request(event) => {
                let verdict = half.request(&mut session, &event);
                match verdict {
                    Verdict::Admit => {
                        state.admitted += 1;
                        self.admitted += 1;
                    }
                    Verdict::Reject(_) => state.rejected += 1,
                }
                Answer::Verdict(verdict)
            }
            SessionCall::Reply(event) => {
                let event = Departure { outcome: outcome.unwrap_or(event.outcome), ..event };
                Answer::Feedback(half.reply(&mut session, &event))
            }
            SessionCall::Demand(now) => half.demand(&mut session, now).map_or(Answer::Nothing, Answer::Feedback),
            // The recorded controller chose this session. The other controller chooses its own.
            SessionCall::Wake(_) if !self.is_same => Answer::Nothing,
            SessionCall::Wake(now) => Answer::Feedback(half.wake(&mut session, now)),
            SessionCall::Close(now) => {
                half.close(&mut session, now);
                self.admitted = self.admitted.saturating_sub(state.admitted);
                self.late = self.late.min(self.admitted);
                Answer::Nothing
            }
        };
        let (window, custom) = (session.window, session.state::<[u64; 2]>());
        if let SessionCall::Close(_) = call.call {
            self.counts.closed += 1;
        } else {
            state.session = Some(session);
        }
        self.count(call, &answer);
        if self.is_same {
            self.compare(entry, generation, "answer", call.answer != answer, || {
                (call.answer.to_string(), answer.to_string())
            });
            self.compare(entry, generation, "session's window", call.window != window, || {
                (call.window.0.to_string(), window.0.to_string())
            });
            let words = call.custom.unwrap_or(before);
            self.compare(entry, generation, "pair of the controller's words", words != custom, || {
                (format!("{words:?}"), format!("{custom:?}"))
            });
        } else if let (Answer::Verdict(then), Answer::Verdict(now)) = (call.answer, answer) {
            let differs = matches!(then, Verdict::Admit) != matches!(now, Verdict::Admit);
            self.compare(entry, generation, "answer", differs, || (call.answer.to_string(), answer.to_string()));
        }
        Ok(())
    }

    fn count(&mut self, call: &SessionEntry, answer: &Answer) {
        let counts = &mut self.counts;
        match call.call {
            SessionCall::Request(_) => {
                let recorded = matches!(call.answer, Answer::Verdict(Verdict::Reject(_)));
                let replayed = matches!(answer, Answer::Verdict(Verdict::Reject(_)));
                counts.requests += 1;
                counts.rejected_recorded += u64::from(recorded);
                counts.rejected_replayed += u64::from(replayed);
                counts.rejected_both += u64::from(recorded && replayed);
            }
            SessionCall::Reply(_) => counts.replies += 1,
            _ => {}
        }
        if let Answer::Feedback(feedback) = call.answer {
            counts.windows_recorded += u64::from(feedback.window.0);
        }
        if let Answer::Feedback(feedback) = answer {
            counts.windows_replayed += u64::from(feedback.window.0);
        }
    }

    fn execute(&mut self, entry: &Entry, core: CoreId, waited: Nanos, recorded: Verdict) -> Result<(), ReplayError> {
        self.check_core(core)?;
        let replayed = self.halves.cores[core.0 as usize].on_dequeue(waited);
        let (late_recorded, late_replayed) = (recorded != Verdict::Admit, replayed != Verdict::Admit);
        let counts = &mut self.counts;
        counts.dequeues += 1;
        counts.late_recorded += u64::from(late_recorded);
        counts.late_replayed += u64::from(late_replayed);
        counts.late_both += u64::from(late_recorded && late_replayed);
        let differs = if self.is_same {
            recorded != replayed
        } else {
            self.late = self.admitted.min(self.late + u64::from(late_replayed));
            late_recorded != late_replayed
        };
        let shown = |verdict| Answer::Verdict(verdict).to_string();
        self.compare(entry, 0, "answer", differs, || (shown(recorded), shown(replayed)));
        Ok(())
    }

    fn next(
        &mut self,
        entry: &Entry,
        core: CoreId,
        random: u64,
        chosen: Option<SessionSlot>,
    ) -> Result<(), ReplayError> {
        self.check_core(core)?;
        self.counts.woken_recorded += u64::from(chosen.is_some());
        let now = self.halves.cores[core.0 as usize].next_to_wake(random);
        self.counts.woken_replayed += u64::from(now.is_some());
        if self.is_same {
            let name = |slot: Option<SessionSlot>| slot.map_or("none".into(), |slot| format!("session {}", slot.0));
            self.compare(entry, 0, "session to wake", chosen != now, || (name(chosen), name(now)));
            return Ok(());
        }
        // Another controller's sessions are woken at once. Where the recorded controller had none
        // left, as many are woken as a plant would wake.
        let mut named = now;
        let mut left = if chosen.is_none() { WAKES } else { 1 };
        let mut bits = random;
        while let Some(slot) = named {
            if let Some(place) = self.sessions.get_mut(&(core.0, slot.0))
                && let Some(session) = &mut place.session
            {
                let feedback = self.halves.cores[core.0 as usize].wake(session, self.now);
                self.counts.windows_replayed += u64::from(feedback.window.0);
            }
            left -= 1;
            if left == 0 {
                break;
            }
            bits = bits.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            named = self.halves.cores[core.0 as usize].next_to_wake(bits);
            self.counts.woken_replayed += u64::from(named.is_some());
        }
        Ok(())
    }

    /// Compares one decision; `describe` returns the recorded and the replayed value as texts.
    fn compare(
        &mut self,
        entry: &Entry,
        generation: u32,
        part: &'static str,
        differs: bool,
        describe: impl FnOnce() -> (String, String),
    ) {
        self.counts.compared += 1;
        if differs && self.difference.is_none() {
            let (recorded, replayed) = describe();
            let position = (self.counts.entries, self.now, generation);
            self.difference = Some(Difference::new(position, entry, part, recorded, replayed));
        }
    }

    fn check_core(&self, core: CoreId) -> Result<(), ReplayError> {
        if (core.0 as usize) < self.halves.cores.len() {
            return Ok(());
        }
        Err(ReplayError::Core { entry: self.counts.entries, core: core.0 })
    }

    fn check_slot(&mut self, core: CoreId, slot: SessionSlot) -> Result<(), ReplayError> {
        let slots = &mut self.allocated_slots[core.0 as usize];
        *slots = (*slots).max(u64::from(slot.0) + 1);
        let all: u64 = if *slots == u64::from(slot.0) + 1 { self.allocated_slots.iter().sum() } else { 0 };
        if all > MAX_SLOTS { Err(ReplayError::Slots { entry: self.counts.entries }) } else { Ok(()) }
    }
}

/// Returns the set gauges, for people.
fn format_gauges(gauges: &Gauges) -> String {
    let whole = |name: &str, value: Option<i64>| value.map(|value| format!("{name} {value}"));
    let real = |name: &str, value: Option<f64>| value.map(|value| format!("{name} {value}"));
    let parts = [
        whole("pool", gauges.credit_pool),
        whole("issued", gauges.credits_issued),
        whole("sessions", gauges.sessions),
        whole("in flight", gauges.in_flight),
        real("priority threshold", gauges.priority_threshold),
        real("concurrency limit", gauges.concurrency_limit),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "nothing".into() } else { format!("({})", parts.join(", ")) }
}

impl ReplaySession {
    /// Outcome of one of this slot's requests under a controller other than the recorded one. For
    /// `admitted` and `late` see [`Replayer`].
    fn outcome(&mut self, recorded: Outcome, admitted: &mut u64, late: &mut u64) -> Outcome {
        let rejected = match recorded {
            Outcome::Completed => self.admitted == 0 && self.rejected > 0,
            Outcome::Rejected => self.rejected > 0 || self.admitted == 0,
        };
        if rejected {
            self.rejected = self.rejected.saturating_sub(1);
            return Outcome::Rejected;
        }
        self.admitted = self.admitted.saturating_sub(1);
        *admitted = admitted.saturating_sub(1);
        if *late == 0 {
            return Outcome::Completed;
        }
        *late -= 1;
        Outcome::Rejected
    }
}

impl std::fmt::Debug for Replayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replayer")
            .field("now", &Nanos(self.now.0))
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_replayed_late_rejection_ends_one_request() {
        let mut state = ReplaySession { generation: 1, session: None, admitted: 3, rejected: 1 };
        let (mut admitted, mut late) = (3, 2);
        let mut end = |recorded| state.outcome(recorded, &mut admitted, &mut late);
        assert_eq!(end(Outcome::Rejected), Outcome::Rejected, "the one that was rejected on arrival");
        assert_eq!(end(Outcome::Rejected), Outcome::Rejected, "both reject late");
        assert_eq!(end(Outcome::Completed), Outcome::Rejected, "only the other does");
        assert_eq!(end(Outcome::Rejected), Outcome::Completed, "only the recorded did");
        assert_eq!((admitted, late, state.admitted, state.rejected), (0, 0, 0, 0));
    }

    #[test]
    fn late_rejections_never_exceed_admitted_requests() {
        let registry = leeward_controllers::builtin();
        let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
        let breakwater = registry.find("breakwater").unwrap();
        let mut other = Replayer::with_algorithm(breakwater, &Params::default(), &environment).unwrap();
        let waited = Nanos::from_secs(1);
        let turn = Entry::Dequeue { core: CoreId(0), waited, verdict: Verdict::Admit };
        (0..5).for_each(|_| other.step(&turn).unwrap());
        assert_eq!((other.counts.dequeues, other.counts.late_replayed, other.late), (5, 5, 0));
        assert!(other.difference().unwrap().to_string().contains("execute (waited 1"), "{:?}", other.difference());
        let nowhere = Entry::Dequeue { core: CoreId(1), waited, verdict: Verdict::Admit };
        assert_eq!(other.step(&nowhere), Err(ReplayError::Core { entry: 6, core: 1 }));
    }
}
