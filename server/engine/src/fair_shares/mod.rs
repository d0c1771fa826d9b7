//! Fair shares of a core: how much of its time one connection, all idle clients, protocol
//! violations, new connections and handshakes may take. Pure: no socket, and time is an argument.
//!
//! A core counts what its connections cost between two sweeps. A connection beyond its share is
//! paused: the core does not read it until the next sweep. Never here: which connection is read
//! next, and what bytes mean.

mod time_quota;

#[cfg(all(test, not(loom)))]
mod tests;

use leeward_core::units::{Nanos, Time};
use time_quota::TimeQuota;

/// Bytes that one read takes from a socket: more would keep others waiting for as long as dozens of
/// requests do.
const READ: usize = 64 * 1024;
/// The same after a turn of messages without a request. The kernel has a packet for each message:
/// thousands of them in one read took a tenth of a millisecond.
const READ_OF_MESSAGES: usize = 512;
/// A read of less than so many bytes that brings nothing to decide is an idle read: it costs as
/// much as a request.
const IDLE_READ: usize = 1024;
/// Messages that cost as much as one idle read: each is parsed, and many are answered.
const MESSAGES_OF_READ: u32 = 16;
/// Idle reads of all connections between two sweeps before connections are paused: a tenth of the
/// core's time.
const IDLE_READS: u32 = 1_000;
/// Minimum quota of idle reads per connection.
const IDLE_READS_OF_ONE: u32 = 4;
/// The same for a connection that has made a request since its last pause: its next request may
/// come in as many pieces.
const PIECES: u32 = 16;
/// Protocol violations of all connections between two sweeps before connections are paused.
const VIOLATIONS: u32 = 1_000;
/// Protocol violations that end a connection's turn.
const VIOLATIONS_PER_QUANTUM: u32 = 8;
/// Refusals for want of memory that pause a connection.
const REFUSALS: u32 = 4;
/// Time after which a poll puts idle clients off to the next poll, all but the first: 16 of them
/// would else be a queueing delay for the requests that come meanwhile.
const IDLE_CLIENTS_OF_POLL: Nanos = Nanos(20_000);
/// A core polls at least this often before a connection's next request follows its last one: a
/// client that sends many requests at once would else keep the core from reading others.
const POLL: Nanos = Nanos(20_000);
/// A core that has answered nothing for so long has nobody whom a handshake keeps waiting. Not a
/// millisecond: a thousand requests per second leave gaps of that, and each request would find the
/// core busy with handshakes.
const QUIET: Nanos = Nanos::from_millis(5);

/// Counts of a core, all since its last sweep.
#[derive(Debug)]
pub(crate) struct FairShares {
    quantum: usize,
    idle_reads: u32,
    /// How often a connection without idle reads had its first.
    idle_clients: u32,
    violations: u32,
    /// Whether the poll under way has read an idle client.
    has_read_idle: bool,
    /// When a call was answered last.
    answered: Time,
    /// Time for connections that come and go.
    connecting: TimeQuota,
    handshaking: TimeQuota,
}

/// Counts of one connection.
#[derive(Debug)]
pub(crate) struct Share {
    idle_reads: u32,
    refusals: u32,
    is_paused: bool,
    /// Whether it is new, or has made a request since its last pause.
    has_asked: bool,
    /// Whether its last turn brought messages and no request.
    sends_messages: bool,
}

/// Counts of one turn of a connection.
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
    /// Counts a protocol violation. Whether it ends the turn.
    #[inline]
    pub(crate) fn violate(&mut self) -> bool {
        self.violations += 1;
        self.violations == VIOLATIONS_PER_QUANTUM
    }
}

impl Share {
    /// The share of a new connection.
    pub(crate) fn new() -> Self {
        Share { idle_reads: 0, refusals: 0, is_paused: false, has_asked: true, sends_messages: false }
    }

    /// Whether the connection is not read before the next sweep.
    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Whether the connection's last turn brought nothing to decide. If a request follows, it loses
    /// the rest of a poll.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.idle_reads > 0
    }

    /// Bytes that the next read of the connection may take.
    #[inline]
    pub(crate) fn read_bytes(&self) -> usize {
        if self.sends_messages { READ_OF_MESSAGES } else { READ }
    }

    /// Counts a refusal for want of memory.
    pub(crate) fn refuse(&mut self) {
        self.refusals += 1;
        self.is_paused |= self.refusals >= REFUSALS;
    }

    /// A sweep begins new counts. Whether the connection was paused until now. A paused client of
    /// messages has one idle read before its next pause: without it, a request in pieces would
    /// never be whole.
    pub(crate) fn reset(&mut self) -> bool {
        self.refusals = 0;
        let was_idle = self.is_paused && self.idle_reads > 0;
        self.idle_reads = if was_idle { IDLE_READS_OF_ONE } else { self.idle_reads.min(1) };
        std::mem::take(&mut self.is_paused)
    }
}

