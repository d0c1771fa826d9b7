//! The server of the credit schemes: windows by lazy distribution, AQM, and a tick for the pool's law.
//! Never here: the pool's laws (`law`).

use super::allocation::Growth;
use super::config::{Awareness, Config, Demand, Signal};
use super::downstream::Limit;
use super::drained::Drained;
use super::law::{AutoLaw, DelayLaw, EfficiencyLaw, ForeignLaw, Law, PoolLaw};
use super::overload::Overload;
use super::pool::Pool;
use super::room::Room;
use super::samples::{Sampler, Samples, class_of};
use super::strangers::{Strangers, Trust};
use super::turnover::Turnover;
use super::usage::Usage;
use crate::published::Version;
use leeward_core::registry::{Environment, Provision};
use leeward_core::server::{
    Admission, Arrival, ControlLoop, CoresGranted, Departure, Downstream, Feedback, Gauges, Opened, Outcome,
    RejectReason, ServerHalves, Session, SessionSlot, Signals, Verdict,
};
use leeward_core::sync::Arc;
use leeward_core::units::{CreditId, Credits, Nanos, Priority, Time};

/// The server's halves: `environment.cores` fast ones around one pool.
pub fn halves(config: &Config, environment: &Environment) -> ServerHalves {
    let samples = Arc::new(Samples::new(environment.cores));
    let law: Box<dyn Law> = match config.signal {
        Signal::Delay => Box::new(DelayLaw::new(config)),
        Signal::Efficiency => Box::new(EfficiencyLaw::new(config, Arc::clone(&samples))),
        Signal::Auto => Box::new(AutoLaw::new(config, environment.cores, Arc::clone(&samples))),
    };
    halves_by(law, samples, config, environment)
}

/// The same with a law of the pool that somebody else brings.
pub fn halves_under(law: Box<dyn PoolLaw>, config: &Config, environment: &Environment) -> ServerHalves {
    let samples = Arc::new(Samples::new(environment.cores));
    halves_by(Box::new(ForeignLaw::new(config, law)), samples, config, environment)
}

fn halves_by(law: Box<dyn Law>, samples: Arc<Samples>, config: &Config, environment: &Environment) -> ServerHalves {
    let pool = Arc::new(Pool::new(config.initial_pool.into()));
    // An allocator that has not been heard of yet may have cores.
    let room =
        (config.allocator_aware == Awareness::On).then(|| Room::new(environment, config.aqm_threshold, config.period));
    pool.set_room(room.as_ref().is_some_and(Room::is_open));
    // Where cores come and go, `room` says what may wait. Efficiency judges by throughput alone.
    let is_watched = !config.version.is_published()
        && config.signal != Signal::Efficiency
        && environment.provision == Provision::Fixed;
    let overload = is_watched.then(|| Overload::new(config.target, environment.slo));
    // The delay signal has no use for what the responses say, and does not pay for it.
    let sampler = |core: u32| {
        (config.signal != Signal::Delay)
            .then(|| Sampler::new(Arc::clone(&samples), core as usize, config.late, long(config)))
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
            growth: (config.allocator_aware != Awareness::Off).then(|| Growth::new(config)),
            room,
            credits: config.credits,
            limit: Limit::new(config),
            trust: (!config.version.is_published()).then(|| Trust::new(config.target)),
            overload,
            pool,
        }),
    }
}

/// Wait for a core that makes a request late by itself. No wait is longer than what AQM lets through, so it is a tenth less than that.
fn long(config: &Config) -> Nanos {
    let most = if config.aqm { config.stale.min(config.late) } else { config.late };
    most.scale(0.9)
}

