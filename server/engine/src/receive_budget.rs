//! Memory for requests that are longer than any connection's own buffer: one bound for all connections of a core.
//!
//! A request's whole length is granted before more of it is read, so that whoever has begun can end. Who finds no room is
//! not read until there is some; who has room and lets others wait for it has little time.

use crate::trim::{HighWaterMark, MANY_BYTES};

/// Account of a core, in bytes.
#[derive(Debug)]
pub(crate) struct ReceiveBudget {
    limit: usize,
    granted: usize,
    /// Watch over what is granted, so that memory is given back to the system.
    high_water: HighWaterMark,
    /// Whether somebody waits for room.
    pub(crate) is_short: bool,
}

impl ReceiveBudget {
    /// Room for `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        ReceiveBudget { limit, granted: 0, high_water: HighWaterMark::new(MANY_BYTES), is_short: false }
    }

    /// Changes what a connection has from `held` to `wanted`, if there is room. A single request always finds some: it may
    /// be longer than the limit where it is the only one.
    pub(crate) fn resize(&mut self, held: &mut usize, wanted: usize) -> bool {
        let others = self.granted - *held;
        if wanted > *held && others > 0 && others + wanted > self.limit {
            self.is_short = true;
            return false;
        }
        self.granted = others + wanted;
        self.high_water.note(self.granted);
        *held = wanted;
        true
    }

    /// Whether much was needed and hardly anything is now. Says so once.
    pub(crate) fn has_receded(&mut self) -> bool {
        self.high_water.has_receded(self.granted)
    }

    /// Whether memory is to be given back as soon as it is not needed.
    pub(crate) fn is_tight(&self) -> bool {
        self.granted > self.limit / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_granted_stays_within_the_limit() {
        let mut room = ReceiveBudget::new(100);
        let mut held = [0; 3];
        assert!(room.resize(&mut held[0], 60));
        assert!(room.resize(&mut held[1], 40));
        assert!(room.is_tight() && !room.is_short);
        assert!(!room.resize(&mut held[2], 1), "full");
        assert!(room.is_short);
        assert!(room.resize(&mut held[0], 0));
        assert!(room.resize(&mut held[2], 60));
        assert_eq!((room.granted, held), (100, [0, 40, 60]));
    }

    #[test]
    fn the_end_of_much_is_said_once() {
        let mut room = ReceiveBudget::new(10 * MANY_BYTES);
        let mut held = 0;
        assert!(room.resize(&mut held, MANY_BYTES));
        assert!(!room.has_receded());
        assert!(room.resize(&mut held, 0));
        assert!(room.has_receded());
        assert!(!room.has_receded());
    }

    #[test]
    fn what_is_longer_than_the_limit_is_taken_alone() {
        let mut room = ReceiveBudget::new(100);
        let mut held = [0; 2];
        assert!(room.resize(&mut held[0], 150));
        assert!(!room.resize(&mut held[1], 1));
        assert!(room.resize(&mut held[0], 150), "it has it already");
        assert!(room.resize(&mut held[0], 0));
        assert!(room.resize(&mut held[1], 1));
    }
}
