//! Things that systemd gives a server and wants to hear of it: sockets that listen already, and when it is ready and when it stops. Without
//! systemd there is nothing of it. Never here: units (`packaging/systemd`).

use std::net::TcpListener;

use listenfd::ListenFd;
use sd_notify::NotifyState;

/// Sockets of a unit, in the order of its `ListenStream=` lines: the server's, then the admin port's.
#[derive(Debug, Default)]
pub(super) struct InheritedSockets {
    pub(super) server: Option<TcpListener>,
    pub(super) admin: Option<TcpListener>,
}

impl InheritedSockets {
    /// Takes what there is. A socket that is no TCP listener is left alone.
    pub(super) fn from_env() -> Self {
        let mut sockets = ListenFd::from_env();
        let mut take = |place: usize| {
            if sockets.len() > place { sockets.take_tcp_listener(place).ok().flatten() } else { None }
        };
        InheritedSockets { server: take(0), admin: take(1) }
    }
}

/// The server answers.
pub(super) fn notify_ready(words: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(words)]);
}

/// The server takes no more, and sends the answers that it owes.
pub(super) fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    // Whoever started the server may not want to know.
    let _ = sd_notify::notify(false, states);
}
