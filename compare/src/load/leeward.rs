//! Leeward's protocol, reduced to the needs of a load.
//!
//! Calls are built once; only the number changes. The load reads only the fields of responses that
//! it needs. `leeward-rpc`'s client does more, and would cost more CPU time than the measured
//! server.

use anyhow::{Context, Result, bail, ensure};
use leeward_core::units::Priority;
use leeward_rpc::wire::{
    Budget, Call, CreditId, Encoder, Frame, HEADER_LEN, Kind, Method, PayloadLimit, Register, RequestId, Timestamp,
};

use super::speak::{Parsed, Protocol};

/// Offsets of a header's fields (docs/protocol.md).
const KIND: usize = 3;
const PAYLOAD_LEN: std::ops::Range<usize> = 4..8;
const REQUEST: std::ops::Range<usize> = 8..16;

/// Client side of a connection.
pub(crate) struct Leeward {
    call: Vec<u8>,
    payload: usize,
    requests_sent: u64,
    answered: u64,
    is_welcome: bool,
}

impl Leeward {
    /// Client side with calls of `payload` bytes.
    pub(crate) fn new(payload: usize) -> Self {
        let argument = vec![0; payload];
        let call = Call {
            request: RequestId::new(1).unwrap_or_else(|| unreachable!("1 is not 0")),
            timestamp: Timestamp(0),
            credit: CreditId::NONE,
            method: Method(0),
            demand: 0,
            budget: Budget::UNLIMITED,
            priority: Priority::HIGHEST,
            payload: &argument,
        };
        Leeward { call: encoded(&Frame::Call(call)), payload, requests_sent: 0, answered: 0, is_welcome: false }
    }
}

fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // The command line bounds payloads, so encoding can't fail.
    let _ = Encoder::new(PayloadLimit::DEFAULT).append(frame, &mut bytes);
    bytes
}

impl Protocol for Leeward {
    fn append_opening(&mut self, out: &mut Vec<u8>) {
        let register = Register { timestamp: Timestamp(0), demand: 0, payload_max: PayloadLimit::DEFAULT };
        out.extend_from_slice(&encoded(&Frame::Register(register)));
    }

    fn is_open(&self) -> bool {
        self.is_welcome
    }

    fn append_request(&mut self, out: &mut Vec<u8>) {
        self.requests_sent += 1;
        self.call[REQUEST].copy_from_slice(&self.requests_sent.to_le_bytes());
        out.extend_from_slice(&self.call);
    }

    fn parse(&mut self, bytes: &[u8], _: &mut Vec<u8>) -> Result<Parsed> {
        let mut parsed = Parsed::default();
        while let Some(header) = bytes[parsed.bytes..].first_chunk::<HEADER_LEN>() {
            let payload = header[PAYLOAD_LEN].try_into().map(u32::from_le_bytes).unwrap_or_default() as usize;
            match Kind::from_number(header[KIND]).context("no frame")? {
                Kind::Response => {
                    ensure!(payload == self.payload, "a result of {payload} bytes");
                    let number = header[REQUEST].try_into().map(u64::from_le_bytes).unwrap_or_default();
                    ensure!((1..=self.requests_sent).contains(&number), "an answer to what was not asked");
                }
                Kind::Welcome if !self.is_welcome => {}
                other => bail!("the server sent a {other} frame"),
            }
            if bytes.len() - parsed.bytes < HEADER_LEN + payload {
                break;
            }
            parsed.bytes += HEADER_LEN + payload;
            if self.is_welcome {
                parsed.answers += 1;
                self.answered += 1;
                ensure!(self.answered <= self.requests_sent, "more answers than calls");
            }
            self.is_welcome = true;
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_rpc::wire::{DecodeStatus, Side, decode};

    #[test]
    fn requests_follow_leewards_protocol() {
        let mut leeward = Leeward::new(8);
        let mut out = Vec::new();
        leeward.append_opening(&mut out);
        leeward.append_request(&mut out);
        leeward.append_request(&mut out);
        let mut kinds = Vec::new();
        let mut rest = &out[..];
        while !rest.is_empty() {
            let DecodeStatus::Frame { frame, length } = decode(rest, Side::Client, PayloadLimit::DEFAULT).unwrap()
            else {
                panic!("incomplete")
            };
            if let Frame::Call(call) = &frame {
                kinds.push((frame.kind(), call.request.value()));
            }
            rest = &rest[length..];
        }
        assert_eq!(kinds, [(Kind::Call, 1), (Kind::Call, 2)]);
        assert_eq!(out.len(), 64 + 2 * 72);
    }

    #[test]
    fn a_rejection_is_an_error() {
        let mut leeward = Leeward::new(8);
        let mut header = [0; 64];
        header[KIND] = 2;
        assert_eq!(leeward.parse(&header, &mut Vec::new()).unwrap(), Parsed { bytes: 64, answers: 0 });
        assert!(leeward.is_open());
        header[KIND] = 5;
        assert!(leeward.parse(&header, &mut Vec::new()).is_err());
    }
}
