//! Units of the field as types: time, credits, rates and priorities, so that a delay can't be added
//! to a window. Also contains the parsers of their notation (`80us`, `850k`, `1.4x`, `0.1%`).

mod parse;
mod time;

pub use parse::{UnitError, parse_duration, parse_number, parse_ratio, parse_scaled};
pub use time::{Nanos, Time};

/// Requests that a session may have outstanding, including those pending at the server (the
/// *window*).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Credits(pub u32);

/// Id of a grant of credit. A server chooses it and sends it with the window. A client puts the
/// newest id that it knows into each request. From it the server measures the end-to-end round trip
/// for admission by efficiency: the time from the grant to the response that it made possible
/// (thesis §2.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CreditId(pub u64);

impl CreditId {
    /// No particular grant.
    pub const NONE: CreditId = CreditId(0);
}

/// Importance of a request, 1 (served first) to 128 (rejected first), as in DAGOR (SoCC'18 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The most important: no priority threshold rejects it.
    pub const HIGHEST: Priority = Priority(1);
    /// The least important.
    pub const LOWEST: Priority = Priority(128);

    /// Clamps `level` into 1..=128.
    pub fn new(level: u8) -> Self {
        Priority(level.clamp(Self::HIGHEST.0, Self::LOWEST.0))
    }

    /// Draws a priority from the 128, evenly, from 64 random bits.
    pub fn from_random(bits: u64) -> Self {
        Priority((bits >> 57) as u8 + 1)
    }

    /// The level as a number, 1..=128.
    pub const fn level(self) -> u8 {
        self.0
    }
}

/// Tenant for which a request was sent. The plant assigns the numbers; a tenant may have any number
/// of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(pub u32);

impl Tenant {
    /// The tenant of requests that name none.
    pub const DEFAULT: Tenant = Tenant(0);
}

/// Kind of work that a request asks for, such as a procedure or a route. The plant assigns the
/// numbers. Requests of one method take about the same path through the server: they wait for the
/// same locks, disks and downstream servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Method(pub u32);

impl Method {
    /// The method of requests that name none.
    pub const DEFAULT: Method = Method(0);
}

/// Work of a request, in units of an ordinary request of its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(pub u32);

impl Cost {
    /// The cost of an ordinary request, and of a request whose cost the plant does not know.
    pub const ONE: Cost = Cost(1);
}

impl Default for Cost {
    fn default() -> Self {
        Cost::ONE
    }
}

/// Events per second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rate(pub f64);

impl Rate {
    /// Mean number of events in a span.
    pub fn events_in(self, span: Nanos) -> f64 {
        self.0 * span.as_secs_f64()
    }

    /// Mean gap between events; `Nanos::MAX` for a rate of zero or less.
    pub fn gap(self) -> Nanos {
        if self.0 > 0.0 { Nanos::from_secs_f64(1.0 / self.0) } else { Nanos::MAX }
    }
}
