//! A front end's knowledge of an arriving request. Does not contain headers or the measurement of
//! ages.

use leeward_core::units::{Nanos, Priority, Tenant};
use std::time::Duration;

/// Importance of a request to its service, from [`Class::CRITICAL`] to [`Class::SHEDDABLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u8);

impl Class {
    /// Rejected last.
    pub const CRITICAL: Class = Class(0);
    /// The class of a request that names none.
    pub const NORMAL: Class = Class(3);
    /// Work that can be done later.
    pub const BATCH: Class = Class(5);
    /// Rejected first.
    pub const SHEDDABLE: Class = Class(7);
    /// Number of classes.
    pub const COUNT: u8 = 8;

    /// The class with this number; numbers above 7 give class 7.
    pub const fn new(number: u8) -> Self {
        Class(if number < Self::COUNT { number } else { Self::COUNT - 1 })
    }

    /// Number of the class, 0 to 7.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The next less important class; the last class has none and gives itself.
    pub const fn lower(self) -> Self {
        Class::new(self.0 + 1)
    }
}

impl Default for Class {
    fn default() -> Self {
        Class::NORMAL
    }
}

/// A front end's knowledge of an arriving request. The default knows nothing.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct RequestInfo {
    /// Time since the kernel received the request's last byte, if the front end knows.
    pub age: Option<Nanos>,
    /// Time that the client still allows, counted from the kernel's receipt.
    pub timeout: Option<Nanos>,
    /// Class of the request: the more important, the later it is rejected.
    pub class: Class,
    /// Number of the user. Among users of one class, the order of rejection changes every hour.
    pub user: Option<u64>,
    /// Tenant that the request is charged to.
    pub tenant: Tenant,
    /// Number of the route; the gate learns the cost per route.
    pub route: u8,
    /// Downstream group; its acceptance rate is learnt per group. `None`: the route's number.
    pub downstream: Option<u8>,
    /// Number of earlier attempts of this request.
    pub attempt: u8,
    /// Whether it begins at once, although the gate has a wait queue.
    pub skips_queue: bool,
}

impl RequestInfo {
    /// Sets [`RequestInfo::age`]. An age over a minute comes from a clock that was set, and is
    /// ignored.
    pub fn with_age(mut self, age: impl Into<Nanos>) -> Self {
        self.age = Some(age.into()).filter(|age| *age <= Nanos::from_secs(60));
        self
    }

    /// Sets [`RequestInfo::timeout`].
    pub fn with_timeout(mut self, timeout: impl Into<Nanos>) -> Self {
        self.timeout = Some(timeout.into());
        self
    }

    /// Former name of [`RequestInfo::with_age`].
    #[doc(hidden)]
    #[deprecated(note = "renamed to `with_age`")]
    pub fn with_waited(self, age: Duration) -> Self {
        self.with_age(age)
    }

    /// Former name of [`RequestInfo::with_timeout`].
    #[doc(hidden)]
    #[deprecated(note = "renamed to `with_timeout`")]
    pub fn with_left(self, timeout: Duration) -> Self {
        self.with_timeout(timeout)
    }

    /// Sets [`RequestInfo::class`].
    pub const fn with_class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// Sets [`RequestInfo::user`].
    pub const fn with_user(mut self, user: u64) -> Self {
        self.user = Some(user);
        self
    }

    /// Sets [`RequestInfo::tenant`].
    pub const fn with_tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = tenant;
        self
    }

    /// Sets [`RequestInfo::route`].
    pub const fn with_route(mut self, route: u8) -> Self {
        self.route = route;
        self
    }

    /// Sets [`RequestInfo::skips_queue`].
    pub const fn with_skipped_queue(mut self) -> Self {
        self.skips_queue = true;
        self
    }

    /// Sets [`RequestInfo::downstream`].
    pub const fn with_downstream(mut self, number: u8) -> Self {
        self.downstream = Some(number);
        self
    }

    /// Sets [`RequestInfo::attempt`].
    pub const fn with_attempt(mut self, attempt: u8) -> Self {
        self.attempt = attempt;
        self
    }

    /// Number of the tenant; without a tenant, of the user; without both, `random`.
    pub fn caller(&self, random: u64) -> u64 {
        match (self.tenant, self.user) {
            (Tenant::DEFAULT, Some(user)) => user,
            (Tenant::DEFAULT, None) => random >> 16,
            (Tenant(tenant), _) => u64::from(tenant),
        }
    }

    /// Class and user as one priority for controllers: class × 16 + user (DAGOR §4.2).
    ///
    /// A repeated request is one class lower; in the lowest class it gets the lowest priority.
    /// Repetitions thus push out no first attempts.
    pub(crate) fn priority(&self, hour: u64, random: u64) -> Priority {
        if self.attempt > 0 && self.class == Class::SHEDDABLE {
            return Priority::LOWEST;
        }
        let class = if self.attempt > 0 { self.class.lower() } else { self.class };
        let user = match self.user {
            Some(user) => (user ^ hour.wrapping_mul(0xD6E8_FEB8_6659_FD93)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60,
            None => random >> 60,
        };
        Priority::new(class.number() * 16 + user as u8 + 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn classes_never_overlap_and_user_priorities_rotate() {
        let priority = |class, user, hour| {
            RequestInfo::default().with_class(Class::new(class)).with_user(user).priority(hour, 0).level()
        };
        for user in 0..1_000 {
            assert!((1..=16).contains(&priority(0, user, 4)) && (113..=128).contains(&priority(200, user, 4)));
        }
        let moved = (0..1_000).filter(|user| priority(3, *user, 1) != priority(3, *user, 2)).count();
        assert!(moved > 800, "{moved} of 1,000 users have another place an hour later");
    }

    #[test]
    fn a_retry_is_one_class_lower() {
        let request = RequestInfo::default().with_class(Class::SHEDDABLE).with_attempt(3);
        assert_eq!(request.priority(0, 0), Priority::LOWEST);
        assert_eq!(RequestInfo::default().with_attempt(1).priority(0, 0).level(), 4 * 16 + 1);
    }

    #[test]
    fn an_age_over_a_minute_is_ignored() {
        assert_eq!(RequestInfo::default().with_age(Duration::from_secs(61)).age, None);
        assert_eq!(RequestInfo::default().with_timeout(Duration::MAX).timeout, Some(Nanos::MAX));
    }
}
