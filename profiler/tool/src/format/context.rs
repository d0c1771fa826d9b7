//! Events of kind 15: labels of requests, and what links requests of several processes. Encodes
//! and decodes the bytes after the event's length.
//!
//! Does not interpret the events; `analysis/requests` attaches them to requests.

use serde::Serialize;

use super::varint::{Cursor, FormatError, put_varint};

/// Sorts of events of kind 15. Readers skip other sorts.
const LABEL: u8 = 1;
const CONTEXT: u8 = 2;
const REMOTE_CALL: u8 = 3;
const REMOTE_ANSWER: u8 = 4;

/// Field of a request's trace context. The names are those of W3C's Trace Context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContextField {
    /// The first eight bytes of the trace id.
    TraceHigh = 1,
    /// The last eight bytes of the trace id.
    TraceLow = 2,
    /// The request's own span id.
    Span = 3,
    /// The span id that the caller sent: that of its call.
    Parent = 4,
}

impl ContextField {
    fn from_byte(byte: u8) -> Option<ContextField> {
        match byte {
            1 => Some(ContextField::TraceHigh),
            2 => Some(ContextField::TraceLow),
            3 => Some(ContextField::Span),
            4 => Some(ContextField::Parent),
            _ => None,
        }
    }
}

/// Trace context of a request. Zeros are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RequestContext {
    /// The trace id.
    pub trace: u128,
    /// The request's own span id.
    pub span: u64,
    /// The span id that the caller sent.
    pub parent: u64,
    /// Calls of the request to other processes, in the order in which they were sent.
    pub calls: Vec<RemoteCall>,
}

impl RequestContext {
    /// Sets a field. The last value counts.
    pub fn set(&mut self, field: ContextField, value: u64) {
        let (high, low) = ((self.trace >> 64) as u64, self.trace as u64);
        let trace = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        match field {
            ContextField::TraceHigh => self.trace = trace(value, low),
            ContextField::TraceLow => self.trace = trace(high, value),
            ContextField::Span => self.span = value,
            ContextField::Parent => self.parent = value,
        }
    }
}

/// Call of a request to another process. Times in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RemoteCall {
    /// The span id that was sent.
    pub span: u64,
    /// Label of the other process; 0 if unknown.
    pub peer: u32,
    /// Time at which the call was sent.
    pub sent: u64,
    /// Time at which the answer was received; `None` without an answer.
    pub answered: Option<u64>,
}

/// An event of kind 15; the fields are those of the event kinds with the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherEvent {
    RequestLabel { id: u64, label: u32 },
    RequestContext { id: u64, field: ContextField, value: u64 },
    RemoteCall { id: u64, span: u64, peer: u32 },
    RemoteAnswer { id: u64, span: u64 },
}

/// Decodes an event of kind 15; `None` for an unknown sort.
pub(super) fn decode(inside: &[u8]) -> Result<Option<OtherEvent>, FormatError> {
    let mut inside = Cursor::new(inside);
    let Ok(sort) = inside.u8() else { return Ok(None) };
    Ok(match sort {
        LABEL => Some(OtherEvent::RequestLabel { id: inside.varint()?, label: narrow(&mut inside)? }),
        CONTEXT => {
            let (id, field, value) = (inside.varint()?, inside.u8()?, inside.u64()?);
            ContextField::from_byte(field).map(|field| OtherEvent::RequestContext { id, field, value })
        }
        REMOTE_CALL => {
            Some(OtherEvent::RemoteCall { id: inside.varint()?, span: inside.u64()?, peer: narrow(&mut inside)? })
        }
        REMOTE_ANSWER => Some(OtherEvent::RemoteAnswer { id: inside.varint()?, span: inside.u64()? }),
        _ => None,
    })
}

/// Encodes an event of kind 15.
pub(super) fn encode(kind: &OtherEvent) -> Vec<u8> {
    let mut inside = Vec::with_capacity(24);
    match *kind {
        OtherEvent::RequestLabel { id, label } => {
            inside.push(LABEL);
            put_varint(&mut inside, id);
            put_varint(&mut inside, u64::from(label));
        }
        OtherEvent::RequestContext { id, field, value } => {
            inside.push(CONTEXT);
            put_varint(&mut inside, id);
            inside.push(field as u8);
            inside.extend(value.to_le_bytes());
        }
        OtherEvent::RemoteCall { id, span, peer } => {
            inside.push(REMOTE_CALL);
            put_varint(&mut inside, id);
            inside.extend(span.to_le_bytes());
            put_varint(&mut inside, u64::from(peer));
        }
        OtherEvent::RemoteAnswer { id, span } => {
            inside.push(REMOTE_ANSWER);
            put_varint(&mut inside, id);
            inside.extend(span.to_le_bytes());
        }
    }
    inside
}

fn narrow(cursor: &mut Cursor<'_>) -> Result<u32, FormatError> {
    u32::try_from(cursor.varint()?).map_err(|_| FormatError::Length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kinds() -> impl Strategy<Value = OtherEvent> {
        let field = prop_oneof![
            Just(ContextField::TraceHigh),
            Just(ContextField::TraceLow),
            Just(ContextField::Span),
            Just(ContextField::Parent)
        ];
        prop_oneof![
            any::<(u64, u32)>().prop_map(|(id, label)| OtherEvent::RequestLabel { id, label }),
            (any::<u64>(), field, any::<u64>()).prop_map(|(id, field, value)| OtherEvent::RequestContext {
                id,
                field,
                value
            }),
            any::<(u64, u64, u32)>().prop_map(|(id, span, peer)| OtherEvent::RemoteCall { id, span, peer }),
            any::<(u64, u64)>().prop_map(|(id, span)| OtherEvent::RemoteAnswer { id, span }),
        ]
    }

    proptest! {
        #[test]
        fn decoding_reverses_encoding(kind in kinds()) {
            prop_assert_eq!(decode(&encode(&kind)).unwrap(), Some(kind));
        }

        #[test]
        fn any_bytes_are_decoded_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn unknown_sorts_and_fields_are_skipped() {
        assert_eq!(decode(&[]).unwrap(), None);
        assert_eq!(decode(&[200, 1, 2]).unwrap(), None);
        assert_eq!(decode(&[2, 7, 9, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap(), None, "field 9");
    }

    #[test]
    fn a_trace_id_has_two_halves() {
        let mut context = RequestContext::default();
        context.set(ContextField::TraceLow, 2);
        context.set(ContextField::TraceHigh, 1);
        assert_eq!(context.trace, (1 << 64) + 2);
    }
}
