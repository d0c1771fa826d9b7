//! Encryption of streams: the interface to an implementation (TLS, in `leeward-rpc`), and a stream
//! that uses it.
//!
//! Handshakes are in `pending_handshakes` and `core::handshakes`; this file has the stream after
//! them. Does not contain certificates, or the layout of a record.

use crate::closing_handshake::ClosingHandshake;
use crate::receive::{ReadOutcome, ReadState, SocketReader};
use crate::stream::Stream;
use leeward_core::units::Tenant;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Display, Formatter};
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Encryption of a server's connections, shared by its cores.
pub trait Encryption: Send + Sync + Debug {
    /// Returns whether a connection that begins with this byte may be encrypted.
    fn recognises(&self, first: u8) -> bool;

    /// Begins the server's side of a connection.
    ///
    /// # Errors
    /// No encrypted connection can be accepted at this time.
    fn accept(&self) -> Result<Box<dyn SecureChannel>, EncryptionError>;

    /// Returns how often new certificates were loaded, and why the newest are not used, if so.
    fn renewals(&self) -> (u64, Option<String>);
}

/// Encryption of a connection, without I/O.
pub trait SecureChannel: Send {
    /// Takes all of `ciphertext` and puts plaintext into `into`, returning its length.
    /// [`SecureChannel::take`] returns the rest of the plaintext; until then the caller feeds no
    /// more.
    ///
    /// # Errors
    /// The connection is broken. [`SecureChannel::send`] may still have bytes for the peer.
    fn absorb(&mut self, ciphertext: &[u8], into: &mut [u8]) -> Result<usize, EncryptionError>;

    /// Takes pending plaintext and returns its length.
    fn take(&mut self, into: &mut [u8]) -> usize;

    /// Returns whether plaintext is pending.
    fn holds_plaintext(&self) -> bool;

    /// Returns whether the peer has announced its end.
    fn has_ended(&self) -> bool;

    /// Returns whether the handshake is in progress.
    fn is_handshaking(&self) -> bool;

    /// Returns whether the handshake resumed an earlier session.
    fn is_resumed(&self) -> bool;

    /// Returns the peer's identity, if the peer has proven one.
    fn identity(&self) -> Option<PeerIdentity>;

    /// Encrypts the beginning of `bytes` and returns how many of them.
    fn seal(&mut self, bytes: &[u8]) -> usize;

    /// Returns whether ciphertext is pending to be sent.
    fn wants_send(&self) -> bool;

    /// Sends ciphertext until none is left.
    ///
    /// # Errors
    /// The writer's error.
    fn send(&mut self, to: &mut dyn Write) -> io::Result<()>;

    /// Announces the end of this side.
    fn close(&mut self);
}

/// Failure of an encrypted connection, or of its handshake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EncryptionError {
    /// The reason by which it is counted.
    pub reason: &'static str,
    /// The reason for people.
    pub message: String,
}

/// Identity that a client has proven by its certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PeerIdentity {
    /// A URI, such as a SPIFFE id.
    Uri(String),
    /// A DNS name, of a certificate without a URI.
    Dns(String),
    /// The SHA-256 of a certificate without URI and name, in hexadecimal.
    Fingerprint(String),
}

impl PeerIdentity {
    /// Tenant of the identity's requests, whatever their connection: FNV-1a of the identity as
    /// written, folded to 32 bits. Never [`Tenant::DEFAULT`], which is the tenant of everybody
    /// else.
    pub fn tenant(&self) -> Tenant {
        let mixed = self
            .to_string()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Tenant(((mixed ^ mixed >> 32) as u32).max(1))
    }
}

impl Display for PeerIdentity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PeerIdentity::Uri(uri) => write!(f, "{uri}"),
            PeerIdentity::Dns(name) => write!(f, "dns:{name}"),
            PeerIdentity::Fingerprint(hex) => write!(f, "sha256:{hex}"),
        }
    }
}

