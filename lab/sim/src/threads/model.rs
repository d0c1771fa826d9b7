//! Description of a tier: a server that calls leaves, its threads' costs, and its threading setup.
//! Plain data; the numbers of known machines are in [`super::presets`].

use super::wakes::WakeTable;
use leeward_core::params::Params;
use leeward_core::units::{Nanos, Rate};
use leeward_threading::curves::Curves;
use leeward_threading::{Fanout, Handling, Setup, ThreadingSetup, Wait};
use leeward_workload::service_time::ServiceTime;
use std::sync::Arc;

/// A server between clients and leaves (µTune §2): CPUs, costs, leaves and threading.
///
/// A request computes (the run's `workload.service`), calls leaves, computes again and is answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Tier {
    /// CPUs of the server.
    pub cpus: u32,
    /// Costs of threads and messages.
    pub costs: ThreadCosts,
    /// CPU time of a request after its last reply.
    pub resume: Nanos,
    /// Leaves.
    pub leaves: Leaves,
    /// How a thread of a sync setup calls several leaves.
    pub gather: Gather,
    /// Whether the threads that receive from clients share one set of connections.
    pub front: Sharing,
    /// Whether the response threads share one set of connections.
    pub links: Sharing,
    /// The setup; with a policy, the initial setup of a policy without curves.
    pub threading: ThreadingSetup,
    /// Policy that chooses setups; `None`: the setup is fixed.
    pub policy: Option<PolicyModel>,
}

/// A threading policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyModel {
    /// Name in [`leeward_threading::registry`].
    pub name: String,
    /// Parameters of the policy.
    pub params: Params,
    /// Curves by which the policy chooses.
    pub curves: Option<Arc<Curves>>,
}

/// The servers that a tier calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaves {
    /// Number of leaves.
    pub count: u16,
    /// Leaves that a request calls.
    pub selection: LeafSelection,
    /// Service time of a call at a leaf.
    pub service: ServiceTime,
    /// Number of calls that a leaf executes at once; others wait in order of arrival.
    pub servers: u16,
    /// Time of a call besides the service time.
    pub per_call: Nanos,
    /// Time of a call on the one CPU shared by all leaves, before its service; zero if each leaf
    /// has its own CPUs.
    pub host_call: Nanos,
    /// Round trip to a leaf.
    pub rtt: Nanos,
    /// Late and rejected replies, and the response to them.
    pub tails: TailModel,
}

/// Late replies of leaves, and the means against them (Dean and Barroso, The Tail at Scale, 2013).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TailModel {
    /// Number of leaves with the same part of the data: the first `count / copies` leaves have all
    /// parts, the next ones repeat them.
    pub copies: u16,
    /// Whether a call gets a second attempt at another copy.
    pub second_calls: SecondCalls,
    /// A leaf whose replies are sometimes late.
    pub slow: Option<SlowLeaf>,
    /// Maximum wait at a leaf, which rejects a call that would wait longer; `None`: it rejects
    /// none.
    pub reject_after: Option<Nanos>,
}

impl Default for TailModel {
    fn default() -> Self {
        TailModel { copies: 1, second_calls: SecondCalls::Never, slow: None, reject_after: None }
    }
}

/// Whether a call gets a second attempt at another copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecondCalls {
    /// One attempt per call.
    #[default]
    Never,
    /// A slow or rejected call gets a second attempt, within the budgets of
    /// [`leeward_core::hedging`].
    Budgeted,
}

/// A leaf whose replies are sometimes late. It serves other calls meanwhile: the delay costs none
/// of its capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowLeaf {
    /// Number of the leaf, from 0.
    pub leaf: u16,
    /// Share of late replies, 0..=1.
    pub share: f64,
    /// Delay of a late reply.
    pub delay: Nanos,
}

/// Leaves that a request calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LeafSelection {
    /// All of them.
    All,
    /// Leaves with the request's key: consecutive leaves from a random one on (µTune's Router).
    Hash {
        /// Number of leaves per key.
        replicas: u16,
        /// Share of requests that call all replicas, 0..=1. Other requests call one of the first
        /// two, the one with fewer unfinished calls.
        writes: f64,
    },
}

