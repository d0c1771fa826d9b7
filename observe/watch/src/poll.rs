//! What one poll saw of a listener and its processes. Plain data.

use std::time::Duration;

use leeward_sockdiag::AgeBounds;

/// What one poll saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Poll {
    /// Time of the poll, from the observer's start.
    pub at: Duration,
    /// The listener's connections.
    pub front: FrontPoll,
    /// Processes that listen.
    pub processes: ProcessPoll,
    /// Backends that owe the processes an answer.
    pub backends: Vec<BackendPoll>,
    /// Name server that owes the processes an answer.
    pub name_server: Option<String>,
}

/// Connections of a listener.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrontPoll {
    /// Open connections, including those that nobody has accepted.
    pub connections: u32,
    /// Connections with unread bytes.
    pub unread: u32,
    /// Of these, connections that a program has accepted.
    pub unread_accepted: u32,
    /// Age of the oldest unread byte.
    pub oldest_unread: Option<AgeBounds>,
    /// Connections whose request has been read and not been answered.
    pub inside: u32,
    /// Time for which the oldest of these has been inside.
    pub oldest_inside: Option<Duration>,
    /// Connections that nobody has accepted.
    pub accept_queue: u32,
    /// Longest accept queue.
    pub accept_limit: u32,
    /// Connections that the kernel dropped since the last poll, because the queue was full.
    pub dropped: u32,
    /// Connections whose peer does not read the response.
    pub slow_readers: u32,
    /// Bytes that the processes have read since the last poll.
    pub bytes_read: u64,
    /// Requests that have come since the last poll: segments with data.
    pub arrivals: u64,
    /// Responses since the last poll.
    pub responses: u64,
    /// Segments sent again since the last poll.
    pub retransmitted: u64,
    /// Whether the listener is a Unix socket. Of its connections, the kernel tells neither times
    /// nor what has passed, and it lists only accepted ones.
    pub is_unix: bool,
}

/// Processes that listen, together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessPoll {
    /// Processes that could be looked into.
    pub visible: u32,
    /// Numbers of those that are stopped, by a signal, a debugger or a frozen cgroup.
    pub stopped: Vec<u32>,
    /// Whether a request waits for one of these: on a connection that it has accepted, or to be
    /// accepted by it alone.
    pub waits_for_stopped: bool,
    /// CPU time since the last poll.
    pub cpu: Duration,
    /// States of the sampled threads, scaled to all threads.
    pub threads: ThreadCounts,
    /// Scheduling of all threads; about once a second.
    pub scheduling: Option<Scheduling>,
}

/// How threads ran and waited for CPUs since the last count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scheduling {
    /// Time since the last count.
    pub span: Duration,
    /// Time for which threads ran, summed.
    pub ran: Duration,
    /// Time for which threads waited for a CPU, summed.
    pub waited: Duration,
    /// Part of `ran` of threads that came and went between two counts, which tell nothing else.
    pub uncounted: Duration,
    /// The thread that ran and waited longest.
    pub busiest: Option<BusyThread>,
    /// Time for which threads of garbage collectors ran, told by their names.
    pub collector: Duration,
    /// Periods of the CPU quota, and those in which the processes were throttled.
    pub quota_periods: u64,
    /// Periods in which the processes were throttled.
    pub throttled_periods: u64,
    /// Time for which the processes were throttled, summed over CPUs.
    pub throttled: Duration,
    /// CPUs that the quota allows.
    pub quota_cpus: Option<f64>,
    /// CPUs that the processes may use.
    pub allowed_cpus: f64,
    /// Threads that waited, at the last count, at the futex with most waiters.
    pub waiters: u64,
    /// Of these, threads that have not run since.
    pub still_waiters: u64,
    /// CPUs' worth of time in which this machine's CPUs were idle.
    pub idle_cpus: f64,
    /// Whether a process has as many descriptors open as it may.
    pub is_out_of_descriptors: bool,
    /// Whether the runtime runs one thread at a time, as Python's and Ruby's interpreters do.
    pub runs_one_thread: bool,
}

/// A thread that ran much.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BusyThread {
    /// Name.
    pub name: String,
    /// Time for which it ran.
    pub ran: Duration,
    /// Time for which it waited for a CPU.
    pub waited: Duration,
}

/// Threads by what they wait for. Counts are scaled where not every thread was sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadCounts {
    /// All threads.
    pub all: f64,
    /// Running, or waiting for a CPU.
    pub runnable: f64,
    /// Waiting for a disk: uninterruptible sleep, or a system call on a file.
    pub disk: f64,
    /// Waiting for a mutex.
    pub mutex: f64,
    /// Waiting at the futex with most waiters, of any kind: a lock, or an idle thread pool.
    pub same_futex: f64,
    /// Waiting for a backend, in a system call on its connection.
    pub backend: f64,
    /// Waiting for the next request of a client, in a system call on its connection.
    pub client: f64,
    /// Waiting for a name server.
    pub name_server: f64,
    /// Sleeping for a time.
    pub sleep: f64,
}

/// A backend that owes an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendPoll {
    /// Address.
    pub address: String,
    /// Connections on which it owes an answer.
    pub waiting: u32,
    /// Time since the last request, on the connection that waits longest.
    pub oldest: Duration,
    /// Of these, connections that it has not accepted.
    pub connecting: u32,
}
