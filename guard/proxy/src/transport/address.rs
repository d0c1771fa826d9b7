//! The address of a listener, and the paths of Unix sockets. Does not contain sockets.

use leeward_observe::with_host;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// Begins the address of a Unix socket; its path follows.
pub(crate) const UNIX: &str = "unix:";

/// Longest path of a Unix socket (`sun_path`, with the byte 0 at its end).
const PATH_MAX: usize = 107;

/// Reads the path of a Unix socket, which appears in metrics and headers, too.
///
/// # Errors
/// Advice for people.
pub(crate) fn socket_path(text: &str) -> Result<PathBuf, String> {
    let is_plain = |c: char| !c.is_control() && c != '"' && c != '\\';
    if !text.starts_with('/') || !text.chars().all(is_plain) {
        return Err("the path of a Unix socket begins with `/` and has no quotes, such as `unix:/run/app.sock`".into());
    }
    if text.len() > PATH_MAX {
        return Err(format!("the path of a Unix socket has at most {PATH_MAX} bytes"));
    }
    Ok(text.into())
}

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
    /// The address that settings ask for. `None`: it can't be resolved.
    pub(crate) fn requested(text: &str) -> Option<LocalAddress> {
        match text.strip_prefix(UNIX) {
            Some(path) => Some(LocalAddress::Unix(path.into())),
            None => with_host(text).to_socket_addrs().ok()?.next().map(LocalAddress::Tcp),
        }
    }

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
