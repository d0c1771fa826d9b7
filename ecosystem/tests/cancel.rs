//! A million requests dropped at random await points: nothing stays in flight (P1 on the layer).

use leeward_tower::{EndOfRequest, ms, slo};
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tower::{Layer, Service, service_fn};

/// A future that is pending `count` times.
async fn steps(count: u64) {
    for _ in 0..count {
        let mut first = true;
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

#[test]
fn drops_at_every_await_point_leave_nothing_in_flight() {
    for until in [EndOfRequest::Body, EndOfRequest::Headers] {
        let layer = slo(ms(1_000)).ends_at(until);
        let handler = |request: http::Request<http_body_util::Empty<&'static [u8]>>| async move {
            let seed = *request.extensions().get::<u64>().expect("set below");
            steps(seed % 4).await;
            assert!(seed % 97 != 5, "some panic");
            Ok::<_, Infallible>(http::Response::new(http_body_util::Full::new(&b"ok"[..])))
        };
        let mut service = layer.layer(service_fn(handler));
        let mut context = Context::from_waker(Waker::noop());
        let mut random = 0x1EE_3A2Du64;
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        for _ in 0..500_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (seed, polls) = (random >> 20, random % 7);
            // A panic of the handler passes through the layer, and its permit is released.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let mut request = http::Request::new(http_body_util::Empty::new());
                request.extensions_mut().insert(seed);
                let mut future = pin!(service.call(request));
                for _ in 0..polls {
                    if let Poll::Ready(response) = future.as_mut().poll(&mut context) {
                        // The body is dropped unread, or read to its end.
                        let mut body = response.unwrap_or_else(|never| match never {}).into_body();
                        if random & 1 << 60 != 0 {
                            let mut body = pin!(&mut body);
                            while let Poll::Ready(Some(_)) = http_body::Body::poll_frame(body.as_mut(), &mut context) {}
                        }
                        break;
                    }
                }
            }));
        }
        std::panic::set_hook(hook);
        let counts = layer.gate().counts();
        assert_eq!((counts.in_flight(), counts.arrived), (0, 500_000), "{counts:?}");
        assert!(counts.abandoned > 100_000 && counts.completed > 10_000, "{counts:?}");
    }
}
