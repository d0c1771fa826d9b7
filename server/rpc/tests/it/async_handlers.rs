//! Asynchronous handlers over real sockets: they sleep, yield, wait for other threads and tasks,
//! panic, and lose their clients and their server. No test asserts a time; sleeps only have to end.

use super::TRANSPORT;
use crate::raw_client::RawClient;
use crate::serve::{Serve, over};
use leeward_core::params::RawParam;
use leeward_core::units::Nanos;
use leeward_rpc::server::{AsyncHandler, Builder, HandlerError, OwnedRequest, Server};
use leeward_rpc::wire::Method;
use leeward_runtime::IdlePolicy;
use leeward_runtime::tasks::{current_core, yield_now};
use leeward_runtime::timers::{self, Sleep, sleep, sleep_until, timeout};
use leeward_testkit::wait::until;
use std::future::{pending, poll_fn};
use std::net::TcpStream;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const IDLES: [IdlePolicy; 3] = [IdlePolicy::Spin, IdlePolicy::Adaptive(Nanos::from_micros(50)), IdlePolicy::Block];

/// A one-time signal between tasks and threads.
#[derive(Default)]
struct Signal {
    open: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Signal {
    fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
        waiting.into_iter().for_each(Waker::wake);
    }

    async fn passed(&self) {
        poll_fn(|context| {
            let mut waiting = self.waiting.lock().unwrap();
            if self.open.load(Ordering::SeqCst) {
                return Poll::Ready(());
            }
            waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Counts live values.
struct LiveCounter(Arc<AtomicUsize>);

impl LiveCounter {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        LiveCounter(Arc::clone(count))
    }
}

impl Drop for LiveCounter {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on a thread that is no core.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn builder(cores: usize, idle: IdlePolicy) -> Builder {
    // An objective so long that a busy machine is no overload.
    let builder = Server::builder().objective(Nanos::from_micros(10), Nanos::from_secs(10));
    over(TRANSPORT, builder).cores(cores).idle(idle)
}

fn start<H: AsyncHandler>(cores: usize, idle: IdlePolicy, handler: H) -> Server {
    builder(cores, idle).serve_async(handler).unwrap()
}

fn is_answered(peer: &mut RawClient) {
    let answer = peer.answer().unwrap();
    assert!(answer.starts_with("Response"), "{answer}");
}

/// Checks that every request has had exactly one outcome.
fn is_balanced(server: &Server) {
    until("all connections closed", || server.counts().connections == 0);
    let counts = server.counts();
    assert_eq!(counts.received, counts.completed + counts.rejected + counts.abandoned, "{counts:?}");
}

/// Sleeps, in halves and under a timeout, for as many microseconds as the method's number.
async fn sleeper(request: OwnedRequest) -> Result<Vec<u8>, HandlerError> {
    let half = Nanos::from_micros(u64::from(request.method.0) / 2);
    let before = timers::now().ok_or(HandlerError::UnknownMethod)?;
    sleep(half).await;
    let slept = timeout(Nanos::from_secs(1_000), sleep_until(before + half * 2)).await;
    let early = timers::now().is_none_or(|now| now < before + half * 2);
    if slept.is_err() || early { Err(HandlerError::UnknownMethod) } else { Ok(request.payload) }
}

#[test]
fn sleeping_handlers_answer_under_every_idle_policy_and_core_count() {
    for (cores, idle) in [1, 3].into_iter().flat_map(|cores| IDLES.map(|idle| (cores, idle))) {
        let server = start(cores, idle, sleeper);
        let mut peers: Vec<RawClient> = (0..4).map(|_| RawClient::registered(&server)).collect();
        for span in [0, 1, 50, 700, 3_000] {
            peers.iter_mut().for_each(|peer| peer.call(1, span, &[b"a", b"b", b"c", b"d", b"e"]));
            for peer in &mut peers {
                (0..5).for_each(|_| is_answered(peer));
            }
        }
        drop(peers);
        is_balanced(&server);
        assert_eq!(server.counts().completed, 100);
        server.stop().unwrap();
    }
}

#[test]
fn a_server_may_have_more_cores_than_the_machine() {
    let server = start(std::thread::available_parallelism().map_or(4, |cpus| cpus.get() * 2), IDLES[1], sleeper);
    let mut peers: Vec<RawClient> = (0..10).map(|_| RawClient::registered(&server)).collect();
    for _ in 0..10 {
        peers.iter_mut().for_each(|peer| peer.call(1, 100, &[b"a", b"b", b"c"]));
        peers.iter_mut().for_each(|peer| (0..3).for_each(|_| is_answered(peer)));
    }
    server.stop().unwrap();
}

#[test]
fn every_controller_serves_async_handlers() {
    for algorithm in leeward_controllers::builtin().algorithms() {
        let params = algorithm.params(&[]).unwrap();
        let server = builder(3, IdlePolicy::Block).admission(algorithm, params).serve_async(sleeper).unwrap();
        let mut peers: Vec<RawClient> = (0..5).map(|_| RawClient::registered(&server)).collect();
        let mut request = 0;
        for _ in 0..10 {
            for peer in &mut peers {
                // These peers count no credits: one without credit gets a rejection, and tries
                // again.
                until("an answer", || {
                    request += 1;
                    peer.call(request, 20, &[b"x"]);
                    let answer = peer.answer().unwrap();
                    assert!(answer.starts_with("Response") || answer.contains("NoCredit"), "{answer}");
                    answer.starts_with("Response")
                });
            }
        }
        drop(peers);
        is_balanced(&server);
        assert_eq!(server.counts().completed, 50, "{}", algorithm.name);
        server.stop().unwrap();
    }
}

#[test]
fn a_yielding_task_does_not_block_the_network() {
    for (cores, idle) in [(1, IdlePolicy::Spin), (1, IdlePolicy::Block), (3, IdlePolicy::Block)] {
        let flag = AtomicBool::new(false);
        let flag = Arc::new(flag);
        let server = start(cores, idle, move |request: OwnedRequest| {
            let flag = Arc::clone(&flag);
            async move {
                match request.method {
                    Method(1) => {
                        while !flag.load(Ordering::SeqCst) {
                            yield_now().await;
                        }
                    }
                    _ => flag.store(true, Ordering::SeqCst),
                }
                Ok(Vec::new())
            }
        });
        let mut peer = RawClient::registered(&server);
        peer.call(1, 1, &[b"", b"", b""]);
        until("received", || server.counts().received == 3);
        peer.call(4, 2, &[b""]);
        (0..4).for_each(|_| is_answered(&mut peer));
        server.stop().unwrap();
    }
}

#[test]
fn a_wake_up_from_another_thread_is_never_lost() {
    for (cores, idle) in [1, 3].into_iter().flat_map(|cores| IDLES.map(|idle| (cores, idle))) {
        let server = start(cores, idle, |request: OwnedRequest| async move {
            let gate = Arc::new(Signal::default());
            let opener = Arc::clone(&gate);
            let pause = Duration::from_micros(u64::from(request.method.0));
            let thread = std::thread::spawn(move || {
                // The wake-up comes at a different point of the task's way to sleep each time.
                std::thread::sleep(pause);
                opener.open();
            });
            gate.passed().await;
            thread.join().map_err(|_| HandlerError::UnknownMethod)?;
            Ok(request.payload)
        });
        let mut peer = RawClient::registered(&server);
        // Around the moment at which a core goes to sleep. A lost wake-up would last until the
        // core's longest sleep.
        for request in 1..=100 {
            peer.call(request, (request % 10 * 20) as u32, &[b"x"]);
            is_answered(&mut peer);
        }
        server.stop().unwrap();
    }
}

#[test]
fn tasks_wake_each_other_across_cores() {
    for cores in [1, 3] {
        let gate = Arc::new(Signal::default());
        let handlers_gate = Arc::clone(&gate);
        let server = start(cores, IdlePolicy::Block, move |request: OwnedRequest| {
            let gate = Arc::clone(&handlers_gate);
            async move {
                match request.method {
                    Method(1) => gate.passed().await,
                    _ => gate.open(),
                }
                Ok(request.payload)
            }
        });
        let mut peers: Vec<RawClient> = (0..6).map(|_| RawClient::registered(&server)).collect();
        peers.iter_mut().for_each(|peer| peer.call(1, 1, &[b"a", b"b"]));
        until("all wait", || gate.waiting.lock().unwrap().len() == 12);
        // A task's own wait is no queueing delay.
        until("no delay", || server.delay() == Nanos::ZERO);
        peers[0].call(3, 2, &[b"c"]);
        is_answered(&mut peers[0]);
        peers.iter_mut().for_each(|peer| (0..2).for_each(|_| is_answered(peer)));
        server.stop().unwrap();
    }
}

#[test]
fn a_timeout_drops_a_slow_future() {
    let alive = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&alive);
    let server = start(1, IdlePolicy::Block, move |_: OwnedRequest| {
        let alive = LiveCounter::new(&count);
        async move {
            let forever = async move {
                let _alive = alive;
                pending::<()>().await;
            };
            timeout(Nanos::from_micros(300), forever)
                .await
                .map_err(|elapsed| HandlerError::Message(elapsed.to_string()))?;
            Ok(Vec::new())
        }
    });
    let mut peer = RawClient::registered(&server);
    for request in 1..=5 {
        peer.call(request, 1, &[b""]);
        let answer = peer.answer().unwrap();
        assert!(answer.starts_with("Failure") && answer.contains("took too long"), "{answer}");
    }
    until("all dropped", || alive.load(Ordering::SeqCst) == 0);
    server.stop().unwrap();
}

/// Panics when it is dropped.
struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        panic!("as asked, when dropped");
    }
}

#[test]
fn a_panic_fails_one_request() {
    for cores in [1, 3] {
        let server = start(cores, IdlePolicy::Block, |request: OwnedRequest| async move {
            match request.method {
                Method(1) => panic!("as asked, at once"),
                Method(2) => {
                    sleep(Nanos::from_micros(10)).await;
                    panic!("as asked, later");
                }
                Method(3) => {
                    let _panic_on_drop = PanicOnDrop;
                    Ok(Vec::new())
                }
                Method(4) => {
                    let _panic_on_drop = PanicOnDrop;
                    pending().await
                }
                _ => Ok(request.payload),
            }
        });
        for method in 1..=3 {
            let mut peer = RawClient::registered(&server);
            peer.call(1, method, &[b""]);
            let answer = peer.answer().unwrap();
            assert!(answer.starts_with("Failure") && answer.contains("panicked"), "{method}: {answer}");
            peer.call(2, 9, &[b"still there"]);
            is_answered(&mut peer);
        }
        let mut leaves = RawClient::registered(&server);
        leaves.call(1, 4, &[b""]);
        until("received", || server.counts().received == 7);
        drop(leaves);
        is_balanced(&server);
        let mut peer = RawClient::registered(&server);
        peer.call(1, 9, &[b"still there"]);
        is_answered(&mut peer);
        server.stop().unwrap();
    }
}

#[test]
fn a_disconnect_cancels_the_clients_tasks() {
    for (cores, idle) in [(1, IdlePolicy::Spin), (1, IdlePolicy::Block), (3, IdlePolicy::Block)] {
        let alive = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&alive);
        let server = start(cores, idle, move |request: OwnedRequest| {
            let alive = LiveCounter::new(&count);
            async move {
                let _alive = alive;
                match request.method {
                    Method(1) => pending().await,
                    Method(2) => sleep(Nanos::MAX).await,
                    _ => loop {
                        yield_now().await;
                    },
                }
                Ok(request.payload)
            }
        });
        for round in 1..=3 {
            let mut peers: Vec<RawClient> = (0..5).map(|_| RawClient::registered(&server)).collect();
            for peer in &mut peers {
                (1..=3).for_each(|method| peer.call(u64::from(method) * 10, method, &[b"a", b"b"]));
            }
            until("all begun", || alive.load(Ordering::SeqCst) == 30);
            drop(peers);
            until("all dropped", || alive.load(Ordering::SeqCst) == 0);
            is_balanced(&server);
            assert_eq!(server.counts().abandoned, 30 * round);
        }
        server.stop().unwrap();
    }
}

