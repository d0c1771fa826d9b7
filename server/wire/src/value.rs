//! Values that only the wire has: identifiers, spans of 32 bits, limits and messages for people.
//! Values that the controllers share (credits, priorities, feedback) come from `leeward-core`.

use std::num::NonZeroU64;

use leeward_core::units::Nanos;

/// Identifier of a call on its connection. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(NonZeroU64);

impl RequestId {
    /// `None` for 0.
    pub const fn new(id: u64) -> Option<Self> {
        match NonZeroU64::new(id) {
            Some(id) => Some(RequestId(id)),
            None => None,
        }
    }

    /// The identifier as a number, 1 or more.
    pub const fn value(self) -> u64 {
        self.0.get()
    }
}

/// A reading of the sender's own clock, in a unit of the sender's choice. The peer echoes it and
/// never interprets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timestamp(pub u64);

/// Number of the procedure that a call calls: the application's own numbers.
///
/// The value on the wire. A plant gives it to the controllers as [`leeward_core::units::Method`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Method(pub u32);

impl Method {
    /// The server's statistics, which every server answers itself. This method needs no credit; all
    /// other numbers are the application's.
    pub const STATISTICS: Method = Method(u32::MAX);
}

/// A span of up to 4.29 s in nanoseconds. Longer spans saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos32(pub u32);

impl Nanos32 {
    /// `span`, or the longest that fits.
    pub fn saturating(span: Nanos) -> Self {
        Nanos32(u32::try_from(span.0).unwrap_or(u32::MAX))
    }

    /// The span in the controllers' type. [`u32::MAX`] nanoseconds stand for that long or longer.
    pub fn nanos(self) -> Nanos {
        Nanos(self.0.into())
    }
}

/// Queueing delay that a request may still spend on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget(u32);

impl Budget {
    /// No limit.
    pub const UNLIMITED: Budget = Budget(0);

    /// A budget of `span`, clamped to 1 ns..=4.29 s. 0 means [`Budget::UNLIMITED`] on the wire; a
    /// longer budget becomes 4.29 s, which is the strict side.
    pub fn of(span: Nanos) -> Self {
        Budget(Nanos32::saturating(span).0.max(1))
    }

    /// The rest of the budget; `None` without a limit.
    pub fn remaining(self) -> Option<Nanos> {
        (self.0 != 0).then(|| Nanos(self.0.into()))
    }

    pub(super) const fn from_wire(ns: u32) -> Self {
        Budget(ns)
    }

    pub(super) const fn wire(self) -> u32 {
        self.0
    }
}

/// The longest [`Message`], in bytes.
pub const MESSAGE_MAX: usize = 1024;

/// A sentence for the person who reads the peer's log. At most [`MESSAGE_MAX`] bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message<'a>(&'a str);

impl<'a> Message<'a> {
    /// The first [`MESSAGE_MAX`] bytes of `text`, or slightly less, so that no character is split.
    pub fn new(text: &'a str) -> Self {
        Message(&text[..text.floor_char_boundary(MESSAGE_MAX)])
    }

    /// The text.
    pub fn as_str(self) -> &'a str {
        self.0
    }
}

/// Limit of the payload of one call or response, in bytes. Each side announces its limit and
/// rejects longer payloads from the header alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PayloadLimit(u32);

impl PayloadLimit {
    /// 1 KiB: the longest [`Message`], so that every side can receive every error.
    pub const MIN: PayloadLimit = PayloadLimit(MESSAGE_MAX as u32);
    /// 1 MiB.
    pub const DEFAULT: PayloadLimit = PayloadLimit(1 << 20);
    /// 1 GiB: frame lengths are counted in 32 bits everywhere.
    pub const MAX: PayloadLimit = PayloadLimit(1 << 30);

    /// Clamps `bytes` to [`PayloadLimit::MIN`]..=[`PayloadLimit::MAX`].
    pub fn new(bytes: u32) -> Self {
        PayloadLimit(bytes.clamp(Self::MIN.0, Self::MAX.0))
    }

    /// The limit in bytes.
    pub const fn bytes(self) -> u32 {
        self.0
    }
}

impl Default for PayloadLimit {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_saturate_on_the_strict_side() {
        assert_eq!(Nanos32::saturating(Nanos::from_secs(60)).0, u32::MAX);
        assert_eq!(Budget::of(Nanos::ZERO).remaining(), Some(Nanos(1)));
        assert_eq!(Budget::of(Nanos::MAX).remaining(), Some(Nanos(u32::MAX.into())));
        assert_eq!(Budget::UNLIMITED.remaining(), None);
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let text = "x".to_string() + &"é".repeat(MESSAGE_MAX);
        let cut = Message::new(&text).as_str();
        assert_eq!(cut.len(), MESSAGE_MAX - 1);
        assert!(text.starts_with(cut));
    }

    #[test]
    fn a_payload_limit_stays_between_its_minimum_and_a_gibibyte() {
        assert_eq!(PayloadLimit::new(0), PayloadLimit::MIN);
        assert_eq!(PayloadLimit::new(u32::MAX), PayloadLimit::MAX);
        assert_eq!(RequestId::new(0), None);
    }
}