/// How a thread of a sync setup calls several leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gather {
    /// The thread has a connection to each leaf, sends all calls and waits for all replies.
    #[default]
    Own,
    /// A helper thread per call (µTune §4).
    ForkJoin,
}

/// Whether threads of one role share their connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Each thread has a part of the connections.
    #[default]
    Sharded,
    /// All threads wait on one set, with one lock.
    Shared,
}

/// CPU times and delays of threads. Shares are in thousandths, so that every cost is an integer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadCosts {
    /// CPU time of waking a thread, for the waker.
    pub wake_call: Nanos,
    /// Time from the waker's call to the woken thread's first instruction, on an idle CPU.
    pub wake: WakeTable,
    /// CPU time of a switch between threads on a busy CPU.
    pub switch: Nanos,
    /// Time that a thread runs while others wait for its CPU.
    pub slice: Nanos,
    /// Minimum time that a thread runs before a woken thread takes its CPU.
    pub preempt: Nanos,
    /// One poll of a set of connections.
    pub poll: Nanos,
    /// Receiving a message, without the poll.
    pub receive: Nanos,
    /// Sending a message.
    pub send: Nanos,
    /// Thousandths of `receive` and `send` with the connections' lock held.
    pub locked_permille: u32,
    /// One push to the dispatch queue or pop from it, under its lock.
    pub push_pop: Nanos,
    /// Transfer of a contended cache line to another CPU.
    pub cache_line: Nanos,
    /// Extra time of a thread on a CPU where another has run for [`ThreadCosts::COLD_AFTER`].
    pub cold_cache: Nanos,
    /// Recording an arrival for a policy.
    pub record: Nanos,
    /// One decision of a policy.
    pub decide: Nanos,
}

impl ThreadCosts {
    /// Time on a CPU after which a thread leaves cold caches for the next one.
    pub const COLD_AFTER: Nanos = Nanos::from_micros(20);

    /// No costs, for comparison with queueing theory.
    pub fn free() -> Self {
        let none = Nanos::ZERO;
        ThreadCosts {
            wake_call: none,
            wake: WakeTable::constant(none),
            switch: none,
            slice: Nanos::from_millis(3),
            preempt: none,
            poll: none,
            receive: none,
            send: none,
            locked_permille: 0,
            push_pop: none,
            cache_line: none,
            cold_cache: none,
            record: none,
            decide: none,
        }
    }

    /// Splits `span` into the part under the lock and the rest.
    pub(super) fn split(&self, span: Nanos) -> (Nanos, Nanos) {
        let locked = Nanos(span.0.saturating_mul(u64::from(self.locked_permille.min(1_000))) / 1_000);
        (locked, span.saturating_sub(locked))
    }
}

impl Leaves {
    /// Number of parts of the data.
    pub fn parts(&self) -> u16 {
        self.count / self.tails.copies.max(1)
    }

    /// Maximum number of calls per request.
    pub fn max_calls(&self) -> u16 {
        match self.selection {
            LeafSelection::All => self.parts(),
            LeafSelection::Hash { replicas, .. } => replicas,
        }
    }

    /// Mean number of calls per request.
    pub fn mean_calls(&self) -> f64 {
        match self.selection {
            LeafSelection::All => f64::from(self.parts()),
            LeafSelection::Hash { replicas, writes } => writes * f64::from(replicas) + (1.0 - writes),
        }
    }
}

/// Placeholder for an invalid setup; no run begins with it.
const ONE_THREAD: Setup =
    Setup { fanout: Fanout::Sync, handling: Handling::InLine, wait: Wait::Block, network: 1, worker: 0, response: 0 };

impl Tier {
    /// The setup, if the simulator supports it.
    fn setup_checked(&self) -> Result<Setup, String> {
        let Some(setup) = self.threading.setup() else {
            return Err(format!(
                "{} is measured, not simulated; accepted: --plant real, or one of the eight models",
                self.threading
            ));
        };
        setup.validate().map_err(|fault| fault.to_string())
    }

