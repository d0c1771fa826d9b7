//! A quota of a core's time for work that no request has asked for: opening and closing
//! connections, and handshakes. A storm of these would otherwise take all the time from requests.

use leeward_core::units::{Nanos, Time};

/// Divisor of the time: one sixteenth may be spent.
const SHARE: u64 = 16;
/// Maximum saved time, for many connections at once.
const SAVED: Nanos = Nanos::from_millis(20);

/// Maximum charge for accepting some connections, or for closing one.
const MOST: Nanos = Nanos::from_micros(200);
/// Maximum charge for a handshake step: a long chain of certificates with long keys.
const MOST_OF_HANDSHAKE: Nanos = Nanos::from_millis(5);

/// Time quota of a core.
#[derive(Debug)]
pub(super) struct TimeQuota {
    left: Nanos,
    /// Time spent beyond the quota, which must be earned first. Connections are short work and
    /// incur no debt.
    debt: Nanos,
    since: Time,
    most: Nanos,
    may_owe: bool,
}

impl TimeQuota {
    /// Makes a full quota for opening and closing connections.
    pub(super) fn connecting() -> Self {
        TimeQuota { left: SAVED, debt: Nanos::ZERO, since: Time::ZERO, most: MOST, may_owe: false }
    }

    /// Makes a full quota for handshakes. A step may cost more than is left. The next step then
    /// waits longer.
    pub(super) fn handshaking() -> Self {
        TimeQuota { most: MOST_OF_HANDSHAKE, may_owe: true, ..TimeQuota::connecting() }
    }

    /// Returns whether time is left.
    pub(super) fn is_there(&mut self, now: Time) -> bool {
        let earned = Nanos(now.since(self.since).0 / SHARE);
        self.since = now;
        let paid = earned.min(self.debt);
        self.debt = self.debt.saturating_sub(paid);
        self.left = Nanos((self.left.0 + earned.0 - paid.0).min(SAVED.0));
        self.left > Nanos::ZERO
    }

    /// Charges `spent`, up to the maximum of one step. A longer time means that the system
    /// preempted the core, and pending connections must not wait for that.
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
    fn a_quota_is_a_share_of_the_time_with_a_bounded_reserve() {
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
    fn the_time_of_a_descheduled_core_is_not_charged() {
        let mut quota = TimeQuota::connecting();
        let now = Time::ZERO;
        assert!(quota.is_there(now));
        quota.spend(SAVED);
        assert!(quota.is_there(now));
    }

    #[test]
    fn a_handshake_over_its_quota_is_paid_back() {
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
        // The earnings of a microsecond are rounded down.
        assert!(spent.0 <= most && spent.0 > most / 100 * 98, "{spent}");
    }
}
