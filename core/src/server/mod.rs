//! The server's side of a controller, in two halves.
//!
//! The *fast half* ([`Admission`]) exists once per core and is `&mut` there: it admits or rejects
//! requests and fills in the feedback of a response. The halves of one server share only a few
//! relaxed atomics. No fast half allocates per request or iterates over clients.
//!
//! The *slow half* ([`ControlLoop`]) exists once per server and runs every [`ControlLoop::period`].
//! If the server calls others, the slow half gets their limit ([`Downstream`]).
//!
//! A *session* is one client's registered connection. The plant owns the [`Session`] records (each
//! belongs to one core) and passes them in, so that no map lookup is needed.

mod downstream;
mod session;

pub use downstream::Downstream;
pub use session::{CoreId, PendingRequest, Session, SessionSlot, SessionState};

use crate::budget::Budget;
use crate::units::{Cost, CreditId, Credits, Method, Nanos, Priority, Tenant, Time};

/// Event: a client registered, or connected if the protocol has no registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Now.
    pub now: Time,
    /// Requests that wait at the client.
    pub demand: u32,
}

/// Event: a request was received and parsed. [`Arrival::new`] sets the time, and the builders set
/// further fields.
///
/// ```
/// use leeward_core::server::Arrival;
/// use leeward_core::units::{Nanos, Priority, Time};
///
/// let delay = Nanos::from_micros(30);
/// let arrival = Arrival::new(Time(5_000)).with_priority(Priority::new(20)).with_delay(delay);
/// assert_eq!((arrival.demand, arrival.delay), (0, Nanos(30_000)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// Now.
    pub now: Time,
    /// Requests that still wait at the client, from the header.
    pub demand: u32,
    /// Priority of the request.
    pub priority: Priority,
    /// The current queueing delay `d_m`: the age of the oldest waiting packet plus that of the
    /// oldest waiting task, each the maximum over all cores (Breakwater §4).
    pub delay: Nanos,
    /// 64 random bits.
    pub random: u64,
    /// Queueing delay that the request may still spend.
    pub budget: Budget,
    /// Tenant for which the request was sent.
    pub tenant: Tenant,
    /// Work of the request.
    pub cost: Cost,
    /// Kind of work that the request asks for.
    pub method: Method,
    /// Time since the request reached this machine or, if its client's clock says more, since the
    /// client sent it. For shadow mode ([`crate::shadow`]): no algorithm reads it, and recordings
    /// omit it.
    pub age: Nanos,
}

impl Arrival {
    /// A request of the highest priority with no other known properties: no demand, no queueing
    /// delay, no random bits, an unlimited budget, the default tenant, a cost of one, the default
    /// method, no age.
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

/// Verdict on a request that has just been parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Queue the request for execution.
    Admit,
    /// Answer with a rejection at once; a server never drops a request silently.
    Reject(RejectReason),
}

/// Reason of a rejection, which goes back to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectReason {
    /// The queueing delay is over the controller's threshold.
    Delay,
    /// The request is less important than the server's priority threshold.
    Priority,
    /// The server's concurrency limit is reached, or no credit was available for a request sent
    /// without one.
    Concurrency,
    /// The request's remaining budget is too small for the wait for a lock.
    Lock,
    /// The request's tenant has used its share.
    Share,
}

impl RejectReason {
    /// Number of the reason in recordings. An assigned number never changes.
    pub fn number(self) -> u8 {
        match self {
            RejectReason::Delay => 1,
            RejectReason::Priority => 2,
            RejectReason::Concurrency => 3,
            RejectReason::Lock => 4,
            RejectReason::Share => 5,
        }
    }

    /// Returns the reason with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Self> {
        use RejectReason::{Concurrency, Delay, Lock, Priority, Share};
        [Delay, Priority, Concurrency, Lock, Share].into_iter().find(|reason| reason.number() == number)
    }
}

/// Outcome of a request at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request was executed and its response is about to leave.
    Completed,
    /// The request was rejected and the rejection is about to leave.
    Rejected,
}

/// Event: a response or a rejection is about to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Now.
    pub now: Time,
    /// Whether the server served the request.
    pub outcome: Outcome,
    /// Time since the request's packet arrived at this server.
    pub sojourn: Nanos,
    /// The grant that the request named. The value comes from the client, unchecked.
    pub credit: CreditId,
}

/// Feedback from the server to a client, in every response and every credit message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// The session's window, absolute: a smaller number than before is the papers' negative credit.
    pub window: Credits,
    /// Priority threshold: clients need not send less important requests (DAGOR).
    pub threshold: Priority,
    /// Value of an algorithm's own, carried unchanged.
    pub custom: u64,
    /// Id of this grant, for algorithms that want it back with a request.
    pub credit: CreditId,
}

impl Feedback {
    /// Feedback of an algorithm that has none.
    pub const NONE: Feedback =
        Feedback { window: Credits(0), threshold: Priority::LOWEST, custom: 0, credit: CreditId::NONE };
}

