//! The server's halves of the credit schemes: windows by lazy distribution, AQM, and the tick of
//! the pool's law. Does not contain the pool's laws (`law`).

use super::allocation::Growth;
use super::backlog::BacklogAllowance;
use super::config::{AllocatorAwareness, Config, DemandTracking, PoolSignal, WindowLimit};
use super::downstream::DownstreamLimit;
use super::drained::DrainedSessions;
use super::law::{AutoLaw, CustomPoolLaw, DelayLaw, EfficiencyLaw, Law, PoolLaw};
use super::overload::OverloadDetector;
use super::pool::Pool;
use super::rotation::CreditRotation;
use super::samples::{Sampler, Samples, class_of};
use super::untried::{UntriedPolicy, UntriedSessions};
use super::usage::Usage;
use crate::published::Version;
use leeward_core::registry::{CoreProvisioning, Environment};
use leeward_core::server::{
    Admission, Arrival, ControlLoop, CoreGrant, Departure, Downstream, Feedback, Gauges, Outcome, Registration,
    RejectReason, ServerHalves, Session, SessionSlot, Signals, Verdict,
};
use leeward_core::sync::Arc;
use leeward_core::units::{CreditId, Credits, Nanos, Priority, Time};

/// Builds the server's halves: `environment.cores` fast ones around one pool.
pub fn halves(config: &Config, environment: &Environment) -> ServerHalves {
    let samples = Arc::new(Samples::new(environment.cores));
    let law: Box<dyn Law> = match config.signal {
        PoolSignal::Delay => Box::new(DelayLaw::new(config)),
        PoolSignal::Efficiency => Box::new(EfficiencyLaw::new(config, Arc::clone(&samples))),
        PoolSignal::Auto => Box::new(AutoLaw::new(config, environment.cores, Arc::clone(&samples))),
    };
    halves_with_law(law, samples, config, environment)
}

/// Builds the halves with a custom law of the pool.
pub fn halves_with_pool_law(law: Box<dyn PoolLaw>, config: &Config, environment: &Environment) -> ServerHalves {
    let samples = Arc::new(Samples::new(environment.cores));
    halves_with_law(Box::new(CustomPoolLaw::new(config, law)), samples, config, environment)
}

fn halves_with_law(
    law: Box<dyn Law>,
    samples: Arc<Samples>,
    config: &Config,
    environment: &Environment,
) -> ServerHalves {
    let pool = Arc::new(Pool::new(config.initial_pool.into()));
    // Before its first grant an allocator may still have cores.
    let allowance = (config.allocator_aware == AllocatorAwareness::On)
        .then(|| BacklogAllowance::new(environment, config.aqm_threshold, config.period));
    pool.set_allows_backlog(allowance.as_ref().is_some_and(BacklogAllowance::is_allowed));
    // Where an allocator grants and parks cores, `backlog` decides. The efficiency signal uses
    // throughput alone.
    let is_watched = !config.version.is_published()
        && config.signal != PoolSignal::Efficiency
        && environment.provisioning == CoreProvisioning::Fixed;
    let overload = is_watched.then(|| OverloadDetector::new(config.target, environment.slo));
    // The delay signal does not use samples of responses, so it does not pay for them.
    let sampler = |core: u32| {
        (config.signal != PoolSignal::Delay)
            .then(|| Sampler::new(Arc::clone(&samples), core as usize, config.deadline, long_wait(config)))
    };
    ServerHalves {
        cores: (0..environment.cores)
            .map(|core| {
                Box::new(Core::new(config, environment, Arc::clone(&pool), sampler(core))) as Box<dyn Admission>
            })
            .collect(),
        control: Box::new(Control {
            period: config.period,
            law,
            growth: (config.allocator_aware != AllocatorAwareness::Off).then(|| Growth::new(config)),
            backlog: allowance,
            credits: config.credits,
            limit: DownstreamLimit::new(config),
            untried_policy: (!config.version.is_published()).then(|| UntriedPolicy::new(config.target)),
            overload,
            pool,
        }),
    }
}

/// Wait for a core that makes a request late by itself. AQM admits no longer wait than `max`, so
/// this is a tenth less.
fn long_wait(config: &Config) -> Nanos {
    let max = if config.aqm { config.stale.min(config.deadline) } else { config.deadline };
    max.scale(0.9)
}

