//! Sentences about a decision: when, for which reason, and what would have let the request in. A sentence says nothing that the
//! record does not hold. Never here: how a decision is made.

use crate::decision::{Decision, Moment};
use crate::reason::Reason;
use crate::watch::SAMPLED;
use leeward_control::units::{Nanos, Time};
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

/// Sentence about the delays that a rehearsal tells.
const THAT_WOULD_BE: &str = "Delays are those of the queue that would be if all refusals happened.";

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

    /// The decision in a few sentences.
    pub fn explain(&self, decision: &Decision, second: Option<&Second>) -> String {
        let at = time_of_day(self.unix_ns_of(decision));
        let mut text = match decision.refused {
            None => format!("Admitted at {at} UTC, after {} in the server's queues.", decision.waited),
            Some(reason) => {
                let because = self.because(decision, reason);
                let verb = if decision.rehearsed { "Let in" } else { "Refused" };
                let word = reason.word();
                let stands = match (decision.rehearsed, self.rehearses && reason.is_of_controller()) {
                    (true, _) => format!(
                        "{word} would have been the reason to refuse it, but the controller rehearses. {THAT_WOULD_BE} "
                    ),
                    (false, true) => format!(
                        "{word}. The controller rehearses, and refuses a share of the clients, of which this one is. {THAT_WOULD_BE} "
                    ),
                    (false, false) => format!("{word}. "),
                };
                format!("{verb} at {at} UTC: {stands}{because}")
            }
        };
        if let Some(Second { refused, admitted }) = second
            && decision.refused.is_some()
        {
            let or = if self.rehearses { " or would have been" } else { "" };
            let _ = write!(text, " Within half a second of it, {refused} requests were refused{or}");
            let _ = match admitted {
                0 => write!(text, ", and fewer than some {SAMPLED} admitted."),
                _ => write!(text, " and about {admitted} admitted."),
            };
        }
        text
    }

    /// The reason of a refusal, and what would have let it in.
    fn because(&self, decision: &Decision, reason: Reason) -> String {
        let Decision { waited, delay, left, service, .. } = decision;
        let name = if self.controller.is_empty() { "the controller" } else { &self.controller };
        match reason {
            Reason::Late => format!(
                "It had waited {waited} when it was decided about; requests of its kind take {service}, and the objective is {}. \
                 Answered later than that it would have been of no use.",
                self.slo
            ),
            Reason::Deadline => {
                let of = if *left == Nanos::MAX { "no limit".into() } else { left.to_string() };
                format!(
                    "It had waited {waited} of the {of} that its client gave it, and requests of its kind take {service}. \
                     With a longer deadline it would have been judged by the objective, {}.",
                    self.slo
                )
            }
            Reason::Level => self.below_the_level(decision),
            Reason::Share => format!(
                "The queue stood at {delay}, and tenant {} had had more than its share. A tenant below its share was let in.",
                decision.tenant.0
            ),
            // A record says only that there is a bound, not which of the two the request met.
            Reason::Concurrency if self.has_credits && decision.bound > 0 => format!(
                "Requests waited for something other than a core, so {name} bounded those in the server, to about {}, and there was no \
                 place for it; or it came without a credit of its session while the pool had none left to give.",
                decision.bound
            ),
            Reason::Concurrency if self.has_credits => {
                "It came without a credit of its session, and the pool had none left to give. Requests that wait at their client \
                 until there is a credit are let in."
                    .into()
            }
            Reason::Concurrency if decision.bound > 0 => {
                format!("As many requests were under way as {name} lets in at once: about {}.", decision.bound)
            }
            Reason::Concurrency => "As many requests were under way as may be at once.".into(),
            Reason::Lock => format!(
                "A lock on its way would have made it wait longer than its budget allowed. It had been in the server for {waited}. \
                 /debug/locks names the locks that refuse."
            ),
            Reason::Delay => self.too_long_a_queue(decision, name),
            Reason::Credit => "Its client sent it although its window was used up. The controller was not asked, and \
                               only a client that keeps to its window is heard."
                .into(),
            Reason::Stopping => "The server was stopping and admitted nothing more. Another server may take it.".into(),
            Reason::Cancelled => format!("Its client cancelled it, {waited} after it had come."),
            Reason::Behind => "Services behind this one, which such requests ask, refuse some of its class. As many are let in as \
                               they accept, and for the others nobody works."
                .into(),
            Reason::Other => format!("{name} refused it for a reason without a name."),
        }
    }

    fn below_the_level(&self, decision: &Decision) -> String {
        let priority = decision.priority.level();
        let mut text = format!("Its priority was {priority} (1 is the most important, 128 the least)");
        if self.has_classes {
            let _ = write!(text, ": user {} of class {}", decision.user(), decision.class());
        }
        let _ = write!(text, ". The queue stood at {}", decision.delay);
        if let Some(target) = self.target {
            let _ = write!(text, "; the target is {target}");
        }
        // The level moves while it is read: only one that explains the refusal is told.
        if (1..u64::from(priority)).contains(&decision.bound) {
            let bound = decision.bound;
            let _ = write!(
                text,
                ". Priorities up to about {bound} were let in; with {bound} or better it would have been."
            );
        } else {
            text += ". Only more important requests were let in.";
        }
        text
    }

    fn too_long_a_queue(&self, decision: &Decision, name: &str) -> String {
        let Decision { waited, delay, bound, .. } = decision;
        let bound = (*bound > 0).then(|| Nanos(*bound).to_string());
        match (decision.moment, bound) {
            (Moment::Turn, _) => format!(
                "Its turn came after {waited}, and {name} takes nothing up that has waited so long. The objective is {}.",
                self.slo
            ),
            (_, Some(bound)) => format!(
                "When it came, the queues of the server were {delay} long, by the age of what waited longest; {name} refuses from \
                 {bound} on. With shorter queues it would have been let in."
            ),
            (_, None) => format!(
                "When it came, the queues of the server were {delay} long, by the age of what waited longest: longer than {name} \
                 allows for an objective of {}.",
                self.slo
            ),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_control::units::{Priority, Tenant};

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
        assert!(text.starts_with("Refused at 22:13:24.000 UTC: delay. "), "{text}");
        let text = context().explain(&Decision::admitted(Time(4_000_000_000)), None);
        assert!(text.starts_with("Admitted at 22:13:24.000 UTC"), "{text}");
    }

    #[test]
    fn every_reason_has_sentences_with_the_numbers_of_its_record() {
        for (reason, parts) in [
            (Reason::Late, vec!["waited 212us", "take 10us", "objective is 200us"]),
            (Reason::Deadline, vec!["212us of the 3ms", "longer deadline"]),
            (Reason::Level, vec!["priority was 77", "user 13 of class 4", "stood at 170us", "target is 80us"]),
            (Reason::Share, vec!["tenant 9", "share"]),
            (Reason::Concurrency, vec!["without a credit"]),
            (Reason::Lock, vec!["lock", "212us"]),
            (Reason::Delay, vec!["170us long", "objective of 200us"]),
            (Reason::Credit, vec!["window was used up"]),
            (Reason::Stopping, vec!["stopping"]),
            (Reason::Cancelled, vec!["cancelled", "212us"]),
            (Reason::Behind, vec!["Services behind", "accept"]),
            (Reason::Other, vec!["breakwater"]),
        ] {
            let text = context().explain(&refused(reason), None);
            assert!(text.contains(reason.word()) && text.ends_with('.'), "{text}");
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
        assert!(let_in.starts_with("Let in at ") && let_in.contains("delay would have been the reason"), "{let_in}");
        assert!(
            let_in.contains("170us long") && let_in.contains("3 requests were refused or would have been"),
            "{let_in}"
        );
        let meant = of(refused(Reason::Delay));
        assert!(meant.starts_with("Refused at ") && meant.contains("a share of the clients"), "{meant}");
        // Locks are not rehearsed: such a refusal is as real as ever.
        let lock = of(refused(Reason::Lock));
        assert!(lock.contains("UTC: lock. A lock on its way"), "{lock}");
    }

    #[test]
    fn bounds_are_told_only_where_they_explain_the_refusal() {
        let level = |bound| context().explain(&Decision { bound, ..refused(Reason::Level) }, None);
        assert!(level(61).contains("up to about 61 were let in"), "{}", level(61));
        for bound in [0, 77, 90] {
            assert!(level(bound).contains("Only more important requests"), "{}", level(bound));
        }
        let delay = Decision { bound: 160_000, ..refused(Reason::Delay) };
        assert!(context().explain(&delay, None).contains("refuses from 160us on"));
        let turn = Decision { moment: Moment::Turn, ..delay };
        assert!(context().explain(&turn, None).contains("turn came after 212us"));
        let limit = Decision { bound: 12, ..refused(Reason::Concurrency) };
        let bounded = Context { controller: "auto".into(), ..context() }.explain(&limit, None);
        assert!(bounded.contains("auto bounded") && bounded.contains("about 12"), "{bounded}");
        let other = Context { controller: "gradient".into(), has_credits: false, ..context() };
        assert!(other.explain(&limit, None).contains("gradient lets in at once: about 12"));
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
        assert!(text.ends_with("2 requests were refused and about 64 admitted."), "{text}");
    }
}
