//! Encryption of streams: the seam to whoever knows how (TLS, in `leeward-rpc`), and a stream with it.
//!
//! Handshakes are `pending_handshakes`' and `core::handshakes`'; here is what comes after. Never here: certificates, and what a record looks like.

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
    /// Whether a connection that begins with this byte may be an encrypted one.
    fn recognises(&self, first: u8) -> bool;

    /// Begins the server's side of a connection.
    ///
    /// # Errors
    /// There can be none at this time.
    fn accept(&self) -> Result<Box<dyn SecureChannel>, EncryptionError>;

    /// How often new certificates were taken, and why the newest are not, if they are not.
    fn renewals(&self) -> (u64, Option<String>);
}

/// Encryption of a connection, sans I/O.
pub trait SecureChannel: Send {
    /// Takes all of `ciphertext` and puts plaintext into `into`; how many bytes of it. The rest of the plaintext waits for
    /// [`Channel::take`], and no more is fed until then.
    ///
    /// # Errors
    /// The connection is over; [`Channel::send`] may have something for the peer yet.
    fn absorb(&mut self, ciphertext: &[u8], into: &mut [u8]) -> Result<usize, EncryptionError>;

    /// Takes plaintext that waits; how many bytes.
    fn take(&mut self, into: &mut [u8]) -> usize;

    /// Whether plaintext waits.
    fn holds_plaintext(&self) -> bool;

    /// Whether the peer has said that nothing more comes.
    fn has_ended(&self) -> bool;

    /// Whether the handshake is not over.
    fn is_handshaking(&self) -> bool;

    /// Whether the handshake has taken up an earlier session.
    fn is_resumed(&self) -> bool;

    /// Identity of the peer, if it has proven one.
    fn identity(&self) -> Option<PeerIdentity>;

    /// Encrypts the beginning of `bytes`; how many of them.
    fn seal(&mut self, bytes: &[u8]) -> usize;

    /// Whether there is ciphertext to send.
    fn wants_send(&self) -> bool;

    /// Sends ciphertext until there is none left.
    ///
    /// # Errors
    /// The writer's.
    fn send(&mut self, to: &mut dyn Write) -> io::Result<()>;

    /// Says that nothing more will come.
    fn close(&mut self);
}

/// End of an encrypted connection, or of the attempt at one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EncryptionError {
    /// The reason as it is counted.
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
    /// The SHA-256 of a certificate without either, in hexadecimal.
    Fingerprint(String),
}

impl PeerIdentity {
    /// The tenant that the identity's requests count for, by whichever connections they come: FNV-1a of the identity as it is written,
    /// folded to 32 bits. Never [`Tenant::DEFAULT`], which is everybody else's.
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

/// Handshakes of a server, as it tells of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandshakeStatistics {
    /// Done.
    pub done: u64,
    /// Done by taking up an earlier session, which costs a part of a full one.
    pub resumed: u64,
    /// Done with a client that has proven an identity.
    pub identified: u64,
    /// Under way, or waiting for their turn.
    pub waiting: u64,
    /// Refused or given up, by reason.
    pub refused: BTreeMap<String, u64>,
    /// New certificates that were taken since the start.
    pub renewed: u64,
    /// Why the newest certificates are not used, if they are not.
    pub trouble: Option<String>,
}

/// Handshakes of all cores, counted. Each is far dearer than an atomic or a lock that nobody else has.
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

    /// The tally of a server with this encryption.
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

/// A stream whose handshake is over.
pub(crate) struct EncryptedStream<S> {
    pub(crate) socket: S,
    channel: Box<dyn SecureChannel>,
    /// Plaintext that is encrypted and has not left as a whole. Its owner still counts it as unsent, so that it is flushed, waited
    /// for and given up as any other bytes.
    sealed: usize,
    /// Ciphertext that was to leave together with others' and has not left as a whole.
    pending: Vec<u8>,
    /// Ciphertext that came less the plaintext that it gave, in bytes: what its records cost besides, and one that is not whole.
    excess: usize,
    /// Ciphertext that the last read brought, in bytes: a part of a long record is no small talk.
    ciphertext_bytes: usize,
}

/// As much ciphertext as may give no plaintext yet: a record that is not whole.
const RECORD_MAX: usize = 17 * 1024;
/// Bytes that each record has besides its plaintext, at least.
const OVERHEAD: usize = 22;
/// A buffer of ciphertext that was longer is given back.
const KEPT: usize = 1024;

impl<S: Stream> EncryptedStream<S> {
    pub(crate) fn new(socket: S, channel: Box<dyn SecureChannel>) -> Self {
        EncryptedStream { socket, channel, sealed: 0, pending: Vec::new(), excess: 0, ciphertext_bytes: 0 }
    }

