//! Request counters. Each core writes its own without contention; sums are for the controller and
//! for people.

use crate::control_ticker::RequestTotals;
use leeward_core::units::Nanos;
use leeward_observe::{Answer, DecisionReason, LatencyCounts, LatencyHistogram};
use leeward_wire::RejectCode;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Declares the per-core counters, their sum, and the sum's differences from one list of names.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Requests so far, and the work that they caused.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct RequestCounts {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl RequestCounts {
            /// Returns the counts since `earlier`. `connections` is the current number.
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
            /// Rejected, by the number of the reason.
            rejected_for: [AtomicU64; DecisionReason::ALL.len()],
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
    /// Completed requests whose response was a failure.
    failed,
    /// Rejected, for any reason.
    rejected,
    /// Rejected because the client sent them without credit. The controller never sees these.
    without_credit,
    /// Rejected because a lock would not be acquired in time.
    rejected_by_lock,
    /// Unanswered because their connection closed first.
    abandoned,
    /// Open connections.
    connections,
    /// Connections so far.
    accepted,
    /// Explicit credit messages sent.
    credits,
    /// Explicit demand messages received.
    demands,
    /// Writes to sockets.
    writes,
    /// Time spent in writes, ns.
    writing_ns,
    /// Time spent polling, reading, decoding and deciding, ns, in polls that had something to read.
    reading_ns,
    /// Bytes read.
    bytes_read,
    /// Bytes written.
    bytes_written,
    /// Datagrams that the kernel dropped for lack of buffer space.
    overflowed,
    /// Datagrams that were retransmitted.
    retransmitted,
    /// Duplicate calls and control messages.
    duplicates,
}

/// Reason of a rejection with this code, as far as the code tells: a tenant's share has none.
pub fn reason_of(code: RejectCode) -> DecisionReason {
    match code {
        RejectCode::Delay => DecisionReason::Delay,
        RejectCode::Priority => DecisionReason::Level,
        RejectCode::Concurrency => DecisionReason::Concurrency,
        RejectCode::Lock => DecisionReason::Lock,
        RejectCode::NoCredit => DecisionReason::Credit,
        RejectCode::ShuttingDown => DecisionReason::Stopping,
        RejectCode::Cancelled => DecisionReason::Cancelled,
        RejectCode::Other => DecisionReason::Other,
    }
}

/// Adds to a counter that only this thread writes.
pub fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

impl Counters {
    /// Counts a rejected request.
    pub fn reject(&self, reason: DecisionReason) {
        add(&self.rejected, 1);
        if reason == DecisionReason::Lock {
            add(&self.rejected_by_lock, 1);
        }
        add(&self.rejected_for[reason as usize], 1);
    }

    /// Counts a request that was executed, and answered `sojourn` after its arrival.
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

    /// Returns the sums over all `cores`.
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

    /// Rejections of all `cores` for this reason.
    pub fn rejected_for(cores: &[Counters], reason: DecisionReason) -> u64 {
        cores.iter().map(|core| core.rejected_for[reason as usize].load(Ordering::Relaxed)).sum()
    }

    /// Rejections of all `cores` by the name of the reject code, or of the reason if that has no
    /// code. Without zeros.
    pub fn rejections(cores: &[Counters]) -> BTreeMap<String, u64> {
        let name = |reason| match RejectCode::ALL.iter().find(|code| reason_of(**code) == reason) {
            Some(code) => format!("{code:?}"),
            None => format!("{reason:?}"),
        };
        let counted = DecisionReason::ALL.map(|reason| (reason, Counters::rejected_for(cores, reason)));
        counted.into_iter().filter(|(_, count)| *count > 0).map(|(reason, count)| (name(reason), count)).collect()
    }
}

impl RequestCounts {
    /// Load for the controller, without requests that were rejected for lack of credit. The
    /// controller could do nothing about those.
    pub fn load(&self) -> RequestTotals {
        let without_credit = self.without_credit;
        RequestTotals {
            arrivals: self.received.saturating_sub(without_credit),
            completions: self.completed,
            rejections: self.rejected.saturating_sub(without_credit),
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
        cores[1].reject(DecisionReason::Lock);
        cores[0].reject(DecisionReason::Credit);
        cores[0].reject(DecisionReason::Share);
        add(&cores[0].without_credit, 1);
        cores[0].complete(Answer::InTime, Nanos(7_000));
        cores[1].complete(Answer::Late, Nanos(9_000));
        cores[1].complete(Answer::Failed, Nanos(1));
        let sum = Counters::sum(&cores);
        assert_eq!((sum.received, sum.connections, sum.rejected, sum.rejected_by_lock, sum.completed), (7, 0, 3, 1, 3));
        assert_eq!((Counters::in_time(&cores), sum.failed), (1, 1));
        let latencies = Counters::latencies(&cores);
        assert_eq!((latencies.count(), latencies.sum_ns), (2, 16_000), "a failure has no latency that counts");
        assert_eq!(
            Counters::rejections(&cores).into_iter().collect::<Vec<_>>(),
            [("Lock".into(), 1), ("NoCredit".into(), 1), ("Share".into(), 1)]
        );
        assert_eq!(sum.load(), RequestTotals { arrivals: 6, completions: 3, rejections: 2, lock_rejections: 1 });
        let earlier = RequestCounts { received: 5, connections: 9, ..RequestCounts::default() };
        let since = RequestCounts { connections: 2, ..sum }.since(&earlier);
        assert_eq!((since.received, since.connections, since.completed), (2, 2, 3));
    }
}
