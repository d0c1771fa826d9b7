//! Leaves of a tier: their addresses and the settings of calls to them.
//!
//! Does not contain sockets (`link`), or the leaves that a request needs (the service names them).

use super::validation::{LeafValidation, LeafValidator};
use crate::client::driver::socket_connection::ConnectionLimits;
use crate::wire::{PayloadLimit, Version};
use leeward_core::client::ClientParts;
use leeward_core::hedging::LeafTimeouts;
use leeward_core::none;
use leeward_core::params::{ParamError, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::units::Nanos;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Maximum number of leaves: a response reports the number of called leaves in one byte.
pub const LEAVES_MAX: usize = 255;

/// Default timeout of requests, and the longest wait of a call for credit under a timeout by
/// objective.
const TIMEOUT: Nanos = Nanos::from_secs(1);
/// Calls of one connection that may wait for credit.
///
/// A slow leaf makes them wait; only a flood reaches the limit.
const WAITING_MAX: usize = 4_096;

/// Error in the list of leaves or their settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeavesError {
    /// The list is empty or too long.
    #[error("{count} leaves; accepted: 1 to {LEAVES_MAX}")]
    Count {
        /// Number of leaves in the list.
        count: usize,
    },
    /// An address does not resolve.
    #[error("leaf `{address}`: {reason}; accepted: HOST:PORT, such as 127.0.0.1:5300 or [::1]:5300")]
    Address {
        /// The address.
        address: String,
        /// The system's error.
        reason: io::Error,
    },
    /// Two leaves share an address.
    #[error("leaf `{address}` is there twice; accepted: each leaf once")]
    Duplicate {
        /// Address of the second leaf.
        address: String,
    },
    /// The number of leaves is not a multiple of the copies.
    #[error("{count} leaves can't have {copies} copies of each part; accepted: a number that divides them")]
    Copies {
        /// Number of leaves.
        count: usize,
        /// Requested copies of each part.
        copies: usize,
    },
    /// The controller rejects its parameters.
    #[error(transparent)]
    Params(#[from] ParamError),
}

/// Connections of an async setup to its leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// A connection per leaf for each response thread; requests take the sets in turn.
    #[default]
    Sharded,
    /// One connection per leaf for all response threads, which contend for replies (µTune §3.1: one
    /// completion queue).
    Shared,
}

/// Leaves of a tier, in the order of the list.
#[derive(Clone, Debug)]
pub struct Leaves(pub(super) Settings);

/// Settings of calls to the leaves.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) leaves: Vec<Leaf>,
    pub(super) algorithm: Algorithm,
    pub(super) params: Params,
    pub(super) rtt: Nanos,
    /// Objective of the leaves; `None`: the tier's own.
    pub(super) slo: Option<Nanos>,
    pub(super) payload_max: PayloadLimit,
    /// Configured timeout of requests; `None`: it follows from the tier's objective.
    pub(super) timeout: Option<Nanos>,
    /// Objective of the tier, set when the tier starts.
    pub(super) objective: Nanos,
    pub(super) connect_timeout: Nanos,
    pub(super) backoff: (Nanos, Nanos),
    pub(super) keep_alive: (Nanos, Nanos),
    pub(super) links: Links,
    /// Leaves per part of the data.
    pub(super) copies: usize,
    /// Check of each leaf before the first call.
    pub(super) validation: LeafValidation,
    /// Whether a request begins only with a credit at each leaf that it needs.
    pub(super) reserves: bool,
}

/// Addresses of one leaf; one that responds is enough.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) addresses: Vec<SocketAddr>,
}

