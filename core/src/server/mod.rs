//! The server's side of a controller, in two halves.
//!
//! The *fast half* ([`Admission`]) exists once per core and is `&mut` there: it admits or rejects requests and fills in
//! what a response carries back. Halves of one server share only a few relaxed atomics. Nothing in it allocates per
//! request or walks over clients.
//!
//! The *slow half* ([`ControlLoop`]) exists once per server and runs every [`ControlLoop::period`]. Where the server asks
//! others, the slow half is told what they let through ([`Downstream`]).
//!
//! A *session* is one client's registered connection. The plant owns the [`Session`] records (each belongs to one core)
//! and hands them in, so that no map is looked up.

mod downstream;
mod session;

pub use downstream::Downstream;
pub use session::{CoreId, PendingRequest, Session, SessionSlot, SessionState};

use crate::budget::Budget;
use crate::units::{Cost, CreditId, Credits, Method, Nanos, Priority, Tenant, Time};

/// A client has registered (or connected, where the protocol has no registration).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Now.
    pub now: Time,
    /// Requests that wait at the client.
    pub demand: u32,
}

/// A request has been received and parsed. Made by [`Arrival::new`], which knows nothing but the time.
///
/// ```
/// use leeward_core::server::Arrival;
/// use leeward_core::units::{Nanos, Priority, Time};
///
/// let arrival = Arrival::new(Time(5_000)).with_priority(Priority::new(20)).with_delay(Nanos::from_micros(30));
/// assert_eq!((arrival.demand, arrival.delay), (0, Nanos(30_000)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// Now.
    pub now: Time,
    /// Requests that still wait at the client, from the header.
    pub demand: u32,
    /// How important the request is.
    pub priority: Priority,
    /// The current queueing delay `d_m`: the age of the oldest waiting packet plus that of the oldest waiting task, each
    /// the maximum over all cores (Breakwater §4).
    pub delay: Nanos,
    /// 64 random bits.
    pub random: u64,
    /// Queueing delay that the request may still spend.
    pub budget: Budget,
    /// Tenant for which the request was sent.
    pub tenant: Tenant,
    /// How much work the request is.
    pub cost: Cost,
    /// Kind of work it asks for.
    pub method: Method,
    /// Time since the request came to this machine or, where its client's clock says more, since it was sent. For rehearsals
    /// ([`crate::rehearsal`]): no algorithm reads it, and recordings leave it out.
    pub age: Nanos,
}

impl Arrival {
    /// A request of the highest priority that nothing else is known of: no demand behind it, no queueing delay, no random
    /// bits, no limit to its budget, the default tenant, a cost of one, the default method, no age.
    pub const fn new(now: Time) -> Self {
        Arrival {
            now,
            demand: 0,
            priority: Priority::HIGHEST,
            delay: Nanos::ZERO,
            random: 0,
            budget: Budget::UNLIMITED,
            tenant: Tenant::DEFAULT,
            cost: Cost::ONE,
            method: Method::DEFAULT,
            age: Nanos::ZERO,
        }
    }

    /// The same request with [`Arrival::demand`].
    pub const fn with_demand(mut self, demand: u32) -> Self {
        self.demand = demand;
        self
    }

    /// The same request with [`Arrival::priority`].
    pub const fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// The same request with [`Arrival::delay`].
    pub const fn with_delay(mut self, delay: Nanos) -> Self {
        self.delay = delay;
        self
    }

    /// The same request with [`Arrival::random`].
    pub const fn with_random(mut self, random: u64) -> Self {
        self.random = random;
        self
    }

    /// The same request with [`Arrival::budget`].
    pub const fn with_budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// The same request with [`Arrival::tenant`].
    pub const fn with_tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = tenant;
        self
    }

    /// The same request with [`Arrival::cost`].
    pub const fn with_cost(mut self, cost: Cost) -> Self {
        self.cost = cost;
        self
    }

    /// The same request with [`Arrival::method`].
    pub const fn with_method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// The same request with [`Arrival::age`].
    pub const fn with_age(mut self, age: Nanos) -> Self {
        self.age = age;
        self
    }
}

