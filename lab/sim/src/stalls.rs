//! Interruptions of the server's cores.
//! - **Stalls**: the machine takes one core away (another process, an interrupt, the hypervisor).
//!   They are drawn per core from a separate stream, so that every controller meets the same
//!   stalls.
//! - **Pauses and quotas**: the whole process stops, in a pause of its own or at the end of its CPU
//!   quota.

use crate::config::{Pauses, Quota, ServerModel, Stalls};
use leeward_core::units::{Nanos, Time};
use leeward_workload::rng::{Purpose, Rng};

/// The sequence of stalls of one core.
struct CoreStalls {
    rng: Rng,
    /// The next stall, or the current one.
    start: Time,
    end: Time,
    /// The last stall that delayed work.
    last_charged: (Time, Time),
}

/// A quota and its use.
struct QuotaUsage {
    quota: Quota,
    /// Period in which work that begins now runs: the present one, or a later one if the present is
    /// used up.
    period: u64,
    used: Nanos,
}

impl QuotaUsage {
    /// Charges `length` to the quota. Returns the time at which the work may begin.
    fn charge(&mut self, now: Time, length: Nanos) -> Time {
        let present = now.0 / self.quota.period.0;
        if present > self.period {
            self.advance(present - self.period);
        }
        // Work that ran longer than its period's quota is paid for by later periods.
        self.advance(self.used.0 / self.quota.cpu.0.max(1));
        self.used += length;
        now.max(self.period_start())
    }

    fn advance(&mut self, periods: u64) {
        self.period = self.period.saturating_add(periods);
        self.used = Nanos(self.used.0.saturating_sub(self.quota.cpu.0.saturating_mul(periods)));
    }

    /// Beginning of the charged period.
    fn period_start(&self) -> Time {
        Time(self.period * self.quota.period.0)
    }
}

/// All interruptions of a server's cores.
pub(crate) struct StallClock {
    model: Option<Stalls>,
    cores: Vec<CoreStalls>,
    pauses: Option<Pauses>,
    quota: Option<QuotaUsage>,
}

impl StallClock {
    pub(crate) fn new(server: &ServerModel, seed: u64) -> Self {
        let (model, cores) = (server.stalls, server.cores);
        let of_core = |core: u32| {
            // Cores differ by seed. With a common stream, a core's stalls would depend on the other
            // cores' draws.
            let rng = Rng::new(seed.wrapping_add(u64::from(core) << 32), Purpose::Stalls);
            CoreStalls { rng, start: Time::ZERO, end: Time::ZERO, last_charged: (Time::ZERO, Time::ZERO) }
        };
        let count = if model.is_some() { cores } else { 0 };
        let usage = server.quota.map(|quota| QuotaUsage { quota, period: 0, used: Nanos::ZERO });
        StallClock { model, cores: (0..count).map(of_core).collect(), pauses: server.pauses, quota: usage }
    }

    /// Actual end of work that `core` begins at `now` and that would end at `until` without
    /// interruptions.
    pub(crate) fn delayed_end(&mut self, core: usize, now: Time, until: Time) -> Time {
        let length = until.since(now);
        let from = self.quota.as_mut().map_or(now, |usage| usage.charge(now, length));
        let until = self.pauses.map_or(from + length, |pauses| paused_end(pauses, from, from + length));
        self.stalled_end(core, now, until)
    }

    fn stalled_end(&mut self, core: usize, now: Time, mut until: Time) -> Time {
        let (Some(model), Some(own)) = (self.model, self.cores.get_mut(core)) else { return until };
        loop {
            if own.end <= now {
                own.start = own.end + model.mean_interval.scale(own.rng.exponential());
                own.end = own.start + model.mean_length.scale(own.rng.exponential());
                // Prevents an endless loop after two draws of zero.
                own.end = own.end.max(own.start + Nanos(1));
                continue;
            }
            if own.start > until {
                return until;
            }
            let lost = own.end.since(own.start.max(now));
            until += lost;
            own.last_charged = (own.start.max(now), own.end);
            // This stall is accounted for; the next is drawn from its end.
            let (from, to) = (own.end, own.end);
            own.start = from + model.mean_interval.scale(own.rng.exponential());
            own.end = (own.start + model.mean_length.scale(own.rng.exponential())).max(to + Nanos(1));
        }
    }

    /// Time from `from` to `until` without the pauses in between.
    pub(crate) fn without_pauses(&self, from: Time, until: Time) -> Nanos {
        let paused = |pauses: Pauses| paused_before(pauses, until).saturating_sub(paused_before(pauses, from));
        until.since(from).saturating_sub(self.pauses.map_or(Nanos::ZERO, paused))
    }

    /// Time until which the server does nothing, if every core is interrupted at `now`. The control
    /// loop runs on its cores, too.
    pub(crate) fn blocked_until(&self, now: Time) -> Option<Time> {
        let pause = self.pauses.map(|pauses| now + pause_remaining(pauses, now));
        let quota = self.quota.as_ref().map(QuotaUsage::period_start);
        pause.max(quota).filter(|until| *until > now).or_else(|| self.all_stalled_until(now))
    }