impl Leaves {
    /// Resolves the leaves' addresses. An unreachable leaf is no error: it may come up later.
    ///
    /// # Errors
    /// See [`LeavesError`].
    pub fn resolve<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, LeavesError> {
        let mut leaves: Vec<Leaf> = Vec::new();
        let mut count = 0;
        for address in addresses {
            count += 1;
            // Resolve nothing more once the list is too long.
            if count > LEAVES_MAX {
                continue;
            }
            let leaf = resolve(address.as_ref())?;
            if leaves.iter().any(|other| other.addresses.iter().any(|one| leaf.addresses.contains(one))) {
                return Err(LeavesError::Duplicate { address: quoted(address.as_ref()) });
            }
            leaves.push(leaf);
        }
        if !(1..=LEAVES_MAX).contains(&count) {
            return Err(LeavesError::Count { count });
        }
        Ok(Leaves(Settings {
            leaves,
            algorithm: none::ALGORITHM,
            params: Params::default(),
            rtt: Nanos::from_micros(10),
            slo: None,
            payload_max: PayloadLimit::DEFAULT,
            timeout: Some(TIMEOUT),
            objective: Nanos::from_millis(1),
            connect_timeout: Nanos::from_secs(3),
            backoff: (Nanos::from_millis(10), Nanos::from_secs(2)),
            keep_alive: (Nanos::from_secs(15), Nanos::from_secs(10)),
            links: Links::default(),
            copies: 1,
            validation: LeafValidation::default(),
            reserves: false,
        }))
    }

    /// Number of leaves.
    pub fn count(&self) -> usize {
        self.0.leaves.len()
    }

    /// Sets the leaves' controller, the round trip to them and their objective. Default: no
    /// controller.
    ///
    /// Each connection runs the controller's client half. Objective `None`: the tier's.
    #[must_use]
    pub fn admission(
        mut self,
        algorithm: &Algorithm,
        params: Params,
        rtt: Nanos,
        slo: impl Into<Option<Nanos>>,
    ) -> Self {
        (self.0.algorithm, self.0.params, self.0.rtt, self.0.slo) = (algorithm.clone(), params, rtt, slo.into());
        self
    }

    /// Sets whether a request begins only with a credit at each leaf that it needs. Default: no.
    ///
    /// [`MidTier::required_leaves`](super::MidTier::required_leaves) names these leaves. A request
    /// waits at most half of the tier's objective. Then the tier rejects it, before any work was
    /// done for it. Under `CORE<n>` no request waits. Leaves without a controller have no credits
    /// and accept every call.
    #[must_use]
    pub fn reserve_credits(mut self, reserves: bool) -> Self {
        self.0.reserves = reserves;
        self
    }

    /// Sets the longest wait of a request for its leaves. Default: 1 s.
    ///
    /// A leaf that owes responses and has sent nothing for this long counts as unreachable until it
    /// sends something.
    #[must_use]
    pub fn timeout(mut self, timeout: Nanos) -> Self {
        self.0.timeout = Some(timeout.max(Nanos(1)));
        self
    }

    /// Derives the timeout from the tier's objective, and extends it in a pause while no leaf is
    /// slow ([`LeafTimeouts`]).
    #[must_use]
    pub fn timeout_by_objective(mut self) -> Self {
        self.0.timeout = None;
        self
    }

    /// Sets the number of leaves per part of the data. Default: 1.
    ///
    /// The list begins with the first copies of all parts, followed by the second copies. A service
    /// names parts. A repeatable call goes to one copy of a part, and to another if the first takes
    /// long.
    ///
    /// # Errors
    /// The number of leaves is not a multiple of `copies`.
    pub fn copies(mut self, copies: usize) -> Result<Self, LeavesError> {
        let count = self.count();
        if copies == 0 || !count.is_multiple_of(copies) {
            return Err(LeavesError::Copies { count, copies });
        }
        self.0.copies = copies;
        Ok(self)
    }

    /// Sets the validator of leaves; without one, the tier accepts every leaf.
    ///
    /// Each connection first asks its leaf for a description of its service. Until the validator
    /// accepts it, calls end as if the leaf were unreachable. Under `CORE<n>` the tier asks the
    /// leaves when it starts.
    #[must_use]
    pub fn validator(mut self, validator: Arc<dyn LeafValidator>) -> Self {
        self.0.validation = LeafValidation::new(validator);
        self
    }

    /// Takes the messages about rejected leaves, and warnings about others, since the last call.
    pub fn take_reports(&self) -> Vec<String> {
        self.0.validation.take_reports()
    }

    /// Resolved addresses of the leaf at this index.
    pub fn addresses(&self, leaf: usize) -> &[SocketAddr] {
        self.0.leaves.get(leaf).map_or(&[], |leaf| &leaf.addresses)
    }

