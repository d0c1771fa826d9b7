//! Connections of one worker thread to one backend. A connection of HTTP/1 serves one request at a
//! time and then waits for the next one; those of HTTP/2 are in [`super::http2`]. Does not contain
//! the choice of a backend.

use super::CLOSE_TIME;
use super::address::BackendAddress;
use super::connector::{Connector, Opened};
use super::http2::{self, Http2Connections, Http2Sender, Opening};
use super::stream::BackendStream;
use crate::http::request_body::RequestBody;
use crate::transport::proxy_protocol::Route;
use crate::transport::stream::Protocol;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use leeward_host::sync::{Mutex, lock};
use pin_project_lite::pin_project;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Most connections per backend and thread that wait for a request.
const IDLE_MAX: usize = 1_024;
/// Longest that a connection waits for a request. Servers close idle connections after 5 s and more
/// (Node: 5, nginx: 75); a request that meets a closing one is sent again on another.
const IDLE_TIME: Duration = Duration::from_secs(30);
/// Shortest time for which a connection to a name serves requests: then its successor goes to the
/// address that the name has by then. The longest is twice as long, so that those which were opened
/// together end apart.
const NAME_TIME: Duration = Duration::from_secs(30);
/// Connections that end apart.
const APART: u32 = 16;
/// Interval at which the end of a connection is checked for.
const CLOSE_INTERVAL: Duration = Duration::from_millis(50);
/// Most bytes of an answer's head.
const HEAD_MAX: usize = 128 << 10;
/// Most headers of an answer.
const HEADERS_MAX: usize = 256;

/// The connections of a worker thread to a backend.
pub(crate) struct Pool {
    backend: BackendAddress,
    connector: Mutex<Connector>,
    idle: Mutex<Vec<Idle>>,
    /// Shortest time for which a connection serves requests; `None`: it has no end.
    serves: Option<Duration>,
    /// Connections that were opened.
    opened: AtomicU32,
    http2: Http2Connections,
}

struct Idle {
    sender: Http1Sender,
    since: Instant,
}

/// The sending half of a connection of HTTP/1. The connection ends soon after it: a backend that
/// reads nothing more of a request would else keep the connection, its buffers and its descriptor
/// for ever.
pub(crate) struct Http1Sender {
    sender: SendRequest<RequestBody>,
    connection: AbortHandle,
    round_trip: Duration,
    /// Time from which it serves no more requests.
    end: Option<Instant>,
}

impl Http1Sender {
    /// Whether it serves no more requests.
    fn is_over(&self) -> bool {
        self.sender.is_closed() || self.end.is_some_and(|end| Instant::now() >= end)
    }

    fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }
}

impl Drop for Http1Sender {
    fn drop(&mut self) {
        if self.connection.is_finished() {
            return;
        }
        let connection = self.connection.clone();
        match Handle::try_current() {
            // What is on its way may arrive, and a connection that became another one's is handed
            // over.
            Ok(runtime) => drop(runtime.spawn(async move {
                sleep(CLOSE_TIME).await;
                connection.abort();
            })),
            Err(_) => connection.abort(),
        }
    }
}

/// A connection that serves a request.
pub(crate) struct Connection {
    pub(crate) sender: Sender,
    /// Whether it has served a request before: its backend may be closing it.
    pub(crate) is_reused: bool,
}

/// The sending half of a connection, for one request.
pub(crate) enum Sender {
    /// A connection of HTTP/1.
    Http1(Http1Sender),
    /// A stream of a connection of HTTP/2.
    Http2(Http2Sender),
}

impl Sender {
    /// Sends a request. If it was not sent, the error has it.
    pub(crate) fn try_send_request(
        &mut self,
        mut request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>> + use<> {
        match self {
            Sender::Http1(sender) => Answer::Http1 { future: sender.sender.try_send_request(request) },
            Sender::Http2(sender) => Answer::Http2 { future: sender.sender_of(&mut request).try_send_request(request) },
        }
    }

    /// Whether requests on it have the form of HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self, Sender::Http2(_))
    }

    /// Time of a round trip to the backend, as its connection was opened.
    pub(crate) fn round_trip(&self) -> Duration {
        match self {
            Sender::Http1(sender) => sender.round_trip,
            Sender::Http2(sender) => sender.round_trip(),
        }
    }

    /// Whether the backend takes WebSockets over HTTP/2.
    pub(crate) fn has_extended_connect(&self) -> bool {
        matches!(self, Sender::Http2(sender) if sender.has_extended_connect())
    }

