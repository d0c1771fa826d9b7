//! Breakwater: credits, demand speculation and AQM by delay (Breakwater, OSDI'20 §3–4; thesis
//! §2.3). One of three signals adapts the pool: queueing delay ([`ALGORITHM`]), efficiency
//! ([`EFFICIENCY`]), or the one of both that has evidence ([`AUTO`]).
//!
//! - [`config`]: the settings and their defaults; each ablation of the paper is a switch. Names and
//!   ranges are in [`params`].
//! - [`pool`]: the credits that all cores share.
//! - `law`: the rule by which the pool grows and shrinks, the only part in which the three signals
//!   differ.
//! - `samples`: counts of responses for the efficiency signal.
//! - [`server`]: the fast half (windows, lazy distribution, AQM) and the slow half (one tick per
//!   RTT).
//! - `allocation`: growth of the pool where an allocator grants and parks cores (poster SIGCOMM'23
//!   §3).
//! - `backlog`: the backlog that AQM lets wait there for further cores.
//! - `downstream`: the limit that downstream servers put on the pool.
//! - `overload`: the detector of overload; without overload no request is rejected for its delay.
//! - `drained`: sessions that hold no credit and wait for an explicit one.
//! - `rotation`: last credits that sessions pass on to drained ones.
//! - `untried`: sessions that have had no credit yet.
//! - `usage`: requests that a session sent in the last round trip.
//! - [`client`]: the client half, which sends while the window allows.

mod allocation;
mod backlog;
pub mod client;
pub mod config;
mod downstream;
mod drained;
mod law;
#[cfg(all(test, loom))]
mod model;
mod overload;
pub mod params;
pub mod pool;
mod rotation;
mod samples;
pub mod server;
mod untried;
mod usage;

use config::{Config, PoolSignal};
pub use law::{PoolLaw, PoolState};
use leeward_core::client::ClientParts;
use leeward_core::params::{ParamError, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::ServerHalves;

/// The registry's entry for the delay signal.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "breakwater",
    summary: "server-driven credits by queueing delay, with overcommitment and AQM",
    source: "Cho et al., OSDI'20",
    params: params::DELAY,
    build_server: |params, environment| server_with_signal(PoolSignal::Delay, params, environment),
    build_client: |params, environment| client_with_signal(PoolSignal::Delay, params, environment),
};

/// The registry's entry for the efficiency signal.
pub const EFFICIENCY: Algorithm = Algorithm {
    name: "efficiency",
    summary: "the same credits by what more load brings in throughput: for locks and other hidden bottlenecks",
    source: "Cho, thesis 2023, Algorithm 1",
    params: params::EFFICIENCY,
    build_server: |params, environment| server_with_signal(PoolSignal::Efficiency, params, environment),
    build_client: |params, environment| client_with_signal(PoolSignal::Efficiency, params, environment),
};

/// The registry's entry for the automatic signal.
pub const AUTO: Algorithm = Algorithm {
    name: "auto",
    summary: "the same credits by whichever signal, delay or efficiency, has evidence of overload",
    source: "Leeward, on Cho, thesis 2023, §2.3",
    params: params::AUTO,
    build_server: |params, environment| server_with_signal(PoolSignal::Auto, params, environment),
    build_client: |params, environment| client_with_signal(PoolSignal::Auto, params, environment),
};

/// Builds the server's halves under a custom law of the pool; `params` are [`ALGORITHM`]'s.
///
/// # Errors
/// Parameters that conflict with each other.
pub fn server_with_law(
    law: Box<dyn PoolLaw>,
    params: &Params,
    environment: &Environment,
) -> Result<ServerHalves, ParamError> {
    Ok(server::halves_with_pool_law(law, &Config::read(PoolSignal::Delay, params, environment)?, environment))
}

fn server_with_signal(
    signal: PoolSignal,
    params: &Params,
    environment: &Environment,
) -> Result<ServerHalves, ParamError> {
    Ok(server::halves(&Config::read(signal, params, environment)?, environment))
}

fn client_with_signal(
    signal: PoolSignal,
    params: &Params,
    environment: &Environment,
) -> Result<ClientParts, ParamError> {
    let config = Config::read(signal, params, environment)?;
    Ok(ClientParts { half: Box::new(client::Client::new(&config)), config: config.client })
}