    /// Name of the leaves' controller.
    pub fn controller(&self) -> &'static str {
        self.0.algorithm.name
    }

    /// Number of parts of the data.
    pub fn parts(&self) -> usize {
        self.0.parts_of_data()
    }

    /// Sets the connections of async setups. Default: sharded.
    #[must_use]
    pub fn links(mut self, links: Links) -> Self {
        self.0.links = links;
        self
    }

    /// Sets the backoff after a lost or failed connection. Default: 10 ms to 2 s.
    ///
    /// The backoff begins with `least` and doubles up to `most`. The next attempt waits for a
    /// random time between half of the backoff and all of it.
    #[must_use]
    pub fn backoff(mut self, least: Nanos, most: Nanos) -> Self {
        let least = least.max(Nanos::from_millis(1));
        self.0.backoff = (least, most.max(least));
        self
    }
}

impl Settings {
    /// Number of parts of the data: a service knows each part as a leaf.
    pub(super) fn parts_of_data(&self) -> usize {
        self.leaves.len() / self.copies.max(1)
    }

    /// First address of each leaf.
    pub(super) fn first_addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.leaves.iter().filter_map(|leaf| leaf.addresses.first().copied())
    }

    /// Sets the objective of the tier.
    pub(super) fn with_objective(self, objective: Nanos) -> Self {
        Settings { objective, ..self }
    }

    /// Initial timeouts of requests, before any leaf has responded.
    pub(super) fn waits(&self) -> LeafTimeouts {
        LeafTimeouts::new(self.timeout, self.objective, self.leaves.len())
    }

    /// Limits of a connection in this protocol version.
    pub(super) fn limits(&self, version: Version) -> ConnectionLimits {
        let Settings { payload_max, connect_timeout, keep_alive, .. } = *self;
        ConnectionLimits { payload_max, connect_timeout, keep_alive, version, datagrams: None }
    }

    /// Client half of the leaves' controller, for one connection.
    pub(super) fn parts(&self) -> Result<ClientParts, ParamError> {
        // The number of cores matters only on the server's side.
        let environment = Environment::new(1, self.rtt, self.slo.unwrap_or(self.objective));
        let mut parts = (self.algorithm.build_client)(&self.params, &environment)?;
        parts.config.queue = parts.config.queue.max(WAITING_MAX);
        parts.config.max_delay = parts.config.max_delay.min(self.timeout.unwrap_or(TIMEOUT));
        parts.config.max_outstanding = parts.config.max_outstanding.max(1);
        Ok(parts)
    }
}

fn quoted(address: &str) -> String {
    address.chars().take(100).collect()
}

fn resolve(address: &str) -> Result<Leaf, LeavesError> {
    let address_error = |reason| LeavesError::Address { address: quoted(address), reason };
    Ok(Leaf { addresses: crate::address::resolve(address).map_err(address_error)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(addresses: &[&str], expected: &str) {
        let error = Leaves::resolve(addresses).map(|leaves| leaves.count()).unwrap_err().to_string();
        assert!(error.contains(expected) && error.lines().count() == 1, "{error}");
    }

    #[test]
    fn invalid_leaf_addresses_are_rejected() {
        check(&[], "0 leaves; accepted: 1 to 255");
        check(&["127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7001"], "`127.0.0.1:7001` is there twice");
        check(&[""], "accepted: HOST:PORT");
        check(&["nowhere.invalid:1"], "nowhere.invalid:1");
        check(&["127.0.0.1"], "accepted: HOST:PORT");
        check(&["127.0.0.1:99999"], "accepted: HOST:PORT");
        let crowd: Vec<String> = (0..300).map(|port| format!("127.0.0.1:{}", 7_000 + port)).collect();
        check(&crowd.iter().map(String::as_str).collect::<Vec<_>>(), "300 leaves");
    }

    #[test]
    fn leaves_may_have_ipv4_and_ipv6_addresses() {
        let leaves = Leaves::resolve(["[::1]:7001", "127.0.0.1:7001"]).unwrap();
        assert_eq!(leaves.count(), 2);
        assert!(leaves.0.leaves[0].addresses[0].is_ipv6());
    }
}
