//! Record of a decision, as it stands in the ring. Never here: how a decision is made, and what is said of it (`why`).

use crate::reason::Reason;
use leeward_core::units::{Nanos, Priority, Tenant, Time};
use std::fmt;
use std::str::FromStr;

/// Number of a decision; the first is 1. Goes out with a refusal, in hexadecimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId(pub u64);

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// Text that is no number of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoDecisionId;

impl fmt::Display for NoDecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a decision's number has 1 to 16 hexadecimal digits, such as 8f3a")
    }
}

impl std::error::Error for NoDecisionId {}

impl FromStr for DecisionId {
    type Err = NoDecisionId;

    fn from_str(text: &str) -> Result<Self, NoDecisionId> {
        let is_hex = (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        number.filter(|number| *number > 0).map(DecisionId).ok_or(NoDecisionId)
    }
}

/// When in its life a request was decided about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moment {
    /// As it came.
    #[default]
    Arrival,
    /// When its turn to be executed had come.
    Turn,
    /// As it was executed.
    Work,
}

/// Record of a decision: 56 bytes in the ring, beside its number.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Decision {
    /// Its number.
    pub id: DecisionId,
    /// When, on the server's clock.
    pub at: Time,
    /// Why it was refused; `None`: admitted.
    pub refused: Option<Reason>,
    /// When in the request's life.
    pub moment: Moment,
    /// Whether a refusal was none, because the controller rehearses.
    pub rehearsed: bool,
    /// How long the request had waited.
    pub waited: Nanos,
    /// The queueing delay that the controller was told of.
    pub delay: Nanos,
    /// Time that the request had left; `Nanos::MAX` without a limit.
    pub left: Nanos,
    /// Time that requests of its route take, as far as known.
    pub service: Nanos,
    /// The bound that it met, as far as known: of a delay in nanoseconds, of a level the last priority that was let in, of a
    /// concurrency the limit. 0: not known.
    pub bound: u64,
    /// Its class and place among the users of the class, 1 to 128.
    pub priority: Priority,
    /// Account that it counts for.
    pub tenant: Tenant,
    /// Its route's number.
    pub route: u8,
}

/// Words of a record besides its number.
pub(crate) const WORDS: usize = 7;

impl Decision {
    /// A request that was admitted on arrival, of which nothing else is known.
    pub fn admitted(at: Time) -> Self {
        Decision {
            id: DecisionId(0),
            at,
            refused: None,
            moment: Moment::Arrival,
            rehearsed: false,
            waited: Nanos::ZERO,
            delay: Nanos::ZERO,
            left: Nanos::MAX,
            service: Nanos::ZERO,
            bound: 0,
            priority: Priority::HIGHEST,
            tenant: Tenant::DEFAULT,
            route: 0,
        }
    }

    /// A request that was refused, of which nothing else is known.
    pub fn refused(at: Time, reason: Reason) -> Self {
        Decision { refused: Some(reason), ..Decision::admitted(at) }
    }

    /// Class of the request, 0 to 7; one lower than it said if it was repeated.
    pub fn class(&self) -> u8 {
        (self.priority.level() - 1) / 16
    }

    /// Place of its user among the users of the class, 1 to 16.
    pub fn user(&self) -> u8 {
        (self.priority.level() - 1) % 16 + 1
    }

    pub(crate) fn words(&self) -> [u64; WORDS] {
        let reason = self.refused.map_or(0, |reason| reason as u64 + 1);
        let small = u64::from(self.tenant.0) << 32
            | u64::from(self.rehearsed) << 31
            | (self.moment as u64) << 24
            | u64::from(self.route) << 16
            | u64::from(self.priority.level()) << 8
            | reason;
        [self.at.0, self.waited.0, self.delay.0, self.left.0, self.service.0, self.bound, small]
    }

    pub(crate) fn of(id: u64, [at, waited, delay, left, service, bound, small]: [u64; WORDS]) -> Self {
        let reason = (small & 0xff) as usize;
        Decision {
            id: DecisionId(id),
            at: Time(at),
            refused: reason.checked_sub(1).and_then(|reason| Reason::ALL.get(reason).copied()),
            rehearsed: small >> 31 & 1 == 1,
            moment: match (small >> 24) as u8 & 0x7f {
                0 => Moment::Arrival,
                1 => Moment::Turn,
                _ => Moment::Work,
            },
            waited: Nanos(waited),
            delay: Nanos(delay),
            left: Nanos(left),
            service: Nanos(service),
            bound,
            priority: Priority::new((small >> 8) as u8),
            tenant: Tenant((small >> 32) as u32),
            route: (small >> 16) as u8,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_read_as_they_are_written() {
        assert_eq!("8f3a".parse(), Ok(DecisionId(0x8f3a)));
        assert_eq!(DecisionId(0x8f3a).to_string(), "8f3a");
        for wrong in ["", "0", "0x1", "-1", "+1", "8f3g", "11112222333344445", "٣", "1 "] {
            assert_eq!(wrong.parse::<DecisionId>(), Err(NoDecisionId), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_record_survives_the_ring(
            numbers in any::<[u64; 6]>(), reason in 0..=Reason::ALL.len(), moment in 0..3_u8, tenant in any::<u32>(),
            route in any::<u8>(), level in 1..=128_u8, rehearsed in any::<bool>(),
        ) {
            let moment = [Moment::Arrival, Moment::Turn, Moment::Work][usize::from(moment)];
            let decision = Decision {
                id: DecisionId(7), at: Time(numbers[0]), moment, rehearsed,
                refused: reason.checked_sub(1).map(|reason| Reason::ALL[reason]),
                waited: Nanos(numbers[1]), delay: Nanos(numbers[2]), left: Nanos(numbers[3]), service: Nanos(numbers[4]),
                bound: numbers[5], priority: Priority::new(level), tenant: Tenant(tenant), route,
            };
            prop_assert_eq!(Decision::of(7, decision.words()), decision);
        }

        #[test]
        fn any_text_is_a_number_or_none(text in ".{0,20}") {
            if let Ok(id) = text.parse::<DecisionId>() {
                prop_assert!(id.0 > 0);
            }
        }
    }
}
