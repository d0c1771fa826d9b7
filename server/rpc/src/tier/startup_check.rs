//! Asks the leaves for their descriptions before a tier starts. A leaf that the validator rejects
//! prevents the start, and so does a leaf that is the tier itself.
//!
//! Unreachable leaves do not. Does not contain the check of leaves that connect later (`link`).

use super::leaves::Settings;
use super::server::TierError;
use crate::client::Client;
use crate::statistics::{METHOD, ServiceInfo, Statistics};
use leeward_core::units::Nanos;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Time limit for a leaf to accept the connection.
const CONNECTING: Duration = Duration::from_millis(250);
/// Time limit for the response. Each connection asks a slower leaf again.
const ANSWERING: Nanos = Nanos::from_millis(500);
/// Leaves asked at the same time.
const PARALLEL_MAX: usize = 32;

/// Asks all reachable leaves, and validates their descriptions.
///
/// # Errors
/// The validator rejects a leaf: the reason, for the first such leaf in the list.
pub(super) fn check(settings: &Settings) -> Result<(), TierError> {
    if !settings.validation.is_enabled() {
        return Ok(());
    }
    let mut verdict = Ok(());
    for (group, leaves) in settings.leaves.chunks(PARALLEL_MAX).enumerate() {
        let infos: Vec<Option<ServiceInfo>> = std::thread::scope(|scope| {
            let threads: Vec<_> = leaves.iter().map(|leaf| scope.spawn(|| fetch_info(&leaf.addresses))).collect();
            threads.into_iter().map(|threads| threads.join().ok().flatten()).collect()
        });
        for (index, info) in infos.into_iter().enumerate() {
            if let (Some(info), true) = (info, verdict.is_ok()) {
                verdict = settings.validation.validate(group * PARALLEL_MAX + index, Some(&info));
            }
        }
    }
    verdict.map_err(TierError::WrongLeaf)
}

/// Rejects a leaf at the address of the tier: each request would make others without end.
///
/// # Errors
/// The leaf's address.
pub(super) fn check_for_itself(settings: &Settings, address: &str) -> Result<(), TierError> {
    // An address that can't be resolved fails when the tier listens there.
    let own = crate::address::resolve(address).unwrap_or_default();
    let is_own = |leaf: &SocketAddr| {
        own.iter().any(|own| {
            let is_any = own.ip().is_unspecified() && leaf.ip().is_loopback();
            own.port() != 0 && own.port() == leaf.port() && (own.ip() == leaf.ip() || is_any)
        })
    };
    match settings.leaves.iter().flat_map(|leaf| &leaf.addresses).find(|leaf| is_own(leaf)) {
        Some(leaf) => {
            Err(TierError::WrongLeaf(format!("the leaf {leaf} is this tier itself; accepted: other servers")))
        }
        None => Ok(()),
    }
}

/// Description from the first address that responds.
fn fetch_info(addresses: &[SocketAddr]) -> Option<ServiceInfo> {
    addresses.iter().find_map(|address| {
        // The client retries until its timeout; a plain connection shows at once whether a server
        // listens.
        TcpStream::connect_timeout(address, CONNECTING).ok()?;
        let client = Client::builder().replica(address.to_string()).retries(0, 0).timeout(ANSWERING).build().ok()?;
        let answer = client.call_blocking(METHOD, Vec::new()).ok()?;
        Statistics::parse(&answer.payload).ok().map(|statistics| statistics.about)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::Leaves;

    #[test]
    fn a_tier_is_not_its_own_leaf() {
        let refused = |leaves: &[&str], own: &str| {
            let leaves = Leaves::resolve(leaves).unwrap();
            check_for_itself(&leaves.0, own).err().map(|error| error.to_string())
        };
        let is_itself = |leaves: &[&str], own: &str| {
            refused(leaves, own).is_some_and(|text| text.contains("the leaf 127.0.0.1:5301 is this tier itself"))
        };
        assert!(is_itself(&["127.0.0.1:5302", "127.0.0.1:5301"], "127.0.0.1:5301"));
        assert!(is_itself(&["127.0.0.1:5301"], "0.0.0.0:5301"));
        assert_eq!(refused(&["127.0.0.1:5301"], "127.0.0.1:5300"), None);
        assert_eq!(refused(&["127.0.0.1:5301"], "127.0.0.1:0"), None);
    }
}