/// The fast half of one core.
pub struct Core {
    version: Version,
    pool: Arc<Pool>,
    sampler: Option<Sampler>,
    drained: DrainedSessions,
    untried: UntriedSessions,
    rotation: CreditRotation,
    credits: bool,
    demand: DemandTracking,
    /// `Nanos::MAX` when AQM is off, so that no delay reaches it.
    aqm_threshold: Nanos,
    stale: Nanos,
    target: Nanos,
    /// Delay from which a request can't be answered in time, however many cores are granted.
    deadline: Nanos,
    window_limit: WindowLimit,
    cores: i64,
    /// Round trip in which a session's used credits are counted, if they are.
    round_trip: Option<Nanos>,
}

impl Core {
    pub(super) fn new(config: &Config, environment: &Environment, pool: Arc<Pool>, sampler: Option<Sampler>) -> Self {
        Core {
            version: config.version,
            pool,
            sampler,
            drained: DrainedSessions::new(config.waking),
            untried: UntriedSessions::default(),
            rotation: CreditRotation::new(config.target),
            credits: config.credits,
            demand: config.demand,
            aqm_threshold: if config.aqm { config.aqm_threshold } else { Nanos::MAX },
            stale: if config.aqm { config.stale } else { Nanos::MAX },
            target: config.target,
            deadline: config.deadline,
            window_limit: WindowLimit::new(config),
            cores: environment.cores.into(),
            round_trip: (config.signal == PoolSignal::Auto).then_some(config.period),
        }
    }

    /// Verdict on a request after a delay with a threshold. While an allocator can still grant
    /// cores, only a late request is rejected ([`super::backlog`]). Before an overload is detected,
    /// no request is rejected ([`super::overload`]).
    fn judge(&self, delay: Nanos, threshold: Nanos) -> Verdict {
        let is_over = delay >= threshold && (delay >= self.deadline || !self.pool.allows_backlog());
        if is_over && self.pool.is_overload_detected() { Verdict::Reject(RejectReason::Delay) } else { Verdict::Admit }
    }

    /// Wait from which a request whose turn comes is dropped: with a signal that knows how long
    /// requests take besides, most of those that waited longer would be late.
    fn longest_wait(&self) -> Nanos {
        match self.sampler.as_ref().map_or(Nanos::ZERO, Sampler::mean_rest) {
            Nanos::ZERO => self.stale,
            rest => self.stale.min(self.deadline.saturating_sub(rest).max(self.target)),
        }
    }

    /// Sets a session's window and keeps `c_issued` the sum of all windows.
    fn set_window(&self, session: &mut Session, window: i64) {
        self.pool.issue(window - i64::from(session.window.0));
        session.window = Credits(window as u32);
    }

    /// Whether a credit covers the request. A session that has held a credit has sent it within its
    /// window, which `leeward-session` checks, so the request is covered. An untried session has
    /// never held one: its request is covered free of charge unless the pool charges untried
    /// sessions, and takes an unissued credit otherwise. With at most one session per core every
    /// request is covered: so few sessions cannot fill the queue.
    fn is_covered(&mut self, session: &mut Session) -> bool {
        if !self.pool.charges_untried() || !self.untried.contains(session.slot) {
            return true;
        }
        if self.pool.try_take() {
            session.window = Credits(session.window.0 + 1);
            self.untried.remove(session.slot);
            return true;
        }
        self.pool.sessions() <= self.cores
    }

    /// Feedback that carries the window.
    fn feedback(&self, session: &Session, now: Time) -> Feedback {
        let credit = self.sampler.as_ref().map_or(CreditId::NONE, |sampler| sampler.stamp(now));
        let custom = self.sampler.as_ref().map_or(0, |sampler| sampler.client_percentile().0);
        Feedback { window: session.window, threshold: Priority::LOWEST, custom, credit }
    }

