//! The service on axum, unprotected: what a request does is said by its mode. It also streams
//! bodies of any length, for the rows on memory.

use crate::load::unit;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Router, extract::Path};
use http_body_util::{BodyExt, Full};
use std::convert::Infallible;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::sleep;

/// Arguments of the service.
#[derive(clap::Args)]
pub(crate) struct Args {
    port: u16,
    mode: String,
}

struct Service {
    mode: String,
    /// Steps per ms.
    steps: f64,
    lock: tokio::sync::Mutex<()>,
    slots: Semaphore,
    began: Mutex<Option<Instant>>,
    slow: Option<(f64, f64)>,
    random: Mutex<u64>,
}

/// Serves until it is killed.
pub(crate) fn serve(args: &Args) -> anyhow::Result<()> {
    let slow = std::env::var("SLOW").ok().and_then(|slow| {
        let (from, until) = slow.split_once(',')?;
        Some((from.parse().ok()?, until.parse().ok()?))
    });
    let service = Arc::new(Service {
        mode: args.mode.clone(),
        steps: calibrate(),
        lock: tokio::sync::Mutex::new(()),
        slots: Semaphore::new(8),
        began: Mutex::new(None),
        slow,
        random: Mutex::new(0x9E37_79B9_7F4A_7C15),
    });
    let app = Router::new()
        .route("/-/begin", get(begin))
        .route("/-/large/{mb}", get(large))
        .route("/-/sink", post(sink))
        .route("/service/Call", post(call))
        .fallback(any(request))
        .with_state(service);
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", args.port)).await?;
        Ok(axum::serve(listener, app).await?)
    })
}

async fn begin(State(service): State<Arc<Service>>) {
    *service.began.lock().expect("no panic") = Some(Instant::now());
}

/// A unary call of gRPC that does what its mode says, and answers an empty message.
async fn call(service: State<Arc<Service>>, request: Request) -> Response {
    let answer = self::request(service, request).await;
    let status = if answer.status().is_success() { "0" } else { "12" };
    let trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static(status))]);
    let message = Full::new(Bytes::from_static(&[0; 5])).with_trailers(async { Some(Ok(trailers)) });
    ([("content-type", "application/grpc")], Body::new(message)).into_response()
}

async fn request(State(service): State<Arc<Service>>, request: Request) -> Response {
    match service.mode.as_str() {
        "cpu" | "pauses" => service.burn(1.0),
        "exp" => service.burn(-(1.0 - service.unit()).ln()),
        "bimodal" => service.burn(if service.chance(0.1) { 8.0 } else { 0.2 }),
        "wait" => {
            sleep(Duration::from_millis(20)).await;
            service.burn(1.0);
        }
        "lock" => {
            if service.chance(0.5) {
                let _held = service.lock.lock().await;
                sleep(Duration::from_millis(2)).await;
            } else {
                service.burn(0.1);
            }
        }
        "slow" => service.burn(service.slowness()),
        "routes" => match request.uri().path() {
            "/a" => service.burn(0.1),
            "/b" => service.burn(0.5),
            "/c" => service.burn(2.0),
            _ => service.burn(10.0),
        },
        "pool" => {
            let held = service.slots.acquire().await;
            sleep(Duration::from_millis(8)).await;
            drop(held);
            service.burn(0.2);
        }
        "rare" if service.chance(0.01) => sleep(Duration::from_secs(1)).await,
        "rare" => service.burn(1.0),
        "empty" => {}
        _ => return StatusCode::NOT_FOUND.into_response(),
    }
    Bytes::from_static(&[b'x'; 100]).into_response()
}

impl Service {
    fn burn(&self, ms: f64) {
        run(self.steps * ms);
    }

    /// 3 between the seconds SLOW=FROM,UNTIL after the beginning, else 1.
    fn slowness(&self) -> f64 {
        let began = *self.began.lock().expect("no panic");
        let is_slow = |(from, until)| began.is_some_and(|began| (from..until).contains(&began.elapsed().as_secs_f64()));
        if self.slow.is_some_and(is_slow) { 3.0 } else { 1.0 }
    }

    fn chance(&self, of: f64) -> bool {
        self.unit() < of
    }

    fn unit(&self) -> f64 {
        unit(&mut self.random.lock().expect("no panic"))
    }
}

/// Steps per ms, by the fastest of 40 trials.
fn calibrate() -> f64 {
    let trial = 200_000.0;
    let fastest = (0..40).map(|_| {
        let began = Instant::now();
        run(trial);
        began.elapsed()
    });
    trial / (fastest.min().unwrap_or_default().as_secs_f64() * 1e3).max(1e-6)
}

fn run(steps: f64) {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for step in 0..steps as u64 {
        state = black_box(state ^ step).wrapping_mul(0x2545_F491_4F6C_DD1D).rotate_left(17);
    }
    black_box(state);
}

/// A body of so many MB, in pieces.
async fn large(Path(mb): Path<usize>) -> Response {
    let piece = Bytes::from(vec![b'x'; 64 << 10]);
    Body::new(Pieces { piece, left: mb << 4 }).into_response()
}

struct Pieces {
    piece: Bytes,
    left: usize,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        Poll::Ready(Some(Ok(http_body::Frame::data(self.piece.clone()))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact((self.left * self.piece.len()) as u64)
    }
}

/// Counts the bytes of a body.
async fn sink(request: Request) -> String {
    let mut body = request.into_body();
    let mut bytes = 0;
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
    bytes.to_string()
}
