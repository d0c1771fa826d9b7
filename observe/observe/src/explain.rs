//! Explains a decision in sentences: its time, its reason, and the limit that the request met. A
//! sentence states only facts that the record holds. Does not contain the decision itself.

use crate::decision::{Decision, LifecycleStage};
use crate::reason::DecisionReason;
use crate::watch::SAMPLING_INTERVAL;
use leeward_core::units::{Nanos, Time};
use std::fmt::Write;

/// Facts that the sentences need besides the decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecisionContext {
    /// Name of the controller.
    pub controller: String,
    /// Latency objective.
    pub slo: Nanos,
    /// Queueing delay that the controller aims at, if it has a target.
    pub target: Option<Nanos>,
    /// Time of the explanation, on the server's clock.
    pub now: Time,
    /// Time of the explanation, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// True if requests state their priorities; otherwise priorities are drawn at random.
    pub has_classes: bool,
    /// True if clients need credits to send.
    pub has_credits: bool,
    /// True if a delay is what the request would have waited, as in the queue of a proxy; otherwise
    /// it is the age of the oldest queued request.
    pub has_expected_waits: bool,
    /// True in shadow mode: delays are then those of the shadow queue, as if all rejections were
    /// enforced.
    pub is_shadow: bool,
    /// Limit of requests in progress beside the controller's own, if there is one.
    pub in_flight_limit: Option<InFlightLimit>,
}

/// Limit of requests in progress that a program set, or a default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlightLimit {
    /// The limit.
    pub most: u64,
    /// When a request last ended, on the server's clock; zero: none has.
    pub last_end: Time,
}

/// Numbers of decisions in the second around another decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NearbyCounts {
    /// Rejections: all that the ring still holds.
    pub refused: u64,
    /// Admissions, estimated: 64 for each admission in the ring.
    pub admitted: u64,
}

impl NearbyCounts {
    /// Counts the decisions from half a second before to half a second after `decision`.
    pub fn new(decision: &Decision, decisions: &[Decision]) -> Self {
        let half = Nanos::from_millis(500);
        let near = |other: &&Decision| decision.at.since(other.at) <= half && other.at.since(decision.at) <= half;
        decisions.iter().filter(near).fold(NearbyCounts::default(), |mut second, other| {
            match other.reject_reason {
                Some(_) => second.refused += 1,
                None => second.admitted += SAMPLING_INTERVAL,
            }
            second
        })
    }
}

