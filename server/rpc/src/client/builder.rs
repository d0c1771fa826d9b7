//! Builds a client from its settings, and starts it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::Arc;
use std::thread;

use leeward_core::params::{ParamError, Params};
use leeward_core::registry::Algorithm;
use leeward_core::units::Nanos;
use leeward_datagram::DatagramSize;
use leeward_runtime::Clock;
use mio::Poll;

use super::counters::Counters;
use super::datagrams::Transport;
use super::driver::{self, Driver};
use super::encryption::Encryption;
use super::handle::Client;
use super::inbox::Inbox;
use super::polled_client::PolledClient;
use super::settings::{Replica, Settings};
use super::shared::SharedState;
use crate::wire::PayloadLimit;

/// Maximum number of replicas, and of connections to each.
pub const REPLICAS_MAX: usize = 64;

/// Error that prevents a client from starting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The list of replicas is empty or too long.
    #[error("{count} replicas; a client takes 1 to {REPLICAS_MAX}")]
    Replicas {
        /// Number of replicas.
        count: usize,
    },
    /// A replica's address is missing or does not resolve.
    #[error("`{address}` is no replica's address: {source}")]
    Address {
        /// The given address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The replica's host can't be a name in a certificate.
    #[cfg(feature = "tls")]
    #[error(transparent)]
    Tls(#[from] leeward_tls::LoadError),
    /// The replica uses datagrams, which are never encrypted.
    #[cfg(feature = "tls")]
    #[error("`{address}` uses datagrams, which TLS does not encrypt: use TCP, or no TLS")]
    Unencrypted {
        /// The given address.
        address: String,
    },
    /// The controller rejects its parameters.
    #[error(transparent)]
    Params(#[from] ParamError),
    /// The system has no thread, poll or descriptor left.
    #[error("can't start the client's thread: {0}")]
    System(#[from] io::Error),
}

/// Address of a replica, as the caller gave it.
#[derive(Clone, Debug)]
struct ReplicaAddress {
    transport: Transport,
    is_fallback: bool,
    address: String,
}

/// Builder of a client. Every setting except the replicas has a default.
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    replicas: Vec<ReplicaAddress>,
    payload_max: PayloadLimit,
    timeout: Nanos,
    seed: Option<u64>,
    thread_name: String,
    encryption: Encryption,
    settings: Settings,
}

impl Client {
    /// Creates a builder; it needs at least one replica.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl Builder {
    fn new() -> Self {
        Builder {
            replicas: Vec::new(),
            payload_max: PayloadLimit::DEFAULT,
            timeout: Nanos::from_secs(10),
            seed: None,
            thread_name: "leeward-client".into(),
            encryption: Encryption::default(),
            settings: Settings {
                algorithm: leeward_core::none::ALGORITHM,
                params: Params::default(),
                rtt: Nanos::from_micros(10),
                slo: Nanos::from_micros(200),
                queue: None,
                expiry: None,
                replicas: Vec::new(),
                connections: 1,
                payload_max: PayloadLimit::DEFAULT,
                datagram: DatagramSize::DEFAULT,
                connection_wait: Nanos::from_secs(1),
                connect_timeout: Nanos::from_secs(3),
                backoff: (Nanos::from_millis(10), Nanos::from_secs(2)),
                keep_alive: (Nanos::from_secs(15), Nanos::from_secs(10)),
                retries_max: 1,
                retry_percent: 10,
            },
        }
    }

    /// Adds a replica of the server, as `host:port`. The client resolves names once, when it is
    /// built.
    pub fn replica(self, address: impl Into<String>) -> Self {
        self.add(Transport::Tcp, false, address.into())
    }

    /// Adds a replica of the server over datagrams, as the `host:port` of its UDP socket.
    ///
    /// Calls that do not fit a datagram go to a TCP replica; without one they end as too long.
    pub fn udp(self, address: impl Into<String>) -> Self {
        self.add(Transport::Udp, false, address.into())
    }

    /// Adds the TCP address of a server that the client calls by datagrams.
    ///
    /// It serves calls that do not fit a datagram, calls [over TCP](super::CallOptions::over_tcp),
    /// and all calls while no other connection is up. It is no further replica: a call that the
    /// server has rejected is not sent there again.
    pub fn fallback(self, address: impl Into<String>) -> Self {
        self.add(Transport::Tcp, true, address.into())
    }

    fn add(mut self, transport: Transport, is_fallback: bool, address: String) -> Self {
        self.replicas.push(ReplicaAddress { transport, is_fallback, address });
        self
    }

    /// Connects to all replicas with TLS.
    ///
    /// Each server must prove the name of its replica's address, unless the TLS settings name
    /// another.
    #[cfg(feature = "tls")]
    pub fn tls(self, tls: leeward_tls::ClientTls) -> Self {
        self.encryption(tls.into())
    }

    /// Sets the encryption of connections to all replicas, or none.
    pub fn encryption(mut self, encryption: Encryption) -> Self {
        self.encryption = encryption;
        self
    }

    /// Sets the number of connections to each replica, 1 to [`REPLICAS_MAX`]. Default: 1.
    ///
    /// Each connection is a session with its own credits and queue, so more are not simply better.
    pub fn connections(mut self, connections: usize) -> Self {
        self.settings.connections = connections.clamp(1, REPLICAS_MAX);
        self
    }

    /// Sets the admission controller, whose client half runs here, and its parameters. Default: no
    /// control.
    ///
    /// Both must be the same as the server's.
    pub fn admission(mut self, algorithm: &Algorithm, params: Params) -> Self {
        self.settings.algorithm = algorithm.clone();
        self.settings.params = params;
        self
    }

    /// Sets the network's round trip and the objective for the controller. Default: the papers' 10
    /// µs and 200 µs.
    ///
    /// Both must be the same as the server's.
    pub fn objective(mut self, rtt: Nanos, slo: Nanos) -> Self {
        self.settings.rtt = rtt;
        self.settings.slo = slo;
        self
    }

    /// Sets the longest datagram, for both directions. Default: 1,400 bytes.
    ///
    /// The smaller size of client and server holds.
    pub fn datagram_size(mut self, size: DatagramSize) -> Self {
        self.settings.datagram = size;
        self
    }

    /// Sets the longest argument and the longest result. Default: 1 MiB.
    pub fn payload_limit(mut self, limit: PayloadLimit) -> Self {
        self.payload_max = limit;
        self.settings.payload_max = limit;
        self
    }

    /// Sets the timeout of a call, unless its options have one. Default: 10 s.
    pub fn timeout(mut self, timeout: Nanos) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets how many calls may wait for credit at a connection. Default: the controller's
    /// `client_queue`.
    ///
    /// As many may wait while there is no connection. A full queue ends its oldest call for a new
    /// one.
    pub fn queue(mut self, calls: usize) -> Self {
        self.settings.queue = Some(calls.clamp(1, 1 << 20));
        self
    }

    /// Sets the longest wait of a call for credit at a connection. Default: the controller's
    /// `client_delay`.
    pub fn expiry(mut self, expiry: Nanos) -> Self {
        self.settings.expiry = Some(expiry);
        self
    }

    /// Sets the longest wait of a call for a connection while there is none. Default: 1 s.
    ///
    /// This is not the expiry, which concerns overload and may be shorter than a handshake.
    pub fn connection_wait(mut self, limit: Nanos) -> Self {
        self.settings.connection_wait = limit;
        self
    }

    /// Sets the longest time from the start of a connection to the replica's welcome. Default: 3 s.
    pub fn connect_timeout(mut self, timeout: Nanos) -> Self {
        self.settings.connect_timeout = timeout.max(Nanos(1));
        self
    }

    /// Sets the backoff after a lost or failed connection. Default: 10 ms to 2 s.
    ///
    /// The backoff begins with `least` and doubles up to `most`. The next attempt waits for a
    /// random time between half of the backoff and all of it.
    pub fn backoff(mut self, least: Nanos, most: Nanos) -> Self {
        let least = least.max(Nanos::from_millis(1));
        self.settings.backoff = (least, most.max(least));
        self
    }

    /// Sets the keep-alive of connections. Default: 15 s and 10 s.
    ///
    /// After a silence of `interval` the client pings the server. Without a reply within `patience`
    /// it closes the connection.
    pub fn keep_alive(mut self, interval: Nanos, patience: Nanos) -> Self {
        let least = Nanos::from_millis(1);
        self.settings.keep_alive = (interval.max(least), patience.max(least));
        self
    }

    /// Sets the retries of rejected calls at other replicas, so that retries can't multiply an
    /// overload.
    ///
    /// - `each`: retries per call. Default: 1.
    /// - `percent`: long-run share of calls that are retried. Default: 10.
    ///
    /// 0 of either disables retries.
    pub fn retries(mut self, each: u32, percent: u32) -> Self {
        self.settings.retries_max = each;
        self.settings.retry_percent = percent.min(100);
        self
    }

    /// Sets the seed of random choices (connections, jitter, priorities). Default: different for
    /// each client.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the name of the client's thread. Default: `leeward-client`.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        // The system rejects names with a zero byte.
        self.thread_name = name.into().replace('\0', "");
        self
    }

    /// Resolves the replicas' names and starts the client's thread, which begins to connect.
    ///
    /// An unreachable replica is no error: it may come up later.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build(self) -> Result<Client, BuildError> {
        let name = self.thread_name.clone();
        let (client, driver, _) = self.assemble()?;
        thread::Builder::new().name(name).spawn(move || driver.run())?;
        Ok(client)
    }

    /// Builds the client without a thread: a server's core polls the connections, by
    /// [`poll_also`](crate::server::Builder::poll_also).
    ///
    /// For a server that calls others: responses arrive on the polling core, without another
    /// thread. Calls wait until the server has started.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build_polled(self) -> Result<(Client, PolledClient), BuildError> {
        let (client, driver, shared) = self.assemble()?;
        Ok((client, PolledClient::new(driver, &shared)))
    }

    fn assemble(self) -> Result<(Client, Driver, Arc<SharedState>), BuildError> {
        let Builder { replicas, payload_max, timeout, seed, mut settings, .. } = self;
        if replicas.is_empty() || replicas.len() > REPLICAS_MAX {
            return Err(BuildError::Replicas { count: replicas.len() });
        }
        settings.replicas = replicas.iter().map(resolve).collect::<Result<_, _>>()?;
        #[cfg(feature = "tls")]
        for (replica, named) in settings.replicas.iter_mut().zip(&replicas) {
            encrypt(replica, &named.address, self.encryption.tls.as_ref())?;
        }
        let config = settings.parts()?.config;
        let links = settings.replicas.len() * settings.connections;
        let per_link = config.queue.saturating_add(config.max_outstanding as usize);
        let limit = links.saturating_mul(per_link).saturating_add(config.queue);
        let poll = Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), driver::WAKER)?;
        let (inbox, counters, clock) = (Inbox::new(limit, waker), Counters::default(), Clock::start());
        let shared = Arc::new(SharedState { inbox, counters, clock });
        // Clients with equal seeds would reconnect in step.
        let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let driver = Driver::new(settings, config, poll, Arc::clone(&shared), seed)?;
        let client = Client::new(Arc::clone(&shared), timeout, payload_max);
        Ok((client, driver, shared))
    }
}

