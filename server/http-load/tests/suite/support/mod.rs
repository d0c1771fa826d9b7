//! Servers for the tests, and runs against them whose accounts are checked.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use leeward_core::units::{Nanos, Rate};
use leeward_http_load::{HttpLoadConfig, HttpLoadError, Target};
use leeward_load::report::RunEndReason;
use leeward_load::{LoadReport, Plan, Schedule};
use leeward_workload::{Arrivals, Segment, ServiceTime, Shares, Workload};

/// Counts a request as in flight until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    /// Adds a request to `count`. Returns the number of requests with it.
    pub(crate) fn begin(count: &Arc<AtomicUsize>) -> (InFlight, usize) {
        let now = count.fetch_add(1, SeqCst) + 1;
        (InFlight(Arc::clone(count)), now)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Response of a test server.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) content: Vec<u8>,
    pub(crate) trailers: Option<Vec<(&'static str, String)>>,
    pub(crate) delay: Duration,
    pub(crate) in_flight: Option<InFlight>,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Reply {
        Reply { status, ..Reply::default() }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Reply {
        self.headers.push((name, value.into()));
        self
    }
}

/// Content with trailers.
struct ReplyBody {
    content: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let content = self.content.take().filter(|content| !content.is_empty()).map(Frame::data);
        Poll::Ready(content.or_else(|| self.trailers.take().map(Frame::trailers)).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.content.as_ref().is_none_or(Bytes::is_empty) && self.trailers.is_none()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match &self.trailers {
            None => http_body::SizeHint::with_exact(self.content.as_ref().map_or(0, |content| content.len() as u64)),
            Some(_) => http_body::SizeHint::default(),
        }
    }
}

fn header_map(pairs: &[(&'static str, String)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())).collect()
}

/// Protocol and limits of a test server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Speaks {
    Http1,
    /// HTTP/2 with this limit of streams.
    Http2 {
        streams: u32,
    },
}

/// A hyper server on its own thread; stops when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl Server {
    /// Starts a server that answers by `handler`, which gets head and content of each request.
    pub(crate) fn start(speaks: Speaks, handler: impl Fn(&Parts, &[u8]) -> Reply + Send + Sync + 'static) -> Server {
        Server::start_with(speaks, None, handler)
    }

    /// As [`Server::start`], with TLS.
    pub(crate) fn start_with(
        speaks: Speaks,
        tls: Option<tokio_rustls::TlsAcceptor>,
        handler: impl Fn(&Parts, &[u8]) -> Reply + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let handler = Arc::new(handler);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let accept = async {
                    loop {
                        let (stream, _) = listener.accept().await.unwrap();
                        stream.set_nodelay(true).unwrap();
                        let (handler, tls) = (Arc::clone(&handler), tls.clone());
                        tokio::spawn(async move {
                            match tls {
                                None => serve(speaks, stream, handler).await,
                                Some(tls) => {
                                    if let Ok(stream) = tls.accept(stream).await {
                                        serve(speaks, stream, handler).await;
                                    }
                                }
                            }
                        });
                    }
                };
                tokio::select! { () = accept => {}, _ = stopped => {} }
            });
        });
        Server { address, _stop: stop }
    }
}

async fn serve<S, H>(speaks: Speaks, stream: S, handler: Arc<H>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    H: Fn(&Parts, &[u8]) -> Reply + Send + Sync + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let handler = Arc::clone(&handler);
        async move {
            let (head, content) = request.into_parts();
            let content = content.collect().await.map(|content| content.to_bytes()).unwrap_or_default();
            let reply = handler(&head, &content);
            if !reply.delay.is_zero() {
                tokio::time::sleep(reply.delay).await;
            }
            drop(reply.in_flight);
            let trailers = reply.trailers.as_deref().map(header_map);
            let mut response = Response::new(ReplyBody { content: Some(reply.content.into()), trailers });
            *response.status_mut() = reply.status.try_into().unwrap();
            *response.headers_mut() = header_map(&reply.headers);
            Ok::<_, Infallible>(response)
        }
    });
    let io = TokioIo::new(stream);
    // The client may close the connection at any time.
    let _ = match speaks {
        Speaks::Http1 => hyper::server::conn::http1::Builder::new().serve_connection(io, service).await,
        Speaks::Http2 { streams } => {
            let mut builder = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
            builder.max_concurrent_streams(streams).serve_connection(io, service).await
        }
    };
}

