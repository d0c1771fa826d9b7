//! systemd integration: inherited listening sockets, and notifications when the server is ready and
//! when it stops. Has no effect without systemd. Does not contain units (`packaging/systemd`).

use std::net::TcpListener;

use listenfd::ListenFd;
use sd_notify::NotifyState;

/// Sockets of a unit, in the order of its `ListenStream=` lines: the server's, then the admin
/// port's.
#[derive(Debug, Default)]
pub(super) struct InheritedSockets {
    pub(super) server: Option<TcpListener>,
    pub(super) admin: Option<TcpListener>,
}

impl InheritedSockets {
    /// Takes the sockets that exist. A socket that is not a TCP listener is ignored.
    pub(super) fn from_env() -> Self {
        let mut sockets = ListenFd::from_env();
        let mut take = |index: usize| {
            if sockets.len() > index { sockets.take_tcp_listener(index).ok().flatten() } else { None }
        };
        InheritedSockets { server: take(0), admin: take(1) }
    }
}

/// Notifies systemd that the server is ready.
pub(super) fn notify_ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Notifies systemd that the server stops: it accepts no more requests and finishes those in
/// progress.
pub(super) fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    // Errors are ignored: systemd may not be there.
    let _ = sd_notify::notify(false, states);
}
