//! Statistics of a server: counters since its start, the controller's state, its locks. Each
//! protocol sends these as JSON in its own way, and `leeward top` shows them. Does not contain
//! measuring, or the rate of queries.

use crate::encryption::HandshakeStatistics;
use leeward_observe::LatencyCounts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Maximum reported locks: those with the longest waits.
pub const LOCKS: usize = 100;

/// Maximum length of a lock's name, in characters; longer names are cut.
pub const LONGEST_NAME: usize = 100;

/// A server's state. Counters begin with the server; times are nanoseconds. Fields that a server of
/// another version leaves out are zero, and unknown fields are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Statistics {
    /// Time since the start.
    pub uptime_ns: u64,
    /// Threads that execute requests.
    pub cores: u64,
    /// Idle time of all cores together, including those that an allocator has parked.
    pub idle_ns: u64,
    /// Calls received.
    pub received: u64,
    /// Calls answered with a result or a failure.
    pub completed: u64,
    /// Completed calls whose response was a failure.
    pub failed: u64,
    /// Results within the objective, from a call's arrival at the server to its response. Network
    /// time is unknown to the server.
    pub in_time: u64,
    /// Latency objective.
    pub slo_ns: u64,
    /// Latencies of results, from a call's arrival until its response.
    pub latency: LatencyCounts,
    /// Rejected calls, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Calls that were not answered because their connection closed first.
    pub abandoned: u64,
    /// Calls that were admitted in shadow mode although the controller rejected them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreseen: Option<u64>,
    /// Open connections.
    pub connections: u64,
    /// Datagrams that the kernel dropped because the server did not take them in time.
    pub overflowed: u64,
    /// Datagrams that the server retransmitted.
    pub retransmitted: u64,
    /// Duplicate calls and control messages over datagrams: their clients had missed the response.
    pub duplicates: u64,
    /// Wait of the oldest unread message.
    pub packet_delay_ns: u64,
    /// Wait of the oldest task in the run queues.
    pub run_delay_ns: u64,
    /// Size of the credit pool, with a controller that has one.
    pub credit_pool: Option<i64>,
    /// Credits that clients hold.
    pub credits_issued: Option<i64>,
    /// Maximum concurrent requests, with a controller that limits them.
    pub concurrency_limit: Option<f64>,
    /// The lowest admitted importance, with a controller that has a threshold.
    pub priority_threshold: Option<f64>,
    /// Description of the service.
    pub about: ServiceInfo,
    /// Handshakes of a server whose connections are encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<HandshakeStatistics>,
    /// Leaves of a server that calls others before it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<TierStatistics>,
    /// Locks of the server's whole process, those with the longest waits first.
    pub locks: Vec<LockStatistics>,
}

/// A tier's view of its leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TierStatistics {
    /// Number of leaves.
    pub leaves: u64,
    /// Addresses of the leaves to which the tier has no connection.
    pub away: Vec<String>,
    /// Requests that continued with fewer results of leaves than they asked for.
    pub partial: u64,
}

/// Reports a tier's view of its leaves; empty for other servers.
#[derive(Clone, Default)]
pub struct TierReport(Option<Arc<dyn Fn() -> TierStatistics + Send + Sync>>);

impl TierReport {
    /// Creates a report that calls `read` for each query.
    pub fn new(read: impl Fn() -> TierStatistics + Send + Sync + 'static) -> Self {
        TierReport(Some(Arc::new(read)))
    }

    pub(crate) fn read(&self) -> Option<TierStatistics> {
        self.0.as_ref().map(|read| read())
    }
}

impl fmt::Debug for TierReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TierReport").field(&self.0.is_some()).finish()
    }
}

/// Description of a server's service: a tier rejects leaves that do not match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceInfo {
    /// The service's name.
    pub service: Option<String>,
    /// The server's part of the data, from 1, and the number of parts.
    pub part: Option<(u32, u32)>,
    /// Name of the data.
    pub data: Option<String>,
    /// The admission controller.
    pub admission: Option<String>,
}

/// Statistics of the locks of one name and kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockStatistics {
    /// The locks' name.
    pub name: String,
    /// Kind of these locks: `mutex`, `rwlock`, `condvar`, `semaphore`, `channel`.
    pub kind: String,
    /// Acquisitions, with or without waiting.
    pub acquired: u64,
    /// Acquisitions that waited.
    pub contended: u64,
    /// Acquisitions rejected because the request's budget would not have lasted.
    pub refused: u64,
    /// Acquisitions given up while waiting.
    pub cancelled: u64,
    /// Sum of all waits.
    pub waited_ns: u64,
    /// Median of the waits; up to twice too much.
    pub p50_ns: u64,
    /// 99th percentile of the waits; up to twice too much.
    pub p99_ns: u64,
    /// The longest wait.
    pub longest_ns: u64,
}

impl Statistics {
    /// Parses a server's JSON.
    ///
    /// # Errors
    /// The bytes are no such JSON.
    pub fn parse(answer: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(answer)
    }

    /// Formats the statistics as a server sends them.
    pub fn to_json(&self) -> String {
        // Serialization can't fail: no maps with odd keys, and numbers that JSON lacks become null.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Rejected calls, for any reason.
    pub fn rejected(&self) -> u64 {
        self.drops.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// Statistics of the process's locks.
pub(crate) fn locks() -> Vec<LockStatistics> {
    let statistics = |lock: &leeward_runtime::locks::LockStats| LockStatistics {
        name: lock.name.chars().take(LONGEST_NAME).collect(),
        kind: lock.kind.name().into(),
        acquired: lock.acquired,
        contended: lock.contended,
        refused: lock.refused,
        cancelled: lock.cancelled,
        waited_ns: lock.waited.0,
        p50_ns: lock.quantile(0.5).0,
        p99_ns: lock.quantile(0.99).0,
        longest_ns: lock.longest.0,
    };
    leeward_runtime::locks::stats().iter().take(LOCKS).map(statistics).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_compatible_between_versions() {
        let lock = LockStatistics { name: "a \"name\"".into(), waited_ns: 7, ..LockStatistics::default() };
        let drops = BTreeMap::from([("Delay".to_string(), 3), ("Lock".to_string(), 4)]);
        let sent = Statistics { received: 9, drops, credit_pool: Some(-1), locks: vec![lock], ..Statistics::default() };
        assert_eq!(Statistics::parse(sent.to_json().as_bytes()).unwrap(), sent);
        assert_eq!(sent.rejected(), 7);
        let part = br#"{"about": {"service": "a-leaf", "part": [2, 4], "colour": "red"}}"#;
        let about = ServiceInfo { service: Some("a-leaf".into()), part: Some((2, 4)), ..ServiceInfo::default() };
        assert_eq!(Statistics::parse(part).unwrap().about, about);
        let other = Statistics::parse(br#"{"received": 5, "moons": [1]}"#).unwrap();
        assert_eq!(other, Statistics { received: 5, ..Statistics::default() });
        assert!(Statistics::parse(b"hello").is_err());
    }
}