/// Decision on a request that has just been parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Queue it for execution.
    Admit,
    /// Answer with a drop at once; never drop silently.
    Reject(RejectReason),
}

/// Why a server rejected a request. Goes back to the client with the drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectReason {
    /// The queueing delay is over the controller's threshold.
    Delay,
    /// The request's priority is below the server's threshold.
    Priority,
    /// The server's concurrency limit is reached, or it had no credit for a request on trust.
    Concurrency,
    /// The request's budget would not last for a lock on its way.
    Lock,
    /// The request's tenant has had its share.
    Share,
}

impl RejectReason {
    /// Number of the reason in recordings. A number that was given never changes.
    pub fn number(self) -> u8 {
        match self {
            RejectReason::Delay => 1,
            RejectReason::Priority => 2,
            RejectReason::Concurrency => 3,
            RejectReason::Lock => 4,
            RejectReason::Share => 5,
        }
    }

    /// The reason of this number, if there is one.
    pub fn from_number(number: u8) -> Option<Self> {
        use RejectReason::{Concurrency, Delay, Lock, Priority, Share};
        [Delay, Priority, Concurrency, Lock, Share].into_iter().find(|reason| reason.number() == number)
    }
}

/// How a request ended at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request was executed and its response is about to leave.
    Completed,
    /// The request was rejected and a drop is about to leave.
    Rejected,
}

/// A response or a drop is about to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Now.
    pub now: Time,
    /// Whether it was served.
    pub outcome: Outcome,
    /// Time since the request's packet arrived at this server.
    pub sojourn: Nanos,
    /// The grant that its request named. It comes from the client, as it is.
    pub credit: CreditId,
}

/// Message of a server to a client, with every response and every credit message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// The session's window, absolute: a smaller number than before is the papers' negative credit.
    pub window: Credits,
    /// Requests less important than this need not be sent (DAGOR).
    pub threshold: Priority,
    /// For algorithms of other crates: carried as it is.
    pub custom: u64,
    /// Names this grant, where the algorithm wants to hear of it again.
    pub credit: CreditId,
}

impl Feedback {
    /// Feedback of an algorithm that tells its clients nothing.
    pub const NONE: Feedback =
        Feedback { window: Credits(0), threshold: Priority::LOWEST, custom: 0, credit: CreditId::NONE };
}

/// The fast half: what every core asks about its own sessions. One value per core.
///
/// A plant calls [`Session::request`] and [`Session::reply`], which keep the session's books and call [`Admission::request`]
/// and [`Admission::reply`]. Implementations only read [`Session::pending`] and [`Session::demand`]. State of their own they
/// keep in the session, too ([`SessionState`]).
pub trait Admission: Send {
    /// A session registers on this core.
    fn open(&mut self, session: &mut Session, event: &Registration) {
        let _ = (session, event);
    }

    /// Decides on a request right after it was parsed.
    fn request(&mut self, session: &mut Session, event: &Arrival) -> Verdict;

    /// Decides once more when an admitted request's turn has come. It has `waited` since its packet arrived; a plant that
    /// knows the CPU time of receiving the request leaves it out. A rejection costs no more here than on arrival and spares
    /// the execution, but its client learns of it later.
    fn on_dequeue(&mut self, waited: Nanos) -> Verdict {
        let _ = waited;
        Verdict::Admit
    }

    /// A response or drop is about to leave: what goes back with it.
    fn reply(&mut self, session: &mut Session, event: &Departure) -> Feedback {
        let _ = (session, event);
        Feedback::NONE
    }

    /// An explicit demand message arrived; `Some` is sent back at once in a credit message.
    fn demand(&mut self, session: &mut Session, now: Time) -> Option<Feedback> {
        let _ = (session, now);
        None
    }

