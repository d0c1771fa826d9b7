//! Opens connections to backends: TCP or a Unix socket. Does not contain HTTP, or connections that
//! wait for requests.

use super::address::{BackendAddress, Target};
use crate::transport::socket::Socket;
use crate::transport::stream::Transport;
use std::io;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// Opens connections to backends.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    timeout: Duration,
}

impl Connector {
    pub(crate) fn new(timeout: Duration) -> Self {
        Connector { timeout }
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// The backend refuses connections or does not answer in time.
    pub(crate) async fn connect(&self, address: &BackendAddress) -> io::Result<Transport> {
        let connect = self.open(address);
        timeout(self.timeout, connect).await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    async fn open(&self, address: &BackendAddress) -> io::Result<Transport> {
        if address.is_tls() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let socket: Socket = match address.target() {
            Target::Tcp { host, port } => TcpStream::connect((host.as_str(), *port)).await?.into(),
            Target::Unix(path) => UnixStream::connect(path).await?.into(),
        };
        Ok(Transport::Plain(socket))
    }
}
