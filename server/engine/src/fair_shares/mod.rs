//! Fair shares of a core: how much of its time one connection, all idle clients, protocol
//! violations, new connections and handshakes may take. Pure: no socket, and time is an argument.
//!
//! A core counts the costs of its connections between two scans. A connection beyond its share is
//! paused: the core does not read it until the next scan. Does not contain the order of
//! connections, or the meaning of bytes.

mod time_quota;

#[cfg(all(test, not(loom)))]
mod tests;

use leeward_core::units::{Nanos, Time};
use time_quota::TimeQuota;

/// Maximum bytes of one read. More would delay other connections by dozens of requests.
const READ: usize = 64 * 1024;
/// Maximum bytes of a read after a quantum of messages without a request. The kernel has a packet
/// for each message: reading thousands of them at once took a tenth of a millisecond.
const READ_OF_MESSAGES: usize = 512;
/// A read of fewer bytes without a request is an idle read. It costs as much as a request.
const IDLE_READ: usize = 1024;
/// Messages that cost as much as one idle read: each is parsed, and many are answered.
const MESSAGES_OF_READ: u32 = 16;
/// Idle reads of all connections between two scans before connections are paused: a tenth of the
/// core's time.
const IDLE_READS: u32 = 1_000;
/// Minimum quota of idle reads per connection.
const IDLE_READS_OF_ONE: u32 = 4;
/// Minimum quota of a connection that has made a request since its last pause. Its next request may
/// arrive in as many pieces.
const PIECES: u32 = 16;
/// Protocol violations of all connections between two scans before connections are paused.
const VIOLATIONS: u32 = 1_000;
/// Protocol violations that end a connection's quantum.
const VIOLATIONS_PER_QUANTUM: u32 = 8;
/// Rejections for lack of memory that pause a connection.
const REFUSALS: u32 = 4;
/// Time after which a poll puts off idle clients, except the first, to the next poll. Otherwise 16
/// of them would cause a queueing delay for requests that arrive meanwhile.
const IDLE_CLIENTS_OF_POLL: Nanos = Nanos(20_000);
/// A core polls at least this often before it handles a connection's next request. Otherwise a
/// client that sends many requests at once would keep the core from reading others.
const POLL: Nanos = Nanos(20_000);
/// A core without a response for this long is quiet: a handshake delays nobody. A millisecond would
/// be too short. A thousand requests per second leave such gaps, and each request would find the
/// core busy with handshakes.
const QUIET: Nanos = Nanos::from_millis(5);

/// Counts of a core since its last scan.
#[derive(Debug)]
pub(crate) struct FairShares {
    quantum: usize,
    idle_reads: u32,
    /// Number of connections that have had idle reads.
    idle_clients: u32,
    violations: u32,
    /// Whether the current poll has read an idle client.
    has_read_idle: bool,
    /// Time of the last response.
    answered: Time,
    /// Time quota for connections that open and close.
    connecting: TimeQuota,
    handshaking: TimeQuota,
}

/// Counts of one connection.
#[derive(Debug)]
pub(crate) struct Share {
    idle_reads: u32,
    refusals: u32,
    is_paused: bool,
    /// Whether the connection is new, or has made a request since its last pause.
    has_asked: bool,
    /// Whether its last quantum brought messages and no request.
    sends_messages: bool,
}

/// Counts of one quantum of a connection.
#[derive(Debug, Default)]
pub(crate) struct QuantumCounts {
    /// Requests and messages, the incomplete one included.
    pub(crate) handled: usize,
    /// Messages that were no requests.
    pub(crate) messages: u32,
    /// Requests to which the client was not entitled.
    pub(crate) violations: u32,
    /// Whether a request was decided.
    pub(crate) decided: bool,
}

impl QuantumCounts {
    /// Counts a protocol violation. Returns whether it ends the quantum.
    #[inline]
    pub(crate) fn violate(&mut self) -> bool {
        self.violations += 1;
        self.violations == VIOLATIONS_PER_QUANTUM
    }
}

impl Share {
    /// Makes the share of a new connection.
    pub(crate) fn new() -> Self {
        Share { idle_reads: 0, refusals: 0, is_paused: false, has_asked: true, sends_messages: false }
    }

    /// Returns whether the connection is paused until the next scan.
    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Returns whether the connection's last quantum brought nothing to decide. A request that
    /// follows an idle read may wait for the next poll.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.idle_reads > 0
    }

    /// Maximum bytes of the connection's next read.
    #[inline]
    pub(crate) fn read_bytes(&self) -> usize {
        if self.sends_messages { READ_OF_MESSAGES } else { READ }
    }

    /// Counts a rejection for lack of memory.
    pub(crate) fn refuse(&mut self) {
        self.refusals += 1;
        self.is_paused |= self.refusals >= REFUSALS;
    }

    /// Resets the counts for a new scan. Returns whether the connection was paused. A paused idle
    /// client keeps one idle read before its next pause; without it, a request in pieces would
    /// never be complete.
    pub(crate) fn reset(&mut self) -> bool {
        self.refusals = 0;
        let was_idle = self.is_paused && self.idle_reads > 0;
        self.idle_reads = if was_idle { IDLE_READS_OF_ONE } else { self.idle_reads.min(1) };
        std::mem::take(&mut self.is_paused)
    }
}