/// Time of day in UTC, to the millisecond.
pub fn time_of_day(unix_ns: u64) -> String {
    let ms = unix_ns / 1_000_000;
    let (hours, minutes, seconds) = (ms / 3_600_000 % 24, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{:03}", ms % 1_000)
}

impl DecisionContext {
    /// Time of a decision, in nanoseconds since 1970.
    pub fn unix_ns_of(&self, decision: &Decision) -> u64 {
        self.unix_ns.saturating_sub(self.now.since(decision.at).0)
    }

    /// Explains the decision in one sentence, without its time: the wait and the limit.
    pub fn sentence(&self, decision: &Decision) -> String {
        match decision.reject_reason {
            None => format!("Admitted after {} in the server's queues.", format_duration(decision.wait)),
            Some(reason) => {
                let verb = if decision.is_shadow { "Would have been rejected" } else { "Rejected" };
                format!("{verb}: {}.", self.cause(decision, reason))
            }
        }
    }

    /// Explains the decision in a few sentences; `second` adds the counts of the second around it.
    pub fn explain(&self, decision: &Decision, second: Option<&NearbyCounts>) -> String {
        let at = time_of_day(self.unix_ns_of(decision));
        let Some(reason) = decision.reject_reason else {
            return format!("Admitted at {at} UTC, after {} in the server's queues.", format_duration(decision.wait));
        };
        let mut text = self.sentence(decision);
        if let Some(advice) = advice(reason, decision) {
            let _ = write!(text, " {advice}");
        }
        let word = reason.name();
        let in_shadow_mode = decision.is_shadow || self.is_shadow && reason.is_from_controller();
        if decision.is_shadow {
            let _ = write!(text, " Admitted at {at} UTC, because the controller is in shadow mode. Reason: {word}.");
        } else {
            let _ = write!(text, " Rejected at {at} UTC: {word}.");
        }
        if in_shadow_mode && !decision.is_shadow {
            text += " Rejections are enforced for a share of the clients; this client belongs to it.";
        }
        if in_shadow_mode {
            text += " Delays are those of the shadow queue: the queue as it would be if every rejection were enforced.";
        }
        let _ = write!(text, " Controller: {}; objective: {}.", self.name(), format_duration(self.slo));
        if let Some(NearbyCounts { refused, admitted }) = second {
            let or = if self.is_shadow { " or would have been" } else { "" };
            let were = if *refused == 1 { "request was" } else { "requests were" };
            let _ = write!(text, " Within half a second of this decision, {refused} {were} rejected{or}");
            let _ = match admitted {
                0 => write!(text, ", and fewer than about {SAMPLING_INTERVAL} admitted."),
                _ => write!(text, " and about {admitted} admitted."),
            };
        }
        text
    }

    fn name(&self) -> &str {
        if self.controller.is_empty() { "the controller" } else { &self.controller }
    }

    /// Reason of a rejection and the limit that the request met, as the rest of a sentence.
    fn cause(&self, decision: &Decision, reason: DecisionReason) -> String {
        let Decision { wait: waited, delay, time_left: left, service_time: service, bound, .. } = decision;
        let (name, when) = (self.name(), stage_clause(decision.stage));
        match reason {
            DecisionReason::Delay if self.has_expected_waits => {
                let (delay, limit) = format_pair(*delay, Nanos(*bound));
                let takes = match service.0 {
                    0 => String::new(),
                    _ => format!("; nearly all requests take up to {} after it", format_duration(*service)),
                };
                format!("it would have waited about {delay} behind others; the limit is {limit}{takes}")
            }
            DecisionReason::Delay if decision.stage != LifecycleStage::Dequeue => {
                let (delay, limit) = format_pair(*delay, if *bound > 0 { Nanos(*bound) } else { self.slo });
                let meets = if *bound > 0 { "; the limit is" } else { ", too long for the objective of" };
                format!("the oldest queued request had waited {delay} {when}{meets} {limit}")
            }
            DecisionReason::Late | DecisionReason::Delay => {
                if *bound > 0 && waited.0 >= *bound {
                    let (waited, limit) = format_pair(*waited, Nanos(*bound));
                    return format!("it had waited {waited} {when}; the limit is {limit}");
                }
                // Of a queue behind the gate, the decision has the delay that is to come.
                let is_behind = waited.0.saturating_add(service.0) < self.slo.0 && decision.delay > *waited;
                let behind =
                    if is_behind { format!("; the queue takes {}", format_duration(*delay)) } else { String::new() };
                let (waited, slo) = format_pair(*waited, self.slo);
                let takes = match service.0 {
                    0 => String::new(),
                    _ => format!("; requests of its kind take {}", format_duration(*service)),
                };
                format!("it had waited {waited} {when}{behind}{takes}; the objective is {slo}")
            }
            DecisionReason::Deadline => {
                let takes = format_duration(*service);
                let of = if *left == Nanos::MAX {
                    String::new()
                } else {
                    format!(" of the {} that its client allows", format_duration(*left))
                };
                format!("it had waited {}{of}, and requests of its kind take {takes}", format_duration(*waited))
            }
            DecisionReason::Level => self.priority_cause(decision),
            DecisionReason::Share => format!(
                "tenant {} had used more than its share while the queueing delay was {}",
                decision.tenant.0,
                format_duration(*delay)
            ),
            // A record states only that a bound exists, not which of the two bounds the request
            // met.
            DecisionReason::Concurrency if self.has_credits && *bound > 0 => format!(
                "it was sent without a credit and none was left, or {name}'s limit of about {bound} requests was reached"
            ),
            DecisionReason::Concurrency if self.has_credits => "it was sent without a credit, and none was left".into(),
            DecisionReason::Concurrency if self.has_expected_waits => {
                format!("the queue was full: {bound} requests waited that were as important or more")
            }
            DecisionReason::Concurrency if *bound > 0 => match self.in_flight_limit {
                Some(limit) if limit.most == *bound && decision.stage == LifecycleStage::Arrival => {
                    in_flight_cause(decision, limit, self.slo)
                }
                _ => format!("{name}'s concurrency limit of about {bound} requests was reached"),
            },
            DecisionReason::Concurrency => "the concurrency limit was reached".into(),
            DecisionReason::Lock => format!(
                "the wait for a lock, {} after the request arrived, would have exceeded its time budget",
                format_duration(*waited)
            ),
            DecisionReason::Credit => "its client sent it without a credit".into(),
            DecisionReason::Stopping => "the server was stopping".into(),
            DecisionReason::Cancelled => {
                format!("its client cancelled it {} after it arrived", format_duration(*waited))
            }
            DecisionReason::Downstream => "the downstream services reject most requests of its class".into(),
            DecisionReason::Other => format!("{name} gave no reason"),
        }
    }

    fn priority_cause(&self, decision: &Decision) -> String {
        let priority = decision.priority.level();
        let mut text = format!("its priority was {priority}");
        if self.has_classes {
            let _ = write!(text, " (user {} of class {})", decision.user(), decision.class());
        }
        // The level changes while it is read, so it is printed only if it explains the rejection.
        if (1..u64::from(priority)).contains(&decision.bound) {
            let _ = write!(text, "; the limit was about {}", decision.bound);
        } else {
            text += "; only more important requests were admitted";
        }
        let _ = match self.target {
            Some(target) => {
                let (delay, target) = format_pair(decision.delay, target);
                write!(text, ". The queueing delay was {delay}; the target is {target}")
            }
            None => write!(text, ". The queueing delay was {}", format_duration(decision.delay)),
        };
        text
    }
}

/// Cause of a rejection by a limit that is not the controller's. If no request has ended for long,
/// the program may have forgotten to report it.
fn in_flight_cause(decision: &Decision, limit: InFlightLimit, slo: Nanos) -> String {
    let most = limit.most;
    let mut text = format!("{most} requests were in progress, as many as `max_in_flight` allows");
    // A later end says nothing about the time before the decision.
    let unended = if limit.last_end <= decision.at { decision.at.since(limit.last_end) } else { Nanos::ZERO };
    if unended >= Nanos::from_secs(1).max(slo * 8) {
        let span = format_duration(unended);
        let _ = write!(text, "; none had ended for {span}, as if `lw_finish` were missing, or a permit held");
    }
    text
}

/// Clause that says at which stage the controller decided.
fn stage_clause(stage: LifecycleStage) -> &'static str {
    match stage {
        LifecycleStage::Arrival => "when it arrived",
        LifecycleStage::Dequeue => "when dequeued",
        LifecycleStage::Execution => "while it was executed",
    }
}

