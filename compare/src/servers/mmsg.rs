//! The minimal server over datagrams: echoes messages, many per system call in each direction.

use anyhow::{Context, Result};
use leeward_engine::batch::messages::{Incoming, Outgoing};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBufForce, SndBufForce};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

use super::{ANY, bare};

/// Socket buffers in bytes, large enough for a datagram of each client, as in Leeward's server.
const ROOM: usize = 16 << 20;

/// Opens a socket for [`serve`].
///
/// # Errors
/// The socket can't be bound.
pub(crate) fn listen() -> Result<UdpSocket> {
    let socket = UdpSocket::bind(ANY).context("binding")?;
    // The system may not allow this size.
    let _ = setsockopt(&socket, RcvBufForce, &ROOM);
    let _ = setsockopt(&socket, SndBufForce, &ROOM);
    Ok(socket)
}

/// Echoes until the process ends, and keeps the CPU busy for `work` before each echo.
///
/// # Errors
/// The socket can't be read.
pub(crate) fn serve(socket: &UdpSocket, work: Duration) -> Result<()> {
    let (mut incoming, mut outgoing) = (Incoming::new(1400), Outgoing::new(1400));
    loop {
        for index in 0..incoming.receive(socket.as_fd())? {
            if let Some(message) = incoming.message(index) {
                bare::spin(work);
                outgoing.push(message.bytes, &message.from);
            }
        }
        outgoing.send(socket.as_fd());
    }
}
