//! Sentences about a decision: when, for which reason, and what would have let the request in. A sentence says nothing that the
//! record does not hold. Never here: how a decision is made.

use crate::decision::{Decision, Moment};
use crate::reason::Reason;
use crate::watch::SAMPLED;
use leeward_core::units::{Nanos, Time};
use std::fmt::Write;

/// Knowledge of sentences besides the decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// The controller's name.
    pub controller: String,
    /// The objective.
    pub slo: Nanos,
    /// The delay that the controller aims at, if it aims at one.
    pub target: Option<Nanos>,
    /// Now, on the server's clock.
    pub now: Time,
    /// Now, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// Whether requests say how important they are; else their priorities are drawn by chance.
    pub has_classes: bool,
    /// Whether clients send by credits.
    pub has_credits: bool,
    /// Whether the controller rehearses: its delays are those of the queue that would be if all its refusals happened.
    pub rehearses: bool,
}

/// Decisions in the second around another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Refused: all of them, as far as the ring still holds them.
    pub refused: u64,
    /// Admitted: 64 for each one in the ring, about.
    pub admitted: u64,
}

impl Second {
    /// Counts the decisions of half a second before and after.
    pub fn around(decision: &Decision, decisions: &[Decision]) -> Self {
        let half = Nanos::from_millis(500);
        let near = |other: &&Decision| decision.at.since(other.at) <= half && other.at.since(decision.at) <= half;
        decisions.iter().filter(near).fold(Second::default(), |mut second, other| {
            match other.refused {
                Some(_) => second.refused += 1,
                None => second.admitted += SAMPLED,
            }
            second
        })
    }
}