#[test]
fn a_stop_waits_for_tasks_that_end() {
    for cores in [1, 3] {
        let server = start(cores, IdlePolicy::Block, sleeper);
        let mut peers: Vec<RawClient> = (0..4).map(|_| RawClient::registered(&server)).collect();
        peers.iter_mut().for_each(|peer| peer.call(1, 60_000, &[b"a", b"b"]));
        until("received", || server.counts().received == 8);
        server.stop().unwrap();
        for peer in &mut peers {
            (0..2).for_each(|_| is_answered(peer));
            assert!(peer.answer().unwrap().contains("ShuttingDown"));
            assert_eq!(peer.answer(), None);
        }
    }
}

#[test]
fn a_stop_drops_tasks_that_never_end() {
    for (cores, idle) in [(1, IdlePolicy::Spin), (1, IdlePolicy::Block), (3, IdlePolicy::Block)] {
        let (alive, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Signal::default()));
        let (count, never) = (Arc::clone(&alive), Arc::clone(&gate));
        let slept: Arc<Mutex<Option<Sleep>>> = Arc::default();
        let kept = Arc::clone(&slept);
        let handler = move |request: OwnedRequest| {
            let (alive, never, kept) = (LiveCounter::new(&count), Arc::clone(&never), Arc::clone(&kept));
            async move {
                let _alive = alive;
                *kept.lock().unwrap() = Some(sleep(Nanos::MAX));
                match request.method {
                    Method(1) => never.passed().await,
                    Method(2) => sleep(Nanos::MAX).await,
                    _ => loop {
                        yield_now().await;
                    },
                }
                Ok(request.payload)
            }
        };
        let server = builder(cores, idle).drain(Nanos::from_millis(30)).serve_async(handler).unwrap();
        let mut peers: Vec<RawClient> = (0..4).map(|_| RawClient::registered(&server)).collect();
        for peer in &mut peers {
            (1..=3).for_each(|method| peer.call(u64::from(method) * 10, method, &[b"a", b"b"]));
        }
        until("all begun", || alive.load(Ordering::SeqCst) == 24);
        server.stop().unwrap();
        assert_eq!(alive.load(Ordering::SeqCst), 0, "nothing outlives its server");
        for peer in &mut peers {
            assert!(peer.answer().unwrap().contains("ShuttingDown"));
        }
        // Wakers and sleeps that outlive the server do no harm.
        gate.open();
        let sleep = slept.lock().unwrap().take().unwrap();
        block_on(sleep);
    }
}

