//! The layer's own time per request without rejections: an empty service, called in a loop, with
//! and without the layer.

use leeward_tower::{Stamp, ms, slo};
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Instant, SystemTime};
use tower::{Layer, Service};

/// A service that answers at once.
#[derive(Clone)]
struct Nothing;

type Body = http_body_util::Empty<&'static [u8]>;

impl Service<http::Request<Body>> for Nothing {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        ready(Ok(http::Response::new(Body::new())))
    }
}

/// Measures nanoseconds per call.
fn time<S>(service: &mut S, calls: u32) -> f64
where
    S: Service<http::Request<Body>, Error = Infallible>,
{
    let mut context = Context::from_waker(Waker::noop());
    let stamp = Stamp::default();
    let began = Instant::now();
    for call in 0..calls {
        // Keep the stamp fresh: an age of milliseconds would count as queueing delay.
        if call % 64 == 0 {
            stamp.record(SystemTime::now());
        }
        let mut request = http::Request::new(Body::new());
        request.extensions_mut().insert(stamp.clone());
        let mut future = pin!(service.call(request));
        let Poll::Ready(Ok(response)) = future.as_mut().poll(&mut context) else { continue };
        drop(std::hint::black_box(response));
    }
    began.elapsed().as_nanos() as f64 / f64::from(calls)
}

/// Median nanoseconds per request that the layer takes, over paired rounds.
pub(crate) fn measure(rounds: usize) -> f64 {
    let mut guarded = slo(ms(20)).workers(1).layer(Nothing);
    let mut costs: Vec<f64> = (0..rounds.max(1) * 20)
        .map(|_| {
            let bare = time(&mut Nothing, 2_000);
            time(&mut guarded, 2_000) - bare
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2]
}
