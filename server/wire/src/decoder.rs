//! From bytes to frames: [`decode`] for bytes in memory, [`Decoder`] for a stream.

use super::client_protocol::ClientProtocol;
use super::error::WireError;
use super::frame::{Frame, payload_max};
use super::header::{Field, HEADER_LEN, Kind, MAGIC, RawHeader, Side, Version};
use super::value::PayloadLimit;

/// Length of the header's part with the frame's kind and length.
const PREFIX_LEN: usize = 8;

/// Result of [`decode`] at the beginning of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeStatus<'a> {
    /// A whole frame.
    Frame {
        /// The frame.
        frame: Frame<'a>,
        /// Length of the frame, header included. The next frame begins after it.
        length: usize,
    },
    /// The beginning of a frame, valid so far.
    Incomplete {
        /// Bytes required before decoding can make progress, counted from the frame's beginning.
        needed: usize,
    },
}

/// Decodes the frame at the beginning of `bytes`, in any version. `from` sent it to a side that
/// accepts payloads up to `limit`.
///
/// Copies and allocates nothing. Finds each error as soon as the bytes that show it have arrived:
/// kind and length after 8 bytes, all other header fields after 64, before any payload.
///
/// # Errors
/// Every [`WireError`] but [`WireError::Truncated`]: the earliest in the stream, independent of the
/// number of further bytes.
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

/// Checks the magic at once: a peer of another protocol may send less than 8 bytes, and then wait.
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

/// Whether such a frame may occur in a stream of any version. A server that does not speak its
/// client's version reports this in version 1.
#[inline]
fn is_in_any_stream(version: Version, kind: Kind) -> bool {
    kind == Kind::Error && version == Version::One
}

/// Turns bytes from a socket into frames. One buffer is reused; a frame borrows from it until the
/// next call.
///
/// Read into [`Decoder::spare`], report the count to [`Decoder::advance`], then take frames with
/// [`Decoder::next_frame`] until it returns `None`:
/// ```
/// # use leeward_wire::{Decoder, PayloadLimit, Side, WireError};
/// # fn serve(mut socket: impl std::io::Read) -> Result<(), Box<dyn std::error::Error>> {
/// let mut decoder = Decoder::new(Side::Client, PayloadLimit::DEFAULT);
/// loop {
///     let read = socket.read(decoder.spare())?;
///     if read == 0 {
///         return Ok(decoder.finish()?);
///     }
///     decoder.advance(read);
///     while let Some(frame) = decoder.next_frame()? {
///         println!("{frame:?}");
///     }
/// }
/// # }
/// # serve(&b""[..]).unwrap();
/// ```
///
/// The buffer begins at 16 KiB or less and doubles only when a frame has filled it. The longest
/// permitted frame bounds its size. So a peer has to send about half of the memory that it makes
/// the receiver hold; an announced megabyte costs no memory. Between frames every byte moves at
/// most once.
#[derive(Clone, Debug)]
pub struct Decoder {
    from: Side,
    limit: PayloadLimit,
    /// Received bytes that are not yet taken lie in `start..end`; the whole buffer is initialised.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes after `start` required before decoding can make progress.
    needed: usize,
    /// Bytes of a skipped frame that are still to be discarded.
    skip: usize,
    /// Version of the stream's frames, known from the first frame on.
    stream_version: Option<Version>,
    /// Fatal error; every later call returns it.
    error: Option<WireError>,
}

/// The buffer's first size: some hundred small calls per read.
const FIRST_LEN: usize = 16 * 1024;

impl Decoder {
    /// Decoder of the frames that `from` sends to a side that accepts payloads up to `limit`. Holds
    /// no memory before the first read.
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

    /// Accepts frames of this version only.
    #[must_use]
    pub fn with_version(mut self, version: Version) -> Self {
        self.stream_version = Some(version);
        self
    }

    /// Version of the frames taken so far, or of the next frame if its beginning has arrived.
    pub fn version(&self) -> Option<Version> {
        let next = self.buffer[self.start..self.end].get(Field::Version.offset());
        self.stream_version.or_else(|| Version::from_number(*next?))
    }

