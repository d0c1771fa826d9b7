//! The least that a server over datagrams can do: what has come is worked on and sent back, many in one system call each way.

use anyhow::{Context, Result};
use leeward_engine::batch::messages::{Incoming, Outgoing};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBufForce, SndBufForce};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

use super::{ANY, bare};

/// Room for everybody's datagram, as Leeward's server has it where it may.
const ROOM: usize = 16 << 20;

/// A socket for [`serve`].
///
/// # Errors
/// The system has none.
pub(crate) fn listen() -> Result<UdpSocket> {
    let socket = UdpSocket::bind(ANY).context("binding")?;
    // As far as the system lets it.
    let _ = setsockopt(&socket, RcvBufForce, &ROOM);
    let _ = setsockopt(&socket, SndBufForce, &ROOM);
    Ok(socket)
}

/// Echoes for ever, and keeps the CPU busy for `work` before each.
///
/// # Errors
/// The socket's.
pub(crate) fn serve(socket: &UdpSocket, work: Duration) -> Result<()> {
    let (mut incoming, mut outgoing) = (Incoming::new(1400), Outgoing::new(1400));
    loop {
        for place in 0..incoming.receive(socket.as_fd())? {
            if let Some(message) = incoming.message(place) {
                bare::spin(work);
                outgoing.push(message.bytes, &message.from);
            }
        }
        outgoing.send(socket.as_fd());
    }
}