/// The time of day in UTC, to the millisecond.
pub fn time_of_day(unix_ns: u64) -> String {
    let ms = unix_ns / 1_000_000;
    let (hours, minutes, seconds) = (ms / 3_600_000 % 24, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{:03}", ms % 1_000)
}

impl Context {
    /// Time of a decision, in nanoseconds since 1970.
    pub fn unix_ns_of(&self, decision: &Decision) -> u64 {
        self.unix_ns.saturating_sub(self.now.since(decision.at).0)
    }

    /// The decision in one sentence, without its time: what the request met, and the limit.
    pub fn sentence(&self, decision: &Decision) -> String {
        match decision.refused {
            None => format!("Admitted after {} in the server's queues.", span(decision.waited)),
            Some(reason) => {
                let verb = if decision.rehearsed { "Would have been rejected" } else { "Rejected" };
                format!("{verb}: {}.", self.cause(decision, reason))
            }
        }
    }

    /// The decision in a few sentences.
    pub fn explain(&self, decision: &Decision, second: Option<&Second>) -> String {
        let at = time_of_day(self.unix_ns_of(decision));
        let Some(reason) = decision.refused else {
            return format!("Admitted at {at} UTC, after {} in the server's queues.", span(decision.waited));
        };
        let mut text = self.sentence(decision);
        if let Some(advice) = advice(reason, decision) {
            let _ = write!(text, " {advice}");
        }
        let word = reason.word();
        let rehearses = decision.rehearsed || self.rehearses && reason.is_of_controller();
        if decision.rehearsed {
            let _ =
                write!(text, " Let in at {at} UTC, because the controller rehearses (shadow mode). Reason: {word}.");
        } else {
            let _ = write!(text, " Refused at {at} UTC: {word}.");
        }
        if rehearses && !decision.rehearsed {
            text += " The controller rehearses, and refuses a share of the clients; this is one of them.";
        }
        if rehearses {
            text += " Delays are those of the shadow queue: the queue if every rejection had been enforced.";
        }
        let _ = write!(text, " Controller: {}; objective: {}.", self.name(), span(self.slo));
        if let Some(Second { refused, admitted }) = second {
            let or = if self.rehearses { " or would have been" } else { "" };
            let _ = write!(text, " Within half a second of it, {refused} requests were rejected{or}");
            let _ = match admitted {
                0 => write!(text, ", and fewer than about {SAMPLED} admitted."),
                _ => write!(text, " and about {admitted} admitted."),
            };
        }
        text
    }

    fn name(&self) -> &str {
        if self.controller.is_empty() { "the controller" } else { &self.controller }
    }

    /// The reason of a refusal and the limit that the request met, as the rest of a sentence.
    fn cause(&self, decision: &Decision, reason: Reason) -> String {
        let Decision { waited, delay, left, service, bound, .. } = decision;
        let (name, when) = (self.name(), when(decision.moment));
        match reason {
            Reason::Delay if decision.moment != Moment::Turn => {
                let (delay, limit) = spans(*delay, if *bound > 0 { Nanos(*bound) } else { self.slo });
                let meets = if *bound > 0 { "; the limit is" } else { ", too long for the objective of" };
                format!("the oldest waiting request had waited {delay} {when}{meets} {limit}")
            }
            Reason::Late | Reason::Delay => {
                if *bound > 0 && waited.0 >= *bound {
                    let (waited, limit) = spans(*waited, Nanos(*bound));
                    return format!("it had waited {waited} {when}; the limit is {limit}");
                }
                let (waited, slo) = spans(*waited, self.slo);
                let takes = match service.0 {
                    0 => String::new(),
                    _ => format!("; requests of its kind take {}", span(*service)),
                };
                format!("it had waited {waited} {when}{takes}; the objective is {slo}")
            }
            Reason::Deadline => {
                let takes = span(*service);
                let of = if *left == Nanos::MAX {
                    String::new()
                } else {
                    format!(" of the {} that its client allows", span(*left))
                };
                format!("it had waited {}{of}, and requests of its kind take {takes}", span(*waited))
            }
            Reason::Level => self.below_the_level(decision),
            Reason::Share => format!(
                "tenant {} had used more than its share while the queueing delay was {}",
                decision.tenant.0,
                span(*delay)
            ),
            // A record says only that there is a bound, not which of the two the request met.
            Reason::Concurrency if self.has_credits && *bound > 0 => format!(
                "it came without a credit and none was left, or {name} had its limit of about {bound} requests in the server"
            ),
            Reason::Concurrency if self.has_credits => "it came without a credit, and none was left".into(),
            Reason::Concurrency if *bound > 0 => {
                format!("as many requests were under way as {name} allows at once; the limit is about {bound}")
            }
            Reason::Concurrency => "as many requests were under way as are allowed at once".into(),
            Reason::Lock => format!(
                "a lock on its way would have made it wait longer than its budget allowed, {} after it arrived",
                span(*waited)
            ),
            Reason::Credit => "its client sent it without a credit".into(),
            Reason::Stopping => "the server was stopping".into(),
            Reason::Cancelled => format!("its client cancelled it {} after it arrived", span(*waited)),
            Reason::Behind => "the services that such requests call reject most of its class".into(),
            Reason::Other => format!("{name} gave no reason"),
        }
    }

    fn below_the_level(&self, decision: &Decision) -> String {
        let priority = decision.priority.level();
        let mut text = format!("its priority was {priority}");
        if self.has_classes {
            let _ = write!(text, " (user {} of class {})", decision.user(), decision.class());
        }
        // The level moves while it is read: only one that explains the refusal is told.
        if (1..u64::from(priority)).contains(&decision.bound) {
            let _ = write!(text, "; the limit was about {}", decision.bound);
        } else {
            text += "; only more important requests were admitted";
        }
        let _ = match self.target {
            Some(target) => {
                let (delay, target) = spans(decision.delay, target);
                write!(text, ". The queueing delay was {delay}; the target is {target}")
            }
            None => write!(text, ". The queueing delay was {}", span(decision.delay)),
        };
        text
    }
}

/// When the controller decided, as the end of a clause.
fn when(moment: Moment) -> &'static str {
    match moment {
        Moment::Arrival => "when it arrived",
        Moment::Turn => "when dequeued",
        Moment::Work => "while it was executed",
    }
}