/// Sentence of advice, where the advice does not follow from the reason.
fn advice(reason: DecisionReason, decision: &Decision) -> Option<&'static str> {
    match reason {
        DecisionReason::Late => Some("It could not have been answered within the objective."),
        DecisionReason::Deadline => Some("With a longer deadline, the objective would have been the limit."),
        DecisionReason::Level => Some("1 is the most important priority, 128 the least."),
        DecisionReason::Share => Some("A tenant below its share would have been admitted."),
        DecisionReason::Concurrency if decision.bound == 0 => Some("A client that waits for a credit is admitted."),
        DecisionReason::Lock => Some("/debug/locks lists the rejections of each lock."),
        DecisionReason::Credit => Some("The client's window was used up, so the controller was not asked."),
        DecisionReason::Stopping => Some("The client may retry it at another server."),
        DecisionReason::Downstream => Some("The share that is admitted follows the share that those services accept."),
        DecisionReason::Delay | DecisionReason::Concurrency | DecisionReason::Cancelled | DecisionReason::Other => None,
    }
}

/// Units of durations, the largest first.
const UNITS: [(u64, &str); 4] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns")];

fn unit(span: Nanos) -> (u64, &'static str) {
    UNITS.into_iter().find(|(size, _)| span.0 >= *size).unwrap_or(UNITS[3])
}

