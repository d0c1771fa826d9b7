//! The seam between a connection, which is pure, and the core that looks after it.

use leeward_core::server::Admission;
use leeward_core::units::{Nanos, Time};

/// Surroundings of a connection on its core while it handles what came. The server's engine implements it, and so do
/// plants in virtual time: a connection cannot tell them apart.
pub trait ConnectionContext {
    /// Now, on the plant's clock.
    fn now(&self) -> Time;

    /// The queueing delay `d_m` at this moment (Breakwater §4).
    fn delay(&self) -> Nanos;

    /// 64 random bits.
    fn random(&mut self) -> u64;

    /// Whether the server admits nothing more.
    fn is_stopping(&self) -> bool;

    /// The core's fast half.
    fn admission(&mut self) -> &mut dyn Admission;

    /// Number of the refusal that the fast half has just made, where a watch keeps it for those who ask why.
    fn refusal(&self) -> Option<u64> {
        None
    }

    /// The connection's unsent bytes, where words are appended.
    fn out(&mut self) -> &mut Vec<u8>;
}
