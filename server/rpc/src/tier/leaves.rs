//! The leaves of a tier: their addresses, and how they are asked. Never here: sockets (`link`), which leaf a request needs (the service's).

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

/// Leaves that a tier may have: answers say in a byte how many were asked.
pub const LEAVES_MAX: usize = 255;

/// Time that a request waits where nobody has said anything, and that a call waits for permission where the objective says.
const TIMEOUT: Nanos = Nanos::from_secs(1);
/// Calls of one connection that may wait for permission to leave: a leaf that is slow makes them wait, and only a flood ends them.
const WAITING_MAX: usize = 4_096;

/// Leaves that can't be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeavesError {
    /// None, or too many.
    #[error("{count} leaves; accepted: 1 to {LEAVES_MAX}")]
    Count {
        /// How many there were.
        count: usize,
    },
    /// An address can't be resolved.
    #[error("leaf `{address}`: {reason}; accepted: HOST:PORT, such as 127.0.0.1:5300 or [::1]:5300")]
    Address {
        /// The address.
        address: String,
        /// Why, as the system says it.
        reason: io::Error,
    },
    /// Two leaves are the same.
    #[error("leaf `{address}` is there twice; accepted: each leaf once")]
    Duplicate {
        /// The address of the second.
        address: String,
    },
    /// The leaves can't be copies of each other.
    #[error("{count} leaves can't have {copies} copies of each part; accepted: a number that divides them")]
    Copies {
        /// How many leaves there are.
        count: usize,
        /// How many copies each part shall have.
        copies: usize,
    },
    /// The controller refuses its parameters.
    #[error(transparent)]
    Params(#[from] ParamError),
}

/// Connections of an async setup to its leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// A connection per leaf for each response thread; a request takes those of the next in turn.
    #[default]
    Sharded,
    /// A connection per leaf for all response threads, which contend for what comes (µTune §3.1: one completion queue).
    Shared,
}

/// The leaves of a tier, in their order.
#[derive(Clone, Debug)]
pub struct Leaves(pub(super) Settings);

/// How leaves are asked.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) leaves: Vec<Leaf>,
    pub(super) algorithm: Algorithm,
    pub(super) params: Params,
    pub(super) rtt: Nanos,
    /// Objective of the leaves; `None`: the tier's own.
    pub(super) slo: Option<Nanos>,
    pub(super) payload_max: PayloadLimit,
    /// Said wait for leaves; `None`: it follows from the tier's objective.
    pub(super) timeout: Option<Nanos>,
    /// The tier's objective, once it is known.
    pub(super) objective: Nanos,
    pub(super) connect_timeout: Nanos,
    pub(super) backoff: (Nanos, Nanos),
    pub(super) keep_alive: (Nanos, Nanos),
    pub(super) links: Links,
    /// Leaves that have the same part of the data.
    pub(super) copies: usize,
    /// Which leaves may be asked.
    pub(super) validation: LeafValidation,
    /// Whether requests begin only with a credit at each leaf that they need.
    pub(super) reserves: bool,
}

/// A leaf's addresses: one that answers is enough.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) addresses: Vec<SocketAddr>,
}

