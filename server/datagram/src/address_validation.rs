//! Stateless validation of client addresses: a client proves its address by returning a cookie. No
//! reply is longer than the request (anti-amplification).

use crate::address_mark::AddressMark;
use crate::header::{HELLO_LEN, Header, Kind, LEN};
use leeward_core::units::{Nanos, Time};
use siphasher::sip::SipHasher13;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;

/// Epoch of a cookie. A cookie is valid in its own epoch and in the next one.
const EPOCH: Nanos = Nanos::from_secs(8);

/// Secrets of cookies and marks. All cores of a server share them.
#[derive(Clone, Copy, Debug)]
pub struct AddressValidation {
    secret: [u64; 2],
    mark: AddressMark,
}

impl AddressValidation {
    /// Creates the secrets from random bits.
    pub fn new(bits: [u64; 4]) -> Self {
        AddressValidation { secret: [bits[0], bits[1]], mark: AddressMark::new([bits[2], bits[3]]) }
    }

    /// The secret of the marks, for a socket filter.
    pub fn mark(&self) -> &AddressMark {
        &self.mark
    }

    /// The cookie that answers a `Hello`; `None` for any other datagram. `port` is the port of the
    /// core for the session.
    pub fn answer_hello(&self, now: Time, from: SocketAddr, datagram: &[u8], port: u16) -> Option<[u8; LEN]> {
        let (header, _) = Header::read(datagram)?;
        if header.kind != Kind::Hello || datagram.len() < HELLO_LEN {
            return None;
        }
        let epoch = now.0 / EPOCH.0;
        let cookie = Header {
            mark: self.mark.of(from),
            slot: u32::from(port),
            key: header.key,
            number: self.cookie(from, header.key, epoch),
            order: epoch,
            ..Header::of(Kind::Cookie)
        };
        Some(cookie.bytes())
    }

    /// Whether an `Open` carries a cookie of this server, for this address and not too old.
    pub fn validate(&self, now: Time, from: SocketAddr, open: &Header) -> bool {
        let epoch = now.0 / EPOCH.0;
        let is_fresh = open.order <= epoch && epoch - open.order <= 1;
        is_fresh && open.number == self.cookie(from, open.key, open.order)
    }

    /// A session's key, from random bits: only a reader of the server's datagrams can know it.
    pub fn key(&self, from: SocketAddr, nonce: u64, random: u64) -> u64 {
        self.cookie(from, nonce ^ random.rotate_left(32), random)
    }

    fn cookie(&self, from: SocketAddr, nonce: u64, epoch: u64) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.secret[0], self.secret[1]);
        (from, nonce, epoch).hash(&mut hasher);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(nonce: u64) -> Vec<u8> {
        let mut hello = Vec::new();
        Header { key: nonce, ..Header::of(Kind::Hello) }.write(&[0; HELLO_LEN - LEN], &mut hello);
        hello
    }

    #[test]
    fn a_cookie_is_valid_for_its_address_and_nonce_for_a_limited_time() {
        let validation = AddressValidation::new([1, 2, 3, 4]);
        let from: SocketAddr = "10.0.0.1:5000".parse().unwrap();
        let now = Time(EPOCH.0 * 100 + 5);
        let reply = validation.answer_hello(now, from, &hello(9), 77).unwrap();
        let cookie = Header::read(&reply).unwrap().0;
        assert_eq!((cookie.slot, cookie.key), (77, 9));
        let open = Header { kind: Kind::Open, ..cookie };
        assert!(validation.validate(now, from, &open));
        assert!(validation.validate(now + EPOCH, from, &open), "the epoch after");
        assert!(!validation.validate(now + EPOCH + EPOCH, from, &open), "too old");
        assert!(!validation.validate(now, "10.0.0.1:5001".parse().unwrap(), &open), "another's");
        assert!(!validation.validate(now, from, &Header { key: 10, ..open }), "for another session");
        assert!(!validation.validate(now, from, &Header { order: open.order + 1, ..open }), "from the future");
        assert!(!AddressValidation::new([1, 9, 3, 4]).validate(now, from, &open), "another server's");
    }

    #[test]
    fn replies_before_validation_are_no_longer_than_the_request() {
        let validation = AddressValidation::new([1, 2, 3, 4]);
        let from: SocketAddr = "[::1]:5000".parse().unwrap();
        assert!(
            validation.answer_hello(Time(0), from, &hello(9)[..HELLO_LEN - 1], 1).is_none(),
            "too short a question"
        );
        assert!(validation.answer_hello(Time(0), from, &hello(9), 1).unwrap().len() < HELLO_LEN);
        let mut call = Vec::new();
        Header::of(Kind::Call).write(&[0; 100], &mut call);
        assert!(validation.answer_hello(Time(0), from, &call, 1).is_none());
    }
}
