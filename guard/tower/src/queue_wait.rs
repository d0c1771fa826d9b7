//! Wait of an admitted request in the gate's queue. A called request lets Tokio poll its sockets
//! once and then begins. Does not contain the order of requests.

use crate::headers::Grpc;
use leeward_core::units::Time;
use leeward_gate::{WaitError, Waiter};
use std::cell::Cell;
use std::future::Future;
use std::panic::catch_unwind;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep};

/// A request that waits or occupies a worker.
pub(crate) struct QueueWait {
    waiter: Waiter,
    /// The request was called and has yielded once since.
    yielded: bool,
    /// Ends the wait at the deadline. Lower classes may otherwise wait as long as higher ones keep
    /// arriving.
    timer: Option<Pin<Box<Sleep>>>,
    pub(crate) grpc: Option<Grpc>,
    /// Whether the connection must close, because the rest of the request's body was not read.
    pub(crate) closes_connection: bool,
}

impl QueueWait {
    pub(crate) fn new(queue_waiter: Waiter, grpc: Option<Grpc>, closes: bool) -> Self {
        QueueWait {
            yielded: queue_waiter.has_begun(),
            waiter: queue_waiter,
            timer: None,
            grpc,
            closes_connection: closes,
        }
    }

    /// Waits for the call. The caller keeps this value while the request occupies a worker, and
    /// then drops it.
    pub(crate) fn poll(&mut self, now: Time, context: &mut Context<'_>) -> Poll<Result<(), WaitError>> {
        if self.yielded {
            match self.waiter.begin(now) {
                Poll::Pending => self.yielded = false,
                result => return result,
            }
        }
        match self.waiter.poll_ready(now, context) {
            Poll::Ready(Ok(())) => {
                self.yielded = true;
                self.timer = None;
                // Tokio wakes a yielded task after it has polled its sockets, so new requests are
                // read first.
                let _ = pin!(yield_now()).poll(context);
                Poll::Pending
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                if self.timer.is_none() {
                    self.timer = timer(Duration::from_nanos(self.waiter.start_deadline().since(now).0));
                }
                match self.timer.as_mut().map(|timer| timer.as_mut().poll(context)) {
                    Some(Poll::Ready(())) => Poll::Ready(Err(WaitError::Late)),
                    _ => Poll::Pending,
                }
            }
        }
    }
}

thread_local!(static HAS_NO_TIMERS: Cell<bool> = const { Cell::new(false) });

/// A timer of this thread's runtime, if it has timers. Without one, only a call ends the wait.
fn timer(span: Duration) -> Option<Pin<Box<Sleep>>> {
    if HAS_NO_TIMERS.get() || Handle::try_current().is_err() {
        return None;
    }
    // A runtime without timers panics; the thread doesn't try again.
    let timer = catch_unwind(|| Box::pin(sleep(span))).ok();
    HAS_NO_TIMERS.set(timer.is_none());
    timer
}

