//! The server of the credit schemes: windows by lazy distribution, AQM, and a tick for the pool's law.
//! Never here: the pool's laws (`law`).

use super::allocation::Growth;
use super::backlog::BacklogAllowance;
use super::config::{AllocatorAwareness, Config, DemandTracking, PoolSignal};
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

/// The server's halves: `environment.cores` fast ones around one pool.
pub fn halves(config: &Config, environment: &Environment) -> ServerHalves {
    let samples = Arc::new(Samples::new(environment.cores));
    let law: Box<dyn Law> = match config.signal {
        PoolSignal::Delay => Box::new(DelayLaw::new(config)),
        PoolSignal::Efficiency => Box::new(EfficiencyLaw::new(config, Arc::clone(&samples))),
        PoolSignal::Auto => Box::new(AutoLaw::new(config, environment.cores, Arc::clone(&samples))),
    };
    halves_with_law(law, samples, config, environment)
}

/// The same with a law of the pool that somebody else brings.
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
    // An allocator that has not been heard of yet may have cores.
    let room = (config.allocator_aware == AllocatorAwareness::On)
        .then(|| BacklogAllowance::new(environment, config.aqm_threshold, config.period));
    pool.set_allows_backlog(room.as_ref().is_some_and(BacklogAllowance::is_allowed));
    // Where cores come and go, `room` says what may wait. Efficiency judges by throughput alone.
    let is_watched = !config.version.is_published()
        && config.signal != PoolSignal::Efficiency
        && environment.provisioning == CoreProvisioning::Fixed;
    let overload = is_watched.then(|| OverloadDetector::new(config.target, environment.slo));
    // The delay signal has no use for what the responses say, and does not pay for it.
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
            backlog: room,
            credits: config.credits,
            limit: DownstreamLimit::new(config),
            untried_policy: (!config.version.is_published()).then(|| UntriedPolicy::new(config.target)),
            overload,
            pool,
        }),
    }
}