/// Formats a duration in the given unit with this many significant digits, without trailing zeros.
fn digits(span: Nanos, (size, word): (u64, &str), digits: usize) -> String {
    let value = span.0 as f64 / size as f64;
    let whole = if value < 1.0 { 0 } else { value.log10() as usize + 1 };
    let mut text = format!("{value:.*}", digits.saturating_sub(whole));
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    format!("{text} {word}")
}

/// Formats a duration with a readable unit, such as `1.04 ms`.
pub fn format_duration(span: Nanos) -> String {
    digits(span, unit(span), 3)
}

/// Formats two durations with enough digits to differ, such as `1.04 ms` and `0.8 ms`.
///
/// Both have the unit of the larger, unless the smaller is less than a hundredth of that unit.
fn format_pair(one: Nanos, other: Nanos) -> (String, String) {
    let larger = unit(one.max(other));
    let format = |span: Nanos, count| digits(span, if span.0 < larger.0 / 100 { unit(span) } else { larger }, count);
    let of = |count| (format(one, count), format(other, count));
    (3..=9).map(of).find(|(first, second)| first != second || one == other).unwrap_or_else(|| of(3))
}

/// Rejections that differ only in their numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RejectionGroup {
    /// Newest rejection of the group.
    pub newest: Decision,
    /// Time of the oldest rejection.
    pub first_time: Time,
    /// Number of rejections.
    pub count: u64,
}

