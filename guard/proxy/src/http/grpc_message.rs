//! End of the first message in the content of a gRPC response. Does not contain the content.

use super::base64;
use leeward_tower::headers::Grpc;

/// Bytes before a message: a flag, and the message's length in four bytes
/// (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).
const PREFIX: usize = 5;
/// Digits of base64 that hold them.
const PREFIX_DIGITS: usize = 7;

/// The first message, as far as its bytes are there.
pub(super) struct FirstMessage {
    is_text: bool,
    prefix: Vec<u8>,
    bytes: u64,
    /// Bytes at its end, once they are known; `None` for good if the prefix is malformed.
    end: Option<u64>,
}

impl FirstMessage {
    /// The first message of a response of this form, before its first byte.
    pub(super) fn new(form: &Grpc) -> Self {
        let is_text = matches!(form, Grpc::Web { is_text: true, .. });
        FirstMessage { is_text, prefix: Vec::new(), bytes: 0, end: None }
    }

    /// Takes note of the next piece of the content.
    pub(super) fn note(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        let length = if self.is_text { PREFIX_DIGITS } else { PREFIX };
        if self.prefix.len() == length {
            return;
        }
        self.prefix.extend(piece.iter().take(length - self.prefix.len()));
        if self.prefix.len() == length {
            self.end = if self.is_text { end_in_base64(&self.prefix) } else { Some(end(&self.prefix)) };
        }
    }

    /// Whether its last byte is there.
    pub(super) fn is_complete(&self) -> bool {
        self.end.is_some_and(|end| self.bytes >= end)
    }
}

/// Bytes up to the end of a message with this prefix.
fn end(prefix: &[u8]) -> u64 {
    let length = prefix.iter().skip(1).fold(0, |length, byte| length << 8 | u64::from(*byte));
    PREFIX as u64 + length
}

/// Digits up to the end of a message whose prefix is in these digits.
fn end_in_base64(digits: &[u8]) -> Option<u64> {
    let value = digits.iter().try_fold(0, |value, digit| Some(value << 6 | base64::value(*digit)?))?;
    let length = (value >> 2) & u64::from(u32::MAX);
    Some((PREFIX as u64 + length).div_ceil(3) * 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn form(is_text: bool) -> Grpc {
        Grpc::Web { kind: HeaderValue::from_static("application/grpc-web"), is_text }
    }

    proptest! {
        #[test]
        fn a_message_is_complete_with_its_last_byte(
            message in prop::collection::vec(any::<u8>(), 0..400), size in 1..9usize, is_text in any::<bool>(),
        ) {
            let mut content = vec![0];
            content.extend((message.len() as u32).to_be_bytes());
            content.extend(&message);
            if is_text {
                content = base64::encode(&content).into_bytes();
            }
            for form in [form(is_text), if is_text { form(true) } else { Grpc::Native }] {
                let mut first = FirstMessage::new(&form);
                let mut seen = 0;
                for piece in content.chunks(size) {
                    prop_assert!(!first.is_complete());
                    first.note(piece);
                    seen += piece.len();
                    prop_assert_eq!(first.is_complete(), seen == content.len());
                }
                first.note(b"the next");
                prop_assert!(first.is_complete());
            }
        }

        #[test]
        fn any_bytes_are_taken(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9)) {
            for is_text in [true, false] {
                let mut first = FirstMessage::new(&form(is_text));
                pieces.iter().for_each(|piece| first.note(piece));
            }
        }
    }
}
