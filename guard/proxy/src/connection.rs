//! One connection of a client: it sleeps without buffers while it is idle, serves requests, and
//! leaves HTTP if a request asks for it. Does not contain requests.
//!
//! - `http2`: the same for a client that speaks HTTP/2. `streams`: the tasks of its requests.
//!
//! hyper keeps two buffers of 8 KiB per connection. A connection that has been idle for a moment is
//! taken from hyper, and given back with its next byte: so 10,000 idle ones take little memory, and
//! the one that has been idle for longest can be closed when there are too many.

mod http2;
mod streams;

use crate::activity::{Activity, Busy};
use crate::connections::{Connections, Phase};
use crate::http::head::{HEADERS_MAX, Peer};
use crate::http::tunnel::UpgradeSlot;
use crate::transport::accept::Acceptor;
use crate::transport::client_stream::ClientStream;
use crate::transport::proxy_protocol::Route;
use crate::transport::socket::Socket;
use crate::transport::stream::{Protocol, Transport};
use crate::worker::Worker;
use bytes::BytesMut;
use http::{Request, Version};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use leeward_host::sync::lock;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Most bytes of a request's head, decoded if it is of HTTP/2. hyper answers a longer one by 431.
const HEAD_MAX: u32 = 64 << 10;
/// A connection without requests for one to two of these gives its buffers back.
const SLEEP_AFTER: Duration = Duration::from_millis(250);
/// The same while more than [`MANY`] connections are open, whose buffers would add up.
const SLEEP_AFTER_OF_MANY: Duration = Duration::from_millis(50);
/// Open connections above which each gets smaller buffers, for a shorter time.
const MANY: usize = 1_000;
/// Bytes that are read to tell HTTP/2 from HTTP/1: most heads are shorter.
const FIRST_READ: usize = 1_024;

/// A client, and what its connection needs.
pub(crate) struct Client {
    pub(crate) worker: Arc<Worker>,
    pub(crate) peer: Peer,
    pub(crate) acceptor: Arc<Acceptor>,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) connections: Arc<Connections>,
}

/// State of a connection that is not in hyper's hands.
enum ConnectionState {
    /// It waits for its next byte.
    Idle(ClientStream),
    /// It has ended.
    Ended,
}

impl Client {
    /// Serves the connection until it ends.
    pub(crate) async fn serve(mut self, socket: Socket, address: Option<SocketAddr>) {
        let socket = socket.with_write_timeout(self.worker.configuration().settings.timeouts.client_idle);
        // Boxed, so that the future of an idle connection stays small.
        let Some(mut stream) = Box::pin(self.accept(socket, address)).await else { return };
        let mut is_new = true;
        loop {
            if !self.wait_for_byte(&mut stream).await {
                return;
            }
            if std::mem::take(&mut is_new) {
                let Some((read, is_http2)) = Box::pin(self.detect(stream)).await else { return };
                stream = read;
                if is_http2 {
                    let Client { worker, peer, phase, connections, .. } = &mut self;
                    return Box::pin(http2::serve(stream, (worker, peer), phase, connections)).await;
                }
            }
            // Boxed, so that the future of an idle connection stays small.
            match Box::pin(self.serve_requests(stream)).await {
                ConnectionState::Idle(idle) => stream = idle,
                ConnectionState::Ended => return,
            }
        }
    }

    /// Reads the PROXY header and does the TLS handshake. Returns `None` if the connection must
    /// end.
    async fn accept(&mut self, socket: Socket, address: Option<SocketAddr>) -> Option<ClientStream> {
        let configuration = self.worker.configuration();
        let settings = &configuration.settings;
        self.peer.judge(configuration.version, &settings.trusted);
        let mut route = None;
        if settings.sends_proxy_protocol.is_some() {
            route = Route::between(address, socket.local_address());
        }
        let transport = if self.acceptor.has_preface() {
            let accepted = tokio::select! {
                accepted = self.acceptor.accept(socket, self.peer.is_trusted(), settings.timeouts.client) => accepted,
                () = Phase::Stopping.reached(&mut self.phase) => None,
                () = async {
                    sleep(SLEEP_AFTER).await;
                    self.connections.must_end().await;
                } => None,
            }?;
            if let Some(stated) = accepted.route {
                self.peer = Peer::new(Some(stated.source.ip()));
                route = accepted.route;
            }
            accepted.transport
        } else {
            Transport::Plain(socket)
        };
        self.peer.is_tls = transport.is_tls();
        self.peer.route = route.filter(|_| settings.sends_proxy_protocol.is_some()).map(Box::new);
        Some(ClientStream::new(transport))
    }

