//! Connections of one worker thread to the backends. A connection serves one request at a time and
//! then waits for the next one. Does not contain the choice of a backend.

use super::address::BackendAddress;
use super::connector::Connector;
use crate::http::request_body::RequestBody;
use crate::transport::proxy_protocol::Route;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use leeward_host::sync::{Mutex, lock};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// Most connections per backend and thread that wait for a request.
const IDLE_MAX: usize = 1_024;
/// Longest that a connection waits for a request. Servers close idle connections after 5 s and more
/// (Node: 5, nginx: 75); a request that meets a closing one is sent again on another.
const IDLE_TIME: Duration = Duration::from_secs(30);
/// Longest that a backend has to close a connection after its only request, and the interval at
/// which this is checked.
const CLOSE_TIME: Duration = Duration::from_secs(1);
const CLOSE_INTERVAL: Duration = Duration::from_millis(50);
/// Most bytes of an answer's head.
const HEAD_MAX: usize = 128 << 10;
/// Most headers of an answer.
const HEADERS_MAX: usize = 256;

/// The connections of a worker thread.
pub(crate) struct Pool {
    backends: Vec<BackendAddress>,
    connector: Connector,
    idle: Vec<Mutex<Vec<Idle>>>,
}

struct Idle {
    sender: SendRequest<RequestBody>,
    since: Instant,
}

/// A connection that serves a request.
pub(crate) struct Connection {
    pub(crate) sender: SendRequest<RequestBody>,
    /// Whether it has served a request before: its backend may be closing it.
    pub(crate) is_reused: bool,
}

impl Pool {
    pub(crate) fn new(backends: &[BackendAddress], connector: Connector) -> Arc<Self> {
        let idle = backends.iter().map(|_| Mutex::new(Vec::new())).collect();
        Arc::new(Pool { backends: backends.to_vec(), connector, idle })
    }

    /// A connection to a backend: one that waits, or a new one.
    ///
    /// # Errors
    /// The backend refuses connections or does not answer in time.
    pub(crate) async fn connect(&self, backend: usize, route: Option<&Route>) -> io::Result<Connection> {
        match self.take_idle(backend) {
            Some(sender) => Ok(Connection { sender, is_reused: true }),
            // On the heap: it happens seldom, and each request would keep space for it.
            None => Box::pin(self.open(backend, route)).await,
        }
    }

    /// Opens a new connection to a backend; `route`: addresses of the client's connection, for the
    /// PROXY protocol; `None`: the connection is the proxy's own.
    ///
    /// # Errors
    /// As for [`Pool::connect`].
    pub(crate) async fn open(&self, backend: usize, route: Option<&Route>) -> io::Result<Connection> {
        let stream = self.connector.connect(&self.backends[backend], route).await?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_MAX).max_headers(HEADERS_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(async move {
            // Its error reaches the request that it serves.
            let _ = connection.with_upgrades().await;
        });
        Ok(Connection { sender, is_reused: false })
    }

    /// Whether a connection begins with its client's address, so that it serves one request.
    pub(crate) fn tells_clients(&self) -> bool {
        self.connector.tells_clients()
    }

    /// Takes back the connection of a request whose answer is complete.
    pub(crate) fn put(&self, backend: usize, sender: SendRequest<RequestBody>) {
        if sender.is_closed() {
            return;
        }
        if self.tells_clients() {
            tokio::spawn(let_close(sender));
            return;
        }
        let mut idle = lock(&self.idle[backend]);
        if idle.len() < IDLE_MAX {
            idle.push(Idle { sender, since: Instant::now() });
        }
    }

    /// The connection that was used last, so that surplus ones grow old.
    fn take_idle(&self, backend: usize) -> Option<SendRequest<RequestBody>> {
        let mut idle = lock(&self.idle[backend]);
        let mut busy: Option<Idle> = None;
        let found = loop {
            match idle.pop() {
                Some(next) if next.sender.is_closed() => {}
                Some(next) if next.sender.is_ready() => break Some(next.sender),
                // It still has to note the end of its last answer.
                Some(next) => {
                    if let Some(earlier) = busy.replace(next) {
                        idle.push(earlier);
                        break None;
                    }
                }
                None => break None,
            }
        };
        idle.extend(busy);
        found
    }

    /// Closes connections that have waited for long.
    pub(crate) fn close_old(&self) {
        for idle in &self.idle {
            lock(idle).retain(|idle| idle.since.elapsed() < IDLE_TIME && !idle.sender.is_closed());
        }
    }
}

/// Waits a moment for the backend to close a connection that it was told to close: the side that
/// closes first keeps the port for a minute, and a proxy would run out of ports.
async fn let_close(mut sender: SendRequest<RequestBody>) {
    let closed = async {
        while sender.ready().await.is_ok() && !sender.is_closed() {
            sleep(CLOSE_INTERVAL).await
        }
    };
    let _ = timeout(CLOSE_TIME, closed).await;
}
