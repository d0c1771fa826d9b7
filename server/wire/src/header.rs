//! The 64 bytes before every payload: the layout of the fields, and the fields of each kind of
//! frame. Encoding, decoding, the check for zero fields and the tests of `docs/protocol.md` use one
//! table.

use std::fmt;

/// Bytes of every header: one cache line.
pub const HEADER_LEN: usize = 64;

/// The first two bytes, `LW`, as a little-endian number.
pub const MAGIC: u16 = u16::from_le_bytes(*b"LW");

/// Version of the protocol. All frames of a connection have the version of its registration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Version {
    /// Without cancellation.
    #[default]
    One = 1,
    /// With cancellation: [`Kind::Cancel`], and a reject code for it.
    Two = 2,
}

impl Version {
    /// All versions that this code speaks, the oldest first.
    pub const ALL: [Version; 2] = [Version::One, Version::Two];
    /// The newest version that this code speaks.
    pub const NEWEST: Version = Version::Two;

    /// The number on the wire.
    #[inline]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// `None` for a version that this code doesn't speak.
    #[inline]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Version::One),
            2 => Some(Version::Two),
            _ => None,
        }
    }
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Opened the connection and sends calls.
    Client,
    /// Accepted the connection and answers.
    Server,
}

/// Kind of a frame. The number is the header's kind byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A client registers.
    Register = 1,
    /// The server confirms the registration.
    Welcome = 2,
    /// A request.
    Call = 3,
    /// The request's result.
    Response = 4,
    /// The request's rejection.
    Drop = 5,
    /// An admitted request has no result.
    Failure = 6,
    /// A window without an answer to carry it.
    Credit = 7,
    /// A demand without a call to carry it.
    Demand = 8,
    /// A client sends no more calls.
    Deregister = 9,
    /// Request for a pong.
    Ping = 10,
    /// Answer to a ping.
    Pong = 11,
    /// The reason for which the server closes the connection.
    Error = 12,
    /// The client does not need a call's answer any more.
    Cancel = 13,
}

impl Kind {
    /// All kinds, by number.
    pub const ALL: [Kind; 13] = [
        Kind::Register,
        Kind::Welcome,
        Kind::Call,
        Kind::Response,
        Kind::Drop,
        Kind::Failure,
        Kind::Credit,
        Kind::Demand,
        Kind::Deregister,
        Kind::Ping,
        Kind::Pong,
        Kind::Error,
        Kind::Cancel,
    ];

    /// The number on the wire.
    #[inline]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// `None` for an unknown number.
    #[inline]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).wrapping_sub(1)).copied()
    }

    /// The first version with this kind.
    #[inline]
    pub const fn min_version(self) -> Version {
        match self {
            Kind::Cancel => Version::Two,
            _ => Version::One,
        }
    }

    /// Whether `side` may send this kind.
    #[inline]
    pub const fn is_sent_by(self, side: Side) -> bool {
        match self {
            Kind::Register | Kind::Call | Kind::Demand | Kind::Deregister | Kind::Cancel => {
                matches!(side, Side::Client)
            }
            Kind::Welcome | Kind::Response | Kind::Drop | Kind::Failure | Kind::Credit | Kind::Error => {
                matches!(side, Side::Server)
            }
            Kind::Ping | Kind::Pong => true,
        }
    }

    /// The fields that this kind uses besides magic, version and kind. All others are zero.
    pub const fn fields(self) -> &'static [Field] {
        use Field::{
            Budget, Code, CreditId, Custom, Demand, Method, PayloadLen, PayloadMax, Priority, RequestId, RetryAfter,
            Sojourn, Threshold, Timestamp, Window,
        };
        match self {
            Kind::Register => &[Timestamp, PayloadMax, Demand],
            Kind::Welcome => &[Timestamp, CreditId, Custom, PayloadMax, Window, Threshold, Code],
            Kind::Call => &[PayloadLen, RequestId, Timestamp, CreditId, Method, Demand, Budget, Priority],
            Kind::Response => &[PayloadLen, RequestId, Timestamp, CreditId, Custom, Window, Sojourn, Threshold],
            Kind::Drop => {
                &[PayloadLen, RequestId, Timestamp, CreditId, Custom, Window, RetryAfter, Sojourn, Threshold, Code]
            }
            Kind::Failure => &[PayloadLen, RequestId, Timestamp, CreditId, Custom, Window, Sojourn, Threshold, Code],
            Kind::Credit => &[CreditId, Custom, Window, Threshold],
            Kind::Demand => &[Demand],
            Kind::Deregister => &[],
            Kind::Ping | Kind::Pong => &[Timestamp],
            Kind::Error => &[PayloadLen, Code],
            Kind::Cancel => &[RequestId],
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A field of the header. Two pairs share their bytes, because no kind has both: [`Field::Method`]
/// and [`Field::PayloadMax`], [`Field::Budget`] and [`Field::RetryAfter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Field {
    /// `LW`.
    Magic,
    /// The protocol's version.
    Version,
    /// Kind of the frame.
    Kind,
    /// Bytes that follow the header.
    PayloadLen,
    /// Identifier of the call.
    RequestId,
    /// The sender's clock, or the echo of the receiver's.
    Timestamp,
    /// Identifier of the credit grant.
    CreditId,
    /// For algorithms of other crates.
    Custom,
    /// The procedure.
    Method,
    /// The longest payload that the sender accepts, in bytes.
    PayloadMax,
    /// Requests that may be unanswered, absolute.
    Window,
    /// Requests that wait at the client.
    Demand,
    /// Queueing delay that the request may still spend, in nanoseconds; 0 is no limit.
    Budget,
    /// Time without sending, in nanoseconds; 0 is no hint.
    RetryAfter,
    /// Time that the server had the request, in nanoseconds.
    Sojourn,
    /// Importance of the request, 1..=128.
    Priority,
    /// The least importance that is still admitted, 1..=128.
    Threshold,
    /// Reason, failure, error or regime, according to the kind.
    Code,
    /// Reserved.
    Flags,
}

