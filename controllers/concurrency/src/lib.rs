//! Concurrency limits as pure code: how many requests a proxy keeps at a backend. All further
//! requests wait in the proxy, where their age, class and deadline are known. Like the admission
//! controllers, a limit has no clock, thread or socket.
//!
//! For proxies, and for authors of limits. Entry points: [`registry::find`] and
//! [`ConcurrencyLimit`].
//!
//! - [`ConcurrencyLimit`]: the trait; [`Response`] and [`Tick`] are its input.
//! - [`registry`]: the limits by name.
//! - [`knee`]: Leeward's law, which needs the objective and nothing else.
//! - Rivals with their published defaults: [`gradient`] (Envoy), [`gradient2`] and [`vegas`]
//!   (Netflix), [`aimd`], and [`fixed`], a number that somebody has chosen.
//! - [`dispatch`]: the queue of the proxy, its order, and the choice of a backend.
//! - [`sojourn`]: recent times at the backend, and the time that a dequeued request must have left.
//!
//! Does not contain sockets or threads.
//!
//! ```
//! use leeward_concurrency::{LimitEnvironment, Outcome, Response, Tick, registry};
//! use leeward_core::units::{Nanos, Time};
//!
//! let policy = registry::find("knee")?;
//! let environment = LimitEnvironment { objective: Nanos::from_millis(50), seed: 1 };
//! let mut limit = policy.build(&policy.params(&[])?, &environment);
//! let before = limit.limit();
//! limit.on_dispatch(Time::ZERO, 1);
//! let now = Time(2_000_000);
//! let outcome = Outcome::Completed;
//! limit.on_response(&Response { now, dispatched: Time::ZERO, outcome, in_flight: 0 });
//! limit.on_tick(&Tick { now, in_flight: 0, queued: 0, has_starved: true, oldest_unread: None });
//! // The queue of the proxy was empty, so the limit has learnt nothing.
//! assert_eq!(limit.limit(), before);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod aimd;
pub mod dispatch;
pub mod fixed;
pub mod gradient;
pub mod gradient2;
pub mod knee;
mod policy;
pub mod registry;
pub mod sojourn;
pub mod vegas;

use leeward_core::units::{Nanos, Time};

/// Upper bound of every limit. A limit of this number binds in no practice: it means *no limit*.
pub const UNLIMITED: u32 = 1 << 20;

/// Interval between two calls of [`ConcurrencyLimit::on_tick`].
pub const TICK: Nanos = Nanos::from_millis(10);

/// Given conditions of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitEnvironment {
    /// Latency objective of a request, from its arrival at the proxy to its response.
    pub objective: Nanos,
    /// Seed of the limit's random steps.
    pub seed: u64,
}

/// End of a request at the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The backend answered.
    Completed,
    /// The backend did not answer, or answered that it is overloaded.
    Failed,
}

/// A response of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Now.
    pub now: Time,
    /// Time at which the proxy sent the request to the backend.
    pub dispatched: Time,
    /// End of the request.
    pub outcome: Outcome,
    /// Requests that are still at the backend.
    pub in_flight: u32,
}

impl Response {
    /// Time that the request spent at the backend.
    pub fn sojourn(&self) -> Nanos {
        self.now.since(self.dispatched)
    }
}

/// State of the proxy at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Now.
    pub now: Time,
    /// Requests at the backend.
    pub in_flight: u32,
    /// Requests in the queue of the proxy.
    pub queued: u32,
    /// Whether a place at the backend was free for want of requests since the last tick.
    pub has_starved: bool,
    /// Age of the oldest unread byte in the backend's sockets, where the kernel can be asked.
    pub oldest_unread: Option<Nanos>,
}

/// A limit on the number of requests at one backend. It allocates nothing per request.
pub trait ConcurrencyLimit: Send {
    /// Takes note of a request that was sent to the backend, where `in_flight` requests are now.
    fn on_dispatch(&mut self, _now: Time, _in_flight: u32) {}

    /// Takes note of a response.
    fn on_response(&mut self, response: &Response);

    /// Takes note of a request that gives its place up after `waited`: it hangs, and was no load.
    fn on_hang(&mut self, _now: Time, _waited: Nanos) {}

    /// Takes note of the state of the proxy, every [`TICK`].
    fn on_tick(&mut self, tick: &Tick);

    /// Takes another objective; what the limit has learnt of the backend stays.
    fn set_objective(&mut self, _objective: Nanos) {}

    /// Returns the number of requests that may be at the backend, at least 1.
    fn limit(&self) -> u32;

    /// Returns the same without a short trial of another number: what a person wants to see.
    fn steady_limit(&self) -> u32 {
        self.limit()
    }
}
