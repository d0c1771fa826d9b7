//! The address of a listener. Does not contain sockets.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Begins the address of a Unix socket; its path follows.
pub(crate) const UNIX: &str = "unix:";

/// The address that a proxy listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocalAddress {
    /// Address and port.
    Tcp(SocketAddr),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

impl LocalAddress {
    /// Address and port; `None`: it is a Unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            LocalAddress::Tcp(address) => Some(*address),
            LocalAddress::Unix(_) => None,
        }
    }
}

impl fmt::Display for LocalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocalAddress::Tcp(address) => address.fmt(f),
            LocalAddress::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}