    /// Reads once what is there, plaintext that waits first.
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
        let room = into.len().min(scratch.len());
        let received = self.socket.receive(receiver, &mut scratch[..room]);
        let received = received.and_then(|received| self.decrypt(received, &scratch[..received.bytes], into));
        receiver.give_back(scratch);
        received
    }

    /// Plaintext of the `ciphertext` that was just `received`.
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
            // Words of the encryption's own: a new key, or why it ends. If there is no room, they go with the next answer.
            let _ = self.channel.send(&mut StreamWriter(&mut self.socket));
        }
        let bytes = absorbed.map_err(|broken| io::Error::new(ErrorKind::InvalidData, broken))?;
        self.excess = (self.excess + ciphertext.len()).saturating_sub(bytes);
        let came = match received.state {
            _ if self.channel.holds_plaintext() => ReadState::More,
            // The end is told by the next read.
            _ if self.channel.has_ended() && bytes > 0 => ReadState::More,
            _ if self.channel.has_ended() => ReadState::End,
            came => came,
        };
        Ok(ReadOutcome { bytes, state: came, ..received })
    }

    /// Sends the beginning of `bytes`; how many of them have left. Whoever has been told that there is no room comes back with the
    /// same bytes, and perhaps more behind them.
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

    /// Ciphertext that the last read brought, in bytes.
    pub(crate) fn ciphertext_bytes(&self) -> usize {
        self.ciphertext_bytes
    }

    /// Records that came since this was asked last and had little in them, about: each costs as much as one that is full of requests.
    pub(crate) fn empty_records(&mut self) -> u32 {
        let beyond = self.excess.saturating_sub(RECORD_MAX);
        self.excess -= beyond;
        (beyond / OVERHEAD) as u32
    }

    /// Whether the next read is of the socket.
    pub(crate) fn reads_socket(&self) -> bool {
        !self.channel.holds_plaintext() && !self.channel.has_ended()
    }

    /// Ciphertext of the beginning of `bytes`, which somebody else sends and then says [how much](Encrypted::sent) of it; `None` if
    /// something else is to be sent first.
    pub(crate) fn seal_for_batch(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        if self.sealed > 0 || !self.pending.is_empty() || self.channel.wants_send() {
            return None;
        }
        self.sealed = self.channel.seal(bytes);
        // Memory takes everything.
        let _ = self.channel.send(&mut self.pending);
        Some(&self.pending)
    }

    /// So much of what was [sealed apart](Encrypted::seal_apart) has left; how many bytes of plaintext have, by that.
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

    /// Says that nothing more will come, and ends this half.
    pub(crate) fn shutdown(&mut self) -> io::Result<()> {
        self.channel.close();
        // As much as there is room for: the peer knows from its protocol where the words end.
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

    /// A cipher for tests: records of a length in two bytes, and bytes that are turned over.
    #[derive(Default)]
    struct ToyChannel {
        coming: Vec<u8>,
        plaintext: VecDeque<u8>,
        sendable: VecDeque<u8>,
    }

    /// The longest record of the toy.
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
            self.plaintext.drain(..count).zip(into).for_each(|(byte, place)| *place = byte);
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

    /// A socket that takes and gives as many bytes at a time as it is told to; 0 is none for now.
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
            self.gives.drain(..count).zip(into.iter_mut()).for_each(|(byte, place)| *place = byte);
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
        /// The outbox counts bytes as unsent until the whole record has left, and none leaves twice.
        #[test]
        fn everything_leaves_once_and_in_order(
            pieces in prop::collection::vec((0usize..3_000, any::<bool>()), 1..10), cuts in cuts(),
        ) {
            let socket = ScriptedStream { cuts, ..ScriptedStream::default() };
            let mut stream = EncryptedStream::new(socket, Box::<ToyChannel>::default());
            let (mut outbox, mut wanted) = (SendBuffer::default(), Vec::new());
            for (step, (length, apart)) in pieces.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + step) as u8).collect();
                outbox.bytes().extend_from_slice(&bytes);
                wanted.extend(bytes);
                if apart && let Some(ciphertext) = outbox.sendable().and_then(|bytes| stream.seal_for_batch(bytes)) {
                    // Somebody else sends some of it.
                    let ciphertext = ciphertext.to_vec();
                    let count = stream.socket.cut().min(ciphertext.len());
                    stream.socket.taken.extend_from_slice(&ciphertext[..count]);
                    outbox.advance(stream.sent(count));
                }
                outbox.flush(|bytes| stream.send(bytes), Time(step as u64)).unwrap();
                let waits = stream.sealed > 0 || !stream.pending.is_empty() || stream.channel.wants_send();
                prop_assert!(!waits || outbox.unsent() > 0, "what has not left is not known to wait");
            }
            while outbox.unsent() > 0 {
                outbox.flush(|bytes| stream.send(bytes), Time(99)).unwrap();
            }
            prop_assert!(opened(&stream.socket.taken) == wanted);
        }

        /// Nothing is left behind that neither the socket nor the result of a read tells of.
        #[test]
        fn everything_is_read_once_and_in_order(pieces in prop::collection::vec(1usize..3_000, 1..10), cuts in cuts(), room in 1usize..900) {
            let (mut toy, mut wanted) = (ToyChannel::default(), Vec::new());
            for (step, length) in pieces.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + step) as u8).collect();
                let mut sealed = 0;
                while sealed < length {
                    sealed += toy.seal(&bytes[sealed..]);
                }
                wanted.extend(bytes);
            }
            let socket = ScriptedStream { gives: toy.sendable, cuts, ..ScriptedStream::default() };
            let mut stream = EncryptedStream::new(socket, Box::<ToyChannel>::default());
            let (mut receiver, mut read, mut into) = (SocketReader::new(IoUring::Off), Vec::new(), vec![0; room]);
            loop {
                let received = stream.receive(&mut receiver, &mut into).unwrap();
                read.extend_from_slice(&into[..received.bytes]);
                let told = received.state == ReadState::More || !stream.socket.gives.is_empty();
                prop_assert!(told || !stream.channel.holds_plaintext());
                if !told {
                    break;
                }
            }
            prop_assert!(read == wanted);
        }
    }
}
