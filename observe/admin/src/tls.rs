//! TLS of the admin port: sessions over non-blocking sockets, a quota of handshakes, and their
//! counts. Does not contain certificates.

use leeward_observe::snapshot::TlsCounts;
use leeward_tls::{ServerTls, Session, TlsError, is_tls_record};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Protocol name in the TLS handshake (ALPN), for which the certificates of an admin port are
/// opened.
pub const ALPN: &[u8] = b"http/1.1";

/// Interval between two handshakes under load: about 0.5 ms of CPU time in 20 ms.
const HANDSHAKE_INTERVAL: Duration = Duration::from_millis(20);
/// Handshakes that may follow each other at once.
const BURST: u32 = 16;

/// Maximum of socket reads without plaintext per poll.
const READS_MAX: usize = 16;

/// TLS of a port: its certificates and its quota of handshakes.
pub(crate) struct TlsAcceptor {
    tls: ServerTls,
    pub(crate) counters: std::sync::Arc<HandshakeCounters>,
    quota: HandshakeQuota,
}

/// Quota of handshakes: one per interval, with a burst.
#[derive(Debug, Default)]
struct HandshakeQuota {
    /// Time at which all started handshakes are paid for.
    paid_until: Option<Instant>,
}

impl HandshakeQuota {
    /// Takes one handshake from the quota; returns false if none is left.
    fn try_acquire(&mut self, now: Instant) -> bool {
        let paid = self.paid_until.map_or(now, |paid| paid.max(now));
        if paid.saturating_duration_since(now) > HANDSHAKE_INTERVAL * (BURST - 1) {
            return false;
        }
        self.paid_until = Some(paid + HANDSHAKE_INTERVAL);
        true
    }

    /// Time at which the quota has a handshake again.
    fn next_available(&self, now: Instant) -> Instant {
        self.paid_until
            .and_then(|paid| paid.checked_sub(HANDSHAKE_INTERVAL * (BURST - 1)))
            .map_or(now, |next| next.max(now))
    }
}

impl TlsAcceptor {
    pub(crate) fn new(tls: ServerTls, handshake_counters: std::sync::Arc<HandshakeCounters>) -> Self {
        TlsAcceptor { tls, counters: handshake_counters, quota: HandshakeQuota::default() }
    }

    /// Time at which a waiting handshake may start.
    pub(crate) fn next_handshake(&self, now: Instant) -> Instant {
        self.quota.next_available(now)
    }

    /// Publishes counts that only this thread knows.
    pub(crate) fn record_waiting(&self, waiting: usize) {
        self.counters.waiting.store(waiting as u64, Ordering::Relaxed);
        self.counters.renewed.store(self.tls.reloads(), Ordering::Relaxed);
    }
}

/// Counters of a port's handshakes.
#[derive(Debug, Default)]
pub(crate) struct HandshakeCounters {
    done: AtomicU64,
    resumed: AtomicU64,
    identified: AtomicU64,
    waiting: AtomicU64,
    renewed: AtomicU64,
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

impl HandshakeCounters {
    fn reasons(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record_failure(&self, reason: &'static str) {
        *self.reasons().entry(reason).or_default() += 1;
    }

    fn record_success(&self, session: &Session) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.resumed.fetch_add(u64::from(session.is_resumed()), Ordering::Relaxed);
        self.identified.fetch_add(u64::from(session.identity().is_some()), Ordering::Relaxed);
    }

    /// Counts so far, for the metrics.
    pub(crate) fn counts(&self) -> TlsCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TlsCounts {
            done: read(&self.done),
            resumed: read(&self.resumed),
            identified: read(&self.identified),
            waiting: read(&self.waiting),
            refused: self.reasons().iter().map(|(reason, count)| ((*reason).into(), *count)).collect(),
            renewed: read(&self.renewed),
        }
    }
}

/// Stage of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The client has sent nothing.
    New,
    /// The client has sent its first bytes and waits for the quota.
    Waiting,
    Handshaking,
    Open,
}

/// A connection with TLS.
pub(crate) struct TlsStream {
    socket: TcpStream,
    /// `None` until the client has sent something.
    session: Option<Session>,
    stage: Stage,
    counters: std::sync::Arc<HandshakeCounters>,
    has_sent_close: bool,
}

/// Permission of a connection to proceed.
pub(crate) enum HandshakeAdmission {
    /// The connection may read and write.
    Proceed,
    /// The connection must wait until the next poll.
    Wait,
    /// The client does not use TLS: send a plaintext response.
    Plain(TcpStream),
}

impl TlsStream {
    pub(crate) fn new(socket: TcpStream, acceptor: &TlsAcceptor) -> Self {
        let handshake_counters = std::sync::Arc::clone(&acceptor.counters);
        TlsStream { socket, session: None, stage: Stage::New, counters: handshake_counters, has_sent_close: false }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// True until the handshake has ended.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.stage != Stage::Open
    }

