//! A guarded service as the target of bad input, and the conditions that must hold afterwards.
//!
//! Does not contain bad input.

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::routing::{get, post};
use axum::{Router, http::request::Parts};
use http_body::Frame;
use leeward_testkit::serial::serial_guard;
use leeward_testkit::wait::{LIVENESS, until};
use leeward_tower::{Class, GateCounts, RequestInfo, Slo, ms, slo};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Panics of any thread that no test has provoked.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// A body without end.
pub(crate) struct Endless;

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 16_384])))))
    }
}

/// A layer that trusts the headers of requests.
///
/// Its objective is so long that it does not reject on a busy machine.
pub(crate) fn layer() -> Slo {
    let text = |request: &Parts, name: &str| Some(request.headers.get(name)?.to_str().ok()?.to_owned());
    slo(ms(30_000))
        .describe(move |request, arriving: RequestInfo| {
            assert!(!request.headers.contains_key("x-panics"), "as asked");
            let cost: Option<f64> = text(request, "x-cost").and_then(|cost| cost.parse().ok());
            let class: Option<u8> = text(request, "x-class").and_then(|class| class.parse().ok());
            let arriving = class.map_or(arriving, |class| arriving.with_class(Class::new(class)));
            arriving.with_route(cost.unwrap_or(1.0) as u8)
        })
        .tenant(move |request| text(request, "x-tenant"))
}

fn app() -> Router {
    let events = || async { ([(CONTENT_TYPE, "text/event-stream")], Body::new(Endless)) };
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/body", post(|body: Bytes| async move { body.len().to_string() }))
        .route("/wait", get(std::future::pending::<()>))
        .route("/stream", get(|| async { Body::new(Endless) }))
        .route("/events", get(events))
        .route("/panics", get(|| async { panics() }))
}

fn panics() {
    panic!("as asked");
}

fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload().downcast_ref::<&str>() != Some(&"as asked") {
                PANICS.fetch_add(1, Ordering::Relaxed);
                report(panic);
            }
        }));
    });
}

/// A running service.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) layer: Slo,
}

/// Runs `test` against a service of its own, then checks it.
///
/// Nothing has panicked, nothing is in flight, every request is accounted for, and an honest
/// request is answered.
pub(crate) fn against(layer: Slo, test: impl AsyncFnOnce(&Target)) {
    let _alone = serial_guard();
    watch_panics();
    let before = PANICS.load(Ordering::Relaxed);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target { address: listener.local_addr().unwrap(), layer: layer.clone() };
        let server = tokio::spawn(leeward_tower::axum::serve(listener, app(), layer));
        tokio::time::timeout(LIVENESS * 5, test(&target)).await.expect("the test comes to its end");
        target.check_honest_client().await;
        target.wait_until_idle();
        let counts = target.counts();
        assert_eq!(counts.arrived, counts.admitted + counts.rejections(), "{counts:?}");
        assert!(!server.is_finished(), "it still serves");
        server.abort();
    });
    drop(runtime);
    assert_eq!(PANICS.load(Ordering::Relaxed), before, "nothing panics");
}

impl Target {
    pub(crate) fn counts(&self) -> GateCounts {
        self.layer.gate().counts()
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends a request with these header lines on a new connection; returns the whole response.
    pub(crate) async fn get_response(&self, path: &str, lines: impl AsRef<[u8]>) -> String {
        let mut request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n").into_bytes();
        request.extend(lines.as_ref());
        request.extend(b"\r\n");
        let mut stream = self.connect().await;
        // A server that has read enough closes the connection: the rest can't be written, and the
        // response may be lost.
        let _ = stream.write_all(&request).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Checks that an honest client gets its response.
    ///
    /// If the objective is shorter than a busy machine's pauses, the client may have to retry.
    pub(crate) async fn check_honest_client(&self) {
        loop {
            let answer = self.get_response("/", "").await;
            if answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello") {
                return;
            }
            let may_refuse = self.layer.gate().slo() < ms(1_000);
            assert!(may_refuse && answer.starts_with("HTTP/1.1 503") && answer.contains("leeward-reason"), "{answer}");
        }
    }

    /// Waits until no request is in flight.
    pub(crate) fn wait_until_idle(&self) {
        until("the end of all requests", || self.counts().in_flight() == 0);
    }
}

/// Ways in which a client disconnects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// The client closes its socket.
    Closes,
    /// The client resets the connection.
    Resets,
    /// The client closes its sending side, and reads to the end.
    HalfCloses,
}

/// Disconnects a client.
pub(crate) async fn disconnect(mut stream: TcpStream, way: Way) {
    match way {
        Way::Closes => {}
        Way::Resets => stream.set_zero_linger().unwrap(),
        Way::HalfCloses => {
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    }
}