/// Handshake statistics of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandshakeStatistics {
    /// Completed.
    pub done: u64,
    /// Completed by resuming an earlier session, at a part of the cost of a full one.
    pub resumed: u64,
    /// Completed with a client that has proven an identity.
    pub identified: u64,
    /// In progress, or waiting for a step.
    pub waiting: u64,
    /// Rejected or given up, by reason.
    pub refused: BTreeMap<String, u64>,
    /// New certificates that were loaded since the start.
    pub renewed: u64,
    /// Why the newest certificates are not used, if so.
    pub trouble: Option<String>,
}

/// Handshake counters of all cores. A handshake costs far more than an atomic or an uncontended
/// lock.
#[derive(Debug, Default)]
pub(crate) struct HandshakeCounters {
    done: AtomicU64,
    resumed: AtomicU64,
    identified: AtomicU64,
    pub(crate) waiting: AtomicUsize,
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

impl HandshakeCounters {
    pub(crate) fn complete(&self, channel: &dyn SecureChannel, is_identified: bool) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.resumed.fetch_add(u64::from(channel.is_resumed()), Ordering::Relaxed);
        self.identified.fetch_add(u64::from(is_identified), Ordering::Relaxed);
    }

    fn reasons(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn refuse(&self, reason: &'static str) {
        *self.reasons().entry(reason).or_default() += 1;
    }

    /// Returns the statistics of a server with this encryption.
    pub(crate) fn statistics(&self, encryption: &dyn Encryption) -> HandshakeStatistics {
        let (renewed, trouble) = encryption.renewals();
        HandshakeStatistics {
            done: self.done.load(Ordering::Relaxed),
            resumed: self.resumed.load(Ordering::Relaxed),
            identified: self.identified.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed) as u64,
            refused: self.reasons().iter().map(|(reason, count)| ((*reason).into(), *count)).collect(),
            renewed,
            trouble,
        }
    }
}

/// A stream whose handshake is done.
pub(crate) struct EncryptedStream<S> {
    pub(crate) socket: S,
    channel: Box<dyn SecureChannel>,
    /// Plaintext bytes that are encrypted and have not left as a whole. The send buffer still
    /// counts these as unsent, so it flushes, waits for and gives up encrypted bytes like any
    /// others.
    sealed: usize,
    /// Ciphertext sealed for a batch write that has not left as a whole.
    pending: Vec<u8>,
    /// Ciphertext received less plaintext produced, in bytes: the records' overhead, and an
    /// incomplete record.
    excess: usize,
    /// Ciphertext of the last read, in bytes. A read of a part of a long record is no idle read.
    ciphertext_bytes: usize,
}

/// Maximum ciphertext that may give no plaintext yet: one incomplete record.
const RECORD_MAX: usize = 17 * 1024;
/// Minimum bytes of a record besides its plaintext.
const OVERHEAD: usize = 22;
/// A longer ciphertext buffer is given back.
const KEPT: usize = 1024;

impl<S: Stream> EncryptedStream<S> {
    pub(crate) fn new(socket: S, channel: Box<dyn SecureChannel>) -> Self {
        EncryptedStream { socket, channel, sealed: 0, pending: Vec::new(), excess: 0, ciphertext_bytes: 0 }
    }

    /// Reads once, pending plaintext first.
    pub(crate) fn receive(&mut self, receiver: &mut SocketReader, into: &mut [u8]) -> io::Result<ReadOutcome> {
        let bytes = self.channel.take(into);
        if bytes > 0 {
            self.excess = self.excess.saturating_sub(bytes);
            return Ok(ReadOutcome { bytes, state: ReadState::More, wait: None });
        }
        if self.channel.has_ended() {
            return Ok(ReadOutcome { bytes: 0, state: ReadState::End, wait: None });
        }
        let mut scratch = receiver.borrow_scratch();
        let length = into.len().min(scratch.len());
        let received = self.socket.receive(receiver, &mut scratch[..length]);
        let received = received.and_then(|received| self.decrypt(received, &scratch[..received.bytes], into));
        receiver.give_back(scratch);
        received
    }

