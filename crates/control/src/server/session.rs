//! One client's registered connection as the controllers see it. Owned by the plant, and by one core of it.

use super::{Arrival, Departure};
use crate::units::Credits;

/// A core (worker) of the server, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreId(pub u32);

/// A session's place in its core's table. Slots are dense and reused after [`super::Admission::close`], so that an
/// algorithm may index arrays by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionSlot(pub u32);

/// What is known about one session. The same record for every algorithm.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its place in its core's table.
    pub slot: SessionSlot,
    /// The core that owns it.
    pub core: CoreId,
    /// Credits it holds; written by the algorithm only.
    pub window: Credits,
    /// Requests received and not yet answered; written by the plant only.
    pub pending: u32,
    /// Requests that waited at the client when it last told; written by the plant only.
    pub demand: u32,
    /// Two words of the algorithm's own.
    pub custom: [u64; 2],
}

impl Session {
    /// A session that holds nothing yet.
    pub fn new(slot: SessionSlot, core: CoreId) -> Self {
        Session { slot, core, window: Credits(0), pending: 0, demand: 0, custom: [0; 2] }
    }

    /// Notes a request; call before [`super::Admission::request`].
    pub fn arrived(&mut self, event: &Arrival) {
        self.pending += 1;
        self.demand = event.demand;
    }

    /// Notes that a response or drop leaves; call before [`super::Admission::reply`].
    pub fn departing(&mut self) {
        debug_assert!(self.pending > 0, "a reply without a request");
        self.pending = self.pending.saturating_sub(1);
    }

    /// [`Session::arrived`] and [`super::Admission::request`] in the right order.
    pub fn request(&mut self, core: &mut dyn super::Admission, event: &Arrival) -> super::Verdict {
        self.arrived(event);
        core.request(self, event)
    }

    /// [`Session::departing`] and [`super::Admission::reply`] in the right order.
    pub fn reply(&mut self, core: &mut dyn super::Admission, event: &Departure) -> super::Feedback {
        self.departing();
        core.reply(self, event)
    }
}
