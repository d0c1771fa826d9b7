//! Description of a tier: a server that asks leaves, its threads' costs and its threading. Plain data; the numbers of a known machine
//! are in [`super::presets`].

use super::wakes::WakeTable;
use leeward_core::params::Params;
use leeward_core::units::{Nanos, Rate};
use leeward_threading::curves::Curves;
use leeward_threading::{Fanout, Handling, Setup, ThreadingSetup, Wait};
use leeward_workload::service_time::ServiceTime;
use std::sync::Arc;

/// A server between clients and leaves (µTune §2): CPUs, costs, leaves and threading. A request computes (the run's `workload.service`),
/// asks leaves, computes again and is answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Tier {
    /// CPUs of the server.
    pub cpus: u32,
    /// Costs of threads and messages on them.
    pub costs: ThreadCosts,
    /// CPU time of a request after its last reply.
    pub resume: Nanos,
    /// Leaves.
    pub leaves: Leaves,
    /// How a thread of a sync setup asks several leaves.
    pub gather: Gather,
    /// Whether the threads that receive from clients share one set of connections.
    pub front: Sharing,
    /// Whether the response threads share one set of connections.
    pub links: Sharing,
    /// The setup; where a policy chooses it, that of a policy without curves of its own to begin with.
    pub threading: ThreadingSetup,
    /// The policy that chooses setups; `None`: nobody does.
    pub policy: Option<PolicyModel>,
}

/// A policy of threading.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyModel {
    /// Its name in [`leeward_threading::registry`].
    pub name: String,
    /// Its parameters.
    pub params: Params,
    /// Curves that it chooses by.
    pub curves: Option<Arc<Curves>>,
}

/// The servers that a tier asks.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaves {
    /// How many.
    pub count: u16,
    /// Which of them a request asks.
    pub selection: LeafSelection,
    /// Time of a call at a leaf.
    pub service: ServiceTime,
    /// Calls that a leaf executes at once; others wait in the order in which they came.
    pub servers: u16,
    /// Time of a call besides the service.
    pub per_call: Nanos,
    /// Time of a call on the one CPU that all leaves have in common, before its service; zero where each has enough of its own.
    pub host_call: Nanos,
    /// Round trip to a leaf.
    pub rtt: Nanos,
    /// Answers that are late or do not come, and what is made of that.
    pub tails: TailModel,
}

/// Late answers of leaves, and the means against them (Dean and Barroso, The Tail at Scale, 2013).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TailModel {
    /// Leaves that have the same part of the data: the first `count / copies` leaves have all parts, the next ones have them again.
    pub copies: u16,
    /// Whether a call is made again at another copy.
    pub second_calls: SecondCalls,
    /// A leaf whose answers are late now and then.
    pub slow: Option<SlowLeaf>,
    /// A leaf drops a call that would wait longer for it; `None`: it drops none.
    pub reject_after: Option<Nanos>,
}

impl Default for TailModel {
    fn default() -> Self {
        TailModel { copies: 1, second_calls: SecondCalls::Never, slow: None, reject_after: None }
    }
}

/// Whether a call is made again at another copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecondCalls {
    /// Every call is made once.
    #[default]
    Never,
    /// A call that takes long or was dropped is made again within the budgets of [`leeward_core::hedging`].
    Budgeted,
}

/// A leaf whose answers are late now and then. It goes on with other calls meanwhile: being late costs none of its capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowLeaf {
    /// Its number, from 0.
    pub leaf: u16,
    /// Share of its answers that are late, 0..=1.
    pub share: f64,
    /// Delay of these.
    pub delay: Nanos,
}

/// Leaves that a request asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LeafSelection {
    /// All of them.
    All,
    /// Leaves that have its key: consecutive leaves from a random one on (µTune's Router).
    Hash {
        /// Leaves that have a key.
        replicas: u16,
        /// Share of requests that ask all replicas, 0..=1; others ask the one of the first two with fewer calls out.
        writes: f64,
    },
}

/// How a thread of a sync setup asks several leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gather {
    /// The thread has a connection to each leaf, writes all calls and waits for all of them.
    #[default]
    Own,
    /// A helper thread per call (µTune §4).
    ForkJoin,
}

/// Whether threads of one duty share their connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Each has some of them.
    #[default]
    Sharded,
    /// All wait on one set, behind one lock.
    Shared,
}