/// Position of a field: the 8-byte word, the first bit in it, and the number of bits.
#[derive(Clone, Copy)]
struct FieldLayout {
    word: usize,
    shift: u32,
    bits: u32,
}

impl FieldLayout {
    /// The field's largest value.
    #[inline]
    const fn max(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }
}

impl Field {
    /// All fields, in the order of the header.
    pub const ALL: [Field; 19] = [
        Field::Magic,
        Field::Version,
        Field::Kind,
        Field::PayloadLen,
        Field::RequestId,
        Field::Timestamp,
        Field::CreditId,
        Field::Custom,
        Field::Method,
        Field::PayloadMax,
        Field::Window,
        Field::Demand,
        Field::Budget,
        Field::RetryAfter,
        Field::Sojourn,
        Field::Priority,
        Field::Threshold,
        Field::Code,
        Field::Flags,
    ];

    /// Offset in the header, in bytes.
    pub const fn offset(self) -> usize {
        let layout = self.layout();
        layout.word * 8 + layout.shift as usize / 8
    }

    /// Size in bytes.
    #[inline]
    pub const fn size(self) -> usize {
        self.layout().bits as usize / 8
    }

    #[inline]
    const fn layout(self) -> FieldLayout {
        let (word, shift, bits) = match self {
            Field::Magic => (0, 0, 16),
            Field::Version => (0, 16, 8),
            Field::Kind => (0, 24, 8),
            Field::PayloadLen => (0, 32, 32),
            Field::RequestId => (1, 0, 64),
            Field::Timestamp => (2, 0, 64),
            Field::CreditId => (3, 0, 64),
            Field::Custom => (4, 0, 64),
            Field::Method | Field::PayloadMax => (5, 0, 32),
            Field::Window => (5, 32, 32),
            Field::Demand => (6, 0, 32),
            Field::Budget | Field::RetryAfter => (6, 32, 32),
            Field::Sojourn => (7, 0, 32),
            Field::Priority => (7, 32, 8),
            Field::Threshold => (7, 40, 8),
            Field::Code => (7, 48, 8),
            Field::Flags => (7, 56, 8),
        };
        FieldLayout { word, shift, bits }
    }
}

impl fmt::Display for Field {
    /// Writes the name in `docs/protocol.md`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Field::Magic => "magic",
            Field::Version => "version",
            Field::Kind => "kind",
            Field::PayloadLen => "payload_len",
            Field::RequestId => "request_id",
            Field::Timestamp => "timestamp",
            Field::CreditId => "credit_id",
            Field::Custom => "custom",
            Field::Method => "method",
            Field::PayloadMax => "payload_max",
            Field::Window => "window",
            Field::Demand => "demand",
            Field::Budget => "budget",
            Field::RetryAfter => "retry_after",
            Field::Sojourn => "sojourn",
            Field::Priority => "priority",
            Field::Threshold => "threshold",
            Field::Code => "code",
            Field::Flags => "flags",
        })
    }
}

