//! Counters of requests: each core writes its own without contention; sums are for the controller and for people.

use crate::control_ticker::RequestTotals;
use leeward_core::units::Nanos;
use leeward_observe::{Answer, LatencyCounts, LatencyHistogram};
use leeward_wire::RejectCode;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Declares the per-core counters, their sum, and the sum's differences from one list of names.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Requests so far, and the work that they made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct RequestCounts {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl RequestCounts {
            /// RequestCounts since `earlier`. Connections are those of now.
            pub fn since(&self, earlier: &RequestCounts) -> RequestCounts {
                let since = RequestCounts { $($name: self.$name.saturating_sub(earlier.$name),)+ };
                RequestCounts { connections: self.connections, ..since }
            }
        }

        /// Counters of a core. Only that core writes them; any thread may read.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)+
            /// Answered with a result within the objective.
            pub in_time: AtomicU64,
            /// Latencies of the results.
            latencies: LatencyHistogram,
            /// Dropped, by the reason's place in [`RejectCode::ALL`].
            rejected_for: [AtomicU64; RejectCode::ALL.len()],
        }

        impl Counters {
            fn add_to(&self, sum: &mut RequestCounts) {
                $(sum.$name = sum.$name.wrapping_add(self.$name.load(Ordering::Relaxed));)+
            }
        }
    };
}

counters! {
    /// Received.
    received,
    /// Answered with a result or a failure.
    completed,
    /// Answers with a failure, of all that completed.
    failed,
    /// Rejected, for whatever reason.
    rejected,
    /// Rejected because the client sent them without credit. The controller never hears of them.
    without_credit,
    /// Rejected because a lock would not come in time.
    rejected_by_lock,
    /// Unanswered because their connection ended first.
    abandoned,
    /// Connections that are open.
    connections,
    /// Connections so far.
    accepted,
    /// Explicit credit messages that were sent.
    credits,
    /// Explicit demand messages that were received.
    demands,
    /// Writes to sockets.
    writes,
    /// Time spent in writes, ns.
    writing_ns,
    /// Time spent looking at sockets, reading, decoding and deciding, ns, where there was anything to read.
    reading_ns,
    /// Bytes read.
    bytes_read,
    /// Bytes written.
    bytes_written,
    /// Datagrams that the kernel dropped for want of room.
    overflowed,
    /// Datagrams that were sent again.
    retransmitted,
    /// Calls and words that came again.
    duplicates,
}

/// Adds to a counter that only this thread writes.
pub fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

impl Counters {
    /// RequestCounts a request that is dropped.
    pub fn reject(&self, reason: RejectCode) {
        add(&self.rejected, 1);
        if reason == RejectCode::Lock {
            add(&self.rejected_by_lock, 1);
        }
        if let Some(place) = RejectCode::ALL.iter().position(|one| *one == reason) {
            add(&self.rejected_for[place], 1);
        }
    }

    /// RequestCounts a request that was executed, and answered `sojourn` after it came.
    pub fn complete(&self, answer: Answer, sojourn: Nanos) {
        add(&self.completed, 1);
        if answer != Answer::Failed {
            self.latencies.record(sojourn);
        }
        match answer {
            Answer::InTime => add(&self.in_time, 1),
            Answer::Failed => add(&self.failed, 1),
            Answer::Late => {}
        }
    }

    /// The counts of all `cores` together.
    pub fn sum(cores: &[Counters]) -> RequestCounts {
        let mut sum = RequestCounts::default();
        cores.iter().for_each(|core| core.add_to(&mut sum));
        sum
    }

    /// Requests of all `cores` that were answered with a result within the objective.
    pub fn in_time(cores: &[Counters]) -> u64 {
        cores.iter().map(|core| core.in_time.load(Ordering::Relaxed)).sum()
    }

    /// Latencies of the results of all `cores`.
    pub fn latencies(cores: &[Counters]) -> LatencyCounts {
        let mut sum = LatencyCounts::default();
        cores.iter().for_each(|core| core.latencies.add_to(&mut sum));
        sum
    }

    /// Drops of all `cores` for the reason at this place of [`RejectCode::ALL`].
    pub fn rejected_for(cores: &[Counters], place: usize) -> u64 {
        cores.iter().filter_map(|core| core.rejected_for.get(place)).map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Drops of all `cores` by the names of their reasons, those that there were.
    pub fn rejections(cores: &[Counters]) -> BTreeMap<String, u64> {
        let count = |place| Counters::rejected_for(cores, place);
        let named = RejectCode::ALL.iter().enumerate().map(|(place, reason)| (format!("{reason:?}"), count(place)));
        named.filter(|(_, count)| *count > 0).collect()
    }
}

impl RequestCounts {
    /// Load for the controller. Requests refused for want of credit are left out: the controller could do nothing about
    /// them.
    pub fn load(&self) -> RequestTotals {
        let refused = self.without_credit;
        RequestTotals {
            arrivals: self.received.saturating_sub(refused),
            completions: self.completed,
            rejections: self.rejected.saturating_sub(refused),
            lock_rejections: self.rejected_by_lock,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn counts_are_sums_over_cores_and_differences_over_time() {
        let cores = [Counters::default(), Counters::default()];
        add(&cores[0].received, 3);
        add(&cores[1].received, 4);
        add(&cores[0].connections, 1);
        add(&cores[1].connections, 1u64.wrapping_neg());
        cores[1].reject(RejectCode::Lock);
        cores[0].reject(RejectCode::NoCredit);
        add(&cores[0].without_credit, 1);
        cores[0].complete(Answer::InTime, Nanos(7_000));
        cores[1].complete(Answer::Late, Nanos(9_000));
        cores[1].complete(Answer::Failed, Nanos(1));
        let sum = Counters::sum(&cores);
        assert_eq!((sum.received, sum.connections, sum.rejected, sum.rejected_by_lock, sum.completed), (7, 0, 2, 1, 3));
        assert_eq!((Counters::in_time(&cores), sum.failed), (1, 1));
        let latencies = Counters::latencies(&cores);
        assert_eq!((latencies.count(), latencies.sum_ns), (2, 16_000), "a failure has no latency that counts");
        assert_eq!(
            Counters::rejections(&cores).into_iter().collect::<Vec<_>>(),
            [("Lock".into(), 1), ("NoCredit".into(), 1)]
        );
        assert_eq!(sum.load(), RequestTotals { arrivals: 6, completions: 3, rejections: 1, lock_rejections: 1 });
        let earlier = RequestCounts { received: 5, connections: 9, ..RequestCounts::default() };
        let since = RequestCounts { connections: 2, ..sum }.since(&earlier);
        assert_eq!((since.received, since.connections, since.completed), (2, 2, 3));
    }
}
