//! Questions to leaves about themselves before a tier starts: a leaf that must not be asked is a reason not to start. Never here: leaves that come later
//! (`link`), and those that are not there, which is no reason.

use super::leaves::Settings;
use super::server::TierError;
use crate::client::Client;
use crate::statistics::{METHOD, ServiceInfo, Statistics};
use leeward_core::units::Nanos;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a leaf may take to accept a connection.
const CONNECTING: Duration = Duration::from_millis(250);
/// How long it may take to answer. One that is slower is asked again by each connection.
const ANSWERING: Nanos = Nanos::from_millis(500);
/// Leaves that are asked at the same time.
const PARALLEL_MAX: usize = 32;

/// Asks all leaves that are there, and judges what they tell.
///
/// # Errors
/// A leaf must not be asked: why, the first in the order of leaves.
pub(super) fn check(settings: &Settings) -> Result<(), TierError> {
    if !settings.validation.is_enabled() {
        return Ok(());
    }
    let mut verdict = Ok(());
    for (group, leaves) in settings.leaves.chunks(PARALLEL_MAX).enumerate() {
        let told: Vec<Option<ServiceInfo>> = std::thread::scope(|scope| {
            let asked: Vec<_> = leaves.iter().map(|leaf| scope.spawn(|| fetch_info(&leaf.addresses))).collect();
            asked.into_iter().map(|asked| asked.join().ok().flatten()).collect()
        });
        for (place, about) in told.into_iter().enumerate() {
            if let (Some(about), true) = (about, verdict.is_ok()) {
                verdict = settings.validation.validate(group * PARALLEL_MAX + place, Some(&about));
            }
        }
    }
    verdict.map_err(TierError::WrongLeaf)
}

/// Description that the first of these addresses gives that answers.
fn fetch_info(addresses: &[SocketAddr]) -> Option<ServiceInfo> {
    addresses.iter().find_map(|address| {
        // A client tries again and again; whether anybody listens shows at once.
        TcpStream::connect_timeout(address, CONNECTING).ok()?;
        let client = Client::builder().replica(address.to_string()).retries(0, 0).timeout(ANSWERING).build().ok()?;
        let answer = client.call_blocking(METHOD, Vec::new()).ok()?;
        Statistics::parse(&answer.payload).ok().map(|statistics| statistics.about)
    })
}
