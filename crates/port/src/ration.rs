//! A share of a core's time for what nobody on it has asked for: taking connections and giving them up. A storm of them
//! would else take all of it from those that are there.

use leeward_control::units::{Nanos, Time};

/// The time, divided by what may be spent of it.
const SHARE: u64 = 16;
/// Time that may be saved up, for a crowd that comes at once.
const SAVED: Nanos = Nanos::from_millis(20);

/// Time that taking some connections, or giving up one, takes at most.
const MOST: Nanos = Nanos::from_micros(200);

/// Account of a core.
#[derive(Debug)]
pub(crate) struct Ration {
    left: Nanos,
    since: Time,
}

impl Ration {
    /// A full account.
    pub(crate) fn new() -> Self {
        Ration { left: SAVED, since: Time::ZERO }
    }

    /// Whether there is time left.
    pub(crate) fn is_there(&mut self, now: Time) -> bool {
        self.left = Nanos((self.left.0 + now.since(self.since).0 / SHARE).min(SAVED.0));
        self.since = now;
        self.left > Nanos::ZERO
    }

    /// So much was spent on one thing. What took longer than that can take was the system's doing: a core that was put aside
    /// meanwhile would else keep everybody waiting at the door for it.
    pub(crate) fn spend(&mut self, spent: Nanos) {
        self.left = self.left.saturating_sub(spent.min(MOST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_time_is_there_and_some_is_saved() {
        let mut ration = Ration::new();
        let mut now = Time::ZERO;
        let spend_all = |ration: &mut Ration| (0..SAVED.0 / MOST.0).for_each(|_| ration.spend(MOST));
        assert!(ration.is_there(now));
        spend_all(&mut ration);
        assert!(!ration.is_there(now));
        now += Nanos(SHARE * 10);
        assert!(ration.is_there(now));
        ration.spend(Nanos(10));
        assert!(!ration.is_there(now));
        now += Nanos::from_secs(100);
        assert!(ration.is_there(now));
        spend_all(&mut ration);
        assert!(!ration.is_there(now), "no more is saved");
    }

    #[test]
    fn a_core_that_was_put_aside_does_not_pay_for_it() {
        let mut ration = Ration::new();
        let now = Time::ZERO;
        assert!(ration.is_there(now));
        ration.spend(SAVED);
        assert!(ration.is_there(now));
    }
}