impl FairShares {
    /// The shares of a new core, whose connections each have `quantum` requests handled in a turn.
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

    /// Requests of a connection that are handled before others have their turn.
    #[inline]
    pub(crate) fn quantum(&self) -> usize {
        self.quantum
    }

    /// A poll begins.
    #[inline]
    pub(crate) fn begin_poll(&mut self) {
        self.has_read_idle = false;
    }

    /// A sweep begins new counts.
    pub(crate) fn reset(&mut self) {
        (self.idle_reads, self.idle_clients, self.violations) = (0, 0, 0);
    }

    // ---- turns of connections ----

    /// Whether a poll that takes [`IDLE_CLIENTS_OF_POLL`] puts this connection off to the next one.
    /// `elapsed` tells how long the poll has taken; only the second idle client needs it.
    #[inline]
    pub(crate) fn is_put_off(&mut self, share: &Share, elapsed: impl FnOnce() -> Nanos) -> bool {
        share.is_idle() && std::mem::replace(&mut self.has_read_idle, true) && elapsed() > IDLE_CLIENTS_OF_POLL
    }

    /// Whether a connection's next request waits for a poll, if the last one is so long ago.
    #[inline]
    pub(crate) fn is_poll_due(since_poll: Nanos) -> bool {
        since_poll >= POLL
    }

    /// Counts a read of so many bytes, as an idle one if they are few: a request in them takes that
    /// back.
    #[inline]
    pub(crate) fn count_read(&mut self, share: &mut Share, bytes: usize) {
        if bytes < IDLE_READ {
            self.count_idle(share, 1);
        }
    }

    /// Counts messages without a request, or what costs as much as they do.
    #[inline]
    pub(crate) fn count_messages(&mut self, share: &mut Share, messages: u32) {
        self.count_idle(share, messages / MESSAGES_OF_READ);
    }

    fn count_idle(&mut self, share: &mut Share, reads: u32) {
        self.idle_clients += u32::from(share.idle_reads == 0 && reads > 0);
        share.idle_reads = share.idle_reads.saturating_add(reads);
        self.idle_reads = self.idle_reads.saturating_add(reads);
    }

    /// Idle reads of a connection that are within its quota: a client whose request comes in pieces
    /// does not pay for clients without requests.
    fn idle_reads_of_one(&self, share: &Share) -> u32 {
        if share.has_asked { (IDLE_READS / self.idle_clients.max(1)).max(PIECES) } else { IDLE_READS_OF_ONE }
    }

    /// Counts a connection's turn, all but its violations. It may pause the connection.
    #[inline]
    pub(crate) fn end_quantum(&mut self, share: &mut Share, turn: &QuantumCounts) {
        share.sends_messages = turn.messages > 0 && !turn.decided;
        if turn.decided {
            share.idle_reads = 0;
        } else {
            self.count_messages(share, turn.messages);
        }
        share.is_paused |= self.idle_reads > IDLE_READS && share.idle_reads > self.idle_reads_of_one(share);
        share.has_asked = (share.has_asked || turn.decided) && !share.is_paused;
    }

    /// Counts a turn's protocol violations. They may pause the connection.
    pub(crate) fn count_violations(&mut self, share: &mut Share, violations: u32) {
        self.violations += violations;
        share.is_paused |= self.violations > VIOLATIONS;
    }

    // ---- time for what no request has asked for ----

    /// A call has been answered.
    #[inline]
    pub(crate) fn note_answer(&mut self, now: Time) {
        self.answered = now;
    }

    /// Whether a handshake keeps nobody waiting.
    fn is_quiet(&self, now: Time) -> bool {
        now.since(self.answered) > QUIET
    }

    /// Whether there is time for new connections.
    pub(crate) fn may_connect(&mut self, now: Time) -> bool {
        self.connecting.is_there(now)
    }

    /// Charges the validation of addresses.
    pub(crate) fn charge_validation(&mut self, spent: Nanos) {
        self.connecting.spend(spent);
    }

    /// Charges a connection that has come or gone. A storm of handshakes brings both, and pays for
    /// both.
    pub(crate) fn charge_connection(&mut self, spent: Nanos, now: Time) {
        self.connecting.spend(spent);
        if !self.is_quiet(now) {
            self.handshaking.spend(spent);
        }
    }

    /// Whether there is time for a step of a handshake: always, on a quiet core.
    pub(crate) fn may_handshake(&mut self, now: Time) -> bool {
        self.is_quiet(now) || self.handshaking.is_there(now)
    }

    /// Charges a step of a handshake in the poll of `now`, unless the core was quiet.
    pub(crate) fn charge_handshake(&mut self, now: Time, spent: impl FnOnce() -> Nanos) {
        if !self.is_quiet(now) {
            self.handshaking.spend(spent());
        }
    }
}
