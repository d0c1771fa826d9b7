//! The server to attack, and the end of the attack.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Instant;

/// A port of `leeward serve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// Leeward's own protocol over TCP.
    Rpc,
    /// Leeward's own protocol over UDP.
    Datagrams,
    /// Leeward's own protocol over TLS.
    Tls,
    /// memcached's protocol.
    Memcached,
}

impl Port {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Port::Rpc => "rpc",
            Port::Datagrams => "udp",
            Port::Tls => "tls",
            Port::Memcached => "memcached",
        }
    }
}

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Port::Rpc, Port::Datagrams, Port::Tls, Port::Memcached]
            .into_iter()
            .find(|port| port.name() == text)
            .ok_or_else(|| format!("`{text}`; accepted: rpc, udp, tls, memcached"))
    }
}

/// The server to attack, and the end of the attack.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) until: Instant,
    seed: u64,
}

impl Target {
    pub(crate) fn new(address: SocketAddr, until: Instant, seed: u64) -> Self {
        Target { address, until, seed }
    }

    pub(crate) fn is_active(&self) -> bool {
        Instant::now() < self.until
    }

    /// Creates a random generator, the same for each run.
    pub(crate) fn rng(&self) -> AttackRng {
        AttackRng(Xoshiro256PlusPlus::seed_from_u64(self.seed))
    }
}

/// A random generator.
pub(crate) struct AttackRng(Xoshiro256PlusPlus);

impl AttackRng {
    /// Draws a number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.0.next_u64()) * bound as u128) >> 64) as usize
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}
