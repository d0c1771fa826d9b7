//! Things that systemd gives a server and wants to hear of it: sockets that listen already, and when it is ready and when it stops. Without
//! systemd there is nothing of it. Never here: units (`packaging/systemd`).

use std::net::TcpListener;

use listenfd::ListenFd;
use sd_notify::NotifyState;

/// Sockets of a unit, in the order of its `ListenStream=` lines: the server's, then the admin port's.
#[derive(Debug, Default)]
pub(super) struct Activated {
    pub(super) server: Option<TcpListener>,
    pub(super) admin: Option<TcpListener>,
}

impl Activated {
    /// Takes what there is. A socket that is no TCP listener is left alone.
    pub(super) fn take() -> Self {
        let mut sockets = ListenFd::from_env();
        let mut take = |place: usize| {
            if sockets.len() > place { sockets.take_tcp_listener(place).ok().flatten() } else { None }
        };
        Activated { server: take(0), admin: take(1) }
    }
}

/// The server answers.
pub(super) fn is_ready(words: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(words)]);
}

/// The server takes no more, and sends the answers that it owes.
pub(super) fn is_stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    // Whoever started the server may not want to know.
    let _ = sd_notify::notify(false, states);
}