/// Groups the rejections among `decisions`, which are newest first, into at most `kinds` groups.
///
/// Rejections of one group share the reason, the stage and, if a share was used up, the tenant.
pub fn group_rejections(decisions: &[Decision], kinds: usize) -> Vec<RejectionGroup> {
    let kind = |of: &Decision| {
        (
            of.reject_reason,
            of.stage,
            of.is_shadow,
            (of.reject_reason == Some(DecisionReason::Share)).then_some(of.tenant),
        )
    };
    let mut folded: Vec<RejectionGroup> = Vec::new();
    for decision in decisions.iter().filter(|decision| decision.reject_reason.is_some()) {
        let known = folded.iter().position(|alike| kind(&alike.newest) == kind(decision));
        if let Some(alike) = known.and_then(|index| folded.get_mut(index)) {
            (alike.first_time, alike.count) = (decision.at.min(alike.first_time), alike.count + 1);
        } else if folded.len() < kinds {
            folded.push(RejectionGroup { newest: *decision, first_time: decision.at, count: 1 });
        }
    }
    folded
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_core::units::{Priority, Tenant};

    fn context() -> DecisionContext {
        DecisionContext {
            controller: "breakwater".into(),
            slo: Nanos::from_micros(200),
            target: Some(Nanos::from_micros(80)),
            now: Time(5_000_000_000),
            unix_ns: 1_700_000_005_000_000_000,
            has_classes: true,
            has_credits: true,
            has_expected_waits: false,
            is_shadow: false,
            in_flight_limit: None,
        }
    }

    fn refused(reason: DecisionReason) -> Decision {
        Decision {
            wait: Nanos::from_micros(212),
            delay: Nanos::from_micros(170),
            time_left: Nanos::from_millis(3),
            service_time: Nanos::from_micros(10),
            priority: Priority::new(77),
            tenant: Tenant(9),
            ..Decision::rejected(Time(4_000_000_000), reason)
        }
    }

    #[test]
    fn an_explanation_has_the_time_of_its_decision() {
        assert_eq!(time_of_day(0), "00:00:00.000");
        assert_eq!(time_of_day(1_700_000_004_118_000_000), "22:13:24.118");
        let text = context().explain(&refused(DecisionReason::Delay), None);
        let end = " Rejected at 22:13:24.000 UTC: delay. Controller: breakwater; objective: 200 µs.";
        assert!(text.starts_with("Rejected: ") && text.ends_with(end), "{text}");
        let text = context().explain(&Decision::admitted(Time(4_000_000_000)), None);
        assert_eq!(text, "Admitted at 22:13:24.000 UTC, after 0 ns in the server's queues.");
    }

    #[test]
    fn compared_durations_share_one_unit() {
        let of = |ns| format_duration(Nanos(ns));
        assert_eq!([of(0), of(999), of(80_000), of(1_040_000)], ["0 ns", "999 ns", "80 µs", "1.04 ms"]);
        assert_eq!([of(11_249_000), of(212_600_000), of(100_000)], ["11.2 ms", "213 ms", "100 µs"]);
        let of = |one, other| format_pair(Nanos(one), Nanos(other));
        assert_eq!(of(1_040_000, 800_000), ("1.04 ms".into(), "0.8 ms".into()));
        assert_eq!(of(80_040_000, 80_000_000), ("80.04 ms".into(), "80 ms".into()));
        assert_eq!(of(500_000_000, 1), ("500 ms".into(), "1 ns".into()));
        assert_eq!(of(7, 7), ("7 ns".into(), "7 ns".into()));
    }

    #[test]
    fn every_reason_has_sentences_with_the_numbers_of_its_record() {
        for (reason, parts) in [
            (DecisionReason::Late, vec!["waited 212 µs when it arrived", "take 10 µs", "objective is 200 µs"]),
            (DecisionReason::Deadline, vec!["212 µs of the 3 ms", "longer deadline"]),
            (
                DecisionReason::Level,
                vec!["priority was 77", "user 13 of class 4", "delay was 170 µs", "target is 80 µs"],
            ),
            (DecisionReason::Share, vec!["tenant 9", "share"]),
            (DecisionReason::Concurrency, vec!["without a credit"]),
            (DecisionReason::Lock, vec!["lock", "212 µs"]),
            (DecisionReason::Delay, vec!["waited 170 µs when it arrived", "objective of 200 µs"]),
            (DecisionReason::Credit, vec!["window was used up"]),
            (DecisionReason::Stopping, vec!["stopping"]),
            (DecisionReason::Cancelled, vec!["cancelled", "212 µs"]),
            (DecisionReason::Downstream, vec!["services", "accept"]),
            (DecisionReason::Other, vec!["breakwater"]),
        ] {
            let text = context().explain(&refused(reason), None);
            assert!(text.starts_with("Rejected: ") && text.contains(&format!(" UTC: {}. ", reason.name())), "{text}");
            for part in parts {
                assert!(text.contains(part), "no `{part}` in: {text}");
            }
        }
        assert_eq!(DecisionReason::ALL.len(), 12, "a new reason needs its sentences here");
    }

    #[test]
    fn shadow_mode_explains_the_actual_and_the_predicted_outcome() {
        let shadow = DecisionContext { is_shadow: true, ..context() };
        let of = |decision: Decision| shadow.explain(&decision, Some(&NearbyCounts { refused: 3, admitted: 64 }));
        let admitted = of(Decision { is_shadow: true, ..refused(DecisionReason::Delay) });
        let alone = shadow.explain(&refused(DecisionReason::Delay), Some(&NearbyCounts { refused: 1, admitted: 0 }));
        assert!(alone.contains("1 request was rejected"), "{alone}");
        assert!(admitted.starts_with("Would have been rejected: ") && admitted.contains("Admitted at "), "{admitted}");
        assert!(
            admitted.contains("waited 170 µs") && admitted.contains("3 requests were rejected or would have been"),
            "{admitted}"
        );
        let enforced = of(refused(DecisionReason::Delay));
        assert!(enforced.starts_with("Rejected: ") && enforced.contains("a share of the clients"), "{enforced}");
        // Lock rejections are enforced in shadow mode, too.
        let lock = of(refused(DecisionReason::Lock));
        assert!(!lock.contains("shadow queue") && lock.contains("the wait for a lock"), "{lock}");
    }

    #[test]
    fn limits_are_stated_only_if_they_explain_the_rejection() {
        let level = |bound| context().sentence(&Decision { bound, ..refused(DecisionReason::Level) });
        assert!(level(61).contains("the limit was about 61"), "{}", level(61));
        for bound in [0, 77, 90] {
            assert!(level(bound).contains("only more important requests"), "{}", level(bound));
        }
        let delay = Decision { bound: 160_000, ..refused(DecisionReason::Delay) };
        let arrived = "Rejected: the oldest queued request had waited 170 µs when it arrived; the limit is 160 µs.";
        assert_eq!(context().sentence(&delay), arrived);
        let dequeued = "Rejected: it had waited 1.04 ms when dequeued; the limit is 0.8 ms.";
        for reason in [DecisionReason::Delay, DecisionReason::Late] {
            let turn =
                Decision { stage: LifecycleStage::Dequeue, bound: 800_000, wait: Nanos(1_040_000), ..refused(reason) };
            assert_eq!(context().sentence(&turn), dequeued);
        }
        let limit = Decision { bound: 12, ..refused(DecisionReason::Concurrency) };
        let bounded = DecisionContext { controller: "auto".into(), ..context() }.sentence(&limit);
        assert!(bounded.contains("auto's limit of about 12"), "{bounded}");
        let other = DecisionContext { controller: "gradient".into(), has_credits: false, ..context() };
        assert!(other.sentence(&limit).contains("gradient's concurrency limit of about 12"));
    }

    #[test]
    fn a_limit_of_the_program_is_no_limit_of_the_controller() {
        let sentence = |bound, ended_at| {
            let in_flight_limit = Some(InFlightLimit { most: 100, last_end: Time(ended_at) });
            let context = DecisionContext { in_flight_limit, has_credits: false, ..context() };
            context.sentence(&Decision { bound, ..refused(DecisionReason::Concurrency) })
        };
        // The decision was made at 4 s.
        let busy = "Rejected: 100 requests were in progress, as many as `max_in_flight` allows.";
        assert_eq!([sentence(100, 3_990_000_000), sentence(100, 4_500_000_000)], [busy, busy]);
        let held = sentence(100, 1_000_000_000);
        assert!(held.contains("none had ended for 3 s") && held.contains("`lw_finish`"), "{held}");
        assert!(sentence(12, 1_000_000_000).contains("breakwater's concurrency limit of about 12"));
    }

    #[test]
    fn similar_rejections_are_merged_with_a_count() {
        let at = |ms: u64, reason| Decision { at: Time(ms), wait: Nanos(ms), ..Decision::rejected(Time(ms), reason) };
        let share = |ms, tenant| Decision { tenant: Tenant(tenant), ..at(ms, DecisionReason::Share) };
        let turn = Decision { stage: LifecycleStage::Dequeue, ..at(5, DecisionReason::Delay) };
        let admitted = Decision::admitted(Time(8));
        let all = [
            at(9, DecisionReason::Delay),
            admitted,
            at(7, DecisionReason::Delay),
            share(6, 1),
            turn,
            share(4, 2),
            at(3, DecisionReason::Delay),
        ];
        let folded = |kinds| {
            group_rejections(&all, kinds)
                .iter()
                .map(|of| (of.newest.at.0, of.first_time.0, of.count))
                .collect::<Vec<_>>()
        };
        assert_eq!(folded(8), [(9, 3, 3), (6, 6, 1), (5, 5, 1), (4, 4, 1)]);
        assert_eq!(folded(1), [(9, 3, 3)]);
        assert_eq!(group_rejections(&[admitted], 8), []);
    }

    #[test]
    fn nearby_counts_exclude_the_decision_itself() {
        let at = |ms: u64, refused: Option<DecisionReason>| Decision {
            reject_reason: refused,
            ..Decision::admitted(Time(ms * 1_000_000))
        };
        let of = at(2_000, Some(DecisionReason::Delay));
        let all = [
            at(1_400, None),
            at(1_600, None),
            of,
            at(2_499, Some(DecisionReason::Level)),
            at(2_600, Some(DecisionReason::Level)),
        ];
        let second = NearbyCounts::new(&of, &all);
        assert_eq!(second, NearbyCounts { refused: 2, admitted: 64 });
        let text = context().explain(&of, Some(&second));
        assert!(text.ends_with("2 requests were rejected and about 64 admitted."), "{text}");
    }

    #[test]
    fn a_proxy_states_the_expected_wait() {
        let mut decision = Decision::rejected(Time(1), DecisionReason::Delay);
        (decision.delay, decision.bound, decision.service_time) =
            (Nanos::from_millis(14), 11_000_000, Nanos::from_millis(5));
        let context = DecisionContext { has_expected_waits: true, ..context() };
        assert_eq!(
            context.sentence(&decision),
            "Rejected: it would have waited about 14 ms behind others; the limit is 11 ms; nearly all requests take \
             up to 5 ms after it."
        );
    }
}