/// Starts a server by hand: `handler` gets each connection on a thread of its own.
pub(crate) fn raw_server(handler: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let handler = Arc::new(handler);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let handler = Arc::clone(&handler);
            thread::spawn(move || handler(stream));
        }
    });
    address
}

/// Reads a request without content; `false` at the end of the connection.
pub(crate) fn read_request(stream: &mut TcpStream) -> bool {
    let (mut read, mut byte) = (Vec::new(), [0]);
    while !read.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => read.push(byte[0]),
            _ => return false,
        }
    }
    true
}

/// Starts a server that answers each request with these bytes, over connections that stay open.
pub(crate) fn answering(bytes: impl Into<Vec<u8>>) -> SocketAddr {
    let bytes = bytes.into();
    raw_server(move |mut stream| while read_request(&mut stream) && stream.write_all(&bytes).is_ok() {})
}

/// Configuration for one target, with an objective that no test machine misses.
pub(crate) fn config(address: SocketAddr) -> HttpLoadConfig {
    let target = Target::parse(&format!("http://{address}/")).unwrap();
    HttpLoadConfig::new(vec![target], Nanos::from_secs(30))
}

/// An open loop of 300 ms.
pub(crate) fn open(rate: f64, clients: u32) -> Plan {
    let workload = Workload {
        clients,
        arrivals: Arrivals::Poisson,
        shares: Shares::Equal,
        demand: vec![Segment { from: Nanos::ZERO, rate: Rate(rate) }],
        service: ServiceTime::Constant(Nanos::ZERO),
    };
    Plan::Open(Schedule::draw(&workload, 1, Nanos::from_millis(300)).unwrap())
}

/// A closed loop of 300 ms.
pub(crate) fn closed(connections: u32, outstanding: u32) -> Plan {
    let (service, duration) = (ServiceTime::Constant(Nanos::ZERO), Nanos::from_millis(300));
    Plan::Closed { connections, outstanding, service, seed: 1, duration }
}

/// Runs a plan, and checks the accounts of all requests and of each class.
pub(crate) fn try_run(config: &HttpLoadConfig, plan: &Plan) -> Result<LoadReport, HttpLoadError> {
    let report = leeward_http_load::run(config, plan, &AtomicBool::new(false), |_| {})?.report;
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    assert!(report.totals.is_balanced(), "{:?}", report.totals);
    if let Plan::Open(schedule) = plan
        && !matches!(report.ending, RunEndReason::Stopped | RunEndReason::Disconnected)
    {
        assert_eq!(report.totals.offered, schedule.requests().len() as u64);
    }
    if !report.classes.is_empty() {
        let offered: u64 = report.classes.iter().map(|class| class.totals.offered).sum();
        assert_eq!(offered, report.totals.offered, "each request has one class");
    }
    let dropped: u64 = report.drop_reasons.values().sum();
    let failed: u64 = report.failures.values().sum();
    assert_eq!((dropped, failed), (report.totals.dropped, report.totals.failed));
    Ok(report)
}

/// Runs a plan that has a report.
pub(crate) fn run(config: &HttpLoadConfig, plan: &Plan) -> LoadReport {
    try_run(config, plan).unwrap()
}

/// Counts of a server's requests by a text.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<Mutex<BTreeMap<String, u64>>>);

impl Tally {
    pub(crate) fn add(&self, name: &str) {
        *self.0.lock().unwrap().entry(name.into()).or_default() += 1;
    }

    pub(crate) fn get(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap().clone()
    }
}

/// Runs a plan on a thread, and stops it when `until` returns.
pub(crate) fn run_until(config: &HttpLoadConfig, plan: &Plan, until: impl FnOnce()) -> LoadReport {
    let stop = Arc::new(AtomicBool::new(false));
    let (config, plan, flag) = (config.clone(), plan.clone(), Arc::clone(&stop));
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let _ = send.send(leeward_http_load::run(&config, &plan, &flag, |_| {}).unwrap().report);
    });
    until();
    stop.store(true, SeqCst);
    receive.recv_timeout(Duration::from_secs(20)).unwrap()
}
