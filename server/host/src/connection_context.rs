//! The interface between a connection, which is pure, and its core.

use leeward_core::server::Admission;
use leeward_core::units::{Nanos, Time};

/// A connection's access to its core while it handles received bytes. The server's engine
/// implements it, and so do simulated plants. A connection cannot tell them apart.
pub trait ConnectionContext {
    /// Current time, on the plant's clock.
    fn now(&self) -> Time;

    /// Current queueing delay `d_m` (Breakwater §4).
    fn delay(&self) -> Nanos;

    /// 64 random bits.
    fn random(&mut self) -> u64;

    /// Returns whether the server admits nothing more.
    fn is_stopping(&self) -> bool;

    /// The core's fast half.
    fn admission(&mut self) -> &mut dyn Admission;

    /// Number of the rejection that the fast half has just made, if a watch records it.
    fn refusal(&self) -> Option<u64> {
        None
    }

    /// The connection's unsent bytes, to which responses are appended.
    fn out(&mut self) -> &mut Vec<u8>;
}
