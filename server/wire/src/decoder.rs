//! From bytes to frames: [`decode`] on bytes that lie in memory, [`Decoder`] on bytes that come in pieces.

use super::client_protocol::ClientProtocol;
use super::error::WireError;
use super::frame::{Frame, payload_max};
use super::header::{Field, HEADER_LEN, Kind, MAGIC, RawHeader, Side, Version};
use super::value::PayloadLimit;

/// Bytes of the header that say what and how long the frame is.
const PREFIX_LEN: usize = 8;

/// Result of [`decode`] on the beginning of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeStatus<'a> {
    /// A whole frame.
    Frame {
        /// The frame.
        frame: Frame<'a>,
        /// Bytes that it took, header included. The next frame begins behind them.
        length: usize,
    },
    /// The beginning of a frame, right so far.
    Incomplete {
        /// Bytes without which there is nothing new to find, counted from the frame's beginning.
        needed: usize,
    },
}

/// Decodes the frame at the beginning of `bytes`, which `from` sent to a side that accepts payloads up to `limit`, in any version.
/// Nothing is copied or allocated. What is wrong is found as soon as the bytes that show it are there: kind and length
/// after 8 bytes, everything else in the header after 64, before any payload.
///
/// # Errors
/// Every [`WireError`] but [`WireError::Truncated`]; the earliest in the stream, so that it doesn't depend on how
/// many more bytes are there.
#[inline]
pub fn decode(bytes: &[u8], from: Side, limit: PayloadLimit) -> Result<DecodeStatus<'_>, WireError> {
    decode_in(None, bytes, from, limit)
}

/// Decodes a frame in a stream of this version.
#[inline]
fn decode_in(
    stream: Option<Version>,
    bytes: &[u8],
    from: Side,
    limit: PayloadLimit,
) -> Result<DecodeStatus<'_>, WireError> {
    let Some(prefix) = bytes.first_chunk::<PREFIX_LEN>() else {
        return check_magic(bytes).map(|()| DecodeStatus::Incomplete { needed: PREFIX_LEN });
    };
    let (kind, payload_len) = read_prefix(stream, prefix, from, limit)?;
    let Some((header, behind)) = bytes.split_first_chunk::<HEADER_LEN>() else {
        return Ok(DecodeStatus::Incomplete { needed: HEADER_LEN });
    };
    let words = RawHeader::read(header);
    match behind.get(..payload_len) {
        Some(payload) => {
            let frame = Frame::read(kind, &words, payload)?;
            Ok(DecodeStatus::Frame { frame, length: HEADER_LEN + payload_len })
        }
        None => {
            Frame::read(kind, &words, &[])?;
            Ok(DecodeStatus::Incomplete { needed: HEADER_LEN + payload_len })
        }
    }
}

/// Checks the beginning of a header: a peer of another protocol may say less than 8 bytes, and then wait.
#[inline]
fn check_magic(bytes: &[u8]) -> Result<(), WireError> {
    match bytes.first_chunk() {
        Some(found) if *found != MAGIC.to_le_bytes() => Err(WireError::Magic { found: *found }),
        _ => Ok(()),
    }
}

/// The kind and the payload's length, from the first 8 bytes.
#[inline]
fn read_prefix(
    stream: Option<Version>,
    prefix: &[u8; PREFIX_LEN],
    from: Side,
    limit: PayloadLimit,
) -> Result<(Kind, usize), WireError> {
    let words = RawHeader::first(prefix);
    if words.value(Field::Magic) != u64::from(MAGIC) {
        return Err(WireError::Magic { found: [prefix[0], prefix[1]] });
    }
    let found = words.value_u8(Field::Version);
    let version = Version::from_number(found).ok_or(WireError::Version { found })?;
    let number = words.value_u8(Field::Kind);
    let kind = Kind::from_number(number).filter(|kind| kind.min_version() <= version);
    let kind = kind.ok_or(WireError::Kind { found: number })?;
    if let Some(stream) = stream
        && version != stream
        && !is_in_any_stream(version, kind)
    {
        return Err(WireError::VersionMismatch { found: version, stream });
    }
    if !kind.is_sent_by(from) {
        return Err(WireError::Direction { kind, from });
    }
    let length = words.value_u32(Field::PayloadLen);
    let limit = payload_max(kind, limit);
    if length > limit {
        return Err(WireError::PayloadTooLarge { kind, length, limit });
    }
    Ok((kind, length as usize))
}

