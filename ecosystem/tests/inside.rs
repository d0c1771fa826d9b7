//! Inside of a guarded service: locks and pools that reject, deadlines and attempts that are passed
//! on, unread bodies.

use axum::{Router, routing::get, routing::post};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use leeward_tower::locks::AcquireQueue;
use leeward_tower::{LockRejection, RequestInfo, carry, client, current_request, ms, slo};
use std::convert::Infallible;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower::{Layer, ServiceExt, service_fn};

type Request = http::Request<Full<Bytes>>;

fn request(header: Option<(&'static str, &str)>) -> Request {
    let mut request = http::Request::new(Full::default());
    if let Some((name, value)) = header {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

static POOL: Semaphore = Semaphore::const_new(1);
static LINE: LazyLock<AcquireQueue> = LazyLock::new(|| AcquireQueue::new("pool of the test"));

async fn pooled(_: Request) -> Result<http::Response<Full<Bytes>>, Infallible> {
    match LINE.acquire(POOL.acquire()).await {
        Ok(_permit) => Ok(http::Response::new(Full::from("hello"))),
        Err(congested) => Ok(LockRejection(congested).response()),
    }
}

/// The pool is taken: the second request finds the queue too long, the first gets the pool too
/// late.
#[tokio::test]
async fn an_acquire_queue_in_a_handler_rejects_by_the_requests_budget() {
    let layer = slo(ms(20));
    let service = layer.layer(service_fn(pooled));
    let held = POOL.acquire().await.unwrap();
    let first = tokio::spawn(service.clone().oneshot(request(None)));
    while LINE.delay().0 == 0 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(ms(25)).await;
    let second = service.clone().oneshot(request(None)).await.unwrap();
    assert_eq!((second.status().as_u16(), &second.headers()["leeward-reason"]), (503, &"lock".parse().unwrap()));
    drop(held);
    assert_eq!(first.await.unwrap().unwrap().status(), 503);
    let third = service.oneshot(request(None)).await.unwrap();
    assert_eq!(third.status(), 200, "what is free is given");
    assert!(third.into_body().collect().await.is_ok());
    let counts = layer.gate().counts();
    assert_eq!((counts.rejected_inside, counts.completed, counts.in_flight()), (2, 1, 0), "{counts:?}");
    assert_eq!(LINE.stats().refused, 2);
}

/// Headers of the requests that a handler's own client sends.
type Sent = Arc<Mutex<Vec<http::HeaderMap>>>;

async fn get_response(sent: Sent, spawned: bool) -> u16 {
    let backend = service_fn(move |request: Request| {
        sent.lock().unwrap().push(request.headers().clone());
        std::future::ready(Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::default())))
    });
    let service = client::client(ms(1_000)).layer(backend);
    let response = service.oneshot(request(None));
    let answer = if spawned { tokio::spawn(carry(response)).await.unwrap() } else { response.await };
    answer.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_deadline_and_attempts_are_propagated_to_outgoing_requests() {
    for spawned in [false, true] {
        let sent = Sent::default();
        let inner = Arc::clone(&sent);
        let handler = move |_: Request| {
            let sent = Arc::clone(&inner);
            async move {
                tokio::time::sleep(ms(10)).await;
                let mut response = http::Response::new(Full::<Bytes>::default());
                *response.status_mut() = http::StatusCode::from_u16(get_response(sent, spawned).await).unwrap();
                Ok::<_, Infallible>(response)
            }
        };
        let service = slo(ms(60_000)).layer(service_fn(handler));
        // Enough time, too little, and no deadline.
        let cases = [(Some("b=30000000, a=1, p=81"), 200), (Some("b=9000"), 503), (None, 200)];
        for (header, status) in cases {
            let answer = service.clone().oneshot(request(header.map(|value| ("leeward", value)))).await.unwrap();
            assert_eq!(answer.status(), status, "{header:?}");
        }
        let sent = std::mem::take(&mut *sent.lock().unwrap());
        let received: Vec<_> = sent.iter().map(leeward_tower::headers::read).collect();
        assert_eq!(received.len(), 2, "what has no time left is not sent");
        assert_eq!((received[0].attempt, received[0].class), (1, Some(leeward_tower::Class::BATCH)));
        assert!(received[0].timeout <= Some(ms(1_000)) && received[1].timeout == Some(ms(1_000)), "{received:?}");
        assert_eq!(current_request(), None, "nothing is left behind");
    }
}

/// A downstream service that rejects: soon requests for it are rejected early, and other requests
/// are not affected.
#[tokio::test]
async fn requests_that_a_downstream_would_reject_are_rejected_early() {
    let refuses = service_fn(|_: Request| {
        let response = http::Response::builder().status(503).body(Full::<Bytes>::default());
        std::future::ready(Ok::<_, Infallible>(response.unwrap()))
    });
    let downstream = client::client(ms(1_000)).layer(refuses);
    let handler = move |request: Request| {
        let downstream = downstream.clone();
        async move {
            let mut response = http::Response::new(Full::<Bytes>::default());
            if request.uri().path().starts_with("/search") {
                *response.status_mut() = downstream.oneshot(self::request(None)).await.unwrap().status();
            }
            Ok::<_, Infallible>(response)
        }
    };
    let layer = slo(ms(60_000));
    let service = layer.layer(service_fn(handler));
    let get_response = |path: &'static str| {
        let mut request = request(None);
        *request.uri_mut() = path.parse().unwrap();
        service.clone().oneshot(request)
    };
    let start = std::time::Instant::now();
    loop {
        let answer = get_response("/search/a").await.unwrap();
        assert_eq!(answer.status(), 503);
        if answer.headers().get("leeward-reason").is_some_and(|reason| reason == "behind") {
            break;
        }
        assert!(start.elapsed() < leeward_testkit::wait::LIVENESS, "everybody is let in: {:?}", layer.gate().counts());
        tokio::time::sleep(ms(1)).await;
    }
    for _ in 0..200 {
        assert_eq!(get_response("/static/a").await.unwrap().status(), 200, "it asks nobody");
    }
    let counts = layer.gate().counts();
    assert_eq!(counts.rejections(), counts.rejected_for(leeward_tower::DecisionReason::Downstream), "{counts:?}");
    assert_eq!(counts.in_flight(), 0);
}

#[tokio::test]
async fn retries_are_limited_to_a_tenth_and_marked() {
    let marked = Arc::new(Mutex::new([0u64; 2]));
    let counted = Arc::clone(&marked);
    let fails = service_fn(move |request: Request| {
        let attempt = leeward_tower::headers::read(request.headers()).attempt;
        counted.lock().unwrap()[usize::from(attempt > 0)] += 1;
        // An error that is no overload, which clients tend to retry.
        let response = http::Response::builder().status(500).body(Full::<Bytes>::default());
        std::future::ready(Ok::<_, Infallible>(response.unwrap()))
    });
    let layer = client::client(ms(20));
    let service = layer.layer(fails);
    for _ in 0..1_000 {
        for attempt in 0..4 {
            let mut request = request(None);
            if attempt > 0 {
                client::mark_retry(&mut request, attempt);
            }
            let _ = service.clone().oneshot(request).await.unwrap();
        }
    }
    let [first, repeated] = *marked.lock().unwrap();
    assert!(first == 1_000 && (95..=110).contains(&repeated), "{first}, {repeated}");
    assert_eq!(layer.rejections().retries, 3_000 - repeated);
}

/// Reads the head of one response.
async fn head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let byte = stream.read_u8().await.expect("an answer");
        bytes.push(byte);
    }
    String::from_utf8(bytes).unwrap().to_ascii_lowercase()
}