/// Bits that each kind may set.
static USED: [RawHeader; Kind::ALL.len()] = {
    let mut used = [RawHeader([0; 8]); Kind::ALL.len()];
    let mut kind = 0;
    while kind < used.len() {
        let fields = Kind::ALL[kind].fields();
        used[kind] = RawHeader::ZERO.with(Field::Magic, 0xffff).with(Field::Version, 0xff).with(Field::Kind, 0xff);
        let mut field = 0;
        while field < fields.len() {
            used[kind] = used[kind].with(fields[field], fields[field].layout().max());
            field += 1;
        }
        kind += 1;
    }
    used
};

/// A header as eight little-endian words.
#[derive(Clone, Copy)]
pub(super) struct RawHeader([u64; 8]);

impl RawHeader {
    const ZERO: RawHeader = RawHeader([0; 8]);

    /// The header of a `kind` frame with `payload_len` bytes to follow; all other fields are zero.
    #[inline]
    pub(super) const fn new(version: Version, kind: Kind, payload_len: u32) -> Self {
        RawHeader::ZERO
            .with(Field::Magic, MAGIC as u64)
            .with(Field::Version, version.number() as u64)
            .with(Field::Kind, kind.number() as u64)
            .with(Field::PayloadLen, payload_len as u64)
    }

    #[inline]
    pub(super) fn read(bytes: &[u8; HEADER_LEN]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let mut read = RawHeader::ZERO;
        for (to, from) in read.0.iter_mut().zip(words) {
            *to = u64::from_le_bytes(*from);
        }
        read
    }

    /// Reads only the first of the eight words.
    #[inline]
    pub(super) fn first(bytes: &[u8; 8]) -> Self {
        let mut read = RawHeader::ZERO;
        read.0[0] = u64::from_le_bytes(*bytes);
        read
    }

    #[inline]
    pub(super) fn bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        self.store(&mut bytes);
        bytes
    }

    #[inline]
    pub(super) fn store(self, bytes: &mut [u8; HEADER_LEN]) {
        let (words, _) = bytes.as_chunks_mut::<8>();
        for (to, from) in words.iter_mut().zip(self.0) {
            *to = from.to_le_bytes();
        }
    }

    #[inline]
    pub(super) const fn value(&self, field: Field) -> u64 {
        let layout = field.layout();
        (self.0[layout.word] >> layout.shift) & layout.max()
    }

    #[inline]
    pub(super) const fn value_u32(&self, field: Field) -> u32 {
        debug_assert!(field.size() <= 4);
        self.value(field) as u32
    }

    #[inline]
    pub(super) const fn value_u8(&self, field: Field) -> u8 {
        debug_assert!(field.size() == 1);
        self.value(field) as u8
    }

    /// Sets `field`, zero so far, to `value`.
    #[inline]
    pub(super) const fn with(mut self, field: Field, value: u64) -> Self {
        let layout = field.layout();
        debug_assert!(value <= layout.max() && self.value(field) == 0);
        self.0[layout.word] |= value << layout.shift;
        self
    }

    /// The first field that isn't zero although a `kind` frame doesn't use it.
    #[inline]
    pub(super) fn unexpected_field(&self, kind: Kind) -> Option<Field> {
        let used = &USED[kind as usize - 1].0;
        let stray = self.0.iter().zip(used).fold(0, |stray, (word, used)| stray | (word & !used));
        if stray == 0 { None } else { self.first_unexpected(used) }
    }

    #[cold]
    fn first_unexpected(&self, used: &[u64; 8]) -> Option<Field> {
        let left = |field: &Field| {
            let layout = field.layout();
            (self.0[layout.word] & !used[layout.word]) >> layout.shift & layout.max() != 0
        };
        Field::ALL.into_iter().find(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_fill_the_header_without_a_gap() {
        let mut end = 0;
        for field in Field::ALL {
            if !matches!(field, Field::PayloadMax | Field::RetryAfter) {
                assert_eq!(field.offset(), end, "{field}");
                end += field.size();
            }
            assert_eq!(field.offset() % field.size(), 0, "{field} is not aligned");
        }
        assert_eq!(end, HEADER_LEN);
    }

    #[test]
    fn numbers_name_the_kinds() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(kind.number()), index + 1);
            assert_eq!(Kind::from_number(kind.number()), Some(kind));
        }
        assert_eq!(Kind::from_number(0), None);
        assert_eq!(Kind::from_number(14), None);
    }

    #[test]
    fn no_kind_uses_an_offset_twice() {
        for kind in Kind::ALL {
            for (number, field) in kind.fields().iter().enumerate() {
                assert!(kind.fields()[..number].iter().all(|other| other.offset() != field.offset()), "{kind} {field}");
            }
        }
    }
}