    /// Sleeps until a byte arrives; false: the connection must end.
    async fn wait_for_byte(&mut self, stream: &mut ClientStream) -> bool {
        let longest = self.worker.configuration().settings.timeouts.client;
        tokio::select! {
            // A request that has arrived is answered, even if the proxy stops.
            biased;
            has_byte = timeout(longest, stream.has_byte()) => has_byte == Ok(true),
            () = Phase::Stopping.reached(&mut self.phase) => false,
            () = async {
                sleep(SLEEP_AFTER).await;
                self.connections.must_end().await;
            } => false,
        }
    }

    /// Reads the first bytes and puts them back. Returns whether the client speaks HTTP/2, or
    /// `None` if it has disconnected or is too slow.
    async fn detect(&self, mut stream: ClientStream) -> Option<(ClientStream, bool)> {
        if let Some(protocol) = stream.protocol() {
            return Some((stream, protocol == Protocol::Http2));
        }
        let mut first = BytesMut::with_capacity(FIRST_READ);
        let read = async {
            loop {
                let count = stream.read_buf(&mut first).await.unwrap_or(0);
                let common = first.len().min(http2::PREFACE.len());
                if count == 0 || first[..common] != http2::PREFACE[..common] || common == http2::PREFACE.len() {
                    return count > 0;
                }
            }
        };
        let is_there = timeout(self.worker.configuration().settings.timeouts.client, read).await == Ok(true);
        let is_http2 = first.starts_with(http2::PREFACE);
        is_there.then(|| (stream.with_prefix(first.freeze()), is_http2))
    }

    /// Serves requests until the connection ends or has been idle for a while. Errors are those of
    /// the client: it has gone, or sends garbage, which hyper answers.
    async fn serve_requests(&mut self, stream: ClientStream) -> ConnectionState {
        let activity = Arc::new(Activity::default());
        let (upgrade, is_http_1_0) = (UpgradeSlot::default(), AtomicBool::new(false));
        let Client { worker, peer, phase, connections, .. } = self;
        let sleep_after = if connections.total() > MANY { SLEEP_AFTER_OF_MANY } else { SLEEP_AFTER };
        let idle = worker.configuration().settings.timeouts.client;
        // On the heap, since hyper keeps space for it between requests.
        let service = service_fn(|request: Request<Incoming>| {
            is_http_1_0.store(request.version() == Version::HTTP_10, Ordering::Relaxed);
            Box::pin(worker.handle(peer, &upgrade, Busy::new(&activity, None), request))
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(idle).max_headers(HEADERS_MAX);
        // hyper's buffer may exceed `max_buf_size` briefly, so the head needs a limit of its own.
        builder.max_buf_size(HEAD_MAX as usize).max_header_size(HEAD_MAX as usize);
        let flags = stream.flags();
        let mut connection = builder.serve_connection(TokioIo::new(stream), service);
        let mut started = activity.started();
        let mut is_stopping = false;
        loop {
            tokio::select! {
                biased;
                ended = poll_fn(|context| connection.poll_without_shutdown(context)) => {
                    if let Err(error) = ended {
                        if error.is_parse() {
                            worker.record_unparsed(peer, &error);
                        }
                        if error.is_user() && is_http_1_0.load(Ordering::Relaxed) {
                            // Else its client takes this end for that of the response.
                            connection.into_parts().io.into_inner().reset();
                        }
                        return ConnectionState::Ended;
                    }
                    break;
                }
                () = Phase::Stopping.reached(phase), if !is_stopping => {
                    is_stopping = true;
                    Pin::new(&mut connection).graceful_shutdown();
                }
                () = sleep(sleep_after) => {
                    let now = activity.started();
                    // hyper drops what it could not write yet with the connection. The socket's
                    // write timeout limits how long a client may leave it there.
                    let is_idle = now == started && activity.is_idle() && flags.is_flushed();
                    started = now;
                    flags.set_end_check(!activity.is_idle());
                    if is_idle && !is_stopping && now > 0 {
                        let parts = connection.into_parts();
                        return ConnectionState::Idle(parts.io.into_inner().with_prefix(parts.read_buf));
                    }
                }
            }
        }
        let parts = connection.into_parts();
        let mut stream = parts.io.into_inner().with_prefix(parts.read_buf);
        let backend = lock(&upgrade).take();
        match backend {
            Some(backend) => backend.pass(stream).await,
            None => Box::pin(stream.end()).await,
        }
        ConnectionState::Ended
    }
}