/// Wait for a core that makes a request late by itself. No wait is longer than what AQM lets through, so it is a tenth less than that.
fn long_wait(config: &Config) -> Nanos {
    let most = if config.aqm { config.stale.min(config.deadline) } else { config.deadline };
    most.scale(0.9)
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
    /// `Nanos::MAX` when AQM is off: no delay reaches it.
    aqm_threshold: Nanos,
    stale: Nanos,
    /// Delay from which a request can't be answered in time, however many cores come.
    deadline: Nanos,
    max_window: i64,
    cores: i64,
    /// The round trip in which a session's use of its credits is counted, if it is.
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
            deadline: config.deadline,
            max_window: config.max_window.into(),
            cores: environment.cores.into(),
            round_trip: (config.signal == PoolSignal::Auto).then_some(config.period),
        }
    }

    /// Verdict on a request after a delay that has a threshold. Where cores can still be had, only a late request is
    /// rejected ([`super::room`]), and none before an overload is detected ([`super::overload`]).
    fn judge(&self, delay: Nanos, threshold: Nanos) -> Verdict {
        let is_over = delay >= threshold && (delay >= self.deadline || !self.pool.allows_backlog());
        if is_over && !self.pool.is_calm() { Verdict::Reject(RejectReason::Delay) } else { Verdict::Admit }
    }

    /// Sets a session's window and keeps `c_issued` the sum of all windows.
    fn set_window(&self, session: &mut Session, window: i64) {
        self.pool.issue(window - i64::from(session.window.0));
        session.window = Credits(window as u32);
    }

    /// Whether a request is covered: by a credit that its session has, or had when it was sent; by trust; or else by a credit
    /// that is open now.
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

    /// The window as the message that carries it.
    fn feedback(&self, session: &Session, now: Time) -> Feedback {
        let credit = self.sampler.as_ref().map_or(CreditId::NONE, |sampler| sampler.stamp(now));
        let custom = self.sampler.as_ref().map_or(0, |sampler| sampler.client_percentile().0);
        Feedback { window: session.window, threshold: Priority::LOWEST, custom, credit }
    }

    /// Lazy distribution: the window that leaves with a message to this session. O(1), looks at no other session
    /// (Breakwater §4, eq. 5 and 6, with the additions of the published code in its order).
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
        // Stay with the clients that are being served: their responses carry the credit for free.
        let stays = issued <= total || !self.pool.reclaims_last_credit() || self.version.is_published();
        if held > 0
            && window == 0
            && stays
            && cause != MessageKind::Reject
            && self.demand == DemandTracking::Speculation
        {
            // A session with requests under way keeps its credits for them: it could not hand any on.
            let may_go_on = issued > total && pending == 0 && !self.version.is_published();
            window = if may_go_on && self.rotation.is_due(now) { 0 } else { overcommit };
        }
        window = window.max(pending).min(self.max_window - 1);
        window = window.min(match self.demand {
            DemandTracking::Speculation => known + overcommit,
            DemandTracking::Synchronization => known,
        });
        self.set_window(session, window);
        if window > 0 {
            self.untried.remove(session.slot);
        }
    }

    /// Verdict on a request that has come.
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
        // Wherever it would wait, it would be late.
        if !self.pool.is_calm() && !self.pool.try_enter(class_of(event.method)) {
            return Verdict::Reject(RejectReason::Concurrency);
        }
        self.judge(event.delay, self.aqm_threshold)
    }

    /// Credits that a session is known to have a use for. What it used of late counts as far as its share of the pool goes: who falls
    /// silent keeps that until it speaks again, and all who do hold no more than there is.
    fn known_demand(&self, session: &Session, now: Time) -> i64 {
        let told = i64::from(session.pending()) + i64::from(session.demand);
        let total = self.pool.total();
        match self.round_trip {
            Some(round_trip) if self.pool.issued() < total => {
                let used = session.state::<Usage>().needed_credits(now, round_trip);
                // The division is the dear part and rarely needed: few sessions send more than one request in a round trip.
                if used > told { told.max(used.min(total / self.pool.sessions().max(1))) } else { told }
            }
            _ => told,
        }
    }

    /// A session whose window exceeds what it can use gives the rest back at once; the client learns with the next
    /// message.
    fn shrink_to_demand(&self, session: &mut Session, now: Time) {
        let known = self.known_demand(session, now);
        if i64::from(session.window.0) > known {
            self.set_window(session, known);
        }
    }

    /// Puts a session without credit and without anything outstanding on the list. With synchronized demand only those
    /// that want something: the others will tell.
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
            // The published server hears of a session with its first message.
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
        let verdict = self.judge(waited, self.stale);
        if let (Verdict::Admit, Some(sampler)) = (&verdict, &self.sampler) {
            sampler.record_wait(waited);
        }
        verdict
    }

    fn reply(&mut self, session: &mut Session, event: &Departure) -> Feedback {
        if let Some(sampler) = &mut self.sampler {
            sampler.record_departure(session.last_method(), event);
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
        // With requests pending, their responses will carry the credit. The published server leaves a session that is on the list
        // to its turn.
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
        // `next_to_wake` has counted one credit for this session.
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
        if let Some(room) = &mut self.backlog {
            room.tick(&self.pool, signals);
        }
        if let Some(overload) = &mut self.overload {
            overload.tick(&self.pool, signals, self.law.is_occupied());
        }
        if let Some(trust) = &mut self.untried_policy {
            trust.tick(&self.pool, signals);
        }
    }

    fn on_core_grant(&mut self, event: &CoreGrant) {
        if let Some(growth) = &self.growth {
            self.limit.apply_limited(&self.pool, |pool| growth.on_core_grant(pool, event));
        }
        if let Some(room) = &mut self.backlog {
            room.on_core_grant(&self.pool, event);
        }
    }

    fn set_downstream(&mut self, event: &Downstream) {
        self.limit.set_downstream(&self.pool, event);
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            // Without credits windows mean nothing, and a server must not tell its clients that they bind.
            credit_pool: self.credits.then(|| self.pool.total()),
            credits_issued: self.credits.then(|| self.pool.issued()),
            sessions: Some(self.pool.sessions()),
            concurrency_limit: self.law.bound().map(|bound| bound as f64),
            ..Gauges::default()
        }
    }
}
