//! The server that a command is pointed at: its addresses, and why it is of no use. What was asked is wrong where the address is
//! none; what was met is wrong where nobody listens, or where another protocol is spoken.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, anyhow};
use leeward_rpc::address;
use leeward_rpc::client::Transport;
use leeward_rpc::wire::ServerProtocol;

use crate::failure::Failure;

/// Time to connect, for each address of a name.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a server has to show what it speaks.
const DETECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Addresses of the server called `text`.
pub(super) fn resolve(text: &str) -> Result<Vec<SocketAddr>, Failure> {
    address::resolve(text).map_err(|error| {
        Failure::Input(anyhow!("`{text}` is no address: {error}; expected one such as 127.0.0.1:7117"))
    })
}

/// The first address of `text` where somebody listens; where there is but one, it is not looked at.
pub(super) fn find_listener(text: &str, transport: Transport) -> Result<SocketAddr, Failure> {
    let found = address::find_listener(&resolve(text)?, transport, CONNECT_TIMEOUT);
    found.with_context(|| text.to_string()).map_err(Failure::Runtime)
}

/// Connects to the first of the addresses of `text` that accepts, and says which that was.
pub(super) fn connect(
    text: &str,
    addresses: &[SocketAddr],
    patience: Duration,
) -> Result<(TcpStream, SocketAddr), Failure> {
    let connected = address::connect(addresses, patience).and_then(|stream| {
        // A server that closes at once leaves a socket without a peer.
        let found = stream.peer_addr().or_else(|error| addresses.first().copied().ok_or(error))?;
        Ok((stream, found))
    });
    connected.with_context(|| format!("{text}: can't connect")).map_err(Failure::Runtime)
}

/// Failure of what was tried at a server, with the protocol that it speaks, where that is not the `expected` one.
pub(super) fn failure(error: anyhow::Error, found: SocketAddr, expected: ServerProtocol) -> Failure {
    Failure::Runtime(anyhow!(address::with_protocol(format!("{error:#}"), found, expected, DETECT_TIMEOUT)))
}