/// CPU times and delays of threads. A share that is no span is in thousandths, so that every cost is an integer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadCosts {
    /// CPU time of who wakes a thread.
    pub wake_call: Nanos,
    /// Time from that call to the woken thread's first instruction, on a CPU that is idle.
    pub wake: WakeTable,
    /// CPU time of a change from one thread to another on a busy CPU.
    pub switch: Nanos,
    /// How long a thread runs beside others that wait for its CPU.
    pub slice: Nanos,
    /// How long a thread runs at least before one that was woken takes its CPU.
    pub preempt: Nanos,
    /// A look at a set of connections.
    pub poll: Nanos,
    /// Receiving a message, besides the look.
    pub receive: Nanos,
    /// Sending a message.
    pub send: Nanos,
    /// Thousandths of `receive` and `send` during which the connections' lock is held.
    pub locked_permille: u32,
    /// Pushing to the dispatch queue, or popping from it, under its lock.
    pub push_pop: Nanos,
    /// Way of a contended cache line to another CPU.
    pub cache_line: Nanos,
    /// Extra time of a thread that gets a CPU on which another has run for [`ThreadCosts::COLD_AFTER`].
    pub cold_cache: Nanos,
    /// Recording an arrival, where a policy decides.
    pub record: Nanos,
    /// A decision of a policy.
    pub decide: Nanos,
}

impl ThreadCosts {
    /// A thread that has run so long leaves the caches cold for the next one.
    pub const COLD_AFTER: Nanos = Nanos::from_micros(20);

    /// Nothing costs anything: for comparison with queueing theory.
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

    /// The part of `span` under the lock, and the rest.
    pub(super) fn split(&self, span: Nanos) -> (Nanos, Nanos) {
        let locked = Nanos(span.0.saturating_mul(u64::from(self.locked_permille.min(1_000))) / 1_000);
        (locked, span.saturating_sub(locked))
    }
}

impl Leaves {
    /// Parts that the data has.
    pub fn parts(&self) -> u16 {
        self.count / self.tails.copies.max(1)
    }

    /// Calls of a request at most.
    pub fn max_calls(&self) -> u16 {
        match self.selection {
            LeafSelection::All => self.parts(),
            LeafSelection::Hash { replicas, .. } => replicas,
        }
    }

    /// Calls of a request on average.
    pub fn mean_calls(&self) -> f64 {
        match self.selection {
            LeafSelection::All => f64::from(self.parts()),
            LeafSelection::Hash { replicas, writes } => writes * f64::from(replicas) + (1.0 - writes),
        }
    }
}

/// Setup that stands for one that is none, which no run begins with.
const ONE_THREAD: Setup =
    Setup { fanout: Fanout::Sync, handling: Handling::InLine, wait: Wait::Block, network: 1, worker: 0, response: 0 };

impl Tier {
    /// The setup, if the simulator has it.
    fn setup_checked(&self) -> Result<Setup, String> {
        let Some(setup) = self.threading.setup() else {
            return Err(format!(
                "{} is measured, not simulated; accepted: --plant real, or one of the eight models",
                self.threading
            ));
        };
        setup.validate().map_err(|fault| fault.to_string())
    }

    /// The setup of a tier that was checked.
    pub(super) fn setup(&self) -> Setup {
        self.setup_checked().unwrap_or(ONE_THREAD)
    }

    /// Requests per second that CPUs and leaves can serve if threads cost nothing but their messages.
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

    /// The first thing that is impossible, in words.
    ///
    /// # Errors
    /// That thing.
    pub fn check(&self) -> Result<(), String> {
        let leaves = &self.leaves;
        let ask_is_possible = match leaves.selection {
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
        let heeds_calls = second_calls == SecondCalls::Budgeted || drops_after.is_some();
        let rules = [
            ((1..=128).contains(&self.cpus), "a tier has 1 to 128 CPUs"),
            ((1..=64).contains(&leaves.count), "a tier has 1 to 64 leaves"),
            ((1..=1_024).contains(&leaves.servers), "a leaf executes 1 to 1,024 calls at once"),
            (
                ask_is_possible,
                "a key has from one replica to as many as there are leaves, and a share of writes from 0 to 1",
            ),
            (spans.iter().all(|span| *span <= second), "a cost of threads is a second at most"),
            (costs.slice > Nanos::ZERO, "a slice is longer than nothing"),
            (costs.locked_permille <= 1_000, "the lock is held for at most the whole of a message"),
            (copies_fit, "copies divide the leaves, of which a request asks all parts"),
            (
                second_calls == SecondCalls::Never || copies > 1,
                "a second call goes to another copy, so that there are two at least",
            ),
            (slow_is_possible, "the slow leaf is one of the leaves, late in a share from 0 to 1, by a second at most"),
            (drops_after.is_none_or(|span| span <= second), "a leaf drops calls that wait for a second at most"),
            (
                !heeds_calls || self.gather == Gather::Own,
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
