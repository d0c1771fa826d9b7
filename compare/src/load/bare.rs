//! The bare echoes' protocol: messages of exactly the size that Leeward's have.

use anyhow::{Result, ensure};
use leeward_rpc::wire::HEADER_LEN;

use super::speak::{Speak, Taken};

/// Client side of a connection. Every message carries a number, and they must come back in order.
pub(crate) struct Bare {
    message: Vec<u8>,
    asked: u64,
    answered: u64,
}

/// Where the number lies.
const NUMBER: std::ops::Range<usize> = 8..16;

impl Bare {
    /// With as many bytes as a Leeward call with `payload` bytes has.
    pub(crate) fn new(payload: usize) -> Self {
        let length = HEADER_LEN + payload;
        let mut message = vec![0; length];
        message[..4].copy_from_slice(&(length as u32).to_le_bytes());
        Bare { message, asked: 0, answered: 0 }
    }
}

impl Speak for Bare {
    fn greet(&mut self, _: &mut Vec<u8>) {}

    fn is_open(&self) -> bool {
        true
    }

    fn ask(&mut self, out: &mut Vec<u8>) {
        self.asked += 1;
        self.message[NUMBER].copy_from_slice(&self.asked.to_le_bytes());
        out.extend_from_slice(&self.message);
    }

    fn take(&mut self, bytes: &[u8], _: &mut Vec<u8>) -> Result<Taken> {
        let mut taken = Taken::default();
        for message in bytes.chunks_exact(self.message.len()) {
            self.answered += 1;
            let right = message[..4] == self.message[..4] && message[NUMBER] == self.answered.to_le_bytes();
            ensure!(right && self.answered <= self.asked, "an echo is not what was sent");
            taken.bytes += message.len();
            taken.answers += 1;
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echoes_are_counted_and_checked() {
        let mut bare = Bare::new(8);
        let mut out = Vec::new();
        bare.ask(&mut out);
        bare.ask(&mut out);
        assert_eq!(out.len(), 2 * 72);
        assert_eq!(bare.take(&out[..71], &mut Vec::new()).unwrap(), Taken { bytes: 0, answers: 0 });
        assert_eq!(bare.take(&out, &mut Vec::new()).unwrap(), Taken { bytes: 144, answers: 2 });
        assert!(bare.take(&out[..72], &mut Vec::new()).is_err(), "twice the same");
    }
}