    /// Lazy distribution: computes the window that leaves with a message to this session. O(1),
    /// without a look at other sessions (Breakwater §4, eq. 5 and 6, with the additions of the
    /// published code in its order).
    fn distribute(&mut self, session: &mut Session, cause: MessageKind, now: Time) {
        let total = self.pool.total();
        let issued = self.pool.issued();
        let overcommit = self.pool.overcommit();
        let held = i64::from(session.window.0);
        let pending = i64::from(session.pending());
        let known = self.known_demand(session, now);

        let mut window = held;
        if issued < total {
            window = (known + overcommit).min(held + total - issued);
        } else if issued > total {
            window = held - 1;
        }
        if cause == MessageKind::Wake || self.pool.sessions() <= self.cores {
            window = window.max(overcommit);
        }
        // Keep the credits with the clients being served: their responses carry the credit for
        // free.
        let may_keep = issued <= total || !self.pool.reclaims_last_credit() || self.version.is_published();
        if held > 0
            && window == 0
            && may_keep
            && cause != MessageKind::Reject
            && self.demand == DemandTracking::Speculation
        {
            // A session with pending requests keeps its credits for them, since it could not pass
            // any on.
            let can_pass_on = issued > total && pending == 0 && !self.version.is_published();
            window = if can_pass_on && self.rotation.is_due(now) { 0 } else { overcommit };
        }
        window = self.window_limit.apply(window.max(pending), || self.pool.sessions());
        window = window.min(match self.demand {
            DemandTracking::Speculation => known + overcommit,
            DemandTracking::Synchronization => known,
        });
        self.set_window(session, window);
        if window > 0 {
            self.untried.remove(session.slot);
        }
    }

    /// Verdict on a request that has arrived.
    fn admit(&mut self, session: &mut Session, event: &Arrival) -> Verdict {
        if self.credits {
            if let Some(round_trip) = self.round_trip {
                session.update_state(|usage: &mut Usage| usage.record(event.now, round_trip));
            }
            self.drained.remove(session.slot);
            if !self.is_covered(session) {
                return Verdict::Reject(RejectReason::Concurrency);
            }
            self.shrink_to_demand(session, event.now);
        }
        // Without a free slot the request would wait anywhere, and be late.
        if self.pool.is_overload_detected() && !self.pool.try_enter(class_of(event.method)) {
            return Verdict::Reject(RejectReason::Concurrency);
        }
        self.judge(event.delay, self.aqm_threshold)
    }

    /// Credits that a session is known to need. Its recent use counts up to its share of the pool.
    /// A session that stops sending keeps that share until its next request, and all such sessions
    /// together hold no more than the pool.
    fn known_demand(&self, session: &Session, now: Time) -> i64 {
        let reported = i64::from(session.pending()) + i64::from(session.demand);
        let total = self.pool.total();
        match self.round_trip {
            Some(round_trip) if self.pool.issued() < total => {
                let used = session.state::<Usage>().needed_credits(now, round_trip);
                // The division is expensive and rarely needed: few sessions send more than one
                // request per round trip.
                if used > reported { reported.max(used.min(total / self.pool.sessions().max(1))) } else { reported }
            }
            _ => reported,
        }
    }

    /// Takes credits beyond a session's known demand back at once; the client learns of it with the
    /// next message.
    fn shrink_to_demand(&self, session: &mut Session, now: Time) {
        let known = self.known_demand(session, now);
        if i64::from(session.window.0) > known {
            self.set_window(session, known);
        }
    }

    /// Puts a session without credit and pending requests on the list of drained sessions. With
    /// synchronized demand only sessions that have demand: the others will report it.
    fn enlist_if_drained(&mut self, session: &Session) {
        let wants = self.demand == DemandTracking::Speculation || session.demand > 0;
        if session.window.0 == 0 && session.pending() == 0 && wants {
            self.drained.insert(session.slot);
        }
    }
}

/// Message that carries a window update.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MessageKind {
    Response,
    Reject,
    Wake,
    Demand,
}

impl Admission for Core {
    fn open(&mut self, session: &mut Session, event: &Registration) {
        self.pool.session_opened();
        self.drained.reserve(session.slot);
        session.demand = event.demand;
        if self.credits {
            self.untried.insert(session.slot);
            // The published server learns of a session by its first message.
            if !self.version.is_published() || session.demand > 0 {
                self.enlist_if_drained(session);
            }
        }
    }

    fn request(&mut self, session: &mut Session, event: &Arrival) -> Verdict {
        if let Some(sampler) = &self.sampler {
            sampler.record_arrival(event.method);
        }
        let verdict = self.admit(session, event);
        if let (Verdict::Reject(_), Some(sampler)) = (&verdict, &mut self.sampler) {
            sampler.record_rejection(event.method);
        }
        verdict
    }

    fn on_dequeue(&mut self, waited: Nanos) -> Verdict {
        let verdict = self.judge(waited, self.longest_wait());
        if let (Verdict::Admit, Some(sampler)) = (&verdict, &self.sampler) {
            sampler.record_wait(waited);
        }
        verdict
    }

