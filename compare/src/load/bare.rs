//! The protocol of the bare echoes: messages of the same size as Leeward's.

use anyhow::{Result, ensure};
use leeward_rpc::wire::HEADER_LEN;

use super::speak::{Parsed, Protocol};

/// Client side of a connection. Messages are numbered, and echoes must arrive in order.
pub(crate) struct Bare {
    message: Vec<u8>,
    requests_sent: u64,
    answered: u64,
}

/// Position of the number in a message.
const NUMBER: std::ops::Range<usize> = 8..16;

impl Bare {
    /// Messages as long as a Leeward call with `payload` bytes.
    pub(crate) fn new(payload: usize) -> Self {
        let length = HEADER_LEN + payload;
        let mut message = vec![0; length];
        message[..4].copy_from_slice(&(length as u32).to_le_bytes());
        Bare { message, requests_sent: 0, answered: 0 }
    }
}

impl Protocol for Bare {
    fn append_opening(&mut self, _: &mut Vec<u8>) {}

    fn is_open(&self) -> bool {
        true
    }

    fn append_request(&mut self, out: &mut Vec<u8>) {
        self.requests_sent += 1;
        self.message[NUMBER].copy_from_slice(&self.requests_sent.to_le_bytes());
        out.extend_from_slice(&self.message);
    }

    fn parse(&mut self, bytes: &[u8], _: &mut Vec<u8>) -> Result<Parsed> {
        let mut parsed = Parsed::default();
        for message in bytes.chunks_exact(self.message.len()) {
            self.answered += 1;
            let right = message[..4] == self.message[..4] && message[NUMBER] == self.answered.to_le_bytes();
            ensure!(right && self.answered <= self.requests_sent, "an echo is not what was sent");
            parsed.bytes += message.len();
            parsed.answers += 1;
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echoes_are_counted_and_checked() {
        let mut bare = Bare::new(8);
        let mut out = Vec::new();
        bare.append_request(&mut out);
        bare.append_request(&mut out);
        assert_eq!(out.len(), 2 * 72);
        assert_eq!(bare.parse(&out[..71], &mut Vec::new()).unwrap(), Parsed { bytes: 0, answers: 0 });
        assert_eq!(bare.parse(&out, &mut Vec::new()).unwrap(), Parsed { bytes: 144, answers: 2 });
        assert!(bare.parse(&out[..72], &mut Vec::new()).is_err(), "twice the same");
    }
}
