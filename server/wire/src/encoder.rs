//! From frames to bytes.

use super::error::EncodeError;
use super::frame::{Frame, payload_max};
use super::header::{HEADER_LEN, RawHeader, Version};
use super::value::PayloadLimit;

/// Encodes frames for one peer. A frame's length is known before: [`Frame::encoded_len`].
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    limit: PayloadLimit,
    version: Version,
}

impl Encoder {
    /// Encoder for a peer that accepts payloads up to `limit`, in version 1.
    pub const fn new(limit: PayloadLimit) -> Self {
        Encoder { limit, version: Version::One }
    }

    /// The same encoder for another version.
    #[must_use]
    pub const fn with_version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// The header alone. A vectored write sends it together with [`Frame::payload`], so a long
    /// payload is not copied.
    ///
    /// # Errors
    /// [`EncodeError::PayloadTooLarge`], [`EncodeError::Version`].
    #[inline]
    pub fn header(&self, frame: &Frame<'_>) -> Result<[u8; HEADER_LEN], EncodeError> {
        let (words, _) = self.parts(frame)?;
        Ok(words.bytes())
    }

    /// Appends `frame` to `out` and returns its length in bytes. Allocates only if `out` must grow.
    ///
    /// # Errors
    /// [`EncodeError::PayloadTooLarge`], [`EncodeError::Version`]; `out` is then unchanged.
    #[inline]
    pub fn append(&self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<usize, EncodeError> {
        let (words, payload) = self.parts(frame)?;
        let length = HEADER_LEN + payload.len();
        out.reserve(length);
        out.extend_from_slice(&words.bytes());
        out.extend_from_slice(payload);
        Ok(length)
    }

    /// Writes `frame` to the beginning of `out` and returns its length in bytes.
    ///
    /// # Errors
    /// As [`Encoder::append`], or [`EncodeError::BufferTooSmall`] if `out` is too short; `out` is
    /// then unchanged.
    #[inline]
    pub fn write(&self, frame: &Frame<'_>, out: &mut [u8]) -> Result<usize, EncodeError> {
        let (words, payload) = self.parts(frame)?;
        let (needed, space) = (HEADER_LEN + payload.len(), out.len());
        let out = out.get_mut(..needed).and_then(|out| out.split_first_chunk_mut());
        let (header, behind) = out.ok_or(EncodeError::BufferTooSmall { needed, available: space })?;
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