#[test]
fn a_sleep_may_be_awaited_on_another_thread() {
    let server = start(1, IdlePolicy::Block, |request: OwnedRequest| async move {
        let gate = Arc::new(Signal::default());
        let opener = Arc::clone(&gate);
        let sleep = sleep(Nanos::from_micros(200));
        let here = current_core();
        let thread = std::thread::spawn(move || {
            block_on(sleep);
            opener.open();
            current_core()
        });
        gate.passed().await;
        match (here, thread.join()) {
            (Some(0), Ok(None)) => Ok(request.payload),
            _ => Err(HandlerError::UnknownMethod),
        }
    });
    let mut peer = RawClient::registered(&server);
    for request in 1..=20 {
        peer.call(request, 1, &[b"x"]);
        is_answered(&mut peer);
    }
    server.stop().unwrap();
}

#[test]
fn a_plain_handler_may_block_on_a_sleep() {
    let handler = |_: &leeward_rpc::server::Request<'_>, reply: &mut Vec<u8>| {
        block_on(sleep(Nanos::from_millis(1)));
        reply.push(u8::from(current_core().is_none()));
        Ok(())
    };
    let server = builder(1, IdlePolicy::Block).serve(handler).unwrap();
    let mut peer = RawClient::registered(&server);
    peer.call(1, 1, &[b""]);
    assert!(peer.answer().unwrap().contains("[1]"));
    server.stop().unwrap();
}

