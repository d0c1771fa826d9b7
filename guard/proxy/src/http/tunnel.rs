//! Bytes between a client and a backend that have left HTTP, until both sides have ended or one
//! breaks off. Does not contain what is said in a tunnel.

use super::response_body::Lease;
use crate::activity::Busy;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use leeward_host::sync::Mutex;
use pin_project_lite::pin_project;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::time::{Sleep, sleep};

/// A backend that leaves HTTP, if a request of a connection has made it do so.
pub(crate) type UpgradeSlot = Mutex<Option<Upgrade>>;

/// A backend that leaves HTTP. It may be a stream of a connection, which is in use meanwhile.
pub(crate) struct Upgrade {
    backend: OnUpgrade,
    lease: Lease,
    /// Longest time for which it may leave bytes unread.
    idle: Option<Duration>,
}

impl Upgrade {
    pub(super) fn new(backend: OnUpgrade, lease: Lease, idle: Option<Duration>) -> Self {
        Upgrade { backend, lease, idle }
    }

    /// Passes bytes between a client and the backend until both have ended.
    pub(crate) async fn pass(self, mut client: impl AsyncRead + AsyncWrite + Unpin) {
        if let Ok(backend) = self.backend.await {
            let mut backend = Backend { io: TokioIo::new(backend), idle: self.idle, timer: None };
            // An end without notice is how such connections often end.
            let _ = copy_bidirectional(&mut client, &mut backend).await;
        }
        self.lease.give_back();
    }
}

/// Passes bytes between a client's stream and its backend until both have ended.
pub(super) async fn pass(client: OnUpgrade, backend: Upgrade, _busy: Busy) {
    if let Ok(client) = client.await {
        backend.pass(TokioIo::new(client)).await;
    }
}

pin_project! {
    /// A backend in a tunnel. Who waits until it reads does not see that the client has left, so
    /// this wait has an end.
    struct Backend {
        #[pin]
        io: TokioIo<Upgraded>,
        idle: Option<Duration>,
        timer: Option<Pin<Box<Sleep>>>,
    }
}

/// Ends a wait for the backend that has been too long.
fn limit<T>(
    timer: &mut Option<Pin<Box<Sleep>>>,
    (idle, context): (Option<Duration>, &mut Context<'_>),
    written: Poll<io::Result<T>>,
) -> Poll<io::Result<T>> {
    let (Poll::Pending, Some(idle)) = (&written, idle) else {
        *timer = None;
        return written;
    };
    let timer = timer.get_or_insert_with(|| Box::pin(sleep(idle)));
    timer.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
}

impl AsyncRead for Backend {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.project().io.poll_read(context, into)
    }
}

impl AsyncWrite for Backend {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.project();
        let written = this.io.poll_write(context, bytes);
        limit(this.timer, (*this.idle, context), written)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let flushed = this.io.poll_flush(context);
        limit(this.timer, (*this.idle, context), flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let ended = this.io.poll_shutdown(context);
        limit(this.timer, (*this.idle, context), ended)
    }
}