    /// True if the connection waits for the handshake quota, and not for its client.
    pub(crate) fn is_waiting(&self) -> bool {
        self.stage == Stage::Waiting
    }

    /// Starts the handshake of a client that has sent bytes, if the quota allows.
    pub(crate) fn admit(&mut self, acceptor: &mut TlsAcceptor, now: Instant) -> HandshakeAdmission {
        if matches!(self.stage, Stage::Handshaking | Stage::Open) {
            return HandshakeAdmission::Proceed;
        }
        let mut first = [0];
        match self.socket.peek(&mut first) {
            Ok(1) if !is_tls_record(first[0]) => {
                self.counters.record_failure("plaintext");
                // Without a descriptor no response is possible: the read finds no session and ends
                // the connection.
                return self.socket.try_clone().map_or(HandshakeAdmission::Proceed, HandshakeAdmission::Plain);
            }
            Ok(1) => {}
            // End of stream or an error: the read reports it.
            Ok(_) => return HandshakeAdmission::Proceed,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return HandshakeAdmission::Wait;
            }
            Err(_) => return HandshakeAdmission::Proceed,
        }
        if !acceptor.quota.try_acquire(now) {
            self.stage = Stage::Waiting;
            return HandshakeAdmission::Wait;
        }
        self.session = acceptor.tls.accept().ok();
        self.stage = Stage::Handshaking;
        HandshakeAdmission::Proceed
    }

    /// Sends pending bytes, as far as the socket accepts them.
    fn send(&mut self) -> io::Result<()> {
        match &mut self.session {
            Some(session) => session.send(&mut self.socket),
            None => Ok(()),
        }
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.session.as_ref().is_some_and(Session::wants_send)
    }

    /// Sends the close alert, once everything has been sent.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        if let (Some(session), false) = (&mut self.session, self.has_sent_close) {
            session.close();
            self.has_sent_close = true;
        }
        self.send()
    }

    /// Counts a failed handshake, once.
    fn fail_handshake(&mut self, reason: &'static str) {
        if self.stage == Stage::Handshaking {
            self.counters.record_failure(reason);
            self.stage = Stage::Open;
        }
    }

    /// Counts a handshake that took too long.
    pub(crate) fn abort_handshake(&mut self) {
        match self.stage {
            Stage::Open => return,
            Stage::Waiting => self.counters.record_failure("waited"),
            Stage::New | Stage::Handshaking => self.counters.record_failure("stalled"),
        }
        self.stage = Stage::Open;
    }

    /// Reads plaintext with at most `READS_MAX` reads of the socket, so that records without
    /// plaintext do not occupy the thread.
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return Ok(0) };
        for _ in 0..READS_MAX {
            if session.holds_plaintext() {
                return Ok(session.take(into));
            }
            if session.has_ended() {
                return Ok(0);
            }
            let read = session.receive(&mut self.socket);
            // Sends handshake messages, or the alert that explains the failure. The next poll sends
            // the rest.
            let sent = session.send(&mut self.socket);
            if self.stage == Stage::Handshaking && !session.is_handshaking() && read.is_ok() {
                self.counters.record_success(session);
                self.stage = Stage::Open;
            }
            match (read, sent) {
                (Ok(0), _) => return Ok(0),
                (Err(error), _) => return Err(error),
                (Ok(_), Err(error)) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                (Ok(_), _) => {}
            }
        }
        if session.holds_plaintext() { Ok(session.take(into)) } else { Err(ErrorKind::WouldBlock.into()) }
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        self.fail_handshake("left");
    }
}

impl Read for TlsStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.receive(into);
        match &read {
            Ok(0) => self.fail_handshake("left"),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                let broken = error.get_ref().and_then(|error| error.downcast_ref::<TlsError>());
                self.fail_handshake(broken.map_or("other", |broken| broken.reason.name()));
            }
            _ => {}
        }
        read
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.session.as_ref().is_none_or(Session::is_handshaking) {
            return Err(ErrorKind::WouldBlock.into());
        }
        // A record is sealed only after the previous one has been sent: at most two records are
        // buffered.
        self.send()?;
        let Some(session) = &mut self.session else { return Ok(0) };
        let count = session.seal(bytes);
        match self.send() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ if count == 0 => Err(ErrorKind::WouldBlock.into()),
            _ => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_have_a_quota_that_refills() {
        let (began, mut quota) = (Instant::now(), HandshakeQuota::default());
        let burst = (0..100).filter(|_| quota.try_acquire(began)).count();
        assert_eq!(burst, BURST as usize);
        assert!(quota.next_available(began) > began && !quota.try_acquire(began));
        let later = quota.next_available(began);
        assert!(quota.try_acquire(later) && !quota.try_acquire(later), "one for each pace");
        let rested = later + HANDSHAKE_INTERVAL * 1_000;
        assert_eq!((0..100).filter(|_| quota.try_acquire(rested)).count(), BURST as usize);
    }
}
