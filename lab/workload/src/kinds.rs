//! Kinds of requests: tenant, importance, deadline and cost.
//!
//! Plain data, drawn from the seed with a separate stream, so that arrivals are the same with and
//! without kinds. Does not contain a controller's use of kinds.

use crate::alias::AliasTable;
use crate::rng::{Purpose, Rng};
use crate::service_time::ServiceTime;
use leeward_core::units::{Cost, Nanos, Priority, Tenant};

/// Maximum number of kinds per workload.
pub const MAX_KINDS: usize = 64;
/// Number of classes of importance.
pub const CLASSES: u8 = 8;
/// Number of users that a class distinguishes: an eighth of the priorities.
const USERS: u8 = Priority::LOWEST.level() / CLASSES;
/// Rounding tolerance of shares that a person has written.
const TOLERANCE: f64 = 1e-6;

/// A kind of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestKind {
    /// Name, unique among the kinds.
    pub name: String,
    /// Share of the arrivals, above 0 and up to 1.
    pub share: f64,
    /// Tenant of the requests.
    pub tenant: Tenant,
    /// Importance, 0 (rejected last) to 7; `None`: a random class per request.
    pub class: Option<u8>,
    /// Deadline, from issue to response; `None`: the workload's objective.
    pub deadline: Option<Nanos>,
    /// Declared cost of a request.
    pub cost: Cost,
    /// Service time of a request; `None`: the workload's.
    pub service: Option<ServiceTime>,
}

impl RequestKind {
    /// Creates a kind that differs from others only by its name.
    pub fn new(name: &str, share: f64) -> Self {
        let (tenant, cost) = (Tenant::DEFAULT, Cost::ONE);
        RequestKind { name: name.into(), share, tenant, class: None, deadline: None, cost, service: None }
    }

    /// Priority of a request of this kind: its class, and a random user of the class from 64 random
    /// bits.
    pub fn priority(&self, bits: u64) -> Priority {
        match self.class {
            None => Priority::from_random(bits),
            Some(class) => Priority::new(class * USERS + (bits >> 60) as u8 + 1),
        }
    }
}

/// The kinds of a workload. Without kinds, all requests are alike.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestKinds(pub Vec<RequestKind>);

impl RequestKinds {
    /// Whether all requests are alike.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Priority of a request of the kind with this index, from 64 random bits.
    pub fn priority(&self, kind: u8, bits: u64) -> Priority {
        self.0.get(usize::from(kind)).map_or_else(|| Priority::from_random(bits), |kind| kind.priority(bits))
    }

    /// Mean service time of all requests, where kinds without their own service time take
    /// `otherwise`.
    pub fn mean(&self, otherwise: &ServiceTime) -> Nanos {
        if self.is_empty() {
            return otherwise.mean();
        }
        let mean = |kind: &RequestKind| kind.service.as_ref().unwrap_or(otherwise).mean().0 as f64 * kind.share;
        Nanos(self.0.iter().map(mean).sum::<f64>() as u64)
    }

    /// Checks the kinds.
    ///
    /// # Errors
    /// The first rule that a kind violates, as text, with the kind's index.
    pub fn check(&self) -> Result<(), (usize, String)> {
        if self.is_empty() {
            return Ok(());
        }
        if self.0.len() > MAX_KINDS {
            return Err((MAX_KINDS, format!("{} kinds; accepted: up to {MAX_KINDS}", self.0.len())));
        }
        for (index, kind) in self.0.iter().enumerate() {
            let wrong = |problem: String| Err((index, problem));
            if self.0[..index].iter().any(|other| other.name == kind.name) {
                return wrong(format!("two kinds are called `{}`; accepted: a name of its own", kind.name));
            }
            if !(kind.share > 0.0 && kind.share <= 1.0) {
                return wrong("a kind's share must be above 0 % and up to 100 %".into());
            }
            if kind.class.is_some_and(|class| class >= CLASSES) {
                return wrong(format!("a class is 0 to {}", CLASSES - 1));
            }
            if kind.deadline == Some(Nanos::ZERO) || kind.cost.0 == 0 {
                return wrong("a deadline and a cost are above 0".into());
            }
        }
        let shares: f64 = self.0.iter().map(|kind| kind.share).sum();
        if (shares - 1.0).abs() > TOLERANCE {
            return Err((0, format!("the kinds' shares add up to {:.4} %, not to 100 %", shares * 100.0)));
        }
        Ok(())
    }
}

