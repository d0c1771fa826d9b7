//! A quota of a core's time for what no request has asked for: connections that come and go, and
//! handshakes. A storm of them would else take all of it from the requests that are there.

use leeward_core::units::{Nanos, Time};

/// The time, divided by what may be spent of it.
const SHARE: u64 = 16;
/// Time that may be saved up, for a crowd that comes at once.
const SAVED: Nanos = Nanos::from_millis(20);

/// Time that taking some connections, or giving up one, takes at most.
const MOST: Nanos = Nanos::from_micros(200);
/// Time that a handshake's step takes at most: a long chain of certificates with long keys.
const MOST_OF_HANDSHAKE: Nanos = Nanos::from_millis(5);

/// Account of a core.
#[derive(Debug)]
pub(super) struct TimeQuota {
    left: Nanos,
    /// Time that was spent beyond what there was, and is earned first. Comings and goings are
    /// short, and forgiven it.
    debt: Nanos,
    since: Time,
    most: Nanos,
    may_owe: bool,
}

impl TimeQuota {
    /// A full account for comings and goings.
    pub(super) fn connecting() -> Self {
        TimeQuota { left: SAVED, debt: Nanos::ZERO, since: Time::ZERO, most: MOST, may_owe: false }
    }

    /// A full account for handshakes. A step may cost more than there is: then the next one waits
    /// for longer.
    pub(super) fn handshaking() -> Self {
        TimeQuota { most: MOST_OF_HANDSHAKE, may_owe: true, ..TimeQuota::connecting() }
    }

    /// Whether there is time left.
    pub(super) fn is_there(&mut self, now: Time) -> bool {
        let earned = Nanos(now.since(self.since).0 / SHARE);
        self.since = now;
        let paid = earned.min(self.debt);
        self.debt = self.debt.saturating_sub(paid);
        self.left = Nanos((self.left.0 + earned.0 - paid.0).min(SAVED.0));
        self.left > Nanos::ZERO
    }

    /// So much was spent on one thing. What took longer than that can take was the system's doing:
    /// a core that was put aside meanwhile would else keep everybody waiting at the door for it.
    pub(super) fn spend(&mut self, spent: Nanos) {
        let spent = spent.min(self.most);
        if self.may_owe {
            self.debt = (self.debt + spent.saturating_sub(self.left)).min(SAVED);
        }
        self.left = self.left.saturating_sub(spent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_time_is_there_and_some_is_saved() {
        let mut quota = TimeQuota::connecting();
        let mut now = Time::ZERO;
        let spend_all = |quota: &mut TimeQuota| (0..SAVED.0 / MOST.0).for_each(|_| quota.spend(MOST));
        assert!(quota.is_there(now));
        spend_all(&mut quota);
        assert!(!quota.is_there(now));
        now += Nanos(SHARE * 10);
        assert!(quota.is_there(now));
        quota.spend(Nanos(10));
        assert!(!quota.is_there(now));
        now += Nanos::from_secs(100);
        assert!(quota.is_there(now));
        spend_all(&mut quota);
        assert!(!quota.is_there(now), "no more is saved");
    }

    #[test]
    fn a_core_that_was_put_aside_does_not_pay_for_it() {
        let mut quota = TimeQuota::connecting();
        let now = Time::ZERO;
        assert!(quota.is_there(now));
        quota.spend(SAVED);
        assert!(quota.is_there(now));
    }

    #[test]
    fn a_handshake_that_cost_more_than_there_was_is_paid_for() {
        let mut quota = TimeQuota::handshaking();
        let step = Nanos::from_micros(300);
        let (mut now, mut steps) = (Time::ZERO, 0u64);
        // Tried every microsecond, for a second.
        while now < Time::ZERO + Nanos::from_secs(1) {
            if quota.is_there(now) {
                quota.spend(step);
                steps += 1;
            }
            now += Nanos::from_micros(1);
        }
        let spent = Nanos(steps * step.0);
        let most = Nanos::from_secs(1).0 / SHARE + SAVED.0 + step.0;
        // What is earned in a microsecond is rounded down.
        assert!(spent.0 <= most && spent.0 > most / 100 * 98, "{spent}");
    }
}
