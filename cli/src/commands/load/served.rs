//! Statistics of the server under load, and the service that it runs.

use leeward_core::units::Nanos;
use leeward_rpc::client::Client;
use leeward_rpc::statistics::Statistics;
use leeward_services::definition::Target;

use crate::commands::statistics_source;
use crate::interrupt::Interrupt;
use crate::stdout;

/// Longest wait for the server's statistics.
const TIMEOUT: Nanos = Nanos::from_secs(5);

/// Queries the server at its TCP address; returns its statistics, with the client for further
/// queries. `None` if it does not send them.
pub(super) fn statistics(server: &Target<'_>, interrupt: &Interrupt) -> Option<(Client, Statistics)> {
    let client = Client::builder().replica(server.address.to_string()).retries(0, 0).timeout(TIMEOUT);
    let client = client.encryption(server.encryption.cloned().unwrap_or_default()).build().ok()?;
    let statistics = statistics_source::call(&client, interrupt, || {}).ok()?;
    Some((client, statistics))
}

/// Name of the service that the server runs, if the server tells it.
pub(super) fn service(server: &Target<'_>, interrupt: &Interrupt) -> Option<String> {
    let (_, statistics) = statistics(server, interrupt)?;
    statistics.about.service.map(|name| stdout::sanitize(&name).to_string())
}
