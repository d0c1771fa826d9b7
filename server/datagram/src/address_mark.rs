//! Keyed mark of an address that a socket filter can compute: classic BPF has no loops and few
//! operations. The mark keeps a flood of foreign datagrams out of the queue. The session's key, not
//! the mark, identifies a session.

use std::net::{IpAddr, SocketAddr};

/// The server's secret for marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressMark {
    /// Keys of the mix, in their order of use. The multipliers are odd.
    pub keys: [u32; 4],
}

impl AddressMark {
    /// Creates a secret from random bits.
    pub fn new(bits: [u64; 2]) -> Self {
        let [low, high] = bits;
        let keys = [low as u32, (low >> 32) as u32 | 1, high as u32 | 1, (high >> 32) as u32 | 1];
        AddressMark { keys }
    }

    /// The mark of datagrams from this address, as it stands in the header.
    pub fn of(&self, from: SocketAddr) -> [u8; 4] {
        let [xor, address_mul, port_mul, last_mul] = self.keys;
        let words = |bytes: &[u8]| {
            bytes.chunks_exact(4).fold(0_u32, |sum, word| {
                let word = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
                sum.wrapping_mul(address_mul).wrapping_add(word)
            })
        };
        let address = match from.ip() {
            IpAddr::V4(ip) => words(&ip.octets()),
            IpAddr::V6(ip) => words(&ip.octets()),
        };
        let mut mixed = (address ^ xor).wrapping_mul(address_mul);
        mixed ^= mixed >> 15;
        mixed = mixed.wrapping_add(u32::from(from.port()).wrapping_mul(port_mul)).wrapping_mul(last_mul);
        (mixed ^ mixed >> 13).to_be_bytes()
    }
}