/// A sentence about what helps, where that does not follow from the reason.
fn advice(reason: Reason, decision: &Decision) -> Option<&'static str> {
    match reason {
        Reason::Late => Some("A later answer would have been of no use."),
        Reason::Deadline => Some("With a longer deadline the objective would have been its limit."),
        Reason::Level => Some("1 is the most important priority, 128 the least."),
        Reason::Share => Some("A tenant below its share would have been admitted."),
        Reason::Concurrency if decision.bound == 0 => Some("A client that waits for a credit is admitted."),
        Reason::Lock => Some("/debug/locks names the locks that refuse."),
        Reason::Credit => Some("Its client's window was used up, and the controller was not asked."),
        Reason::Stopping => Some("Another server may take it."),
        Reason::Behind => Some("As many are admitted as those services accept."),
        Reason::Delay | Reason::Concurrency | Reason::Cancelled | Reason::Other => None,
    }
}

/// Units of spans, the largest first.
const UNITS: [(u64, &str); 4] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns")];

fn unit(span: Nanos) -> (u64, &'static str) {
    UNITS.into_iter().find(|(size, _)| span.0 >= *size).unwrap_or(UNITS[3])
}

/// A span in a unit with so many significant digits, without zeros at the end.
fn digits(span: Nanos, (size, word): (u64, &str), digits: usize) -> String {
    let value = span.0 as f64 / size as f64;
    let whole = if value < 1.0 { 0 } else { value.log10() as usize + 1 };
    let mut text = format!("{value:.*}", digits.saturating_sub(whole));
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    format!("{text} {word}")
}

/// A span as people read it: `1.04 ms`.
pub fn span(span: Nanos) -> String {
    digits(span, unit(span), 3)
}

/// Two spans to compare, with as many digits as tell them apart: `1.04 ms`, `0.8 ms`. Both are in the unit of the larger, unless
/// the smaller is less than a hundredth of that unit.
fn spans(one: Nanos, other: Nanos) -> (String, String) {
    let larger = unit(one.max(other));
    let told = |span: Nanos, count| digits(span, if span.0 < larger.0 / 100 { unit(span) } else { larger }, count);
    let of = |count| (told(one, count), told(other, count));
    (3..=9).map(of).find(|(first, second)| first != second || one == other).unwrap_or_else(|| of(3))
}

/// Refusals that differ in their numbers alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alike {
    /// The newest of them.
    pub newest: Decision,
    /// Time of the oldest.
    pub first: Time,
    /// How many there are.
    pub count: u64,
}

