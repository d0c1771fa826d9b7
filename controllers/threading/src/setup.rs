//! Setups: a threading model with the sizes of its pools (µTune §3). [`super::parse`] reads them,
//! [`super::role`] has the tasks of their threads.

use std::fmt;

use leeward_core::units::Nanos;

/// Maximum number of threads in a pool.
pub const POOL_MAX: u16 = 1_024;

/// Shortest time to poll before blocking. Other times are this times a power of two, so that a
/// setup fits into one word.
pub const SPIN_MIN: Nanos = Nanos(250);

/// Longest time to poll before blocking: many times the delay of any wake-up.
pub const SPIN_MAX: Nanos = Nanos(SPIN_MIN.0 << 16);

/// How a request waits for its leaves (µTune §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fanout {
    /// A thread has one request until its end, and blocks until the last leaf has replied.
    Sync,
    /// Requests wait as state; response threads continue them.
    Async,
}

/// Thread that executes a request (µTune §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Handling {
    /// The thread that received the request.
    InLine,
    /// A worker, through the dispatch queue.
    Dispatched,
}

/// How a thread waits for the network (µTune §3). Workers, and gathers of a sync setup, always
/// block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wait {
    /// The thread blocks, and the kernel wakes it.
    Block,
    /// The thread polls without end, and never yields.
    Poll,
    /// The thread polls for this time, then blocks: [`SPIN_MIN`] times a power of two, at most
    /// [`SPIN_MAX`]. Not in the paper.
    PollFor(Nanos),
}

/// A threading model and the sizes of its pools, written as in the paper:
///
/// - `SDB1-50`: one network thread and 50 workers.
/// - `AIP1-0-1`: one in-line thread, no workers and one response thread.
/// - `SIP1`: one in-line thread.
/// - `SDP1-4@16us`: polls for 16 µs and then blocks.
///
/// ```
/// use leeward_threading::{Fanout, Handling, Setup, Wait};
///
/// let setup: Setup = "SDB1-50".parse().unwrap();
/// assert_eq!((setup.fanout, setup.handling), (Fanout::Sync, Handling::Dispatched));
/// assert_eq!(setup.wait, Wait::Block);
/// assert_eq!((setup.network, setup.worker, setup.response, setup.threads()), (1, 50, 0, 51));
/// assert_eq!(setup.to_string(), "SDB1-50");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Setup {
    /// How requests wait for leaves.
    pub fanout: Fanout,
    /// Thread that executes requests.
    pub handling: Handling,
    /// How threads wait for the network.
    pub wait: Wait,
    /// Threads that receive, and in an in-line model execute; at least 1.
    pub network: u16,
    /// Threads that execute requests received by others; none in an in-line model, else at least 1.
    pub worker: u16,
    /// Threads that wait for leaves; none in a sync model, else at least 1.
    pub response: u16,
}

/// Fault of a setup, with the accepted input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupFault {
    /// The three letters of the model.
    #[error(
        "accepted are `S` or `A` (sync, async), `I` or `D` (in-line, dispatched), `B` or `P` (block, poll), then the pools, \
         as in `SIP1`, `SDB1-50`, `AIP1-0-1`, `ADP1-4-1@16us`; or `CORE2`"
    )]
    Model,
    /// A pool that is no number.
    #[error("a pool is a whole number without sign or leading zero, as in `SDB1-50`")]
    Number,
    /// The number of pools in a sync in-line model.
    #[error("a sync in-line model has one pool, the in-line threads, as in `SIP1`")]
    SyncInLine,
    /// The number of pools in a sync dispatched model.
    #[error("a sync dispatched model has two pools, network threads and workers, as in `SDB1-50`")]
    SyncDispatched,
    /// The number of pools in an async model.
    #[error("an async model has three pools, network, worker and response threads, as in `AIP1-0-1` or `ADB1-4-4`")]
    Async,
    /// Number of network threads.
    #[error("it needs from 1 to {POOL_MAX} network threads")]
    Network,
    /// Number of workers of a dispatched model.
    #[error("a dispatched model needs from 1 to {POOL_MAX} workers")]
    Worker,
    /// Number of response threads of an async model.
    #[error("an async model needs from 1 to {POOL_MAX} response threads")]
    Response,
    /// Workers in an in-line model.
    #[error("an in-line model has no workers; accepted is 0, as in `AIP1-0-1`")]
    InLineWorkers,
    /// Response threads in a sync model.
    #[error("a sync model has no response threads; accepted are `SIP1` and `SDB1-50`")]
    SyncResponse,
    /// Time to poll.
    #[error("after `@` comes a time to poll: 250ns, 500ns, 1us, 2us and so on, doubled up to 16.384ms")]
    Spin,
    /// Time to poll in a model that blocks.
    #[error("a model that blocks has no time to poll; accepted is `P` with it, as in `SDP1-4@16us`")]
    BlockSpins,
    /// Number of cores.
    #[error("it needs from 1 to {POOL_MAX} cores, as in `CORE2`")]
    Cores,
}