/// The fast half of one core.
pub struct Core {
    version: Version,
    pool: Arc<Pool>,
    sampler: Option<Sampler>,
    drained: Drained,
    strangers: Strangers,
    turnover: Turnover,
    credits: bool,
    demand: Demand,
    /// `Nanos::MAX` when AQM is off: no delay reaches it.
    aqm_threshold: Nanos,
    stale: Nanos,
    /// Delay from which a request can't be answered in time, however many cores come.
    late: Nanos,
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
            drained: Drained::new(config.waking),
            strangers: Strangers::default(),
            turnover: Turnover::new(config.target),
            credits: config.credits,
            demand: config.demand,
            aqm_threshold: if config.aqm { config.aqm_threshold } else { Nanos::MAX },
            stale: if config.aqm { config.stale } else { Nanos::MAX },
            late: config.late,
            max_window: config.max_window.into(),
            cores: environment.cores.into(),
            round_trip: (config.signal == Signal::Auto).then_some(config.period),
        }
    }

    /// Verdict on a request after a delay that has a threshold. Where cores can still be had, only a late request is
    /// rejected ([`super::room`]), and none before an overload is detected ([`super::overload`]).
    fn judge(&self, delay: Nanos, threshold: Nanos) -> Verdict {
        let is_over = delay >= threshold && (delay >= self.late || !self.pool.has_room());
        if is_over && !self.pool.is_calm() { Verdict::Reject(RejectReason::Delay) } else { Verdict::Admit }
    }

    /// Sets a session's window and keeps `c_issued` the sum of all windows.
    fn set_window(&self, session: &mut Session, window: i64) {
        self.pool.issue(window - i64::from(session.window.0));
        session.window = Credits(window as u32);
    }

    /// Whether a request is covered: by a credit that its session has, or had when it was sent; by trust; or else by a credit
    /// that is open now.
    fn covers(&mut self, session: &mut Session) -> bool {
        if !self.pool.distrusts() || !self.strangers.contains(session.slot) {
            return true;
        }
        if self.pool.take_one() {
            session.window = Credits(session.window.0 + 1);
            self.strangers.remove(session.slot);
            return true;
        }
        self.pool.sessions() <= self.cores
    }

    /// The window as the message that carries it.
    fn feedback(&self, session: &Session, now: Time) -> Feedback {
        let credit = self.sampler.as_ref().map_or(CreditId::NONE, |sampler| sampler.stamp(now));
        let custom = self.sampler.as_ref().map_or(0, |sampler| sampler.told().0);
        Feedback { window: session.window, threshold: Priority::LOWEST, custom, credit }
    }

    /// Lazy distribution: the window that leaves with a message to this session. O(1), looks at no other session
    /// (Breakwater §4, eq. 5 and 6, with the additions of the published code in its order).
    fn distribute(&mut self, session: &mut Session, cause: Cause, now: Time) {
        let total = self.pool.total();
        let issued = self.pool.issued();
        let overcommit = self.pool.overcommit();
        let held = i64::from(session.window.0);
        let pending = i64::from(session.pending());
        let known = self.known(session, now);

        let mut window = held;
        if issued < total {
            window = (known + overcommit).min(held + total - issued);
        } else if issued > total {
            window = held - 1;
        }
        if cause == Cause::Wake || self.pool.sessions() <= self.cores {
            window = window.max(overcommit);
        }
        // Stay with the clients that are being served: their responses carry the credit for free.
        let stays = issued <= total || !self.pool.binds() || self.version.is_published();
        if held > 0 && window == 0 && stays && cause != Cause::Drop && self.demand == Demand::Speculation {
            // A session with requests under way keeps its credits for them: it could not hand any on.
            let may_go_on = issued > total && pending == 0 && !self.version.is_published();
            window = if may_go_on && self.turnover.is_due(now) { 0 } else { overcommit };
        }
        window = window.max(pending).min(self.max_window - 1);
        window = window.min(match self.demand {
            Demand::Speculation => known + overcommit,
            Demand::Synchronization => known,
        });
        self.set_window(session, window);
        if window > 0 {
            self.strangers.remove(session.slot);
        }
    }

    /// Verdict on a request that has come.
    fn admit(&mut self, session: &mut Session, event: &Arrival) -> Verdict {
        if self.credits {
            if let Some(round_trip) = self.round_trip {
                session.update_state(|usage: &mut Usage| usage.note(event.now, round_trip));
            }
            self.drained.remove(session.slot);
            if !self.covers(session) {
                return Verdict::Reject(RejectReason::Concurrency);
            }
            self.shrink_to_demand(session, event.now);
        }
        // Wherever it would wait, it would be late.
        if !self.pool.is_calm() && !self.pool.takes_place(class_of(event.method)) {
            return Verdict::Reject(RejectReason::Concurrency);
        }
        self.judge(event.delay, self.aqm_threshold)
    }

    /// Credits that a session is known to have a use for. What it used of late counts as far as its share of the pool goes: who falls
    /// silent keeps that until it speaks again, and all who do hold no more than there is.
    fn known(&self, session: &Session, now: Time) -> i64 {
        let told = i64::from(session.pending()) + i64::from(session.demand);
        let total = self.pool.total();
        match self.round_trip {
            Some(round_trip) if self.pool.issued() < total => {
                let used = session.state::<Usage>().needs(now, round_trip);
                // The division is the dear part and rarely needed: few sessions send more than one request in a round trip.
                if used > told { told.max(used.min(total / self.pool.sessions().max(1))) } else { told }
            }
            _ => told,
        }
    }

    /// A session whose window exceeds what it can use gives the rest back at once; the client learns with the next
    /// message.
    fn shrink_to_demand(&self, session: &mut Session, now: Time) {
        let known = self.known(session, now);
        if i64::from(session.window.0) > known {
            self.set_window(session, known);
        }
    }

    /// Puts a session without credit and without anything outstanding on the list. With synchronized demand only those
    /// that want something: the others will tell.
    fn note_if_drained(&mut self, session: &Session) {
        let wants = self.demand == Demand::Speculation || session.demand > 0;
        if session.window.0 == 0 && session.pending() == 0 && wants {
            self.drained.insert(session.slot);
        }
    }
}