/// Draws the kinds of consecutive requests.
pub struct KindStream {
    alias: Option<AliasTable>,
    rng: Rng,
}

impl KindStream {
    /// Creates the stream that `seed` draws.
    pub fn new(kinds: &RequestKinds, seed: u64) -> Self {
        let shares: Vec<f64> = kinds.0.iter().map(|kind| kind.share).collect();
        let alias = (!kinds.is_empty()).then(|| AliasTable::new(&shares));
        KindStream { alias, rng: Rng::new(seed, Purpose::Kinds) }
    }

    /// Index of the next request's kind. Without kinds it is 0, and nothing is drawn.
    pub fn draw(&mut self) -> u8 {
        self.alias.as_ref().map_or(0, |alias| alias.draw(&mut self.rng) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(shares: &[f64]) -> RequestKinds {
        RequestKinds(
            shares.iter().enumerate().map(|(index, share)| RequestKind::new(&index.to_string(), *share)).collect(),
        )
    }

    #[test]
    fn kinds_come_in_their_shares() {
        let mut stream = KindStream::new(&kinds(&[0.9, 0.07, 0.03]), 5);
        let mut counts = [0u32; 3];
        (0..100_000).for_each(|_| counts[usize::from(stream.draw())] += 1);
        assert!(
            (i64::from(counts[0]) - 90_000).abs() < 500 && (i64::from(counts[2]) - 3_000).abs() < 200,
            "{counts:?}"
        );
    }

    #[test]
    fn a_class_is_sixteen_priorities() {
        for class in 0..CLASSES {
            let kind = RequestKind { class: Some(class), ..RequestKind::new("a", 1.0) };
            let levels = [0, u64::MAX].map(|bits| kind.priority(bits).level());
            assert_eq!(levels, [class * 16 + 1, class * 16 + 16]);
        }
        assert_eq!(RequestKind::new("a", 1.0).priority(u64::MAX), Priority::LOWEST);
    }

    #[test]
    fn the_mean_service_time_is_weighted_by_share() {
        let mut mixed = kinds(&[0.75, 0.25]);
        mixed.0[1].service = Some(ServiceTime::Constant(Nanos(500)));
        assert_eq!(mixed.mean(&ServiceTime::Constant(Nanos(100))), Nanos(200));
        assert_eq!(RequestKinds::default().mean(&ServiceTime::Constant(Nanos(100))), Nanos(100));
    }

    #[test]
    fn impossible_kinds_are_named() {
        let check = |kinds: RequestKinds, at: usize, part: &str| {
            let (index, problem) = kinds.check().unwrap_err();
            assert!(index == at && problem.contains(part), "{index}: {problem}");
        };
        let with = |change: fn(&mut RequestKind)| {
            let mut kinds = kinds(&[0.5, 0.5]);
            change(&mut kinds.0[1]);
            kinds
        };
        check(kinds(&[0.5, 0.4]), 0, "add up to 90.0000 %");
        check(kinds(&[1.0; 65]), 64, "up to 64");
        check(with(|kind| kind.share = 0.0), 1, "above 0 %");
        check(with(|kind| kind.share = f64::NAN), 1, "above 0 %");
        check(with(|kind| kind.name = "0".into()), 1, "two kinds");
        check(with(|kind| kind.class = Some(8)), 1, "0 to 7");
        check(with(|kind| kind.deadline = Some(Nanos::ZERO)), 1, "above 0");
        assert_eq!(kinds(&[0.5, 0.5]).check(), Ok(()));
    }
}