    /// Decrypts `ciphertext` that was just `received`.
    pub(crate) fn decrypt(
        &mut self,
        received: ReadOutcome,
        ciphertext: &[u8],
        into: &mut [u8],
    ) -> io::Result<ReadOutcome> {
        self.ciphertext_bytes = ciphertext.len();
        if ciphertext.is_empty() {
            return Ok(received);
        }
        let absorbed = self.channel.absorb(ciphertext, into);
        if self.sealed == 0 && self.pending.is_empty() && self.channel.wants_send() {
            // The encryption's own message: a new key, or an alert. If the socket is full, the next
            // response carries it.
            let _ = self.channel.send(&mut StreamWriter(&mut self.socket));
        }
        let bytes = absorbed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        self.excess = (self.excess + ciphertext.len()).saturating_sub(bytes);
        let read_state = match received.state {
            _ if self.channel.holds_plaintext() => ReadState::More,
            // The next read returns the end.
            _ if self.channel.has_ended() && bytes > 0 => ReadState::More,
            _ if self.channel.has_ended() => ReadState::End,
            read_state => read_state,
        };
        Ok(ReadOutcome { bytes, state: read_state, ..received })
    }

    /// Sends the beginning of `bytes` and returns how many of them left. After `WouldBlock` the
    /// caller comes back with the same bytes, and perhaps more after them.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while !self.pending.is_empty() {
            let count = self.socket.send(&self.pending)?;
            self.has_left(count);
        }
        if self.sealed == 0 && self.channel.wants_send() {
            self.channel.send(&mut StreamWriter(&mut self.socket))?;
        }
        if self.sealed == 0 {
            self.sealed = self.channel.seal(bytes);
        }
        self.channel.send(&mut StreamWriter(&mut self.socket))?;
        Ok(std::mem::take(&mut self.sealed))
    }

    /// Ciphertext of the last read, in bytes.
    pub(crate) fn ciphertext_bytes(&self) -> usize {
        self.ciphertext_bytes
    }

    /// Returns about how many records with little content arrived since the last call. Each costs
    /// as much as one full of requests.
    pub(crate) fn empty_records(&mut self) -> u32 {
        let beyond = self.excess.saturating_sub(RECORD_MAX);
        self.excess -= beyond;
        (beyond / OVERHEAD) as u32
    }

    /// Returns whether the next read is from the socket.
    pub(crate) fn reads_socket(&self) -> bool {
        !self.channel.holds_plaintext() && !self.channel.has_ended()
    }

    /// Encrypts the beginning of `bytes` for a batch call, which reports [the bytes
    /// sent](EncryptedStream::sent). `None` if other bytes must be sent first.
    pub(crate) fn seal_for_batch(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        if self.sealed > 0 || !self.pending.is_empty() || self.channel.wants_send() {
            return None;
        }
        self.sealed = self.channel.seal(bytes);
        // Writing into memory takes everything.
        let _ = self.channel.send(&mut self.pending);
        Some(&self.pending)
    }

    /// Notes that `count` bytes [sealed for a batch](EncryptedStream::seal_for_batch) left. Returns
    /// how many plaintext bytes left with these.
    pub(crate) fn sent(&mut self, count: usize) -> usize {
        self.has_left(count);
        if self.pending.is_empty() && !self.channel.wants_send() { std::mem::take(&mut self.sealed) } else { 0 }
    }

    fn has_left(&mut self, count: usize) {
        self.pending.drain(..count.min(self.pending.len()));
        if self.pending.is_empty() && self.pending.capacity() > KEPT {
            self.pending = Vec::new();
        }
    }

    /// Announces the end of this side, and shuts it down.
    pub(crate) fn shutdown(&mut self) -> io::Result<()> {
        self.channel.close();
        // As far as the socket has space: the peer knows from its protocol where the response ends.
        let _ = self.channel.send(&mut StreamWriter(&mut self.socket));
        self.socket.shutdown()
    }

    pub(crate) fn discard(&mut self, discarded: &mut usize, most: usize) -> ClosingHandshake {
        self.socket.discard(discarded, most)
    }
}

