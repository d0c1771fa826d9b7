//! The server that a command contacts: its addresses, and failures to reach it.
//!
//! - A malformed address is an input error.
//! - A server that does not listen, or speaks another protocol, is a run-time error.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, anyhow};
use leeward_rpc::address;
use leeward_rpc::client::Transport;
use leeward_rpc::wire::ServerProtocol;

use crate::failure::Failure;

/// Time limit for connecting, per address of a name.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for a server to show its protocol.
const DETECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Resolves the address `text`.
pub(super) fn resolve(text: &str) -> Result<Vec<SocketAddr>, Failure> {
    address::resolve(text).map_err(|error| {
        Failure::Input(anyhow!("`{text}` is no address: {error}; expected one such as 127.0.0.1:7117"))
    })
}

/// First address of `text` at which a server listens. A single address is not tried.
pub(super) fn find_listener(text: &str, transport: Transport) -> Result<SocketAddr, Failure> {
    let found = address::find_listener(&resolve(text)?, transport, CONNECT_TIMEOUT);
    found.with_context(|| text.to_string()).map_err(Failure::Runtime)
}

/// Connects to the first accepting address of `text`; returns the stream and its address.
pub(super) fn connect(
    text: &str,
    addresses: &[SocketAddr],
    timeout: Duration,
) -> Result<(TcpStream, SocketAddr), Failure> {
    let connected = address::connect(addresses, timeout).and_then(|stream| {
        // If the server closes at once, the socket has no peer address.
        let found = stream.peer_addr().or_else(|error| addresses.first().copied().ok_or(error))?;
        Ok((stream, found))
    });
    connected.with_context(|| format!("{text}: can't connect")).map_err(Failure::Runtime)
}

/// Failure of a request; names the protocol that the server speaks if it is not the `expected` one.
pub(super) fn failure(error: anyhow::Error, found: SocketAddr, expected: ServerProtocol) -> Failure {
    Failure::Runtime(anyhow!(address::with_protocol(format!("{error:#}"), found, expected, DETECT_TIMEOUT)))
}
