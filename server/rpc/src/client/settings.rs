//! Settings of a client's thread, and the replicas' addresses.
//!
//! Does not contain the setters (`builder`).

use std::net::SocketAddr;

use leeward_core::client::ClientParts;
use leeward_core::params::{ParamError, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::units::Nanos;
use leeward_datagram::DatagramSize;

use super::datagrams::Transport;
use super::driver::socket_connection::ConnectionLimits;
use crate::wire::{PayloadLimit, Version};

/// Settings of the client's thread.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) algorithm: Algorithm,
    pub(super) params: Params,
    pub(super) rtt: Nanos,
    pub(super) slo: Nanos,
    pub(super) queue: Option<usize>,
    pub(super) expiry: Option<Nanos>,
    pub(super) replicas: Vec<Replica>,
    /// Connections per replica.
    pub(super) connections: usize,
    pub(super) payload_max: PayloadLimit,
    pub(super) datagram: DatagramSize,
    pub(super) connection_wait: Nanos,
    pub(super) connect_timeout: Nanos,
    pub(super) backoff: (Nanos, Nanos),
    pub(super) keep_alive: (Nanos, Nanos),
    pub(super) retries_max: u32,
    pub(super) retry_percent: u32,
}

/// Addresses of a server; one that responds is enough.
#[derive(Clone, Debug)]
pub(super) struct Replica {
    pub(super) name: String,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) transport: Transport,
    /// Whether this is the TCP address of another replica's server, for calls that datagrams can't
    /// carry.
    pub(super) is_fallback: bool,
    /// TLS settings, and the name that the server must prove.
    #[cfg(feature = "tls")]
    pub(super) tls: Option<(leeward_tls::ClientTls, leeward_tls::ServerName)>,
}

impl Settings {
    /// Whether some replica accepts calls of any length.
    pub(super) fn has_tcp(&self) -> bool {
        self.replicas.iter().any(|replica| replica.transport == Transport::Tcp)
    }

    /// Limits of a connection in this protocol version.
    pub(super) fn limits(&self, version: Version) -> ConnectionLimits {
        let Settings { payload_max, connect_timeout, keep_alive, .. } = *self;
        ConnectionLimits { payload_max, connect_timeout, keep_alive, version, datagrams: None }
    }

    /// Client half of the controller, for one connection.
    pub(super) fn parts(&self) -> Result<ClientParts, ParamError> {
        // The number of cores matters only on the server's side.
        let environment = Environment::new(1, self.rtt, self.slo);
        let mut parts = (self.algorithm.build_client)(&self.params, &environment)?;
        parts.config.queue = self.queue.unwrap_or(parts.config.queue).max(1);
        parts.config.max_delay = self.expiry.unwrap_or(parts.config.max_delay);
        parts.config.max_outstanding = parts.config.max_outstanding.max(1);
        Ok(parts)
    }
}
