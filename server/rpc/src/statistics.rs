//! A server's statistics over the protocol: a call of [`METHOD`] returns them as JSON.

use crate::wire::Method;

pub use leeward_engine::statistics::{LOCKS, LONGEST_NAME, LockStatistics, ServiceInfo, Statistics, TierStatistics};

/// The method that servers answer themselves, without the handler; all other numbers belong to the
/// application.
pub const METHOD: Method = Method::STATISTICS;