impl FairShares {
    /// Makes the shares of a new core, which handles `quantum` requests per connection and quantum.
    pub(crate) fn new(quantum: usize) -> Self {
        FairShares {
            quantum,
            idle_reads: 0,
            idle_clients: 0,
            violations: 0,
            has_read_idle: false,
            answered: Time::ZERO,
            connecting: TimeQuota::connecting(),
            handshaking: TimeQuota::handshaking(),
        }
    }

    /// Requests of a connection that are handled before other connections.
    #[inline]
    pub(crate) fn quantum(&self) -> usize {
        self.quantum
    }

    /// Begins a poll.
    #[inline]
    pub(crate) fn begin_poll(&mut self) {
        self.has_read_idle = false;
    }

    /// Resets the counts for a new scan.
    pub(crate) fn reset(&mut self) {
        (self.idle_reads, self.idle_clients, self.violations) = (0, 0, 0);
    }

    // ---- quanta of connections ----

    /// Returns whether a poll that has taken [`IDLE_CLIENTS_OF_POLL`] puts this connection off to
    /// the next one. `elapsed` returns the time since the poll began; only the second idle client
    /// needs it.
    #[inline]
    pub(crate) fn is_put_off(&mut self, share: &Share, elapsed: impl FnOnce() -> Nanos) -> bool {
        share.is_idle() && std::mem::replace(&mut self.has_read_idle, true) && elapsed() > IDLE_CLIENTS_OF_POLL
    }

    /// Returns whether a connection's next request waits for a poll, given the time since the last
    /// one.
    #[inline]
    pub(crate) fn is_poll_due(since_poll: Nanos) -> bool {
        since_poll >= POLL
    }

    /// Counts a read of `bytes`, as an idle one if they are few. A request in them undoes that.
    #[inline]
    pub(crate) fn count_read(&mut self, share: &mut Share, bytes: usize) {
        if bytes < IDLE_READ {
            self.count_idle(share, 1);
        }
    }

    /// Counts messages without a request, or work of the same cost.
    #[inline]
    pub(crate) fn count_messages(&mut self, share: &mut Share, messages: u32) {
        self.count_idle(share, messages / MESSAGES_OF_READ);
    }

    fn count_idle(&mut self, share: &mut Share, reads: u32) {
        self.idle_clients += u32::from(share.idle_reads == 0 && reads > 0);
        share.idle_reads = share.idle_reads.saturating_add(reads);
        self.idle_reads = self.idle_reads.saturating_add(reads);
    }

    /// Idle reads within a connection's quota. A client whose request arrives in pieces does not
    /// pay for clients without requests.
    fn idle_reads_of_one(&self, share: &Share) -> u32 {
        if share.has_asked { (IDLE_READS / self.idle_clients.max(1)).max(PIECES) } else { IDLE_READS_OF_ONE }
    }

    /// Counts a connection's quantum, except its violations. May pause the connection.
    #[inline]
    pub(crate) fn end_quantum(&mut self, share: &mut Share, counts: &QuantumCounts) {
        share.sends_messages = counts.messages > 0 && !counts.decided;
        if counts.decided {
            share.idle_reads = 0;
        } else {
            self.count_messages(share, counts.messages);
        }
        share.is_paused |= self.idle_reads > IDLE_READS && share.idle_reads > self.idle_reads_of_one(share);
        share.has_asked = (share.has_asked || counts.decided) && !share.is_paused;
    }

    /// Counts a quantum's protocol violations. May pause the connection.
    pub(crate) fn count_violations(&mut self, share: &mut Share, violations: u32) {
        self.violations += violations;
        share.is_paused |= self.violations > VIOLATIONS;
    }

    // ---- time quotas for work that no request has asked for ----

    /// Notes that a call was answered.
    #[inline]
    pub(crate) fn note_answer(&mut self, now: Time) {
        self.answered = now;
    }

    /// Returns whether a handshake would delay nobody.
    fn is_quiet(&self, now: Time) -> bool {
        now.since(self.answered) > QUIET
    }

    /// Returns whether the quota has time for new connections.
    pub(crate) fn may_connect(&mut self, now: Time) -> bool {
        self.connecting.is_there(now)
    }

    /// Charges the validation of addresses.
    pub(crate) fn charge_validation(&mut self, spent: Nanos) {
        self.connecting.spend(spent);
    }

    /// Charges a connection that opened or closed. A storm of handshakes causes both, and pays for
    /// both.
    pub(crate) fn charge_connection(&mut self, spent: Nanos, now: Time) {
        self.connecting.spend(spent);
        if !self.is_quiet(now) {
            self.handshaking.spend(spent);
        }
    }

    /// Returns whether the quota has time for a handshake step. A quiet core always has.
    pub(crate) fn may_handshake(&mut self, now: Time) -> bool {
        self.is_quiet(now) || self.handshaking.is_there(now)
    }

    /// Charges a handshake step in the poll of `now`, unless the core was quiet.
    pub(crate) fn charge_handshake(&mut self, now: Time, spent: impl FnOnce() -> Nanos) {
        if !self.is_quiet(now) {
            self.handshaking.spend(spent());
        }
    }
}
