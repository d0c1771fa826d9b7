//! systemd integration: inherited listening sockets, and notifications when a server is ready and
//! when it stops. Has no effect without systemd. Does not contain units (`packaging/systemd`).

use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use listenfd::ListenFd;
use sd_notify::NotifyState;

/// A socket that was inherited.
#[derive(Debug)]
pub(crate) enum InheritedSocket {
    /// It listens on a port.
    Tcp(TcpListener),
    /// It listens on a path.
    Unix(UnixListener),
}

/// Sockets of a unit, in the order of its `ListenStream=` lines: the server's, then the admin
/// port's.
#[derive(Debug, Default)]
pub(crate) struct InheritedSockets {
    pub(crate) server: Option<InheritedSocket>,
    pub(crate) admin: Option<TcpListener>,
}

impl InheritedSockets {
    /// Takes the sockets that exist. A socket that does not listen is ignored.
    pub(crate) fn from_env() -> Self {
        let mut sockets = ListenFd::from_env();
        let count = sockets.len();
        let mut tcp = |index: usize| sockets.take_tcp_listener(index).ok().flatten();
        let server = if count > 0 { tcp(0) } else { None };
        let admin = if count > 1 { tcp(1) } else { None };
        let server = match server {
            None if count > 0 => sockets.take_unix_listener(0).ok().flatten().map(InheritedSocket::Unix),
            server => server.map(InheritedSocket::Tcp),
        };
        InheritedSockets { server, admin }
    }
}

/// Notifies systemd that the server is ready.
pub(crate) fn notify_ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Notifies systemd of what the server does now.
pub(crate) fn notify_status(status: &str) {
    notify(&[NotifyState::Status(status)]);
}

/// Notifies systemd that another process is the server from now on.
pub(crate) fn notify_successor(process: u32, status: &str) {
    notify(&[NotifyState::MainPid(process), NotifyState::Status(status)]);
}

/// Notifies systemd that the server stops: it accepts no more requests and finishes those in
/// progress.
pub(crate) fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    // Errors are ignored: systemd may not be there.
    let _ = sd_notify::notify(false, states);
}
