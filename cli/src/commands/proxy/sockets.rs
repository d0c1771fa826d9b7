//! The sockets of `leeward proxy`: inherited from systemd or from the process before it, or bound
//! anew. Does not contain connections.

use std::io::Write;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, anyhow};
use leeward_observe::with_host;
use leeward_proxy::BoundListener;

use super::failure;
use crate::failure::Failure;
use crate::stdout;
use crate::systemd::{InheritedSocket, InheritedSockets};

/// Address that means: the socket that systemd has opened.
const SYSTEMD: &str = "systemd";

/// Second descriptors of the listening sockets, for a process that takes over.
pub(super) struct Sockets {
    listener: BoundListener,
    admin: Option<TcpListener>,
}

impl Sockets {
    /// Takes the inherited sockets that the settings name, and binds the others. `is_successor`:
    /// the process before this one hands over what it owned.
    pub(super) fn open(
        listen: &str,
        admin: Option<&str>,
        is_successor: bool,
    ) -> Result<(BoundListener, Option<TcpListener>, Sockets), Failure> {
        let InheritedSockets { server, admin: inherited } = InheritedSockets::from_env();
        let server = server.map(|socket| match socket {
            InheritedSocket::Tcp(listener) => BoundListener::from(listener),
            InheritedSocket::Unix(listener) => BoundListener::from(listener),
        });
        let listener = choose("listen", listen, server, BoundListener::is_at)?;
        let listener = match listener {
            Some(mut listener) => {
                if is_successor && listen != SYSTEMD {
                    listener.own_file();
                }
                listener
            }
            None => BoundListener::bind(listen).map_err(failure)?,
        };
        let is_at = |socket: &TcpListener, address: &str| {
            socket.try_clone().is_ok_and(|socket| BoundListener::from(socket).is_at(address))
        };
        let admin = match (admin, inherited) {
            (None, _) => None,
            (Some(address), inherited) => match choose("admin", address, inherited, is_at)? {
                Some(socket) => Some(socket),
                None => Some(bind_admin(address)?),
            },
        };
        let spare = || -> std::io::Result<Sockets> {
            Ok(Sockets {
                listener: listener.try_clone()?,
                admin: admin.as_ref().map(TcpListener::try_clone).transpose()?,
            })
        };
        let sockets = spare().context("the listening sockets").map_err(Failure::Runtime)?;
        Ok((listener, admin, sockets))
    }

    /// The sockets in the order in which another process inherits them.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let admin = self.admin.as_ref().map(AsFd::as_fd);
        [Some(self.listener.as_fd()), admin].into_iter().flatten().collect()
    }
}

/// The inherited socket, if the address names it.
fn choose<T>(
    key: &str,
    address: &str,
    inherited: Option<T>,
    is_at: impl Fn(&T, &str) -> bool,
) -> Result<Option<T>, Failure> {
    match inherited {
        Some(socket) if address == SYSTEMD || is_at(&socket, address) => Ok(Some(socket)),
        None if address == SYSTEMD => Err(Failure::Input(anyhow!(
            "`{key}` is `systemd`, which has passed no such socket; start the .socket unit (leeward-proxy.socket)"
        ))),
        inherited => {
            if inherited.is_some() {
                let _ = writeln!(
                    std::io::stderr(),
                    "warning: an inherited socket is not used: `{key}` is {}",
                    stdout::sanitize(address)
                );
            }
            Ok(None)
        }
    }
}

fn bind_admin(address: &str) -> Result<TcpListener, Failure> {
    let refused = |error| Failure::Input(anyhow!("--admin: can't listen on {}: {error}", stdout::sanitize(address)));
    TcpListener::bind(&*with_host(address)).map_err(refused)
}