fn resolve(named: &ReplicaAddress) -> Result<Replica, BuildError> {
    let ReplicaAddress { transport, is_fallback, address } = named;
    let shown = || address.chars().take(100).collect();
    let addresses =
        crate::address::resolve(address).map_err(|source| BuildError::Address { address: shown(), source })?;
    Ok(Replica {
        name: shown(),
        addresses,
        transport: *transport,
        is_fallback: *is_fallback,
        #[cfg(feature = "tls")]
        tls: None,
    })
}

#[cfg(feature = "tls")]
fn encrypt(replica: &mut Replica, address: &str, tls: Option<&leeward_tls::ClientTls>) -> Result<(), BuildError> {
    let Some(tls) = tls else { return Ok(()) };
    if replica.transport == Transport::Udp {
        return Err(BuildError::Unencrypted { address: replica.name.clone() });
    }
    replica.tls = Some((tls.clone(), tls.name_for(address)?));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_client_settings_are_rejected() {
        assert!(matches!(Client::builder().build(), Err(BuildError::Replicas { count: 0 })));
        for address in ["", "nowhere", "127.0.0.1", "127.0.0.1:99999"] {
            let result = Client::builder().replica(address).build();
            assert!(matches!(result, Err(BuildError::Address { .. })), "{address}: {result:?}");
        }
        let mut crowd = Client::builder();
        for _ in 0..=REPLICAS_MAX {
            crowd = crowd.replica("127.0.0.1:1");
        }
        assert!(matches!(crowd.build(), Err(BuildError::Replicas { count: 65 })));
    }
}
