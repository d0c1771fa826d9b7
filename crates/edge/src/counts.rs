//! Fates of the requests, summed over the shards. Never here: distributions.

use leeward_control::server::RejectReason;

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The request had waited so long that it could not be in time, or the queue is too long for a controller of another kind.
    Late,
    /// Its deadline had passed or would have before its end.
    Deadline,
    /// Less important than what is admitted.
    Level,
    /// Its tenant has had its share.
    Share,
    /// As many requests are under way as may be.
    Concurrency,
    /// A lock on its way would not have come in time.
    Lock,
}

impl Reason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Reason; 6] =
        [Reason::Late, Reason::Deadline, Reason::Level, Reason::Share, Reason::Concurrency, Reason::Lock];

    /// The word for it in headers and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Reason::Late => "late",
            Reason::Deadline => "deadline",
            Reason::Level => "level",
            Reason::Share => "share",
            Reason::Concurrency => "concurrency",
            Reason::Lock => "lock",
        }
    }
}

impl From<RejectReason> for Reason {
    fn from(reason: RejectReason) -> Self {
        match reason {
            RejectReason::Priority => Reason::Level,
            RejectReason::Share => Reason::Share,
            RejectReason::Concurrency => Reason::Concurrency,
            RejectReason::Lock => Reason::Lock,
            _ => Reason::Late,
        }
    }
}

/// Requests so far. Read one shard after the other: parts may be a request apart while requests come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Came to the gate.
    pub arrived: u64,
    /// Let in.
    pub admitted: u64,
    /// Refused, by the number of the reason.
    pub refused: [u64; Reason::ALL.len()],
    /// Admitted and answered.
    pub completed: u64,
    /// Admitted and refused inside, by a lock for instance.
    pub dropped: u64,
    /// Admitted, and gone without an answer: cancelled, panicked, client gone.
    pub abandoned: u64,
    /// Would have been refused, if this were not a rehearsal ([`crate::Mode::Shadow`]).
    pub shadowed: u64,
    /// Header values that could not be read, as front ends tell.
    pub malformed: u64,
}

impl Counts {
    /// Requests refused at the gate, for whatever reason.
    pub fn refusals(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// Requests refused for this reason.
    pub fn refused_for(&self, reason: Reason) -> u64 {
        self.refused[reason as usize]
    }

    /// Admitted requests that have not ended.
    pub fn in_flight(&self) -> u64 {
        self.admitted.saturating_sub(self.completed + self.dropped + self.abandoned)
    }

    pub(crate) fn add(&mut self, other: &Counts) {
        let sums = [
            (&mut self.arrived, other.arrived),
            (&mut self.admitted, other.admitted),
            (&mut self.completed, other.completed),
            (&mut self.dropped, other.dropped),
            (&mut self.abandoned, other.abandoned),
            (&mut self.shadowed, other.shadowed),
            (&mut self.malformed, other.malformed),
        ];
        for (sum, part) in sums {
            *sum = sum.wrapping_add(part);
        }
        for (sum, part) in self.refused.iter_mut().zip(other.refused) {
            *sum = sum.wrapping_add(part);
        }
    }
}
