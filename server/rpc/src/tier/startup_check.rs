//! Asks the leaves for their descriptions before a tier starts. A leaf that the validator rejects
//! prevents the start.
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