    /// Takes the next session of this core that should get an explicit credit message, if there is one and a credit to
    /// give. The plant asks after each control tick until `None`, a bounded number of times, and follows each `Some` by
    /// [`Admission::wake`] on that session before it asks again.
    fn next_to_wake(&mut self, random: u64) -> Option<SessionSlot> {
        let _ = random;
        None
    }

    /// The explicit credit message for a session that [`Admission::next_to_wake`] named.
    fn wake(&mut self, session: &mut Session, now: Time) -> Feedback {
        let _ = (session, now);
        Feedback::NONE
    }

    /// A session has deregistered or its connection is gone, at whatever moment.
    fn close(&mut self, session: &mut Session, now: Time) {
        let _ = (session, now);
    }
}

/// Input of the slow half: the state of the plant now, and the events since the last tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signals {
    /// Now.
    pub now: Time,
    /// Age of the oldest packet waiting on any core.
    pub packet_delay: Nanos,
    /// Age of the oldest task waiting on any core.
    pub run_delay: Nanos,
    /// Requests received since the last tick.
    pub arrivals: u64,
    /// Requests answered with a result since the last tick.
    pub completions: u64,
    /// Requests rejected since the last tick, for whatever reason.
    pub rejections: u64,
    /// Drops of `drops` that were refused a lock ([`RejectReason::Lock`]).
    pub lock_rejections: u64,
}

impl Signals {
    /// Nothing queued, nothing happened.
    pub fn idle(now: Time) -> Self {
        Signals {
            now,
            packet_delay: Nanos::ZERO,
            run_delay: Nanos::ZERO,
            arrivals: 0,
            completions: 0,
            rejections: 0,
            lock_rejections: 0,
        }
    }

    /// The queueing delay `d_m` (Breakwater §3.1).
    pub fn delay(&self) -> Nanos {
        self.packet_delay + self.run_delay
    }
}

/// An allocator has granted more cores, or cores have parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreGrant {
    /// Now.
    pub now: Time,
    /// `N_a`: how many were granted just now; they can be used after the plant's allocation delay. 0: some have parked.
    pub granted: u32,
    /// `N_t`: how many the server has, these included.
    pub total: u32,
}

/// The slow half: adapts what the fast halves read. One value per server.
pub trait ControlLoop: Send {
    /// How often [`ControlLoop::tick`] wants to be called. A late or spurious call does no harm.
    fn period(&self) -> Nanos;

    /// Adapts to the current signals.
    fn tick(&mut self, signals: &Signals);

    /// An allocator has granted the server more cores, in between ticks: the plant asks [`Admission::next_to_wake`]
    /// afterwards, as after a tick. Or the server has fewer now, of which `event.granted` is 0.
    fn on_core_grant(&mut self, event: &CoreGrant) {
        let _ = event;
    }

    /// Tells what the narrowest of the servers that this one asks lets through, before a tick ([`Downstream::narrowest`]).
    /// It holds until the next call; a server that asks nobody never calls it. A controller with a pool of credits gives
    /// its clients no more than that, so that a request is not begun here that could not be finished behind.
    fn set_downstream(&mut self, event: &Downstream) {
        let _ = event;
    }

    /// The controller's state, for time series, the live view and the tests of invariants.
    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

/// A controller's state in the field's terms; `None` where an algorithm has no such thing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// `c_total`: the credit pool.
    pub credit_pool: Option<i64>,
    /// `c_issued`: the sum of all windows.
    pub credits_issued: Option<i64>,
    /// `n_c`: registered sessions.
    pub sessions: Option<i64>,
    /// Requests less important than this are dropped.
    pub priority_threshold: Option<f64>,
    /// Requests that may be in the server at once.
    pub concurrency_limit: Option<f64>,
    /// Requests admitted and not yet answered, where a limit counts them.
    pub in_flight: Option<i64>,
}

/// A controller's server side: one fast half per core and the slow half.
pub struct ServerHalves {
    /// A half for each core, in the order of [`CoreId`].
    pub cores: Vec<Box<dyn Admission>>,
    /// Called once per period.
    pub control: Box<dyn ControlLoop>,
}