    fn all_stalled_until(&self, now: Time) -> Option<Time> {
        let stalled = |own: &CoreStalls| own.last_charged.0 <= now && now < own.last_charged.1;
        if self.cores.iter().all(stalled) { self.cores.iter().map(|own| own.last_charged.1).min() } else { None }
    }
}

/// Rest of the pause at `now`; zero outside of pauses.
fn pause_remaining(pauses: Pauses, now: Time) -> Nanos {
    let (last, since) = (now.0 / pauses.interval.0, now.0 % pauses.interval.0);
    if last == 0 { Nanos::ZERO } else { pauses.length.saturating_sub(Nanos(since)) }
}

/// Time of all pauses before `until`.
fn paused_before(pauses: Pauses, until: Time) -> Nanos {
    let begun = (until.0 / pauses.interval.0).saturating_mul(pauses.length.0);
    Nanos(begun).saturating_sub(pause_remaining(pauses, until))
}

/// End of work that begins at `from` and would end at `until` without the pauses in between.
pub(crate) fn paused_end(pauses: Pauses, from: Time, until: Time) -> Time {
    let mut until = until + pause_remaining(pauses, from);
    let mut next = Time((from.0 / pauses.interval.0 + 1) * pauses.interval.0);
    while next < until {
        until += pauses.length;
        next += pauses.interval;
    }
    until
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(stalls: Option<Stalls>, cores: u32, seed: u64) -> StallClock {
        StallClock::new(&ServerModel { cores, stalls, ..ServerModel::default() }, seed)
    }

    #[test]
    fn the_whole_process_pauses() {
        let pauses = Pauses { interval: Nanos(100), length: Nanos(10) };
        let server = ServerModel { pauses: Some(pauses), ..ServerModel::default() };
        let mut clock = StallClock::new(&server, 1);
        assert_eq!(clock.delayed_end(0, Time(5), Time(50)), Time(50), "none at the beginning");
        assert_eq!(clock.delayed_end(0, Time(95), Time(105)), Time(115));
        assert_eq!(clock.delayed_end(1, Time(103), Time(108)), Time(115), "begun in a pause");
        assert_eq!(clock.delayed_end(1, Time(50), Time(350)), Time(380), "three of them: the last at 300");
        assert_eq!((clock.blocked_until(Time(204)), clock.blocked_until(Time(210))), (Some(Time(210)), None));
        assert_eq!(clock.without_pauses(Time(5), Time(100)), Nanos(95));
        assert_eq!(clock.without_pauses(Time(105), Time(205)), Nanos(90), "half of each of two pauses");
        assert!((server.available() - 0.9).abs() < 1e-9);
    }

    #[test]
    fn a_quota_ends_with_its_period() {
        let quota = Quota { period: Nanos(100), cpu: Nanos(60) };
        let server = ServerModel { cores: 2, quota: Some(quota), ..ServerModel::default() };
        let mut clock = StallClock::new(&server, 1);
        assert_eq!(clock.delayed_end(0, Time(0), Time(40)), Time(40));
        assert_eq!(clock.delayed_end(1, Time(0), Time(30)), Time(30), "begun with the last of it");
        assert_eq!(clock.blocked_until(Time(30)), None, "nobody has asked for more so far");
        assert_eq!(clock.delayed_end(1, Time(30), Time(40)), Time(110));
        assert_eq!(clock.blocked_until(Time(30)), Some(Time(100)));
        assert_eq!(clock.delayed_end(0, Time(40), Time(90)), Time(150));
        assert_eq!(clock.delayed_end(0, Time(150), Time(151)), Time(201), "60 are taken: the next period's turn");
        assert_eq!(clock.delayed_end(0, Time(500), Time(510)), Time(510), "an idle time brings it back");
        assert!((server.available() - 0.3).abs() < 1e-9);
    }

    #[test]
    fn the_lost_share_of_time_matches_the_model() {
        let model = Stalls { mean_interval: Nanos::from_millis(9), mean_length: Nanos::from_millis(1) };
        let mut clock = self::clock(Some(model), 1, 7);
        let (mut now, mut worked) = (Time::ZERO, 0u64);
        while now < Time(100_000_000_000) {
            now = clock.delayed_end(0, now, now + Nanos::from_micros(100));
            worked += 100_000;
        }
        let share = worked as f64 / now.0 as f64;
        assert!((share - 0.9).abs() < 0.01, "{share}");
    }

    #[test]
    fn stalls_during_idle_time_cost_nothing() {
        let model = Stalls { mean_interval: Nanos::from_millis(1), mean_length: Nanos::from_micros(1) };
        let mut clock = self::clock(Some(model), 2, 7);
        let late = Time(10_000_000_000);
        let until = clock.delayed_end(1, late, late + Nanos(10));
        assert!(until.since(late) < Nanos::from_millis(1));
    }

    #[test]
    fn without_a_model_nothing_is_delayed() {
        assert_eq!(clock(None, 4, 1).delayed_end(3, Time(5), Time(9)), Time(9));
    }
}