/// A stream as a writer.
pub(crate) struct StreamWriter<'a, S>(pub(crate) &'a mut S);

impl<S: Stream> Write for StreamWriter<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::receive::IoUring;
    use crate::send_buffer::SendBuffer;
    use leeward_core::units::Time;
    use mio::net::TcpStream;
    use mio::{Registry, Token};
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::os::fd::BorrowedFd;

    /// A test cipher: records of a two-byte length and inverted bytes.
    #[derive(Default)]
    struct ToyChannel {
        coming: Vec<u8>,
        plaintext: VecDeque<u8>,
        sendable: VecDeque<u8>,
    }

    /// The longest record of the test cipher.
    const RECORD: usize = 300;

    impl SecureChannel for ToyChannel {
        fn absorb(&mut self, ciphertext: &[u8], into: &mut [u8]) -> Result<usize, EncryptionError> {
            self.coming.extend_from_slice(ciphertext);
            while let Some(&[high, low]) = self.coming.first_chunk() {
                let length = usize::from(u16::from_be_bytes([high, low]));
                if length > RECORD {
                    return Err(EncryptionError { reason: "garbage", message: "too long".into() });
                }
                if self.coming.len() < 2 + length {
                    break;
                }
                self.plaintext.extend(self.coming.drain(..2 + length).skip(2).map(|byte| !byte));
            }
            Ok(self.take(into))
        }

        fn take(&mut self, into: &mut [u8]) -> usize {
            let count = into.len().min(self.plaintext.len());
            self.plaintext.drain(..count).zip(into).for_each(|(byte, slot)| *slot = byte);
            count
        }

        fn holds_plaintext(&self) -> bool {
            !self.plaintext.is_empty()
        }

        fn has_ended(&self) -> bool {
            false
        }

        fn is_handshaking(&self) -> bool {
            false
        }

        fn is_resumed(&self) -> bool {
            false
        }

        fn identity(&self) -> Option<PeerIdentity> {
            None
        }

        fn seal(&mut self, bytes: &[u8]) -> usize {
            let record = &bytes[..bytes.len().min(RECORD)];
            self.sendable.extend((record.len() as u16).to_be_bytes());
            self.sendable.extend(record.iter().map(|byte| !byte));
            record.len()
        }

        fn wants_send(&self) -> bool {
            !self.sendable.is_empty()
        }

        fn send(&mut self, to: &mut dyn Write) -> io::Result<()> {
            while !self.sendable.is_empty() {
                let count = to.write(self.sendable.make_contiguous())?;
                self.sendable.drain(..count);
            }
            Ok(())
        }

        fn close(&mut self) {}
    }

    /// A socket that reads and writes the given numbers of bytes, one per call; 0 is `WouldBlock`.
    #[derive(Default)]
    struct ScriptedStream {
        gives: VecDeque<u8>,
        taken: Vec<u8>,
        cuts: VecDeque<usize>,
    }

    impl ScriptedStream {
        fn cut(&mut self) -> usize {
            self.cuts.pop_front().unwrap_or(usize::MAX)
        }
    }

    impl Stream for ScriptedStream {
        fn accept(_: TcpStream) -> io::Result<Self> {
            Ok(ScriptedStream::default())
        }

        fn register(&mut self, _: &Registry, _: Token) -> io::Result<()> {
            Ok(())
        }

        fn deregister(&mut self, _: &Registry) {}

        fn receive(&mut self, _: &mut SocketReader, into: &mut [u8]) -> io::Result<ReadOutcome> {
            let count = self.cut().min(into.len()).min(self.gives.len());
            if count == 0 {
                return Ok(ReadOutcome::NOTHING);
            }
            self.gives.drain(..count).zip(into.iter_mut()).for_each(|(byte, slot)| *slot = byte);
            Ok(ReadOutcome::of(count, into.len(), None))
        }

        fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.cut().min(bytes.len()) {
                0 => Err(ErrorKind::WouldBlock.into()),
                count => {
                    self.taken.extend_from_slice(&bytes[..count]);
                    Ok(count)
                }
            }
        }

        fn raw(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn shutdown(&self) -> io::Result<()> {
            Ok(())
        }

        fn is_broken(&self) -> bool {
            false
        }

        fn discard(&mut self, _: &mut usize, _: usize) -> ClosingHandshake {
            ClosingHandshake::Done
        }
    }

    fn cuts() -> impl Strategy<Value = VecDeque<usize>> {
        prop::collection::vec(prop_oneof![Just(0usize), 1usize..10, 1usize..2_000], 0..100).prop_map(Into::into)
    }

    fn opened(ciphertext: &[u8]) -> Vec<u8> {
        let mut plaintext = vec![0; ciphertext.len()];
        let count = ToyChannel::default().absorb(ciphertext, &mut plaintext).unwrap();
        plaintext.truncate(count);
        plaintext
    }

    proptest! {
        /// The send buffer counts bytes as unsent until the whole record has left, and none leaves
        /// twice.
        #[test]
        fn every_byte_is_sent_once_in_order(
            pieces in prop::collection::vec((0usize..3_000, any::<bool>()), 1..10), cuts in cuts(),
        ) {
            let socket = ScriptedStream { cuts, ..ScriptedStream::default() };
            let mut stream = EncryptedStream::new(socket, Box::<ToyChannel>::default());
            let (mut buffer, mut expected) = (SendBuffer::default(), Vec::new());
            for (step, (length, is_batch)) in pieces.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + step) as u8).collect();
                buffer.bytes().extend_from_slice(&bytes);
                expected.extend(bytes);
                if is_batch && let Some(ciphertext) = buffer.sendable().and_then(|bytes| stream.seal_for_batch(bytes)) {
                    // A batch call sends some of it.
                    let ciphertext = ciphertext.to_vec();
                    let count = stream.socket.cut().min(ciphertext.len());
                    stream.socket.taken.extend_from_slice(&ciphertext[..count]);
                    buffer.advance(stream.sent(count));
                }
                buffer.flush(|bytes| stream.send(bytes), Time(step as u64)).unwrap();
                let waits = stream.sealed > 0 || !stream.pending.is_empty() || stream.channel.wants_send();
                prop_assert!(!waits || buffer.unsent() > 0, "what has not left is not known to wait");
            }
            while buffer.unsent() > 0 {
                buffer.flush(|bytes| stream.send(bytes), Time(99)).unwrap();
            }
            prop_assert!(opened(&stream.socket.taken) == expected);
        }

        /// No plaintext stays behind without the socket or the result of a read showing it.
        #[test]
        fn every_byte_is_read_once_in_order(pieces in prop::collection::vec(1usize..3_000, 1..10), cuts in cuts(), room in 1usize..900) {
            let (mut toy, mut expected) = (ToyChannel::default(), Vec::new());
            for (step, length) in pieces.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + step) as u8).collect();
                let mut sealed = 0;
                while sealed < length {
                    sealed += toy.seal(&bytes[sealed..]);
                }
                expected.extend(bytes);
            }
            let socket = ScriptedStream { gives: toy.sendable, cuts, ..ScriptedStream::default() };
            let mut stream = EncryptedStream::new(socket, Box::<ToyChannel>::default());
            let (mut receiver, mut read, mut into) = (SocketReader::new(IoUring::Off), Vec::new(), vec![0; room]);
            loop {
                let received = stream.receive(&mut receiver, &mut into).unwrap();
                read.extend_from_slice(&into[..received.bytes]);
                let has_more = received.state == ReadState::More || !stream.socket.gives.is_empty();
                prop_assert!(has_more || !stream.channel.holds_plaintext());
                if !has_more {
                    break;
                }
            }
            prop_assert!(read == expected);
        }
    }
}