    /// Sends no other request on this connection.
    pub(crate) fn retire(&self) {
        if let Sender::Http2(sender) = self {
            sender.retire();
        }
    }
}

pin_project! {
    /// An answer that is awaited.
    #[project = AnswerProjection]
    enum Answer<A, B> {
        Http1 { #[pin] future: A },
        Http2 { #[pin] future: B },
    }
}

impl<A: Future, B: Future<Output = A::Output>> Future for Answer<A, B> {
    type Output = A::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<A::Output> {
        match self.project() {
            AnswerProjection::Http1 { future } => future.poll(context),
            AnswerProjection::Http2 { future } => future.poll(context),
        }
    }
}

impl Pool {
    pub(crate) fn new(backend: &BackendAddress, connector: Connector) -> Arc<Self> {
        let http2 = Http2Connections::new(backend.is_http2());
        let (connector, idle) = (Mutex::new(connector), Mutex::default());
        let (serves, opened) = (backend.is_name().then_some(NAME_TIME), AtomicU32::new(0));
        Arc::new(Pool { backend: backend.clone(), connector, idle, serves, opened, http2 })
    }

    /// Opens further connections in another way.
    pub(crate) fn set_connector(&self, connector: Connector) {
        *lock(&self.connector) = connector;
    }

    /// A connection to a backend: one that is open, or a new one.
    ///
    /// # Errors
    /// The backend refuses connections or does not answer in time.
    pub(crate) async fn connect(&self, route: Option<&Route>) -> io::Result<Connection> {
        let open = self.take_idle().map(Sender::Http1);
        match open.or_else(|| self.http2.take().map(Sender::Http2)) {
            Some(sender) => Ok(Connection { sender, is_reused: true }),
            // On the heap: it happens seldom, and each request would keep space for it.
            None => Box::pin(self.connect_anew(route)).await,
        }
    }

    /// A connection that has not waited for a request; one of HTTP/2 does not wait.
    ///
    /// # Errors
    /// As for [`Pool::connect`].
    pub(crate) async fn renew(&self, route: Option<&Route>) -> io::Result<Connection> {
        match self.http2.is_spoken() {
            true => self.connect(route).await,
            false => self.open(route).await,
        }
    }

    /// The backend's address.
    pub(crate) fn address(&self) -> &BackendAddress {
        &self.backend
    }

    async fn connect_anew(&self, route: Option<&Route>) -> io::Result<Connection> {
        let connections = &self.http2;
        if self.tells_clients() {
            return self.open(route).await;
        }
        if !connections.is_spoken() {
            let opened = self.open(route).await?;
            if let Sender::Http2(sender) = &opened.sender {
                connections.add(sender);
            }
            return Ok(opened);
        }
        let _guard = match connections.wait_to_open().await {
            Opening::Open(sender) => return Ok(Connection { sender: Sender::Http2(sender), is_reused: true }),
            Opening::Failed => return Err(io::ErrorKind::ConnectionRefused.into()),
            Opening::Must(guard) => guard,
        };
        let opened = self.open(route).await;
        match &opened {
            Ok(Connection { sender: Sender::Http2(sender), .. }) => connections.add(sender),
            Ok(_) => {}
            Err(_) => connections.record_failure(),
        }
        opened
    }

    /// Opens a new connection to a backend, of which nobody else knows; `route`: addresses of the
    /// client's connection, for the PROXY protocol; `None`: the connection is the proxy's own.
    ///
    /// # Errors
    /// As for [`Pool::connect`].
    pub(crate) async fn open(&self, route: Option<&Route>) -> io::Result<Connection> {
        let (address, connector) = (&self.backend, lock(&self.connector).clone());
        let Opened { transport: stream, round_trip } = connector.connect(address, route).await?;
        let sender = if address.is_http2() || stream.protocol() == Some(Protocol::Http2) {
            stream.probe();
            Sender::Http2(http2::open(TokioIo::new(stream), round_trip, self.next_end()).await?)
        } else {
            let mut builder = http1::Builder::new();
            builder.max_buf_size(HEAD_MAX).max_headers(HEADERS_MAX);
            let io = TokioIo::new(BackendStream::new(stream));
            let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
            let connection = tokio::spawn(async move {
                // Its error reaches the request that it serves.
                let _ = connection.with_upgrades().await;
            });
            let (connection, end) = (connection.abort_handle(), self.next_end());
            Sender::Http1(Http1Sender { sender, connection, round_trip, end })
        };
        Ok(Connection { sender, is_reused: false })
    }

    /// Time from which a connection serves no more requests that is opened now.
    fn next_end(&self) -> Option<Instant> {
        let turn = self.opened.fetch_add(1, Ordering::Relaxed) % APART;
        self.serves.map(|serves| Instant::now() + serves + serves * turn / APART)
    }

    /// Whether a connection begins with its client's address, so that it serves one request.
    pub(crate) fn tells_clients(&self) -> bool {
        lock(&self.connector).tells_clients()
    }

    /// Takes back the connection of a request whose answer is complete.
    pub(crate) fn put(&self, sender: Sender) {
        let sender = match sender {
            Sender::Http1(sender) => sender,
            Sender::Http2(sender) => return sender.finish(),
        };
        if sender.is_over() {
            return;
        }
        if self.tells_clients() {
            tokio::spawn(let_close(sender));
            return;
        }
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_MAX {
            idle.push(Idle { sender, since: Instant::now() });
        }
    }

    /// The connection that was used last, so that surplus ones grow old.
    fn take_idle(&self) -> Option<Http1Sender> {
        let mut idle = lock(&self.idle);
        let mut busy: Option<Idle> = None;
        let found = loop {
            match idle.pop() {
                Some(next) if next.sender.is_over() => {}
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
        lock(&self.idle).retain(|idle| idle.since.elapsed() < IDLE_TIME && !idle.sender.is_over());
        self.http2.close_old(IDLE_TIME);
    }
}

/// Waits a moment for the backend to close a connection that it was told to close: the side that
/// closes first keeps the port for a minute, and a proxy would run out of ports.
async fn let_close(mut sender: Http1Sender) {
    let closed = async {
        while sender.sender.ready().await.is_ok() && !sender.is_over() {
            sleep(CLOSE_INTERVAL).await
        }
    };
    let _ = timeout(CLOSE_TIME, closed).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::file::FileSettings;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioExecutor;
    use std::convert::Infallible;
    use tokio::net::TcpListener;

    /// A backend of HTTP/1 or HTTP/2; returns its port.
    async fn backend(is_http2: bool) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = service_fn(|_| async { Ok::<_, Infallible>(Response::new(String::new())) });
                let io = TokioIo::new(stream);
                tokio::spawn(async move {
                    let _ = match is_http2 {
                        true => {
                            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                            builder.serve_connection(io, service).await
                        }
                        false => hyper::server::conn::http1::Builder::new().serve_connection(io, service).await,
                    };
                });
            }
        });
        port
    }

    fn pool(address: &str) -> Pool {
        let text = format!("slo = \"1s\"\nlisten = \":0\"\nto = [\"{address}\"]");
        let settings = FileSettings::parse(&text).and_then(|file| file.settings()).expect("settings");
        let connector = Connector::new(&settings, None, Arc::default());
        Arc::into_inner(Pool::new(&settings.backends[0], connector)).expect("the only one")
    }

    /// Sends a request; returns whether its connection had served one before.
    async fn ask(pool: &Pool) -> bool {
        let Connection { mut sender, is_reused } = pool.connect(None).await.expect("a connection");
        let mut request = Request::new(RequestBody::empty());
        *request.uri_mut() = "http://localhost/".parse().expect("a target");
        drop(sender.try_send_request(request).await.unwrap_or_else(|failed| panic!("{}", failed.error())));
        pool.put(sender);
        // hyper has to note the end of the answer.
        sleep(Duration::from_millis(20)).await;
        is_reused
    }

    /// A name may get another address while the old one lives.
    #[tokio::test]
    async fn a_connection_to_a_name_ends_under_steady_requests() {
        for is_http2 in [false, true] {
            let port = backend(is_http2).await;
            let scheme = if is_http2 { "h2c://" } else { "" };
            let mut named = pool(&format!("{scheme}localhost:{port}"));
            assert_eq!(named.serves, Some(NAME_TIME));
            assert_eq!((ask(&named).await, ask(&named).await), (false, true));
            named.serves = Some(Duration::from_millis(200));
            let named = Pool { http2: Http2Connections::new(is_http2), idle: Mutex::default(), ..named };
            let (mut reused, begun) = (Vec::new(), Instant::now());
            for _ in 0..40 {
                reused.push(ask(&named).await);
            }
            let opened = reused.iter().filter(|is_reused| !**is_reused).count();
            // One for each 200 ms at most.
            let most = 2 + begun.elapsed().as_millis() as usize / 200;
            assert!((2..=most).contains(&opened), "{reused:?}");
            assert_eq!(pool(&format!("{scheme}127.0.0.1:{port}")).serves, None, "it stays what it is");
        }
    }
}
