//! Counters of requests by their outcome, summed over the shards. Does not contain distributions.

use crate::request::Class;
use leeward_observe::{Answer, DecisionReason, ROUTE_SLOTS};

/// Requests so far.
///
/// A reader sums one shard after the other, so counters may differ by a request while requests
/// arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GateCounts {
    /// Requests that arrived at the gate.
    pub arrived: u64,
    /// Requests that the gate admitted on arrival.
    pub admitted: u64,
    /// Requests rejected on arrival, by the number of the reason.
    pub rejected: [u64; DecisionReason::ALL.len()],
    /// Requests inside that were answered, with a result or a failure. In shadow mode, as for those
    /// below, all requests are inside.
    pub completed: u64,
    /// Completed requests that were answered with a failure, or panicked.
    pub failed: u64,
    /// Requests answered with a result within the objective, which includes the wait before the
    /// gate.
    pub in_time: u64,
    /// Admitted requests that were rejected later: after the gate's wait queue
    /// ([`crate::Permit::begin_at`]), or inside the service, by a lock for instance. Metrics have
    /// their reasons.
    pub rejected_inside: u64,
    /// Admitted requests that ended without an answer: cancelled, client gone. A panic counts as a
    /// failure.
    pub abandoned: u64,
    /// Requests that the gate would have rejected outside shadow mode ([`crate::Mode::Shadow`]).
    pub shadowed: u64,
    /// Requests that a gate has let in and not counted as admitted, as shadow mode does.
    pub(crate) let_in: u64,
    /// Requests that the shadow queue has completed, for the controller.
    pub(crate) modelled: u64,
    /// Header values that a front end could not parse.
    pub malformed: u64,
}

impl GateCounts {
    /// Requests rejected on arrival, for any reason. Those that the gate rejected after their wait
    /// in its queue are in [`GateCounts::rejected_inside`].
    pub fn rejections(&self) -> u64 {
        self.rejected.iter().sum()
    }

    /// Requests rejected on arrival for this reason.
    pub fn rejected_for(&self, reason: DecisionReason) -> u64 {
        self.rejected[reason as usize]
    }

    /// Requests inside, which have not ended: admitted ones, and in shadow mode all others.
    pub fn in_flight(&self) -> u64 {
        (self.admitted + self.let_in).saturating_sub(self.completed + self.rejected_inside + self.abandoned)
    }

    pub(crate) fn add(&mut self, other: &GateCounts) {
        let sums = [
            (&mut self.arrived, other.arrived),
            (&mut self.admitted, other.admitted),
            (&mut self.completed, other.completed),
            (&mut self.failed, other.failed),
            (&mut self.in_time, other.in_time),
            (&mut self.rejected_inside, other.rejected_inside),
            (&mut self.abandoned, other.abandoned),
            (&mut self.shadowed, other.shadowed),
            (&mut self.let_in, other.let_in),
            (&mut self.modelled, other.modelled),
            (&mut self.malformed, other.malformed),
        ];
        for (sum, part) in sums {
            *sum = sum.wrapping_add(part);
        }
        for (sum, part) in self.rejected.iter_mut().zip(other.rejected) {
            *sum = sum.wrapping_add(part);
        }
    }
}

/// Decisions by the class of the request.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassCounts {
    /// Admitted requests, by class.
    pub admitted: [u64; Class::COUNT as usize],
    /// Those that a gate has let in and not counted as admitted.
    pub(crate) let_in: [u64; Class::COUNT as usize],
    /// Requests inside that have ended.
    pub ended: [u64; Class::COUNT as usize],
    /// Rejected requests, by class and number of the reason.
    pub rejected: [[u64; DecisionReason::ALL.len()]; Class::COUNT as usize],
}

impl ClassCounts {
    /// Counts a decision about a request of `class`.
    pub fn count(&mut self, class: u8, rejected: Option<DecisionReason>) {
        let class = usize::from(class) % self.admitted.len();
        match rejected {
            None => self.admitted[class] += 1,
            Some(reason) => self.rejected[class][reason as usize] += 1,
        }
    }

    /// Counts the end of an admitted request of `class`.
    pub fn end(&mut self, class: u8) {
        self.ended[usize::from(class) % self.ended.len()] += 1;
    }

    /// Requests inside that have not ended, by class.
    pub fn in_flight(&self) -> Vec<u64> {
        let entered = self.admitted.iter().zip(&self.let_in).map(|(admitted, let_in)| admitted + let_in);
        entered.zip(&self.ended).map(|(entered, ended)| entered.saturating_sub(*ended)).collect()
    }

    /// Adds the counts of another shard.
    pub fn add(&mut self, other: &ClassCounts) {
        let rejected = self.rejected.iter_mut().flatten().zip(other.rejected.iter().flatten());
        let admitted = self.admitted.iter_mut().zip(&other.admitted);
        let let_in = self.let_in.iter_mut().zip(&other.let_in);
        let ended = self.ended.iter_mut().zip(&other.ended);
        rejected.chain(admitted).chain(let_in).chain(ended).for_each(|(sum, part)| *sum = sum.wrapping_add(*part));
    }
}

/// Answers by the class of the request and the index of its route.
#[derive(Clone, Debug, Default)]
pub struct RouteCounts([[AnswerCounts; ROUTE_SLOTS]; Class::COUNT as usize]);

/// Answers of one class and route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerCounts {
    /// Results within the objective.
    pub in_time: u64,
    /// Results after the objective.
    pub late: u64,
    /// Failures.
    pub failed: u64,
}

impl RouteCounts {
    /// Counts an answer to a request of `class` and the route with this index.
    pub fn record(&mut self, class: u8, route: usize, answer: Answer) {
        let routes = &mut self.0[usize::from(class % Class::COUNT)];
        let count = &mut routes[route.min(ROUTE_SLOTS - 1)];
        *match answer {
            Answer::InTime => &mut count.in_time,
            Answer::Late => &mut count.late,
            Answer::Failed => &mut count.failed,
        } += 1;
    }

    /// Adds the counts of another shard.
    pub fn add(&mut self, other: &RouteCounts) {
        for (sum, part) in self.0.iter_mut().flatten().zip(other.0.iter().flatten()) {
            sum.in_time = sum.in_time.wrapping_add(part.in_time);
            sum.late = sum.late.wrapping_add(part.late);
            sum.failed = sum.failed.wrapping_add(part.failed);
        }
    }

    /// Classes and routes that have answers.
    ///
    /// The normal class of the first route is always included: its counters start with the gate.
    pub fn iter(&self) -> impl Iterator<Item = (u8, usize, AnswerCounts)> + '_ {
        let classes = (0..Class::COUNT).zip(&self.0);
        let all =
            classes.flat_map(|(class, routes)| routes.iter().enumerate().map(move |(route, of)| (class, route, *of)));
        all.filter(|(class, route, of)| {
            *of != AnswerCounts::default() || (*class, *route) == (Class::NORMAL.number(), 0)
        })
    }
}
