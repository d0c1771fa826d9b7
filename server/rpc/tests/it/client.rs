//! The client against real servers: many callers, rejections, restarts, replicas. No test asserts a
//! time; time limits are long, and only turn a hang into a failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::TRANSPORT;
use leeward_core::params::{Params, RawParam};
use leeward_core::registry::Algorithm;
use leeward_core::units::{Nanos, Priority};
use leeward_rpc::client::{Builder, CallError, CallOptions, Client, Effect, Transport};
use leeward_rpc::server::{HandlerError, Request, Server};
use leeward_rpc::wire::{Method, PayloadLimit, RejectCode};
use leeward_runtime::IdlePolicy;
use leeward_testkit::wait::until;

const ECHO: Method = Method(1);

fn algorithm(name: &str, pairs: &[(&str, RawParam)]) -> (Algorithm, Params) {
    let algorithm = leeward_controllers::builtin().find(name).unwrap().clone();
    let params = algorithm.params(pairs).unwrap();
    (algorithm, params)
}

/// An objective so long that a busy machine is no overload.
const RTT: Nanos = Nanos::from_micros(10);
const SLO: Nanos = Nanos::from_secs(30);

fn handler(request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
    match request.method {
        Method(1) => reply.extend_from_slice(request.payload),
        Method(2) => return Err(HandlerError::Message("no such luck".into())),
        Method(3) => {
            // A service time in which a client can cancel or lose its call.
            std::thread::sleep(Duration::from_millis(20));
            reply.extend_from_slice(request.payload);
        }
        Method(4) => reply.resize(100_000, 7),
        Method(5) => reply.extend_from_slice(&request.budget.remaining().map_or(0, |left| left.0).to_le_bytes()),
        _ => return Err(HandlerError::UnknownMethod),
    }
    Ok(())
}

fn serve(name: &str, pairs: &[(&str, RawParam)], address: &str) -> Server {
    let (algorithm, params) = algorithm(name, pairs);
    let builder = Server::builder().admission(&algorithm, params).objective(RTT, SLO).idle(IdlePolicy::Block);
    let builder = if TRANSPORT == Transport::Udp { builder.udp(address) } else { builder };
    builder.payload_limit(PayloadLimit::new(50_000)).start(address, handler).unwrap()
}

/// Address of a server, for clients.
fn place(server: &Server) -> String {
    server.datagram_address().unwrap_or_else(|| server.address()).to_string()
}

/// Adds a replica over the transport of these tests.
trait ReplicaOver {
    fn replica_over(self, address: impl Into<String>) -> Self;
}

impl ReplicaOver for Builder {
    fn replica_over(self, address: impl Into<String>) -> Self {
        if TRANSPORT == Transport::Udp { self.udp(address) } else { self.replica(address) }
    }
}