impl Leaves {
    /// Resolves the leaves' addresses. A leaf that can't be reached is no error: it may be up later.
    ///
    /// # Errors
    /// See [`LeavesError`].
    pub fn resolve<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, LeavesError> {
        let mut leaves: Vec<Leaf> = Vec::new();
        let mut count = 0;
        for address in addresses {
            count += 1;
            // No name is looked up of a list that is too long in any case.
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

    /// How many leaves there are.
    pub fn count(&self) -> usize {
        self.0.leaves.len()
    }

    /// The controller that the leaves run, whose client half each connection is, with the round trip to them and their objective (`None`: the
    /// tier's). Default: none.
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

    /// Whether a request begins only when each leaf that it needs lets a call of it go ([`MidTier::needs`](super::MidTier::needs)): it waits
    /// for that within half of the tier's objective, and is dropped then, before any work was done for it. Under `CORE<n>` none waits.
    /// Default: no. Leaves without a controller have nothing to set aside, and let every call go.
    #[must_use]
    pub fn reserve_credits(mut self, reserves: bool) -> Self {
        self.0.reserves = reserves;
        self
    }

    /// How long a request waits for its leaves at most. A leaf that owes answers and has said nothing for so long counts as away until it says
    /// something. Default: 1 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Nanos) -> Self {
        self.0.timeout = Some(timeout.max(Nanos(1)));
        self
    }

    /// Has requests wait for as long as the tier's objective allows, and through a pause while no leaf is slow ([`Waits`]).
    #[must_use]
    pub fn timeout_by_objective(mut self) -> Self {
        self.0.timeout = None;
        self
    }

    /// Has so many leaves for each part of the data: the first copies of all parts stand first in the list, then the second ones. A
    /// service names parts; a repeatable call goes to one of a part's copies, and to another if that takes long. Default: 1.
    ///
    /// # Errors
    /// The leaves are no multiple of that.
    pub fn copies(mut self, copies: usize) -> Result<Self, LeavesError> {
        let count = self.count();
        if copies == 0 || !count.is_multiple_of(copies) {
            return Err(LeavesError::Copies { count, copies });
        }
        self.0.copies = copies;
        Ok(self)
    }

    /// Asks leaves only that this finds to be the right ones: each connection asks first what its leaf serves, and calls over it end as
    /// if the leaf was away until that is known. Under `CORE<n>` leaves are asked when the tier starts. Default: all leaves are right.
    #[must_use]
    pub fn validator(mut self, fit: Arc<dyn LeafValidator>) -> Self {
        self.0.validation = LeafValidation::new(fit);
        self
    }

    /// Words about leaves that are not right, and warnings about others, since this was asked last.
    pub fn take_reports(&self) -> Vec<String> {
        self.0.validation.take_reports()
    }

    /// The addresses of the leaf at this place, as they were resolved.
    pub fn addresses(&self, leaf: usize) -> &[SocketAddr] {
        self.0.leaves.get(leaf).map_or(&[], |leaf| &leaf.addresses)
    }

    /// Name of the controller that the connections to the leaves speak to.
    pub fn controller(&self) -> &'static str {
        self.0.algorithm.name
    }

    /// Parts of the data that the leaves have.
    pub fn parts(&self) -> usize {
        self.0.parts_of_data()
    }

    /// Connections of async setups. Default: sharded.
    #[must_use]
    pub fn links(mut self, links: Links) -> Self {
        self.0.links = links;
        self
    }

    /// After a lost or failed connection the next attempt waits between half of a span and the whole, by chance; the span begins with
    /// `least` and doubles up to `most`. Default: 10 ms to 2 s.
    #[must_use]
    pub fn backoff(mut self, least: Nanos, most: Nanos) -> Self {
        let least = least.max(Nanos::from_millis(1));
        self.0.backoff = (least, most.max(least));
        self
    }
}

impl Settings {
    /// Parts of the data: what a service knows as leaves.
    pub(super) fn parts_of_data(&self) -> usize {
        self.leaves.len() / self.copies.max(1)
    }

    /// These leaves, under a tier with this objective.
    pub(super) fn with_objective(self, objective: Nanos) -> Self {
        Settings { objective, ..self }
    }

    /// How long requests wait for them, before any has answered.
    pub(super) fn waits(&self) -> LeafTimeouts {
        LeafTimeouts::new(self.timeout, self.objective, self.leaves.len())
    }

    /// Limits of a connection in this version.
    pub(super) fn limits(&self, version: Version) -> ConnectionLimits {
        let Settings { payload_max, connect_timeout, keep_alive, .. } = *self;
        ConnectionLimits { payload_max, connect_timeout, keep_alive, version, datagrams: None }
    }

    /// The client side of the leaves' algorithm, for one connection.
    pub(super) fn parts(&self) -> Result<ClientParts, ParamError> {
        // The number of cores concerns the server's side.
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
    let refused = |reason| LeavesError::Address { address: quoted(address), reason };
    Ok(Leaf { addresses: crate::address::resolve(address).map_err(refused)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(addresses: &[&str], told: &str) {
        let error = Leaves::resolve(addresses).map(|leaves| leaves.count()).unwrap_err().to_string();
        assert!(error.contains(told) && error.lines().count() == 1, "{error}");
    }

    #[test]
    fn leaves_that_can_not_be_asked_are_refused() {
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
    fn leaves_may_have_addresses_of_either_kind() {
        let leaves = Leaves::resolve(["[::1]:7001", "127.0.0.1:7001"]).unwrap();
        assert_eq!(leaves.count(), 2);
        assert!(leaves.0.leaves[0].addresses[0].is_ipv6());
    }
}
