//! Trace ids of requests, by which `leeward profile join` joins recordings of several processes:
//! W3C's header `traceparent`, and calls to other processes.
//!
//! Does not send or receive anything.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::request::Request;
use crate::runtime;

/// Content of the header `traceparent` (W3C Trace Context).
///
/// ```
/// use leeward_trace::TraceParent;
///
/// let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let parent = TraceParent::parse(header.as_bytes()).unwrap();
/// assert_eq!(parent.to_string(), header);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace: [u8; 16],
    span: u64,
    flags: u8,
}

impl TraceParent {
    /// Length of the header's value in version 0.
    const LENGTH: usize = 55;

    /// Parses the header's value; `None` if it violates the standard.
    ///
    /// Later versions may append fields, which are ignored. A request with several such headers
    /// has none.
    pub fn parse(value: &[u8]) -> Option<TraceParent> {
        let (known, more) = value.split_at_checked(TraceParent::LENGTH)?;
        let version = number(&known[..2])?;
        let is_ended = if version == 0 { more.is_empty() } else { more.first().is_none_or(|byte| *byte == b'-') };
        let are_separated = [2, 35, 52].iter().all(|index| known[*index] == b'-');
        if version == 0xFF || !is_ended || !are_separated {
            return None;
        }
        let (high, low) = (number(&known[3..19])?, number(&known[19..35])?);
        let (span, flags) = (number(&known[36..52])?, number(&known[53..])?);
        let trace = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        // Of the flags version 0 defines *sampled* and *random*.
        (high | low != 0 && span != 0).then_some(TraceParent { trace, span, flags: flags as u8 & 3 })
    }

    /// Returns the trace id.
    pub fn trace(&self) -> [u8; 16] {
        self.trace
    }

    /// Returns the span id of the caller's call.
    pub fn span(&self) -> u64 {
        self.span
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "00-{:032x}-{:016x}-{:02x}", u128::from_be_bytes(self.trace), self.span, self.flags)
    }
}

/// Parses lower-case hexadecimal digits.
fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(digit))
    })
}

/// Returns a random number, not 0.
fn random() -> u64 {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    // The keys are the system's random numbers.
    RandomState::new().hash_one(COUNTER.fetch_add(1, Ordering::Relaxed)).max(1)
}

/// A request's place in a trace of several processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The request's id in this process.
    request: u64,
    /// The trace, with the request's own span.
    own: TraceParent,
}

impl TraceContext {
    /// Gives request `id` its place in the trace of its caller, or in a new trace without one.
    ///
    /// The request must have started. `parent` is what [`TraceParent::parse`] returns.
    pub fn of_request(id: u64, parent: Option<TraceParent>) -> TraceContext {
        let own = match parent {
            Some(parent) => TraceParent { span: random(), ..parent },
            None => {
                let trace = u128::from(random()) << 64 | u128::from(random());
                // Recorded, with a random id.
                TraceParent { trace: trace.to_be_bytes(), span: random(), flags: 3 }
            }
        };
        runtime::request_trace(id, &own.trace, own.span, parent.map_or(0, |parent| parent.span));
        TraceContext { request: id, own }
    }

    /// Returns the trace id.
    pub fn trace(&self) -> [u8; 16] {
        self.own.trace
    }

    /// Begins a call of the request to another process, which `peer` names.
    ///
    /// The call ends when it is dropped. Names are limited like the labels of requests.
    pub fn call(&self, peer: &str) -> RemoteCall {
        let call = RemoteCall { request: self.request, sent: TraceParent { span: random(), ..self.own } };
        runtime::request_call(self.request, call.sent.span, peer);
        call
    }
}

impl Request {
    /// Gives the request its place in the trace of its caller, or in a new trace without one.
    ///
    /// ```
    /// use leeward_trace::{TraceParent, request};
    ///
    /// let request = request(1);
    /// let header = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// let context = request.trace(TraceParent::parse(header));
    ///
    /// let call = context.call("store");
    /// let value = call.traceparent().to_string(); // the header for the other process
    /// drop(call); // once it has answered
    /// # assert!(value.starts_with("00-0af7651916cd43dd8448eb211c80319c-"));
    /// ```
    pub fn trace(&self, parent: Option<TraceParent>) -> TraceContext {
        TraceContext::of_request(self.id(), parent)
    }
}

/// A call to another process; dropping it ends the call.
#[derive(Debug)]
#[must_use = "the call ends when this is dropped"]
pub struct RemoteCall {
    request: u64,
    sent: TraceParent,
}

impl RemoteCall {
    /// Returns what the other process needs: the value of the header `traceparent`.
    pub fn traceparent(&self) -> TraceParent {
        self.sent
    }
}

impl Drop for RemoteCall {
    fn drop(&mut self) {
        runtime::request_answer(self.request, self.sent.span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_header_is_parsed_strictly() {
        let parse = |text: &str| TraceParent::parse(text.as_bytes());
        assert_eq!(parse(VALID).unwrap().span(), 0xb7ad_6b71_6920_3331);
        assert_eq!(parse(VALID).unwrap().trace()[..4], [0x0a, 0xf7, 0x65, 0x19]);
        // A later version may append fields.
        for valid in [VALID.replace("00-0", "01-0"), VALID.replace("00-0", "cc-0") + "-more"] {
            assert_eq!(parse(&valid), parse(VALID), "{valid}");
        }
        for wrong in [
            String::new(),
            VALID.to_uppercase(),
            format!("{VALID}-more"),
            format!("{VALID} "),
            format!(" {VALID}"),
            VALID[..54].to_string(),
            VALID.replace("00-0", "ff-0"),
            VALID.replace("00-0", "01-0") + "more",
            VALID.replace("b7ad6b7169203331", "0000000000000000"),
            VALID.replace("0af7651916cd43dd8448eb211c80319c", "00000000000000000000000000000000"),
            VALID.replace("-b7", "_b7"),
            VALID.replace("0af7", "0xf7"),
            VALID.replace("0af7", "+af7"),
        ] {
            assert_eq!(parse(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_call_keeps_the_trace_and_has_a_span_of_its_own() {
        let parent = TraceParent::parse(VALID.as_bytes());
        let context = crate::request(1).trace(parent);
        let (one, other) = (context.call("store"), context.call("store"));
        let spans = [parent.unwrap().span, context.own.span, one.sent.span, other.sent.span];
        assert_eq!(one.traceparent().trace(), parent.unwrap().trace());
        assert_eq!(spans.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
        let new = crate::request(2).trace(None);
        assert!(new.trace() != context.trace() && new.trace() != [0; 16]);
        assert_eq!(TraceParent::parse(new.own.to_string().as_bytes()), Some(new.own));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_rejected(
            bytes in prop::collection::vec(any::<u8>(), 0..80), index in 0_usize..60, byte in prop_oneof![any::<u8>(), Just(b'-'), Just(b'0')],
        ) {
            TraceParent::parse(&bytes);
            let mut changed = VALID.as_bytes().to_vec();
            if let Some(place) = changed.get_mut(index) {
                *place = byte;
            }
            if let Some(parsed) = TraceParent::parse(&changed) {
                prop_assert_eq!(TraceParent::parse(parsed.to_string().as_bytes()), Some(parsed));
            }
        }
    }
}