impl Setup {
    /// Returns the same setup if its pools and its wait fit together.
    ///
    /// # Errors
    /// The first fault.
    pub fn validate(self) -> Result<Setup, SetupFault> {
        if !(1..=POOL_MAX).contains(&self.network) {
            return Err(SetupFault::Network);
        }
        match self.handling {
            Handling::InLine if self.worker != 0 => return Err(SetupFault::InLineWorkers),
            Handling::Dispatched if !(1..=POOL_MAX).contains(&self.worker) => return Err(SetupFault::Worker),
            _ => {}
        }
        match self.fanout {
            Fanout::Sync if self.response != 0 => return Err(SetupFault::SyncResponse),
            Fanout::Async if !(1..=POOL_MAX).contains(&self.response) => return Err(SetupFault::Response),
            _ => {}
        }
        match self.wait {
            Wait::PollFor(span) if !is_spin(span) => Err(SetupFault::Spin),
            _ => Ok(self),
        }
    }

    /// Threads that the setup needs.
    pub fn threads(&self) -> u32 {
        u32::from(self.network) + u32::from(self.worker) + u32::from(self.response)
    }

    /// Threads that poll without end: each occupies a CPU.
    pub fn pollers(&self) -> u32 {
        // Workers block in every model.
        if self.wait == Wait::Poll { u32::from(self.network) + u32::from(self.response) } else { 0 }
    }
}

fn is_spin(span: Nanos) -> bool {
    (SPIN_MIN..=SPIN_MAX).contains(&span)
        && span.0.is_multiple_of(SPIN_MIN.0)
        && (span.0 / SPIN_MIN.0).is_power_of_two()
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fanout = if self.fanout == Fanout::Sync { 'S' } else { 'A' };
        let handling = if self.handling == Handling::InLine { 'I' } else { 'D' };
        let wait = if self.wait == Wait::Block { 'B' } else { 'P' };
        write!(f, "{fanout}{handling}{wait}{}", self.network)?;
        match (self.fanout, self.handling) {
            (Fanout::Async, _) => write!(f, "-{}-{}", self.worker, self.response)?,
            (Fanout::Sync, Handling::Dispatched) => write!(f, "-{}", self.worker)?,
            (Fanout::Sync, Handling::InLine) => {}
        }
        match self.wait {
            Wait::PollFor(span) => write!(f, "@{span}"),
            _ => Ok(()),
        }
    }
}

/// One of the paper's eight models with its pools, or Leeward's own server as the ninth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ThreadingSetup {
    /// A model of the paper.
    Setup(Setup),
    /// This number of cores, each of which receives, executes, calls leaves, and steals from the
    /// others: `CORE2`.
    Cores(u16),
}

impl ThreadingSetup {
    /// The setup, unless it is Leeward's own server.
    pub fn setup(&self) -> Option<Setup> {
        match self {
            ThreadingSetup::Setup(setup) => Some(*setup),
            ThreadingSetup::Cores(_) => None,
        }
    }

    /// Threads that the setup needs.
    pub fn threads(&self) -> u32 {
        match self {
            ThreadingSetup::Setup(setup) => setup.threads(),
            ThreadingSetup::Cores(cores) => u32::from(*cores),
        }
    }
}

impl From<Setup> for ThreadingSetup {
    fn from(setup: Setup) -> Self {
        ThreadingSetup::Setup(setup)
    }
}

impl fmt::Display for ThreadingSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThreadingSetup::Setup(setup) => setup.fmt(f),
            ThreadingSetup::Cores(cores) => write!(f, "CORE{cores}"),
        }
    }
}