#[cfg(test)]
mod tests {
    use crate::{Class, Slo, Stamp, headers, ms, slo};
    use http::{HeaderValue, Request, Response};
    use http_body::Body;
    use std::convert::Infallible;
    use std::future::{Future, poll_fn};
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};
    use std::time::{Duration, SystemTime};
    use tower_layer::Layer;
    use tower_service::Service;

    /// A body without bytes, or one that never arrives.
    struct TextBody(bool);

    impl Body for TextBody {
        type Data = bytes::Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Infallible>>> {
            if self.0 { Poll::Ready(None) } else { Poll::Pending }
        }

        fn is_end_stream(&self) -> bool {
            self.0
        }
    }

    /// Counts requests that execute and requests that have begun. Each request yields `awaits`
    /// times.
    #[derive(Clone, Default)]
    struct CountingService {
        running: Arc<AtomicUsize>,
        running_max: Arc<AtomicUsize>,
        begun: Arc<AtomicUsize>,
        awaits: usize,
    }

    /// One poll of a handler; counts as executing while it lasts.
    fn work(service: &CountingService) {
        let running = service.running.fetch_add(1, Ordering::SeqCst) + 1;
        service.running_max.fetch_max(running, Ordering::SeqCst);
        let _ = std::hint::black_box((0..2_000u64).fold(0, |sum: u64, step| std::hint::black_box(sum ^ step)));
        service.running.fetch_sub(1, Ordering::SeqCst);
    }

    impl Service<Request<TextBody>> for CountingService {
        type Response = Response<TextBody>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Response<TextBody>, Infallible>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<TextBody>) -> Self::Future {
            let service = self.clone();
            Box::pin(async move {
                service.begun.fetch_add(1, Ordering::SeqCst);
                assert!(request.uri().path() != "/panics", "as asked");
                work(&service);
                for _ in 0..service.awaits {
                    tokio::task::yield_now().await;
                }
                Ok(Response::new(TextBody(true)))
            })
        }
    }

    /// A request that the kernel received `waited` ago.
    fn request(path: &'static str, waited: Duration) -> Request<TextBody> {
        let stamp = Stamp::default();
        stamp.record(SystemTime::now() - waited);
        let mut request = Request::builder().uri(path).body(TextBody(true)).unwrap();
        request.extensions_mut().insert(stamp);
        request
    }

    fn layer(objective: u64) -> Slo {
        // The order alone is tested here, so no level rejects.
        let layer = slo(ms(objective)).workers(1).build(|builder| builder.set("level", "off").queue(16_384));
        layer.class(|request| match request.uri.path() {
            "/first" => Class::CRITICAL,
            "/last" => Class::SHEDDABLE,
            _ => Class::NORMAL,
        })
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn the_most_important_of_all_received_requests_runs_first() {
        let (layer, counting) = (layer(10_000), CountingService::default());
        let mut service = layer.layer(counting.clone());
        let waited = ms(2_000);
        let mut calls: Vec<_> =
            ["/", "/", "/last", "/", "/first"].map(|path| Box::pin(service.call(request(path, waited)))).into();
        assert!(calls.iter_mut().all(|call| poll(call.as_mut()).is_pending()), "the first two are called, and yield");
        assert_eq!((counting.begun.load(Ordering::SeqCst), layer.gate().waiting()), (0, 3));
        assert!(poll(calls[0].as_mut()).is_ready());
        // The second request keeps its slot meanwhile.
        let mut order = Vec::new();
        for _ in 0..6 {
            let polled = (2..5).filter(|index| !order.contains(index)).collect::<Vec<_>>();
            order.extend(polled.into_iter().filter(|index| poll(calls[*index].as_mut()).is_ready()));
        }
        assert_eq!(order, [4, 3, 2]);
        assert!(poll(calls[1].as_mut()).is_ready());
        assert_eq!((layer.gate().counts().in_time, layer.gate().counts().in_flight()), (5, 0));
    }

    #[test]
    fn without_waiting_requests_a_request_starts_at_once() {
        let (layer, counting) = (layer(10_000), CountingService::default());
        let mut service = layer.layer(counting);
        let mut call = Box::pin(service.call(request("/", ms(1))));
        assert!(poll(call.as_mut()).is_ready());
    }

    #[test]
    fn an_awaiting_handler_frees_its_slot() {
        let (layer, counting) = (layer(10_000), CountingService { awaits: 100, ..CountingService::default() });
        let mut service = layer.layer(counting.clone());
        let mut calls: Vec<_> = (0..20).map(|_| Box::pin(service.call(request("/", ms(2_000))))).collect();
        for _ in 0..40 {
            calls.iter_mut().for_each(|call| assert!(poll(call.as_mut()).is_pending()));
        }
        assert_eq!((counting.begun.load(Ordering::SeqCst), layer.gate().waiting()), (20, 0));
    }

    #[test]
    fn a_request_that_expires_in_the_queue_is_rejected_unexecuted() {
        let (layer, counting) = (layer(200), CountingService::default());
        let mut service = layer.layer(counting.clone());
        let mut of = |path, grpc: bool, whole: bool| {
            let mut request = request(path, ms(150));
            if grpc {
                request.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
            }
            *request.body_mut() = TextBody(whole);
            Box::pin(service.call(request))
        };
        let mut calls = [of("/", false, true), of("/", true, true), of("/", false, false)];
        assert!(calls.iter_mut().all(|call| poll(call.as_mut()).is_pending()));
        std::thread::sleep(ms(60));
        let answers = calls.map(|mut call| match poll(call.as_mut()) {
            Poll::Ready(Ok(response)) => response,
            Poll::Pending => panic!("its time is over"),
        });
        assert_eq!(answers[0].headers()[headers::REASON], "late");
        assert_eq!((answers[0].status().as_u16(), answers[1].status().as_u16()), (503, 200));
        assert_eq!(answers[1].headers()[headers::GRPC_STATUS], "8");
        let closes = answers.each_ref().map(|answer| answer.headers().contains_key("connection"));
        assert_eq!(closes, [false, false, true], "whose body was not read");
        let counts = layer.gate().counts();
        assert_eq!((counts.rejected_inside, counts.in_flight(), counting.begun.load(Ordering::SeqCst)), (3, 0, 0));
    }

    /// Of a class that is never called, a timer ends the wait.
    #[tokio::test]
    async fn a_timer_ends_the_wait_of_a_request_that_is_never_called() {
        let (layer, counting) = (layer(200), CountingService::default());
        let mut service = layer.layer(counting.clone());
        let mut held: Vec<_> = (0..2).map(|_| Box::pin(service.call(request("/first", ms(50))))).collect();
        held.iter_mut().for_each(|call| assert!(poll(call.as_mut()).is_pending()));
        // The called futures are not polled, and no other request arrives.
        let answer = service.call(request("/last", ms(50))).await.unwrap();
        assert_eq!(answer.headers()[headers::REASON], "late");
        assert_eq!(counting.begun.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn the_queue_works_on_a_runtime_without_timers() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (layer, counting) = (layer(10_000), CountingService::default());
        let mut service = layer.layer(counting);
        let calls: Vec<_> = (0..20).map(|_| service.call(request("/", ms(2_000)))).collect();
        runtime.block_on(async {
            let tasks: Vec<_> = calls.into_iter().map(tokio::spawn).collect();
            for task in tasks {
                assert_eq!(task.await.unwrap().unwrap().status().as_u16(), 200);
            }
        });
    }

    /// P1 with a queue: requests that end, panic or are dropped at any await point leave no state,
    /// and no slot is lost.
    #[test]
    fn drops_at_every_await_point_leave_no_state() {
        for awaits in [0, 1, 2] {
            let (layer, counting) = (layer(60_000), CountingService { awaits, ..CountingService::default() });
            let mut service = layer.layer(counting);
            let hook = std::panic::take_hook();
            std::panic::set_hook(Box::new(|_| {}));
            let mut out: Vec<Pin<Box<_>>> = Vec::new();
            let mut random = 0x1EE_3A2Du64;
            let mut below = |bound: usize| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                (random >> 20) as usize % bound
            };
            for _ in 0..100_000 {
                match below(12) {
                    0..=2 if out.len() < 50 => {
                        let path = ["/", "/first", "/last", "/panics"][below(4)];
                        out.push(Box::pin(service.call(request(path, ms(10_000)))));
                    }
                    3 if !out.is_empty() => drop(out.swap_remove(below(out.len()))),
                    _ if !out.is_empty() => {
                        let index = below(out.len());
                        let polled =
                            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| poll(out[index].as_mut())));
                        if !matches!(polled, Ok(Poll::Pending)) {
                            drop(out.swap_remove(index));
                        }
                    }
                    _ => {}
                }
            }
            std::panic::set_hook(hook);
            out.clear();
            let counts = layer.gate().counts();
            assert_eq!((counts.in_flight(), layer.gate().waiting()), (0, 0), "{counts:?}");
            assert!(counts.completed > 500 && counts.abandoned > 1_000, "{counts:?}");
            // Both slots are free: with the eight calls ahead for short requests, ten are called
            // and two wait.
            let mut calls: Vec<_> = (0..12).map(|_| Box::pin(service.call(request("/", ms(10_000))))).collect();
            calls.iter_mut().for_each(|call| assert!(poll(call.as_mut()).is_pending()));
            assert_eq!(layer.gate().waiting(), 2);
        }
    }

    /// With several workers, each request has one answer, and executing requests never exceed
    /// workers.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_request_has_one_answer_on_several_workers() {
        let (layer, counting) = (layer(20_000), CountingService::default());
        let layer = layer.workers(2);
        let service = layer.layer(counting.clone());
        let tasks: Vec<_> = (0..2_000u64)
            .map(|number| {
                let mut service = service.clone();
                tokio::spawn(async move {
                    let call = service.call(request(["/", "/first", "/last"][number as usize % 3], ms(4_000)));
                    let mut call = Box::pin(call);
                    if number % 5 == 0 {
                        // The client disconnects while the request waits.
                        let _ = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
                        return None;
                    }
                    Some(call.await.map_or(0, |response| response.status().as_u16()))
                })
            })
            .collect();
        let mut served = 0;
        for task in tasks {
            served += usize::from(task.await.unwrap() == Some(200));
        }
        let counts = layer.gate().counts();
        assert_eq!((served, counts.in_flight(), layer.gate().waiting()), (1_600, 0, 0), "{counts:?}");
        assert!(counting.running_max.load(Ordering::SeqCst) <= 2);
    }
}
