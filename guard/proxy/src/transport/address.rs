//! The address of a listener, and the paths of Unix sockets. Does not contain sockets.

use leeward_observe::with_host;
use std::fmt;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;

/// Begins the address of a Unix socket; its path follows.
pub(crate) const UNIX: &str = "unix:";

/// Address of a socket that systemd has opened.
const SYSTEMD: &str = "systemd";

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

/// Checks the address of a listener of TCP: a port, behind a host or none; or `systemd`.
///
/// # Errors
/// Advice for people.
pub(crate) fn check_listener(text: &str) -> Result<(), String> {
    let (host, port) = match text.rsplit_once(':') {
        Some(parts) => parts,
        None if text == SYSTEMD => return Ok(()),
        None if text.parse::<u16>().is_ok() => {
            return Err(format!("`{text}` has no `:` before its port; write `:{text}`"));
        }
        None => return Err(format!("`{text}` has no port; an address is such as `:8080` or `127.0.0.1:8080`")),
    };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if port.ends_with(']') || (inner.is_none() && host.contains(':')) {
        return Err(format!("`{text}` is no address; one of IPv6 is such as `[::1]:8080`"));
    }
    if port.parse::<u16>().is_err() {
        return Err(format!("`{text}` ends with no port from 0 to 65535, such as `:8080`"));
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match inner {
        Some(host) if host.parse::<Ipv6Addr>().is_err() => Err(format!("`{host}` is no address of IPv6")),
        None if !host.bytes().all(is_name) => Err(format!("`{host}` is no host")),
        _ => Ok(()),
    }
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
    /// The address that settings ask for; `None`: that of a socket that systemd opens.
    ///
    /// # Errors
    /// It can't be resolved, or is none of this machine's.
    pub(crate) fn requested(text: &str) -> io::Result<Option<LocalAddress>> {
        if let Some(path) = text.strip_prefix(UNIX) {
            return Ok(Some(LocalAddress::Unix(path.into())));
        }
        if text == SYSTEMD {
            return Ok(None);
        }
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for address in with_host(text).to_socket_addrs()? {
            match UdpSocket::bind((address.ip(), 0)) {
                Ok(_) => return Ok(Some(LocalAddress::Tcp(address))),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Whether only one of them can have a listener.
    pub(crate) fn excludes(&self, other: &LocalAddress) -> bool {
        match (self, other) {
            (LocalAddress::Tcp(one), LocalAddress::Tcp(other)) => {
                let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
                one.port() == other.port() && one.port() > 0 && (is_any || one.ip() == other.ip())
            }
            (one, other) => one == other,
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