    /// The setup of a validated tier.
    pub(super) fn setup(&self) -> Setup {
        self.setup_checked().unwrap_or(ONE_THREAD)
    }

    /// Requests per second that CPUs and leaves could serve if threads cost nothing but their
    /// messages.
    pub fn capacity(&self, begin: Nanos) -> Rate {
        let messages = (self.costs.receive + self.costs.send).as_secs_f64() * (1.0 + self.leaves.mean_calls());
        let busy = (begin + self.resume).as_secs_f64() + messages;
        let own = f64::from(self.cpus) / busy.max(1e-9);
        let call = (self.leaves.service.mean() + self.leaves.per_call).as_secs_f64().max(1e-9);
        let own_cpus = f64::from(self.leaves.servers) * f64::from(self.leaves.count) / call;
        let calls = match self.leaves.host_call {
            Nanos::ZERO => own_cpus,
            host => own_cpus.min(1.0 / host.as_secs_f64()),
        };
        Rate(own.min(calls / self.leaves.mean_calls().max(1e-9)))
    }

    /// Checks the tier.
    ///
    /// # Errors
    /// The first rule that the tier violates, as text.
    pub fn check(&self) -> Result<(), String> {
        let leaves = &self.leaves;
        let selection_is_possible = match leaves.selection {
            LeafSelection::All => true,
            LeafSelection::Hash { replicas, writes } => {
                (1..=leaves.count).contains(&replicas) && (0.0..=1.0).contains(&writes)
            }
        };
        let second = Nanos::from_secs(1);
        let costs = &self.costs;
        let spans = [
            costs.wake_call,
            costs.switch,
            costs.slice,
            costs.preempt,
            costs.poll,
            costs.receive,
            costs.send,
            costs.push_pop,
            costs.cache_line,
            costs.cold_cache,
            costs.record,
            costs.decide,
            self.resume,
            leaves.per_call,
            leaves.host_call,
            leaves.rtt,
        ];
        let TailModel { copies, second_calls, slow, reject_after: drops_after } = leaves.tails;
        let copies_fit = copies >= 1
            && leaves.count.is_multiple_of(copies)
            && (copies == 1 || leaves.selection == LeafSelection::All);
        let slow_is_possible = slow
            .is_none_or(|slow| slow.leaf < leaves.count && (0.0..=1.0).contains(&slow.share) && slow.delay <= second);
        let needs_own_connections = second_calls == SecondCalls::Budgeted || drops_after.is_some();
        let rules = [
            ((1..=128).contains(&self.cpus), "a tier has 1 to 128 CPUs"),
            ((1..=64).contains(&leaves.count), "a tier has 1 to 64 leaves"),
            ((1..=1_024).contains(&leaves.servers), "a leaf executes 1 to 1,024 calls at once"),
            (
                selection_is_possible,
                "a key has from one replica to as many as there are leaves, and a share of writes from 0 to 1",
            ),
            (spans.iter().all(|span| *span <= second), "a cost of threads is a second at most"),
            (costs.slice > Nanos::ZERO, "a time slice is longer than zero"),
            (costs.locked_permille <= 1_000, "the lock is held for at most the whole of a message"),
            (copies_fit, "copies divide the leaves, of which a request asks all parts"),
            (
                second_calls == SecondCalls::Never || copies > 1,
                "a second call goes to another copy, so it needs at least two copies",
            ),
            (slow_is_possible, "the slow leaf is one of the leaves, late in a share from 0 to 1, by a second at most"),
            (drops_after.is_none_or(|span| span <= second), "a leaf drops calls that wait for a second at most"),
            (
                !needs_own_connections || self.gather == Gather::Own,
                "a helper has one call and no other: second calls and drops need `own` connections",
            ),
        ];
        self.setup_checked()?;
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err((*rule).into()),
            None => Ok(()),
        }
    }
}
