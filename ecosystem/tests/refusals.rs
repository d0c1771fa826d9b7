//! Rejections as seen by others: services with permits, browser callers, and pages of another
//! origin.

use axum::body::Body;
use axum::routing::{get, post};
use axum::{Router, body::Bytes};
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE};
use http_body_util::BodyExt;
use leeward_tower::{RequestInfo, Slo, client, ms, slo};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;
use tower::limit::{ConcurrencyLimit, GlobalConcurrencyLimitLayer};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_http::cors::{Any, CorsLayer};

/// A layer that rejects `…late`, as if its deadline had passed, and `…busy`, as if it could not be
/// in time.
fn refusing() -> Slo {
    slo(ms(30_000)).describe(|request, arriving: RequestInfo| match request.uri.path() {
        path if path.ends_with("late") => arriving.with_timeout(Duration::ZERO),
        path if path.ends_with("busy") => arriving.with_age(ms(60_000)),
        _ => arriving,
    })
}

fn request(path: &str) -> http::Request<Body> {
    http::Request::builder().uri(path).body(Body::empty()).unwrap()
}

/// A service with one permit for all of its clones.
fn limited() -> ConcurrencyLimit<
    impl Service<
        http::Request<Body>,
        Response = http::Response<Body>,
        Error = Infallible,
        Future = impl Future<Output = Result<http::Response<Body>, Infallible>>,
    > + Clone,
> {
    let hello = |_: http::Request<Body>| async { Ok(http::Response::new(Body::from("hello"))) };
    GlobalConcurrencyLimitLayer::new(1).layer(service_fn(hello))
}

/// Returns true if the service becomes ready although a request through another handle was
/// rejected.
async fn is_ready<S: Service<http::Request<Body>>>(service: &mut S) -> bool {
    tokio::time::timeout(leeward_testkit::wait::LIVENESS, service.ready()).await.is_ok()
}

#[tokio::test]
async fn a_rejected_request_releases_the_inner_services_permit() {
    let guarded = refusing().layer(limited());
    let (mut refused, mut other) = (guarded.clone(), guarded);
    for path in ["/late", "/busy"] {
        let answer = refused.ready().await.unwrap().call(request(path)).await.unwrap();
        assert_eq!(answer.status(), 503);
        assert!(is_ready(&mut other).await, "the refused handle keeps the only permit");
        assert_eq!(other.call(request("/")).await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn a_throttled_request_releases_the_inner_services_permit() {
    let throttled = client::client(ms(20)).layer(limited());
    let (mut ended, mut other) = (throttled.clone(), throttled);
    // The retry budget is empty after the first retry.
    for _ in 0..3 {
        let mut request = request("/");
        client::mark_retry(&mut request, 1);
        let _ = ended.ready().await.unwrap().call(request).await.unwrap();
        assert!(is_ready(&mut other).await, "the handle of an ended request keeps the only permit");
        assert_eq!(other.call(self::request("/")).await.unwrap().status(), 200);
    }
}

async fn serve(app: Router, layer: Slo) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(leeward_tower::axum::serve(listener, app, layer));
    address
}

/// Decodes base64.
fn decoded(text: &[u8]) -> Vec<u8> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |byte: &u8| alphabet.iter().position(|letter| letter == byte).unwrap();
    let group = |four: &[u8]| four.iter().fold(0, |group, byte| group << 6 | digit(byte)) as u32;
    text.chunks(4).flat_map(|four| group(four).to_be_bytes()[1..].to_vec()).collect()
}

/// Returns the status in the only frame of a gRPC-Web response.
fn status_in(content: &[u8]) -> String {
    assert_eq!((content[0], content[1..5].to_vec()), (0x80, (content.len() as u32 - 5).to_be_bytes().to_vec()));
    let trailers = String::from_utf8(content[5..].to_vec()).unwrap();
    let status = trailers.lines().find_map(|line| line.strip_prefix("grpc-status:"));
    status.unwrap_or_else(|| panic!("{trailers:?}")).trim().into()
}

#[tokio::test]
async fn a_rejected_grpc_web_call_gets_a_grpc_web_response() {
    let routes = Router::new().route("/shop.Cart/late", post(|| async { "never" }));
    let address = serve(routes.route("/shop.Cart/busy", post(|| async { "never" })), refusing()).await;
    let browser = reqwest::Client::builder().build().unwrap();
    for (kind, is_web, is_text) in [
        ("application/grpc-web", true, false),
        ("application/grpc-web+proto", true, false),
        ("application/grpc-web-text", true, true),
        ("application/grpc-web-text+proto", true, true),
        ("application/grpc+proto", false, false),
    ] {
        for (method, status) in [("late", "4"), ("busy", "8")] {
            let call = browser.post(format!("http://{address}/shop.Cart/{method}")).header(CONTENT_TYPE, kind);
            let answer = call.body("\0\0\0\0\0").send().await.unwrap();
            let head = answer.headers().clone();
            let content = answer.bytes().await.unwrap();
            assert!(head.contains_key("leeward-reason") && head.contains_key("grpc-retry-pushback-ms"), "{head:?}");
            if is_web {
                assert_eq!((&head[CONTENT_TYPE], head.get("grpc-status")), (&kind.parse().unwrap(), None));
                let content = if is_text { decoded(&content).into() } else { content };
                assert_eq!(status_in(&content), status, "{kind}");
            } else {
                assert_eq!(
                    (head[CONTENT_TYPE].as_bytes(), head["grpc-status"].as_bytes()),
                    (&b"application/grpc"[..], status.as_bytes())
                );
                assert_eq!(content, Bytes::new());
            }
        }
    }
}

#[tokio::test]
async fn a_throttled_grpc_web_call_gets_a_grpc_web_response() {
    let mut throttled = client::client(ms(20)).layer(limited());
    let call = || {
        let mut call = request("/");
        call.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/grpc-web+proto"));
        client::mark_retry(&mut call, 1);
        call
    };
    let mut last = None;
    for _ in 0..2 {
        last = Some(throttled.ready().await.unwrap().call(call()).await.unwrap());
    }
    let ended = last.unwrap();
    assert!(client::is_overload(&ended));
    assert_eq!(ended.headers()[CONTENT_TYPE], "application/grpc-web+proto");
    assert_eq!(status_in(&ended.into_body().collect().await.unwrap().to_bytes()), "8");
}

/// Sends a page's preflight or request; returns the status, and whether the page may read the
/// response.
async fn page(address: SocketAddr, method: http::Method) -> (u16, bool) {
    let browser = reqwest::Client::builder().build().unwrap();
    let mut request = browser.request(method.clone(), format!("http://{address}/late")).header("origin", "http://page");
    if method == http::Method::OPTIONS {
        request = request.header("access-control-request-method", "GET");
    }
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.headers().get(ACCESS_CONTROL_ALLOW_ORIGIN).is_some_and(|origin| origin == "*"))
}

