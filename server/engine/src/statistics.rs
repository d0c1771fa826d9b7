//! Statistics of a server: counters since its start, the controller's state, its locks. Told as JSON, in each
//! protocol's own way; `leeward top` shows it. What is measured and how often it is asked is not decided here.

use crate::encryption::HandshakeStatistics;
use leeward_observe::LatencyCounts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Locks that are told of: those that were waited for longest.
pub const LOCKS: usize = 100;

/// How long a lock's name may be, characters: what is longer is cut.
pub const LONGEST_NAME: usize = 100;

/// A server's state. Counters begin with the server; spans are nanoseconds. Servers of other versions may leave fields out,
/// which are zero then, or add some, which are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Statistics {
    /// Since the start.
    pub uptime_ns: u64,
    /// Threads that execute requests.
    pub cores: u64,
    /// Time in which the cores had nothing to do, those that an allocator has parked included, all together.
    pub idle_ns: u64,
    /// Calls that have come.
    pub received: u64,
    /// Answered with a result or a failure.
    pub completed: u64,
    /// Answers with a failure, of all that completed.
    pub failed: u64,
    /// Results of calls that the server had for no longer than the objective. The server does not know what became of
    /// them on their way.
    pub in_time: u64,
    /// The objective.
    pub slo_ns: u64,
    /// Latencies of results, from a call's arrival until its answer.
    pub latency: LatencyCounts,
    /// Rejected, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Neither, for their connection ended first.
    pub abandoned: u64,
    /// Calls that would have been refused, of a server whose controller rehearses; they were let in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreseen: Option<u64>,
    /// Connections that are open.
    pub connections: u64,
    /// Datagrams that the kernel dropped because the server did not take them in time.
    pub overflowed: u64,
    /// Datagrams that the server sent again.
    pub retransmitted: u64,
    /// Calls and words over datagrams that came again: their clients had missed the answer.
    pub duplicates: u64,
    /// How long the oldest message waits to be read.
    pub packet_delay_ns: u64,
    /// How long the oldest task waits for a core.
    pub run_delay_ns: u64,
    /// Credits that there are, with a controller that has some.
    pub credit_pool: Option<i64>,
    /// Credits that clients hold.
    pub credits_issued: Option<i64>,
    /// Requests that may be under way at once, with a controller that limits them.
    pub concurrency_limit: Option<f64>,
    /// The least importance that is admitted, with a controller that has a threshold.
    pub priority_threshold: Option<f64>,
    /// Description of what it serves.
    pub about: ServiceInfo,
    /// Handshakes of a server whose connections are encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<HandshakeStatistics>,
    /// Locks, those first that were waited for longest; all of the server's process.
    pub locks: Vec<LockStatistics>,
}

/// Description of what a server serves: a tier refuses leaves that are not the ones that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceInfo {
    /// The service's name.
    pub service: Option<String>,
    /// The part of the data that it has, from 1, and how many there are.
    pub part: Option<(u32, u32)>,
    /// The data that it has a part of.
    pub data: Option<String>,
    /// The admission controller.
    pub admission: Option<String>,
}

/// The locks of one name and kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockStatistics {
    /// Their name.
    pub name: String,
    /// Kind of these locks: `mutex`, `rwlock`, `condvar`, `semaphore`, `channel`.
    pub kind: String,
    /// Taken, with or without waiting.
    pub acquired: u64,
    /// Acquisitions that waited.
    pub contended: u64,
    /// Refused, for the request's budget would not have lasted.
    pub refused: u64,
    /// Given up while waiting.
    pub cancelled: u64,
    /// Sum of all waits.
    pub waited_ns: u64,
    /// The wait that half of those that waited did not exceed; up to twice too much.
    pub p50_ns: u64,
    /// The same for 99 of a hundred.
    pub p99_ns: u64,
    /// The longest wait.
    pub longest_ns: u64,
}

impl Statistics {
    /// From what a server has answered.
    ///
    /// # Errors
    /// It is not the JSON that it should be.
    pub fn parse(answer: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(answer)
    }

    /// As a server answers.
    pub fn to_json(&self) -> String {
        // Nothing in it can fail: no maps with odd keys, no numbers that JSON lacks (those become null).
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Rejected, for whatever reason.
    pub fn rejected(&self) -> u64 {
        self.drops.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// The process's locks as they are told.
pub(crate) fn locks() -> Vec<LockStatistics> {
    let told = |lock: &leeward_runtime::locks::LockStats| LockStatistics {
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
    leeward_runtime::locks::stats().iter().take(LOCKS).map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood_by_other_versions() {
        let lock = LockStatistics { name: "a \"name\"".into(), waited_ns: 7, ..LockStatistics::default() };
        let drops = BTreeMap::from([("Delay".to_string(), 3), ("Lock".to_string(), 4)]);
        let told = Statistics { received: 9, drops, credit_pool: Some(-1), locks: vec![lock], ..Statistics::default() };
        assert_eq!(Statistics::parse(told.to_json().as_bytes()).unwrap(), told);
        assert_eq!(told.rejected(), 7);
        let part = br#"{"about": {"service": "a-leaf", "part": [2, 4], "colour": "red"}}"#;
        let about = ServiceInfo { service: Some("a-leaf".into()), part: Some((2, 4)), ..ServiceInfo::default() };
        assert_eq!(Statistics::parse(part).unwrap().about, about);
        let other = Statistics::parse(br#"{"received": 5, "moons": [1]}"#).unwrap();
        assert_eq!(other, Statistics { received: 5, ..Statistics::default() });
        assert!(Statistics::parse(b"hello").is_err());
    }
}