#[test]
fn a_request_that_waited_too_long_is_rejected_when_it_is_dequeued() {
    let answers = answers_after_a_wait(true);
    assert_eq!((answers.served, answers.dropped), (1, 2));
}

#[test]
fn the_wait_of_a_first_request_counts_like_any_other() {
    // A busy core defers connections that have sent only messages so far, and reads one of them per
    // poll.
    let answers = answers_after_a_wait(false);
    assert!(answers.served >= 1 && answers.dropped >= 1, "{answers:?}");
}

#[derive(Debug)]
struct AnswerTally {
    served: usize,
    dropped: usize,
}

/// Three clients call one core at the same time for a second each, under an objective that leaves
/// no second of waiting.
fn answers_after_a_wait(have_asked_before: bool) -> AnswerTally {
    // Requests that have waited for most of the objective are rejected. Credit schemes do so only
    // under overload.
    let algorithm = leeward_controllers::builtin().find("edge").unwrap().clone();
    let builder = over(TRANSPORT, Server::builder())
        .objective(Nanos::from_micros(10), Nanos::from_secs(1))
        .idle(IdlePolicy::Block);
    let builder =
        builder.admission(&algorithm, algorithm.params(&[("lateness", RawParam::Text("800ms".into()))]).unwrap());
    let (alive, free) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, freed) = (Arc::clone(&alive), Arc::clone(&free));
    let handler = move |request: OwnedRequest| {
        let (alive, freed) = (LiveCounter::new(&count), Arc::clone(&freed));
        async move {
            let _alive = alive;
            match request.method {
                // Keeps the core from its network, so that it finds the other requests at the same
                // time.
                Method(1) => while !freed.load(Ordering::SeqCst) {},
                // A poll that outlasts the other requests.
                Method(2) => std::thread::sleep(Duration::from_secs(1)),
                _ => {}
            }
            Ok(Vec::new())
        }
    };
    let server = builder.serve_async(handler).unwrap();
    let mut first = RawClient::registered(&server);
    let mut others: Vec<RawClient> = (0..3).map(|_| RawClient::registered(&server)).collect();
    if have_asked_before {
        for peer in &mut others {
            peer.call(1, 3, &[b""]);
            is_answered(peer);
        }
    }
    first.call(1, 1, &[b""]);
    until("begun", || alive.load(Ordering::SeqCst) == 1);
    // Accepting these makes the core's network poll a long one.
    let idle_connections: Vec<_> = (0..32).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    others.iter_mut().for_each(|peer| peer.call(2, 2, &[b""]));
    free.store(true, Ordering::SeqCst);
    is_answered(&mut first);
    let answers: Vec<String> = others.iter_mut().filter_map(RawClient::answer).collect();
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    drop((first, others, idle_connections));
    is_balanced(&server);
    server.stop().unwrap();
    let starting = |kind: &str| answers.iter().filter(|answer| answer.starts_with(kind)).count();
    AnswerTally { served: starting("Response"), dropped: starting("Drop") }
}