    /// Length of the longest frame, and so of the largest buffer.
    fn buffer_max(&self) -> usize {
        HEADER_LEN + self.limit.bytes() as usize
    }

    /// Buffer for the next bytes. Never empty after [`Decoder::next_frame`] has returned
    /// `Ok(None)`; before that, and after an error, it may be empty.
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

    /// Whether more bytes are required before decoding can make progress.
    fn needs_more(&self) -> bool {
        self.end - self.start < self.needed
    }

    /// Moves the buffered bytes to the front. If the caller has taken all whole frames, only a part
    /// of one frame remains, and moves once. If whole frames remain, bytes move only when at least
    /// as many were taken.
    fn compact(&mut self) {
        let kept = self.end - self.start;
        if self.start > 0 && (self.needs_more() || kept <= self.start) {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, kept);
        }
    }

    fn grow(&mut self) {
        // Grows to the length of the incoming frame at most: callers that bound the memory of many
        // connections count with that length.
        let length = (self.buffer.len() * 2).max(FIRST_LEN).min(self.needed.max(FIRST_LEN)).min(self.buffer_max());
        self.buffer.reserve_exact(length - self.buffer.len());
        self.buffer.resize(length, 0);
    }

    /// Accepts the first `count` bytes of [`Decoder::spare`], which the caller has filled.
    ///
    /// # Panics
    /// If `count` exceeds the buffer.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.buffer.len() - self.end, "more bytes than there was room for");
        self.end += count;
    }

    /// Takes the next frame; `None` until more bytes arrive.
    ///
    /// # Errors
    /// Every [`WireError`] but [`WireError::Truncated`], after the frames before it. Every later
    /// call returns the same error.
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

    /// The header of a long frame whose payload has not arrived, after [`Decoder::next_frame`] has
    /// returned `Ok(None)`. The payload is empty here. `None` for a frame that fits into the first
    /// buffer.
    pub fn partial_frame(&self) -> Option<Frame<'_>> {
        if self.needed <= FIRST_LEN || self.skip > 0 || !self.needs_more() {
            return None;
        }
        let header = self.buffer[self.start..self.end].first_chunk::<HEADER_LEN>()?;
        let (kind, _) =
            read_prefix(self.stream_version, header.first_chunk::<PREFIX_LEN>()?, self.from, self.limit).ok()?;
        Frame::read(kind, &RawHeader::read(header), &[]).ok()
    }

    /// Discards the frame of [`Decoder::partial_frame`] as its bytes arrive: they take no memory.
    pub fn skip(&mut self) {
        self.skip = self.needed;
        self.needed = PREFIX_LEN;
    }

    /// Checks that the stream ended between two frames.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if it ended inside a frame; the earlier error if there was one.
    pub fn finish(&self) -> Result<(), WireError> {
        match (self.error, self.buffered()) {
            (Some(error), _) => Err(error),
            (None, 0) if self.skip == 0 => Ok(()),
            (None, buffered) => Err(WireError::Truncated { buffered, needed: self.needed }),
        }
    }

    /// Another protocol that the peer speaks, recognized from bytes that begin no frame.
    pub fn foreign_protocol(&self) -> Option<ClientProtocol> {
        let is_foreign = matches!(self.error, Some(WireError::Magic { .. }));
        is_foreign.then(|| ClientProtocol::detect(&self.buffer[self.start..self.end])).flatten()
    }

    /// Bytes received and not yet taken.
    pub fn buffered(&self) -> usize {
        self.end - self.start
    }

    /// Memory that the incoming frame needs, or that an earlier frame needed, in bytes. 0 if that
    /// is at most 16 KiB, the first buffer of every connection.
    pub fn required_capacity(&self) -> usize {
        let required = self.needed.max(self.buffer.capacity());
        if required > FIRST_LEN { required } else { 0 }
    }

    /// Bytes of memory held: at most the limit and a header.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Frees the memory if nothing is buffered, and returns whether it did. For idle connections:
    /// the next read allocates again.
    pub fn release(&mut self) -> bool {
        let idle = self.buffered() == 0;
        if idle {
            self.buffer = Vec::new();
            (self.start, self.end) = (0, 0);
        }
        idle
    }
}
