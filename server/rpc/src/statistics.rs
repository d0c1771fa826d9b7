//! A server's statistics over the protocol: asked for as a call of [`METHOD`], told as JSON.

use crate::wire::Method;

pub use leeward_engine::statistics::{LOCKS, LONGEST_NAME, LockStatistics, ServiceInfo, Statistics};

/// The method that servers answer themselves, whatever the handler: the only number that is not the application's.
pub const METHOD: Method = Method::STATISTICS;