/// Message that carries a window update.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Response,
    Drop,
    Wake,
    Demand,
}

impl Admission for Core {
    fn open(&mut self, session: &mut Session, event: &Opened) {
        self.pool.session_opened();
        self.drained.reserve(session.slot);
        session.demand = event.demand;
        if self.credits {
            self.strangers.insert(session.slot);
            // The published server hears of a session with its first message.
            if !self.version.is_published() || session.demand > 0 {
                self.note_if_drained(session);
            }
        }
    }

    fn request(&mut self, session: &mut Session, event: &Arrival) -> Verdict {
        if let Some(sampler) = &self.sampler {
            sampler.arrived(event.method);
        }
        let verdict = self.admit(session, event);
        if let (Verdict::Reject(_), Some(sampler)) = (&verdict, &mut self.sampler) {
            sampler.refused(event.method);
        }
        verdict
    }

    fn execute(&mut self, waited: Nanos) -> Verdict {
        let verdict = self.judge(waited, self.stale);
        if let (Verdict::Admit, Some(sampler)) = (&verdict, &self.sampler) {
            sampler.waited(waited);
        }
        verdict
    }

    fn reply(&mut self, session: &mut Session, event: &Departure) -> Feedback {
        if let Some(sampler) = &mut self.sampler {
            sampler.departed(session.answered(), event);
        }
        if !self.credits {
            return Feedback::NONE;
        }
        let cause = match event.outcome {
            Outcome::Completed => Cause::Response,
            Outcome::Dropped => Cause::Drop,
        };
        self.distribute(session, cause, event.now);
        self.note_if_drained(session);
        self.turnover.note(self.drained.is_empty(), event.now);
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
        self.distribute(session, Cause::Demand, now);
        if session.window.0 > 0 {
            self.drained.remove(session.slot);
        } else {
            self.note_if_drained(session);
        }
        (session.window > before).then(|| self.feedback(session, now))
    }

    fn next_to_wake(&mut self, random: u64) -> Option<SessionSlot> {
        if self.drained.is_empty() {
            return None;
        }
        if self.turnover.is_owed() {
            self.pool.issue(1);
        } else if !self.pool.take_one() {
            self.pool.note_unmet_demand();
            return None;
        }
        self.drained.take(random)
    }

    fn wake(&mut self, session: &mut Session, now: Time) -> Feedback {
        self.turnover.happened(now);
        // `next_to_wake` has counted one credit for this session.
        session.window = Credits(1);
        self.distribute(session, Cause::Wake, now);
        self.feedback(session, now)
    }

    fn close(&mut self, session: &mut Session, _: Time) {
        if let Some(sampler) = &self.sampler {
            sampler.closed(session.pending());
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
    room: Option<Room>,
    credits: bool,
    limit: Limit,
    trust: Option<Trust>,
    overload: Option<Overload>,
    pool: Arc<Pool>,
}

impl ControlLoop for Control {
    fn period(&self) -> Nanos {
        self.period
    }

    fn tick(&mut self, signals: &Signals) {
        self.limit.around(&self.pool, |pool| {
            self.law.tick(pool, signals);
            if let Some(growth) = &self.growth {
                growth.tick(pool, signals);
            }
        });
        if let Some(room) = &mut self.room {
            room.tick(&self.pool, signals);
        }
        if let Some(overload) = &mut self.overload {
            overload.tick(&self.pool, signals, self.law.is_occupied());
        }
        if let Some(trust) = &mut self.trust {
            trust.tick(&self.pool, signals);
        }
    }

    fn cores_granted(&mut self, event: &CoresGranted) {
        if let Some(growth) = &self.growth {
            self.limit.around(&self.pool, |pool| growth.granted(pool, event));
        }
        if let Some(room) = &mut self.room {
            room.changed(&self.pool, event);
        }
    }

    fn downstream(&mut self, event: &Downstream) {
        self.limit.tell(&self.pool, event);
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