/// Whether such a frame says nothing of its stream's version: a server that speaks no version of its client's says so in version 1.
#[inline]
fn is_in_any_stream(version: Version, kind: Kind) -> bool {
    kind == Kind::Error && version == Version::One
}

/// Turns what a socket gives into frames. One buffer, reused for ever: a frame is borrowed from it until the next call.
///
/// Read into [`Decoder::spare`], say how much with [`Decoder::filled`], then take frames with [`Decoder::next_frame`]
/// until there is none:
/// ```
/// # use leeward_wire::{Decoder, PayloadLimit, Side, WireError};
/// # fn serve(mut socket: impl std::io::Read) -> Result<(), Box<dyn std::error::Error>> {
/// let mut decoder = Decoder::new(Side::Client, PayloadLimit::DEFAULT);
/// loop {
///     let read = socket.read(decoder.spare())?;
///     if read == 0 {
///         return Ok(decoder.end()?);
///     }
///     decoder.filled(read);
///     while let Some(frame) = decoder.next_frame()? {
///         println!("{frame:?}");
///     }
/// }
/// # }
/// # serve(&b""[..]).unwrap();
/// ```
///
/// The buffer begins at 16 KiB or less and doubles only when a frame has filled it, up to the longest frame that the
/// limit allows. So a peer has to send about half of what it makes us hold; announcing a megabyte costs us nothing.
/// Between frames every byte is moved at most once.
#[derive(Clone, Debug)]
pub struct Decoder {
    from: Side,
    limit: PayloadLimit,
    /// Received bytes that are not yet taken lie in `start..end`; all of it is initialised.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes after `start` without which there is nothing new to find.
    needed: usize,
    /// Bytes of a frame that are thrown away as they come.
    skip: usize,
    /// Version of the stream's frames, as soon as one has come.
    stream_version: Option<Version>,
    /// Fatal, and so final.
    error: Option<WireError>,
}

/// The buffer's first size: some hundred small calls per read.
const FIRST_LEN: usize = 16 * 1024;

impl Decoder {
    /// For what `from` sends to a side that accepts payloads up to `limit`. Holds no memory before the first read.
    pub fn new(from: Side, limit: PayloadLimit) -> Self {
        Decoder {
            from,
            limit,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            needed: PREFIX_LEN,
            skip: 0,
            stream_version: None,
            error: None,
        }
    }

    /// The same for a stream of this version alone.
    #[must_use]
    pub fn with_version(mut self, version: Version) -> Self {
        self.stream_version = Some(version);
        self
    }

    /// Version of the stream's frames: of those that have been taken, or of the next one whose beginning is there.
    pub fn version(&self) -> Option<Version> {
        let next = self.buffer[self.start..self.end].get(Field::Version.offset());
        self.stream_version.or_else(|| Version::from_number(*next?))
    }

    /// The longest frame, and so the largest buffer.
    fn buffer_max(&self) -> usize {
        HEADER_LEN + self.limit.bytes() as usize
    }

    /// Where the next bytes go. Never empty after [`Decoder::next_frame`] has said `Ok(None)`; before that, and after
    /// an error, it may be.
    pub fn spare(&mut self) -> &mut [u8] {
        if self.error.is_some() {
            return &mut [];
        }
        self.compact();
        if self.end == self.buffer.len() && self.start == 0 && self.needs_more() {
            self.grow();
        }
        &mut self.buffer[self.end..]
    }

    /// Whether more bytes are needed before anything can be found.
    fn needs_more(&self) -> bool {
        self.end - self.start < self.needed
    }