    fn reply(&mut self, session: &mut Session, event: &Departure) -> Feedback {
        if let Some(sampler) = &mut self.sampler {
            sampler.record_departure(session.last_method(), event);
        }
        // A rejected request has taken no slot, or gives it back at the next tick.
        if event.outcome == Outcome::Completed {
            self.pool.leave(class_of(session.last_method()));
        }
        if !self.credits {
            return Feedback::NONE;
        }
        let cause = match event.outcome {
            Outcome::Completed => MessageKind::Response,
            Outcome::Rejected => MessageKind::Reject,
        };
        self.distribute(session, cause, event.now);
        self.enlist_if_drained(session);
        self.rotation.update(self.drained.is_empty(), event.now);
        self.feedback(session, event.now)
    }

    fn demand(&mut self, session: &mut Session, now: Time) -> Option<Feedback> {
        if !self.credits {
            return None;
        }
        self.shrink_to_demand(session, now);
        if session.demand == 0 {
            self.drained.remove(session.slot);
            return None;
        }
        // The responses of pending requests will carry the credit. The published server wakes a
        // session on the list in the list's order.
        let waits = self.version.is_published() && self.drained.contains(session.slot);
        if session.pending() > 0 || waits {
            return None;
        }
        let before = session.window;
        self.distribute(session, MessageKind::Demand, now);
        if session.window.0 > 0 {
            self.drained.remove(session.slot);
        } else {
            self.enlist_if_drained(session);
        }
        (session.window > before).then(|| self.feedback(session, now))
    }

    fn next_to_wake(&mut self, random: u64) -> Option<SessionSlot> {
        if self.drained.is_empty() {
            return None;
        }
        if self.rotation.take_spare_credit() {
            self.pool.issue(1);
        } else if !self.pool.try_take() {
            self.pool.record_unmet_demand();
            return None;
        }
        self.drained.take(random)
    }

    fn wake(&mut self, session: &mut Session, now: Time) -> Feedback {
        self.rotation.record_wake(now);
        // `next_to_wake` has already issued one credit for this session.
        session.window = Credits(1);
        self.distribute(session, MessageKind::Wake, now);
        self.feedback(session, now)
    }

    fn close(&mut self, session: &mut Session, _: Time) {
        if let Some(sampler) = &self.sampler {
            sampler.record_close(session.pending());
        }
        self.drained.remove(session.slot);
        self.set_window(session, 0);
        self.pool.session_closed();
    }
}

/// The slow half.
pub struct Control {
    period: Nanos,
    law: Box<dyn Law>,
    growth: Option<Growth>,
    backlog: Option<BacklogAllowance>,
    credits: bool,
    limit: DownstreamLimit,
    untried_policy: Option<UntriedPolicy>,
    overload: Option<OverloadDetector>,
    pool: Arc<Pool>,
}

impl ControlLoop for Control {
    fn period(&self) -> Nanos {
        self.period
    }

    fn tick(&mut self, signals: &Signals) {
        self.limit.apply_limited(&self.pool, |pool| {
            self.law.tick(pool, signals);
            if let Some(growth) = &self.growth {
                growth.tick(pool, signals);
            }
        });
        if let Some(backlog) = &mut self.backlog {
            backlog.tick(&self.pool, signals);
        }
        if let Some(overload) = &mut self.overload {
            overload.tick(&self.pool, signals, self.law.is_occupied());
        }
        if let Some(policy) = &mut self.untried_policy {
            policy.tick(&self.pool, signals);
        }
    }

    fn on_core_grant(&mut self, event: &CoreGrant) {
        if let Some(growth) = &self.growth {
            self.limit.apply_limited(&self.pool, |pool| growth.on_core_grant(pool, event));
        }
        if let Some(backlog) = &mut self.backlog {
            backlog.on_core_grant(&self.pool, event);
        }
    }

    fn set_downstream(&mut self, event: &Downstream) {
        self.limit.set_downstream(&self.pool, event);
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            // Without credits windows mean nothing, and a server must not report them to clients as
            // binding.
            credit_pool: self.credits.then(|| self.pool.total()),
            credits_issued: self.credits.then(|| self.pool.issued()),
            sessions: Some(self.pool.sessions()),
            concurrency_limit: self.law.bound().map(|bound| bound as f64),
            ..Gauges::default()
        }
    }
}