#[tokio::test]
async fn cross_origin_pages_can_read_rejections_inside_a_cors_layer() {
    let app = || Router::new().route("/late", get(|| async { "never" }));
    let cors = || CorsLayer::new().allow_origin(Any).allow_methods(Any);
    // Around the router: its layers answer preflights, and no rejection.
    let layer = refusing();
    let outside = serve(app().layer(cors()), layer.clone()).await;
    assert_eq!(page(outside, http::Method::OPTIONS).await, (200, true));
    assert_eq!(page(outside, http::Method::GET).await, (503, false));
    let counts = layer.gate().counts();
    assert_eq!((counts.arrived, counts.rejections(), counts.in_flight()), (1, 1, 0), "{counts:?}");
    // Without a layer that answers preflights, the router rejects the method.
    assert_eq!(page(serve(app(), refusing()).await, http::Method::OPTIONS).await, (405, false));
    // Inside the CORS layer, still with the kernel's stamps.
    let layer = refusing();
    let app = app().layer(layer.clone()).layer(cors());
    let listener = leeward_tower::Listener::bind("127.0.0.1:0").await.unwrap();
    let inside = listener.local_addr().unwrap();
    tokio::spawn(async move {
        axum::serve(listener, app.into_make_service_with_connect_info::<leeward_tower::axum::Peer>()).await
    });
    assert_eq!(page(inside, http::Method::OPTIONS).await, (200, true));
    assert_eq!(page(inside, http::Method::GET).await, (503, true));
    assert_eq!((layer.gate().counts().arrived, layer.gate().counts().rejections()), (1, 1));
}

/// Only an `OPTIONS` with both fields is a preflight; all other requests go through the gate.
#[tokio::test]
async fn only_valid_preflights_bypass_the_gate() {
    let layer = refusing();
    let mut guarded = layer.layer(limited());
    for (method, fields, passes) in [
        ("OPTIONS", &["origin", "access-control-request-method"][..], true),
        ("OPTIONS", &["origin"], false),
        ("OPTIONS", &["access-control-request-method"], false),
        ("OPTIONS", &[], false),
        ("GET", &["origin", "access-control-request-method"], false),
    ] {
        let mut request = request("/late");
        *request.method_mut() = method.parse().unwrap();
        for field in fields {
            request.headers_mut().insert(*field, http::HeaderValue::from_static("x"));
        }
        let status = guarded.ready().await.unwrap().call(request).await.unwrap().status();
        assert_eq!(status == 200, passes, "{method} {fields:?}");
    }
}