/// Serves on an address that was in use a moment ago.
fn again(address: &str) -> Server {
    let (algorithm, params) = algorithm("breakwater", &[]);
    for _ in 0..2_000 {
        let builder =
            Server::builder().admission(&algorithm, params.clone()).objective(RTT, SLO).idle(IdlePolicy::Block);
        let (builder, near) =
            if TRANSPORT == Transport::Udp { (builder.udp(address), "127.0.0.1:0") } else { (builder, address) };
        if let Ok(server) = builder.start(near, handler) {
            return server;
        }
        // The system frees the address.
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{address} does not come free");
}

fn builder(name: &str) -> Builder {
    let (algorithm, params) = algorithm(name, &[]);
    let limit = Nanos::from_secs(30);
    Client::builder().admission(&algorithm, params).objective(RTT, SLO).connection_wait(limit).timeout(limit).seed(1)
}

fn client(name: &str, servers: &[&Server]) -> Client {
    let servers = servers.iter().map(|server| place(server));
    servers.fold(builder(name), Builder::replica_over).build().unwrap()
}

fn executor() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

#[test]
fn every_caller_gets_its_own_answer_once_under_every_controller() {
    for known in leeward_controllers::builtin().algorithms() {
        let servers = [serve(known.name, &[], "127.0.0.1:0"), serve(known.name, &[], "127.0.0.1:0")];
        let replicas = servers.iter().map(place);
        let client =
            replicas.fold(builder(known.name).connections(2).queue(1024), Builder::replica_over).build().unwrap();
        let executor = executor();
        let tasks: Vec<_> = (0..40_u32)
            .map(|task| {
                let client = client.clone();
                executor.spawn(async move {
                    let mut answered = 0;
                    for round in 0..25_u32 {
                        let argument = format!("{task}:{round}");
                        match client.call(ECHO, argument.as_str()).await {
                            Ok(response) => {
                                assert_eq!(response.payload, argument.as_bytes());
                                assert!(response.latency >= response.round_trip);
                                answered += 1;
                            }
                            // A controller may reject; nothing else may happen.
                            Err(error) => assert!(error.is_overload(), "{error}"),
                        }
                    }
                    answered
                })
            })
            .collect();
        let answered: u64 = tasks.into_iter().map(|task| executor.block_on(task).unwrap()).sum();
        let counts = client.counts();
        assert_eq!((counts.calls, counts.ended(), counts.completed), (1_000, 1_000, answered), "{}", known.name);
        if matches!(known.name, "none" | "breakwater") {
            assert_eq!(answered, 1_000, "{}: {counts:?}", known.name);
        }
        if known.name == "none" {
            // Controllers with windows may have good reasons to prefer one.
            let received: Vec<u64> = servers.iter().map(|server| server.counts().received).collect();
            assert!(received.iter().all(|received| *received > 50), "one replica has nearly all: {received:?}");
        }
    }
}

#[test]
fn calls_work_from_plain_threads_and_other_executors() {
    let server = serve("breakwater", &[], "127.0.0.1:0");
    let client = client("breakwater", &[&server]);
    assert_eq!(client.call_blocking(ECHO, "plain").unwrap().payload, b"plain");
    assert_eq!(pollster::block_on(client.call(ECHO, vec![1, 2])).unwrap().payload, [1, 2]);
    // The call is made before the first poll.
    let early = client.call(ECHO, "early");
    until("the answer is there", || client.counts().completed == 3);
    assert_eq!(pollster::block_on(early).unwrap().payload, b"early");
    let threads: Vec<_> = (0..8_u8)
        .map(|thread| {
            let client = client.clone();
            std::thread::spawn(move || {
                (0..50_u8).all(|round| client.call_blocking(ECHO, [thread, round]).unwrap().payload == [thread, round])
            })
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
}

#[test]
fn handler_messages_and_exceeded_limits_are_returned_as_errors() {
    let server = serve("none", &[], "127.0.0.1:0");
    let client = builder("none").replica_over(place(&server)).payload_limit(PayloadLimit::new(60_000)).build().unwrap();
    let failed = CallError::Failed { message: "no such luck".into() };
    assert_eq!(client.call_blocking(Method(2), ""), Err(failed));
    assert!(matches!(client.call_blocking(Method(99), ""), Err(CallError::UnknownMethod { .. })));
    assert_eq!(client.call_blocking(Method(4), ""), Err(CallError::ResponseTooLarge));
    // More than this client accepts; more than the server accepts; just enough.
    let max = if TRANSPORT == Transport::Udp { 1_296 } else { 50_000 };
    for (length, limit) in [(60_001, 60_000), (50_001, max)] {
        let limit = PayloadLimit::new(limit);
        assert_eq!(client.call_blocking(ECHO, vec![0; length]), Err(CallError::TooLarge { length, limit }));
    }
    assert_eq!(client.call_blocking(ECHO, vec![1; max as usize]).unwrap().payload.len(), max as usize);
    assert_eq!(client.counts().connects, 1, "none of this costs the connection");
}

#[test]
fn a_budget_reaches_the_server_less_the_time_spent() {
    let server = serve("none", &[], "127.0.0.1:0");
    let client = client("none", &[&server]);
    let budget = Nanos::from_secs(4);
    let options = CallOptions::new().budget(budget).priority(Priority::HIGHEST);
    let response = client.call_blocking_with(Method(5), "", options).unwrap();
    let left = u64::from_le_bytes(response.payload.try_into().unwrap());
    assert!(left > 0 && left < budget.0, "{left}");
    let unlimited = client.call_blocking(Method(5), "").unwrap();
    assert_eq!(unlimited.payload, [0; 8]);
}

#[test]
fn a_rejection_says_why() {
    let limits = [("min_limit", RawParam::Integer(1)), ("max_limit", RawParam::Integer(1))];
    let server = serve("gradient", &limits, "127.0.0.1:0");
    let client = client("gradient", &[&server]);
    let calls: Vec<_> = (0..30).map(|_| client.call(Method(3), "x")).collect();
    let ends: Vec<_> = calls.into_iter().map(pollster::block_on).collect();
    let rejected = |error: &CallError| matches!(error, CallError::Rejected { reason: RejectCode::Concurrency, retry_after: None, waited, .. } if waited.0 > 0);
    let rejections = ends.iter().filter_map(|result| result.as_ref().err()).inspect(|error| {
        assert!(rejected(error) || matches!(error, CallError::QueueFull { .. }), "{error}");
        assert_eq!(error.effect(), Effect::Excluded);
    });
    let rejections = rejections.filter(|error| rejected(error)).count() as u64;
    assert!(rejections > 0 && ends.iter().any(Result::is_ok), "{ends:?}");
    assert_eq!(client.counts().rejected, rejections);
    assert_eq!(client.counts().retries, 0, "there is no other replica");
}

#[test]
fn a_server_that_comes_back_is_found_again() {
    let first = serve("breakwater", &[], "127.0.0.1:0");
    let address = place(&first);
    let (least, max) = (Nanos::from_millis(1), Nanos::from_millis(20));
    let client = builder("breakwater").replica_over(address.as_str()).backoff(least, max).build().unwrap();
    assert_eq!(client.call_blocking(ECHO, "here").unwrap().payload, b"here");
    first.stop().unwrap();
    until("the loss is seen", || client.connected() == 0);
    // Made without a server: waits for the next one.
    let waiting = client.call(ECHO, "patience");
    let second = again(&address);
    assert_eq!(pollster::block_on(waiting).unwrap().payload, b"patience");
    assert_eq!(client.call_blocking(ECHO, "back").unwrap().payload, b"back");
    assert_eq!(client.counts().connects, 2);
    second.stop().unwrap();
}

#[test]
fn calls_survive_the_loss_of_one_of_two_replicas() {
    let first = serve("breakwater", &[], "127.0.0.1:0");
    let second = serve("breakwater", &[], "127.0.0.1:0");
    let gone = leeward_testkit::net::vacant_address();
    let client = [gone.to_string(), place(&first), place(&second)]
        .into_iter()
        .fold(builder("breakwater"), Builder::replica_over)
        .build()
        .unwrap();
    until("both are connected", || client.connected() == 2);
    for round in 0..200_u32 {
        let response = client.call_blocking(ECHO, round.to_le_bytes()).unwrap();
        assert_eq!(response.payload, round.to_le_bytes());
        assert!(response.replica > 0);
    }
    first.stop().unwrap();
    until("one is left", || client.connected() == 1);
    for _ in 0..50 {
        assert_eq!(client.call_blocking(ECHO, "x").unwrap().replica, 2);
    }
    assert_eq!(client.counts().completed, 250);
}

#[test]
fn dropped_futures_cost_no_credit_and_disturb_nobody() {
    let server = serve("breakwater", &[], "127.0.0.1:0");
    let client = client("breakwater", &[&server]);
    client.call_blocking(ECHO, "warm").unwrap();
    for round in 0..2_000_u32 {
        let call = client.call(ECHO, round.to_le_bytes());
        if round % 3 == 0 {
            std::thread::yield_now();
        }
        drop(call);
        if round % 100 == 0 {
            assert_eq!(client.call_blocking(ECHO, "still well").unwrap().payload, b"still well");
        }
    }
    until("every call has ended", || client.counts().ended() == client.counts().calls);
    let counts = client.counts();
    assert_eq!((counts.connects, counts.protocol), (1, 0), "late answers are no surprise");
    assert_eq!(counts.completed + counts.cancelled, counts.calls, "{counts:?}");
    drop(client);
    until("the session is given back", || server.gauges().credits_issued == Some(0));
}

#[test]
fn dropping_the_last_clone_lets_calls_end_and_stops_the_thread() {
    let thread_lives = |name: &str| {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks
            .flatten()
            .any(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name))
    };
    let server = serve("breakwater", &[], "127.0.0.1:0");
    let client = builder("breakwater").replica_over(place(&server)).thread_name("lw-last-clone");
    // The test must not depend on a timer.
    let client = client.connect_timeout(Nanos::from_secs(3_000)).build();
    let client = client.unwrap();
    // A thread takes its name when it begins to run.
    client.call_blocking(ECHO, "warm").unwrap();
    assert!(thread_lives("lw-last-clone"));
    let clone = client.clone();
    let call = clone.call(Method(3), "slow");
    drop(client);
    drop(clone);
    assert_eq!(pollster::block_on(call).unwrap().payload, b"slow");
    until("the thread has ended", || !thread_lives("lw-last-clone"));
    until("the connection has ended", || server.counts().connections == 0);
}

#[test]
fn a_shutdown_ends_all_calls_at_once() {
    let server = serve("none", &[], "127.0.0.1:0");
    let client = client("none", &[&server]);
    client.call_blocking(ECHO, "warm").unwrap();
    let calls: Vec<_> = (0..5).map(|_| client.call(Method(3), "slow")).collect();
    client.clone().shut_down();
    for call in calls {
        match pollster::block_on(call) {
            Ok(_) | Err(CallError::ShutDown { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    until("nothing is left", || server.counts().connections == 0);
    assert_eq!(client.call_blocking(ECHO, "late"), Err(CallError::ShutDown { effect: Effect::Excluded }));
    let counts = client.counts();
    assert_eq!((counts.calls, client.connected()), (counts.ended(), 0));
}

#[test]
fn wakers_may_make_and_drop_calls() {
    // A task that the waker itself polls, on the client's thread.
    struct Inline {
        client: Client,
        woken: AtomicU64,
    }
    impl std::task::Wake for Inline {
        fn wake(self: Arc<Self>) {
            drop(self.client.call(ECHO, "from the waker"));
            self.woken.fetch_add(1, Ordering::Relaxed);
        }
    }
    let server = serve("breakwater", &[], "127.0.0.1:0");
    let client = client("breakwater", &[&server]);
    let inline = Arc::new(Inline { client: client.clone(), woken: AtomicU64::new(0) });
    let waker = Arc::clone(&inline).into();
    let mut call = std::pin::pin!(client.call(Method(3), "x"));
    let mut context = std::task::Context::from_waker(&waker);
    assert!(std::future::Future::poll(call.as_mut(), &mut context).is_pending());
    until("it is woken", || inline.woken.load(Ordering::Relaxed) == 1);
    assert!(std::future::Future::poll(call.as_mut(), &mut context).is_ready());
    until("both have ended", || client.counts().ended() == 2);
}