/// Folds the refusals among `decisions`, which are newest first, into at most `kinds` of them. One kind has one reason, moment
/// and, where a share was used up, tenant.
pub fn fold(decisions: &[Decision], kinds: usize) -> Vec<Alike> {
    let kind =
        |of: &Decision| (of.refused, of.moment, of.rehearsed, (of.refused == Some(Reason::Share)).then_some(of.tenant));
    let mut folded: Vec<Alike> = Vec::new();
    for decision in decisions.iter().filter(|decision| decision.refused.is_some()) {
        let known = folded.iter().position(|alike| kind(&alike.newest) == kind(decision));
        if let Some(alike) = known.and_then(|place| folded.get_mut(place)) {
            (alike.first, alike.count) = (decision.at.min(alike.first), alike.count + 1);
        } else if folded.len() < kinds {
            folded.push(Alike { newest: *decision, first: decision.at, count: 1 });
        }
    }
    folded
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_core::units::{Priority, Tenant};

    fn context() -> Context {
        Context {
            controller: "breakwater".into(),
            slo: Nanos::from_micros(200),
            target: Some(Nanos::from_micros(80)),
            now: Time(5_000_000_000),
            unix_ns: 1_700_000_005_000_000_000,
            has_classes: true,
            has_credits: true,
            rehearses: false,
        }
    }

    fn refused(reason: Reason) -> Decision {
        Decision {
            waited: Nanos::from_micros(212),
            delay: Nanos::from_micros(170),
            left: Nanos::from_millis(3),
            service: Nanos::from_micros(10),
            priority: Priority::new(77),
            tenant: Tenant(9),
            ..Decision::refused(Time(4_000_000_000), reason)
        }
    }

    #[test]
    fn the_time_is_that_of_the_decision() {
        assert_eq!(time_of_day(0), "00:00:00.000");
        assert_eq!(time_of_day(1_700_000_004_118_000_000), "22:13:24.118");
        let text = context().explain(&refused(Reason::Delay), None);
        let end = " Refused at 22:13:24.000 UTC: delay. Controller: breakwater; objective: 200 µs.";
        assert!(text.starts_with("Rejected: ") && text.ends_with(end), "{text}");
        let text = context().explain(&Decision::admitted(Time(4_000_000_000)), None);
        assert_eq!(text, "Admitted at 22:13:24.000 UTC, after 0 ns in the server's queues.");
    }

    #[test]
    fn spans_are_compared_in_one_unit() {
        let of = |ns| span(Nanos(ns));
        assert_eq!([of(0), of(999), of(80_000), of(1_040_000)], ["0 ns", "999 ns", "80 µs", "1.04 ms"]);
        assert_eq!([of(11_249_000), of(212_600_000), of(100_000)], ["11.2 ms", "213 ms", "100 µs"]);
        let of = |one, other| spans(Nanos(one), Nanos(other));
        assert_eq!(of(1_040_000, 800_000), ("1.04 ms".into(), "0.8 ms".into()));
        assert_eq!(of(80_040_000, 80_000_000), ("80.04 ms".into(), "80 ms".into()));
        assert_eq!(of(500_000_000, 1), ("500 ms".into(), "1 ns".into()));
        assert_eq!(of(7, 7), ("7 ns".into(), "7 ns".into()));
    }

    #[test]
    fn every_reason_has_sentences_with_the_numbers_of_its_record() {
        for (reason, parts) in [
            (Reason::Late, vec!["waited 212 µs when it arrived", "take 10 µs", "objective is 200 µs"]),
            (Reason::Deadline, vec!["212 µs of the 3 ms", "longer deadline"]),
            (Reason::Level, vec!["priority was 77", "user 13 of class 4", "delay was 170 µs", "target is 80 µs"]),
            (Reason::Share, vec!["tenant 9", "share"]),
            (Reason::Concurrency, vec!["without a credit"]),
            (Reason::Lock, vec!["lock", "212 µs"]),
            (Reason::Delay, vec!["waited 170 µs when it arrived", "objective of 200 µs"]),
            (Reason::Credit, vec!["window was used up"]),
            (Reason::Stopping, vec!["stopping"]),
            (Reason::Cancelled, vec!["cancelled", "212 µs"]),
            (Reason::Behind, vec!["services", "accept"]),
            (Reason::Other, vec!["breakwater"]),
        ] {
            let text = context().explain(&refused(reason), None);
            assert!(text.starts_with("Rejected: ") && text.contains(&format!(" UTC: {}. ", reason.word())), "{text}");
            for part in parts {
                assert!(text.contains(part), "no `{part}` in: {text}");
            }
        }
        assert_eq!(Reason::ALL.len(), 12, "a new reason needs its sentences here");
    }

    #[test]
    fn a_rehearsal_says_what_happened_and_what_would_have() {
        let rehearsing = Context { rehearses: true, ..context() };
        let of = |decision: Decision| rehearsing.explain(&decision, Some(&Second { refused: 3, admitted: 64 }));
        let let_in = of(Decision { rehearsed: true, ..refused(Reason::Delay) });
        assert!(let_in.starts_with("Would have been rejected: ") && let_in.contains("Let in at "), "{let_in}");
        assert!(
            let_in.contains("waited 170 µs") && let_in.contains("3 requests were rejected or would have been"),
            "{let_in}"
        );
        let meant = of(refused(Reason::Delay));
        assert!(meant.starts_with("Rejected: ") && meant.contains("a share of the clients"), "{meant}");
        // Locks are not rehearsed: such a refusal is as real as ever.
        let lock = of(refused(Reason::Lock));
        assert!(!lock.contains("rehearses") && lock.contains("a lock on its way"), "{lock}");
    }

    #[test]
    fn bounds_are_told_only_where_they_explain_the_refusal() {
        let level = |bound| context().sentence(&Decision { bound, ..refused(Reason::Level) });
        assert!(level(61).contains("the limit was about 61"), "{}", level(61));
        for bound in [0, 77, 90] {
            assert!(level(bound).contains("only more important requests"), "{}", level(bound));
        }
        let delay = Decision { bound: 160_000, ..refused(Reason::Delay) };
        let arrived = "Rejected: the oldest waiting request had waited 170 µs when it arrived; the limit is 160 µs.";
        assert_eq!(context().sentence(&delay), arrived);
        let dequeued = "Rejected: it had waited 1.04 ms when dequeued; the limit is 0.8 ms.";
        for reason in [Reason::Delay, Reason::Late] {
            let turn = Decision { moment: Moment::Turn, bound: 800_000, waited: Nanos(1_040_000), ..refused(reason) };
            assert_eq!(context().sentence(&turn), dequeued);
        }
        let limit = Decision { bound: 12, ..refused(Reason::Concurrency) };
        let bounded = Context { controller: "auto".into(), ..context() }.sentence(&limit);
        assert!(bounded.contains("auto had its limit of about 12"), "{bounded}");
        let other = Context { controller: "gradient".into(), has_credits: false, ..context() };
        assert!(other.sentence(&limit).contains("gradient allows at once; the limit is about 12"));
    }

    #[test]
    fn alike_refusals_are_one_with_a_count() {
        let at = |ms: u64, reason| Decision { at: Time(ms), waited: Nanos(ms), ..Decision::refused(Time(ms), reason) };
        let share = |ms, tenant| Decision { tenant: Tenant(tenant), ..at(ms, Reason::Share) };
        let turn = Decision { moment: Moment::Turn, ..at(5, Reason::Delay) };
        let admitted = Decision::admitted(Time(8));
        let all = [
            at(9, Reason::Delay),
            admitted,
            at(7, Reason::Delay),
            share(6, 1),
            turn,
            share(4, 2),
            at(3, Reason::Delay),
        ];
        let folded =
            |kinds| fold(&all, kinds).iter().map(|of| (of.newest.at.0, of.first.0, of.count)).collect::<Vec<_>>();
        assert_eq!(folded(8), [(9, 3, 3), (6, 6, 1), (5, 5, 1), (4, 4, 1)]);
        assert_eq!(folded(1), [(9, 3, 3)]);
        assert_eq!(fold(&[admitted], 8), []);
    }

    #[test]
    fn the_second_around_counts_neighbours_alone() {
        let at = |ms: u64, refused: Option<Reason>| Decision { refused, ..Decision::admitted(Time(ms * 1_000_000)) };
        let of = at(2_000, Some(Reason::Delay));
        let all =
            [at(1_400, None), at(1_600, None), of, at(2_499, Some(Reason::Level)), at(2_600, Some(Reason::Level))];
        let second = Second::around(&of, &all);
        assert_eq!(second, Second { refused: 2, admitted: 64 });
        let text = context().explain(&of, Some(&second));
        assert!(text.ends_with("2 requests were rejected and about 64 admitted."), "{text}");
    }
}
