//! From frames to bytes.

use super::error::EncodeError;
use super::frame::{Frame, payload_max};
use super::header::{HEADER_LEN, RawHeader, Version};
use super::value::PayloadLimit;

/// Encodes frames for one peer. A frame takes [`Frame::encoded_len`] bytes, known beforehand.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    limit: PayloadLimit,
    version: Version,
}

impl Encoder {
    /// For a peer that accepts payloads up to `limit`, in version 1.
    pub const fn new(limit: PayloadLimit) -> Self {
        Encoder { limit, version: Version::One }
    }

    /// The same in another version.
    #[must_use]
    pub const fn with_version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// The header alone, to be sent before [`Frame::payload`] in one vectored write: a long payload is not copied.
    ///
    /// # Errors
    /// [`EncodeError::PayloadTooLarge`], [`EncodeError::Version`].
    #[inline]
    pub fn header(&self, frame: &Frame<'_>) -> Result<[u8; HEADER_LEN], EncodeError> {
        let (words, _) = self.parts(frame)?;
        Ok(words.bytes())
    }

    /// Appends `frame` to `out` and says how many bytes it took. Allocates only where `out` must grow.
    ///
    /// # Errors
    /// [`EncodeError::PayloadTooLarge`], [`EncodeError::Version`]; `out` is then as it was.
    #[inline]
    pub fn append(&self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<usize, EncodeError> {
        let (words, payload) = self.parts(frame)?;
        let length = HEADER_LEN + payload.len();
        out.reserve(length);
        out.extend_from_slice(&words.bytes());
        out.extend_from_slice(payload);
        Ok(length)
    }

    /// Writes `frame` to the beginning of `out` and says how many bytes it took.
    ///
    /// # Errors
    /// As [`Encoder::append`], or [`EncodeError::NoRoom`] where `out` is too short; `out` is then as it was.
    #[inline]
    pub fn write(&self, frame: &Frame<'_>, out: &mut [u8]) -> Result<usize, EncodeError> {
        let (words, payload) = self.parts(frame)?;
        let (needed, room) = (HEADER_LEN + payload.len(), out.len());
        let out = out.get_mut(..needed).and_then(|out| out.split_first_chunk_mut());
        let (header, behind) = out.ok_or(EncodeError::BufferTooSmall { needed, available: room })?;
        words.store(header);
        behind.copy_from_slice(payload);
        Ok(needed)
    }

    #[inline]
    fn parts<'a>(&self, frame: &Frame<'a>) -> Result<(RawHeader, &'a [u8]), EncodeError> {
        if frame.min_version() > self.version {
            return Err(EncodeError::Version { kind: frame.kind(), version: self.version });
        }
        let payload = frame.payload();
        let limit = payload_max(frame.kind(), self.limit);
        match u32::try_from(payload.len()) {
            Ok(length) if length <= limit => Ok((frame.raw_header(self.version, length), payload)),
            _ => Err(EncodeError::PayloadTooLarge { length: payload.len(), limit }),
        }
    }
}