/// The fast half: handles the sessions of one core. One value per core.
///
/// A plant calls [`Session::request`] and [`Session::reply`]. These keep the session's counts and
/// call [`Admission::request`] and [`Admission::reply`]. Implementations only read
/// [`Session::pending`] and [`Session::demand`]. They keep their own per-session state in the
/// session, too ([`SessionState`]).
pub trait Admission: Send {
    /// A session registers on this core.
    fn open(&mut self, session: &mut Session, event: &Registration) {
        let _ = (session, event);
    }

    /// Decides on a request right after it was parsed.
    fn request(&mut self, session: &mut Session, event: &Arrival) -> Verdict;

    /// Decides again when an admitted request is dequeued, `waited` after its packet arrived. A
    /// plant that knows the CPU time of receiving the request leaves that time out. A rejection
    /// costs no more here than on arrival and saves the execution, but the client learns of it
    /// later.
    fn on_dequeue(&mut self, waited: Nanos) -> Verdict {
        let _ = waited;
        Verdict::Admit
    }

    /// Returns the feedback of a response or rejection that is about to leave.
    fn reply(&mut self, session: &mut Session, event: &Departure) -> Feedback {
        let _ = (session, event);
        Feedback::NONE
    }

    /// Handles an explicit demand message; the plant sends `Some` back at once in a credit message.
    fn demand(&mut self, session: &mut Session, now: Time) -> Option<Feedback> {
        let _ = (session, now);
        None
    }

    /// Takes the next session of this core that should get an explicit credit, if a credit is
    /// available. After each control tick the plant calls this until `None`, a bounded number of
    /// times. After each `Some` it calls [`Admission::wake`] for that session before the next call.
    fn next_to_wake(&mut self, random: u64) -> Option<SessionSlot> {
        let _ = random;
        None
    }

    /// Returns the feedback of the explicit credit message for a session from
    /// [`Admission::next_to_wake`].
    fn wake(&mut self, session: &mut Session, now: Time) -> Feedback {
        let _ = (session, now);
        Feedback::NONE
    }

    /// A session has deregistered or its connection has closed, at any moment.
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
    /// Requests rejected since the last tick, for any reason.
    pub rejections: u64,
    /// Those of `rejections` that a lock rejected ([`RejectReason::Lock`]).
    pub lock_rejections: u64,
}

impl Signals {
    /// Signals of an idle server.
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

/// Event: an allocator granted cores, or cores parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreGrant {
    /// Now.
    pub now: Time,
    /// `N_a`: cores granted just now; they are usable after the plant's allocation delay. 0 means
    /// that cores have parked.
    pub granted: u32,
    /// `N_t`: cores of the server, including the granted ones.
    pub total: u32,
}

/// The slow half: adapts the values that the fast halves read. One value per server.
pub trait ControlLoop: Send {
    /// Interval between calls of [`ControlLoop::tick`]. A late or spurious call does no harm.
    fn period(&self) -> Nanos;

    /// Adapts to the current signals.
    fn tick(&mut self, signals: &Signals);

    /// Time between two changes of what is admitted, if these come far apart. A simulated run whose
    /// goodput has collapsed has not settled before several of them.
    fn reaction(&self) -> Nanos {
        Nanos::ZERO
    }

    /// Handles a grant of cores between ticks; the plant calls [`Admission::next_to_wake`]
    /// afterwards, as after a tick. If cores have parked, `event.granted` is 0.
    fn on_core_grant(&mut self, event: &CoreGrant) {
        let _ = event;
    }

    /// Sets the limit of the narrowest downstream server, before a tick
    /// ([`Downstream::bottleneck`]).
    ///
    /// The limit holds until the next call; a server without downstream servers never calls this. A
    /// controller with a credit pool gives its clients no more credits, so that the server starts
    /// no request that it could not finish downstream.
    fn set_downstream(&mut self, event: &Downstream) {
        let _ = event;
    }

    /// The controller's state, for time series, the live view and tests of invariants.
    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

/// A controller's state in the field's terms; `None` for a value that the algorithm does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// `c_total`: the credit pool.
    pub credit_pool: Option<i64>,
    /// `c_issued`: the sum of all windows.
    pub credits_issued: Option<i64>,
    /// `n_c`: registered sessions.
    pub sessions: Option<i64>,
    /// Priority threshold: less important requests are rejected.
    pub priority_threshold: Option<f64>,
    /// Requests that may be in the server at once.
    pub concurrency_limit: Option<f64>,
    /// Requests admitted and not yet answered, if a limit counts them.
    pub in_flight: Option<i64>,
}

/// A controller's server side: one fast half per core and the slow half.
pub struct ServerHalves {
    /// A half for each core, in the order of [`CoreId`].
    pub cores: Vec<Box<dyn Admission>>,
    /// Called once per period.
    pub control: Box<dyn ControlLoop>,
}