/// Starts a service that rejects all requests except `/`, without reading their bodies.
async fn refusing() -> std::net::SocketAddr {
    let layer = slo(ms(30_000)).describe(|request, arriving: RequestInfo| {
        if request.uri.path() == "/" { arriving } else { arriving.with_timeout(Duration::ZERO) }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().route("/", get(|| async { "hello" })).route("/late", post(|| async { "never" }));
    tokio::spawn(leeward_tower::axum::serve(listener, app, layer));
    address
}

#[tokio::test]
async fn a_small_body_of_a_rejected_request_is_drained_and_the_connection_kept() {
    let mut stream = TcpStream::connect(refusing().await).await.unwrap();
    for _ in 0..3 {
        stream.write_all(b"POST /late HTTP/1.1\r\nhost: a\r\ncontent-length: 9000\r\n\r\n").await.unwrap();
        // The body arrives after its head, when the server could already have closed.
        tokio::time::sleep(ms(5)).await;
        stream.write_all(&[b'x'; 9_000]).await.unwrap();
        let refused = head(&mut stream).await;
        assert!(refused.starts_with("http/1.1 503") && !refused.contains("connection: close"), "{refused}");
    }
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    assert!(head(&mut stream).await.starts_with("http/1.1 200"));
}

#[tokio::test]
async fn large_and_withheld_bodies_of_rejected_requests_close_the_connection() {
    let address = refusing().await;
    for fields in ["content-length: 1000000000", "content-length: 10", "content-length: 10\r\nexpect: 100-continue"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // A gigabyte, a body that never arrives, and one that is held back: the response arrives
        // all the same.
        stream.write_all(format!("POST /late HTTP/1.1\r\nhost: a\r\n{fields}\r\n\r\n").as_bytes()).await.unwrap();
        let refused = head(&mut stream).await;
        assert!(refused.starts_with("http/1.1 503") && refused.contains("connection: close"), "{fields}: {refused}");
        assert_eq!(stream.read(&mut [0; 100]).await.unwrap_or(0), 0, "{fields}: it closes");
    }
}
