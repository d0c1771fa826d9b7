//! Record of one decision, as the ring stores it. Does not contain the decision itself, nor its
//! explanation in sentences (`explain`).

use crate::reason::DecisionReason;
use leeward_core::units::{Nanos, Priority, Tenant, Time};
use std::fmt;
use std::str::FromStr;

/// Number of a decision, from 1. A rejection carries it to the client, in hexadecimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId(pub u64);

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// Error: the text is not the number of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseDecisionIdError;

impl fmt::Display for ParseDecisionIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a decision's number has 1 to 16 hexadecimal digits, such as 8f3a")
    }
}

impl std::error::Error for ParseDecisionIdError {}

impl FromStr for DecisionId {
    type Err = ParseDecisionIdError;

    fn from_str(text: &str) -> Result<Self, ParseDecisionIdError> {
        let is_hex = (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        number.filter(|number| *number > 0).map(DecisionId).ok_or(ParseDecisionIdError)
    }
}

/// Stage of a request's life at which the controller decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LifecycleStage {
    /// On arrival.
    #[default]
    Arrival,
    /// When the request was dequeued to be executed.
    Dequeue,
    /// During execution.
    Execution,
}

/// One decision: 56 bytes in the ring, beside its number.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Decision {
    /// Number of this decision.
    pub id: DecisionId,
    /// Time of the decision, on the server's clock.
    pub at: Time,
    /// Reason of the rejection; `None`: the request was admitted.
    pub reject_reason: Option<DecisionReason>,
    /// Stage of the request's life.
    pub stage: LifecycleStage,
    /// True if the rejection was not enforced, because the controller runs in shadow mode.
    pub is_shadow: bool,
    /// Time for which the request had waited.
    pub wait: Nanos,
    /// Queueing delay that was reported to the controller.
    pub delay: Nanos,
    /// Time left until the request's deadline; `Nanos::MAX` without a deadline.
    pub time_left: Nanos,
    /// Mean service time of requests of the same route; zero while it is not known.
    pub service_time: Nanos,
    /// Bound that the request met; 0 if it is not known. The unit depends on the reason:
    ///
    /// - delay: nanoseconds;
    /// - level: the last priority that was admitted;
    /// - concurrency: the limit.
    pub bound: u64,
    /// Priority, 1 to 128: the request's class and its user's number within the class.
    pub priority: Priority,
    /// Tenant that is charged for the request.
    pub tenant: Tenant,
    /// Number of the request's route.
    pub route: u8,
}

/// 64-bit words of a record, without its number.
pub(crate) const WORDS: usize = 7;

impl Decision {
    /// A request that was admitted on arrival; all other fields have their defaults.
    pub fn admitted(at: Time) -> Self {
        Decision {
            id: DecisionId(0),
            at,
            reject_reason: None,
            stage: LifecycleStage::Arrival,
            is_shadow: false,
            wait: Nanos::ZERO,
            delay: Nanos::ZERO,
            time_left: Nanos::MAX,
            service_time: Nanos::ZERO,
            bound: 0,
            priority: Priority::HIGHEST,
            tenant: Tenant::DEFAULT,
            route: 0,
        }
    }

    /// A request that was rejected on arrival; all other fields have their defaults.
    pub fn rejected(at: Time, reason: DecisionReason) -> Self {
        Decision { reject_reason: Some(reason), ..Decision::admitted(at) }
    }

    /// Class of the request, 0 to 7. A retry counts one class lower than its request states.
    pub fn class(&self) -> u8 {
        (self.priority.level() - 1) / 16
    }

    /// Number of the request's user within the class, 1 to 16.
    pub fn user(&self) -> u8 {
        (self.priority.level() - 1) % 16 + 1
    }

    pub(crate) fn encode(&self) -> [u64; WORDS] {
        let reason = self.reject_reason.map_or(0, |reason| reason as u64 + 1);
        let small = u64::from(self.tenant.0) << 32
            | u64::from(self.is_shadow) << 31
            | (self.stage as u64) << 24
            | u64::from(self.route) << 16
            | u64::from(self.priority.level()) << 8
            | reason;
        [self.at.0, self.wait.0, self.delay.0, self.time_left.0, self.service_time.0, self.bound, small]
    }

    pub(crate) fn decode(id: u64, [at, waited, delay, left, service, bound, small]: [u64; WORDS]) -> Self {
        let reason = (small & 0xff) as usize;
        Decision {
            id: DecisionId(id),
            at: Time(at),
            reject_reason: reason.checked_sub(1).and_then(|reason| DecisionReason::ALL.get(reason).copied()),
            is_shadow: small >> 31 & 1 == 1,
            stage: match (small >> 24) as u8 & 0x7f {
                0 => LifecycleStage::Arrival,
                1 => LifecycleStage::Dequeue,
                _ => LifecycleStage::Execution,
            },
            wait: Nanos(waited),
            delay: Nanos(delay),
            time_left: Nanos(left),
            service_time: Nanos(service),
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
    fn decision_ids_round_trip_through_text() {
        assert_eq!("8f3a".parse(), Ok(DecisionId(0x8f3a)));
        assert_eq!(DecisionId(0x8f3a).to_string(), "8f3a");
        for wrong in ["", "0", "0x1", "-1", "+1", "8f3g", "11112222333344445", "٣", "1 "] {
            assert_eq!(wrong.parse::<DecisionId>(), Err(ParseDecisionIdError), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_decision_round_trips_through_its_encoding(
            numbers in any::<[u64; 6]>(), reason in 0..=DecisionReason::ALL.len(), stage in 0..3_u8, tenant in any::<u32>(),
            route in any::<u8>(), level in 1..=128_u8, is_shadow in any::<bool>(),
        ) {
            let stage = [LifecycleStage::Arrival, LifecycleStage::Dequeue, LifecycleStage::Execution][usize::from(stage)];
            let decision = Decision {
                id: DecisionId(7), at: Time(numbers[0]), stage, is_shadow,
                reject_reason: reason.checked_sub(1).map(|reason| DecisionReason::ALL[reason]),
                wait: Nanos(numbers[1]), delay: Nanos(numbers[2]), time_left: Nanos(numbers[3]), service_time: Nanos(numbers[4]),
                bound: numbers[5], priority: Priority::new(level), tenant: Tenant(tenant), route,
            };
            prop_assert_eq!(Decision::decode(7, decision.encode()), decision);
        }

        #[test]
        fn any_text_is_a_decision_id_or_an_error(text in ".{0,20}") {
            if let Ok(id) = text.parse::<DecisionId>() {
                prop_assert!(id.0 > 0);
            }
        }
    }
}