    /// Moves the buffered bytes to the front. When all whole frames have been taken, the rest is one part of a frame,
    /// which will then not move again. A caller that leaves frames behind pays only where it took more than is moved.
    fn compact(&mut self) {
        let kept = self.end - self.start;
        if self.start > 0 && (self.needs_more() || kept <= self.start) {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, kept);
        }
    }

    fn grow(&mut self) {
        // No more than the frame needs that is coming: whoever bounds the memory of many connections counts by that.
        let length = (self.buffer.len() * 2).max(FIRST_LEN).min(self.needed.max(FIRST_LEN)).min(self.buffer_max());
        self.buffer.reserve_exact(length - self.buffer.len());
        self.buffer.resize(length, 0);
    }

    /// The first `count` bytes of [`Decoder::spare`] have been filled.
    ///
    /// # Panics
    /// If there weren't as many.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.buffer.len() - self.end, "more bytes than there was room for");
        self.end += count;
    }

    /// Takes the next frame; `None` until more bytes have come.
    ///
    /// # Errors
    /// Every [`WireError`] but [`WireError::Truncated`], after the frames before it; and the same one again ever after.
    #[inline]
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, WireError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.skip > 0 {
            let skipped = self.skip.min(self.buffered());
            self.start += skipped;
            self.skip -= skipped;
        }
        if self.needs_more() && (self.needed > PREFIX_LEN || self.skip > 0) {
            return Ok(None);
        }
        match decode_in(self.stream_version, &self.buffer[self.start..self.end], self.from, self.limit) {
            Ok(DecodeStatus::Frame { frame, length }) => {
                if self.stream_version.is_none() {
                    let version = Version::from_number(self.buffer[self.start + Field::Version.offset()]);
                    self.stream_version = version.filter(|version| !is_in_any_stream(*version, frame.kind()));
                }
                self.start += length;
                self.needed = PREFIX_LEN;
                Ok(Some(frame))
            }
            Ok(DecodeStatus::Incomplete { needed }) => {
                self.needed = needed;
                Ok(None)
            }
            Err(error) => {
                self.error = Some(error);
                Err(error)
            }
        }
    }

    /// The beginning of a long frame whose payload has not come yet, after [`Decoder::next_frame`] has said `Ok(None)`. Its
    /// payload is empty here. Frames that fit into the first buffer are not told.
    pub fn partial_frame(&self) -> Option<Frame<'_>> {
        if self.needed <= FIRST_LEN || self.skip > 0 || !self.needs_more() {
            return None;
        }
        let header = self.buffer[self.start..self.end].first_chunk::<HEADER_LEN>()?;
        let (kind, _) =
            read_prefix(self.stream_version, header.first_chunk::<PREFIX_LEN>()?, self.from, self.limit).ok()?;
        Frame::read(kind, &RawHeader::read(header), &[]).ok()
    }

    /// Throws the frame away of which [`Decoder::coming`] tells, as its bytes come: they take no memory.
    pub fn skip(&mut self) {
        self.skip = self.needed;
        self.needed = PREFIX_LEN;
    }

    /// The stream has ended: was that between two frames?
    ///
    /// # Errors
    /// [`WireError::Truncated`] if not; the earlier error if there was one.
    pub fn finish(&self) -> Result<(), WireError> {
        match (self.error, self.buffered()) {
            (Some(error), _) => Err(error),
            (None, 0) if self.skip == 0 => Ok(()),
            (None, buffered) => Err(WireError::Truncated { buffered, needed: self.needed }),
        }
    }

    /// Another protocol that the peer speaks, if bytes that begin no frame tell.
    pub fn foreign_protocol(&self) -> Option<ClientProtocol> {
        let is_foreign = matches!(self.error, Some(WireError::Magic { .. }));
        is_foreign.then(|| ClientProtocol::detect(&self.buffer[self.start..self.end])).flatten()
    }

    /// Bytes received and not yet taken.
    pub fn buffered(&self) -> usize {
        self.end - self.start
    }

    /// Memory that what is coming needs, and that was needed for what came, in bytes; 0 if it is no more than any connection
    /// may have, which is 16 KiB.
    pub fn required_capacity(&self) -> usize {
        let wanted = self.needed.max(self.buffer.capacity());
        if wanted > FIRST_LEN { wanted } else { 0 }
    }

    /// Bytes of memory held: at most the limit and a header.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Gives the memory back if nothing is buffered, and says whether it did. For connections that have been idle for a
    /// while: the next read allocates again.
    pub fn release(&mut self) -> bool {
        let idle = self.buffered() == 0;
        if idle {
            self.buffer = Vec::new();
            (self.start, self.end) = (0, 0);
        }
        idle
    }
}
