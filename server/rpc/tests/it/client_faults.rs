//! The client against misbehaving servers: silence, nonsense, closed connections, rejections.
//! Scripts on real sockets. No test asserts a time; time limits are long, and only turn a hang into
//! a failure.

use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use crate::scripted_server::{ClientMessage, ReceivedCall, ScriptedServer, ServerPeer};
use leeward_core::params::{Params, RawParam};
use leeward_core::units::Nanos;
use leeward_rpc::client::{Builder, CallError, CallOptions, Client, Effect};
use leeward_rpc::wire::{ErrorCode, FatalError, Frame, Message, Method, Regime, RejectCode, RequestId};
use leeward_testkit::wait::until;

const ECHO: Method = Method(1);

/// A client of Breakwater whose time limits are long unless a test shortens them.
fn builder(servers: &[&ScriptedServer]) -> Builder {
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let long = Nanos::from_secs(60);
    let builder = Client::builder().admission(&breakwater, Params::default()).objective(Nanos(10_000), long);
    let builder = builder.expiry(long).connection_wait(long).timeout(long).seed(7);
    let builder = builder.backoff(Nanos::from_millis(1), Nanos::from_millis(20));
    servers.iter().fold(builder, |builder, server| builder.replica(server.address()))
}

fn client(servers: &[&ScriptedServer]) -> Client {
    let client = builder(servers).build().unwrap();
    until("all are connected", || client.connected() == servers.len());
    client
}

/// Welcomes the client, and echoes for as long as the connection lives.
fn echo(mut peer: ServerPeer) {
    if peer.welcome(8, Regime::Credits).is_some() {
        while let Some(call) = peer.call() {
            let payload = call.payload.clone();
            peer.respond(&call, 8, &payload);
        }
    }
}

/// Welcomes the client, and rejects everything.
fn rejecting(reason: RejectCode, retry_after: u32) -> ScriptedServer {
    ScriptedServer::start(move |mut peer| {
        if peer.welcome(8, Regime::Credits).is_some() {
            while let Some(call) = peer.call() {
                peer.reject(&call, 8, reason, retry_after);
            }
        }
    })
}

/// Welcomes the client with this window, and never sends anything again.
fn mute(window: u32) -> ScriptedServer {
    ScriptedServer::start(move |mut peer| {
        peer.welcome(window, Regime::Credits);
        while peer.receive().is_some() {}
    })
}

#[test]
fn without_credit_a_call_expires_and_a_full_queue_ends_the_oldest() {
    let server = mute(0);
    let client = builder(&[&server]).expiry(Nanos::from_millis(5)).queue(2).build().unwrap();
    until("it is connected", || client.connected() == 1);
    match client.call_blocking(ECHO, "x") {
        Err(CallError::Expired { waited }) => assert!(waited >= Nanos::from_millis(5)),
        other => panic!("{other:?}"),
    }
    let client = builder(&[&server]).queue(2).build().unwrap();
    until("it is connected", || client.connected() == 1);
    let mut calls: Vec<_> = (0..3).map(|_| client.call(ECHO, "x")).collect();
    let result = pollster::block_on(calls.remove(0));
    assert!(matches!(result, Err(CallError::QueueFull { .. })), "{result:?}");
    drop(calls);
    until("all have ended", || client.counts().ended() == 3);
}

#[test]
fn calls_beyond_all_queues_are_rejected_at_once() {
    let server = mute(0);
    let limits = [("client_queue", RawParam::Integer(2)), ("max_outstanding", RawParam::Integer(3))];
    let none = leeward_controllers::builtin().find("none").unwrap().clone();
    let params = none.params(&limits).unwrap();
    let client = builder(&[&server]).admission(&none, params).build().unwrap();
    let calls: Vec<_> = (0..100).map(|_| client.call(ECHO, "x")).collect();
    let full = client.counts().queue_full;
    assert!((100 - 7..100).contains(&full), "{full}");
    drop(calls);
    until("all have ended", || client.counts().ended() == 100);
}

#[test]
fn a_time_out_says_whether_the_call_was_sent() {
    let options = CallOptions::new().timeout(Nanos::from_millis(30));
    // A server that never welcomes, and one that never responds.
    let silent = ScriptedServer::start(|mut peer| while peer.receive().is_some() {});
    let unwelcome = builder(&[&silent]).build().unwrap();
    let result = unwelcome.call_blocking_with(ECHO, "x", options);
    assert!(matches!(result, Err(CallError::TimedOut { effect: Effect::Excluded, .. })), "{result:?}");

    let server = mute(1);
    let client = client(&[&server]);
    let first = client.call_with(ECHO, "sent", options);
    let second = client.call_with(ECHO, "waits for credit", options);
    let result = pollster::block_on(first);
    assert!(matches!(result, Err(CallError::TimedOut { effect: Effect::Possible, .. })), "{result:?}");
    let result = pollster::block_on(second);
    assert!(matches!(result, Err(CallError::TimedOut { effect: Effect::Excluded, .. })), "{result:?}");
}

#[test]
fn a_call_without_time_is_never_sent() {
    let server = mute(100);
    let client = client(&[&server]);
    until("it is connected", || client.connected() == 1);
    for _ in 0..20 {
        let result = client.call_blocking_with(ECHO, "x", CallOptions::new().timeout(Nanos::ZERO));
        assert!(matches!(result, Err(CallError::TimedOut { effect: Effect::Excluded, .. })), "{result:?}");
    }
}

#[test]
fn a_call_without_a_server_fails_after_the_connection_wait() {
    let vacant = leeward_testkit::net::vacant_address();
    let client =
        builder(&[]).replica(vacant.to_string()).connection_wait(Nanos::from_millis(50)).queue(3).build().unwrap();
    let mut calls: Vec<_> = (0..4).map(|_| client.call(ECHO, "x")).collect();
    let displaced = pollster::block_on(calls.remove(0));
    assert!(matches!(displaced, Err(CallError::QueueFull { .. })), "{displaced:?}");
    for call in calls {
        match pollster::block_on(call) {
            Err(CallError::Disconnected { effect: Effect::Excluded, reason }) => {
                assert!(reason.contains(&vacant.to_string()), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_connection_without_a_welcome_is_abandoned_for_another_attempt() {
    let server = ScriptedServer::start(|mut peer| {
        if peer.number < 2 {
            while peer.receive().is_some() {}
        } else {
            echo(peer);
        }
    });
    let client = builder(&[&server]).connect_timeout(Nanos::from_millis(20)).build().unwrap();
    assert_eq!(client.call_blocking(ECHO, "at last").unwrap().payload, b"at last");
    assert!(server.accepted() >= 3);
}

#[test]
fn a_server_that_falls_silent_is_given_up() {
    let server = ScriptedServer::start(|mut peer| {
        if peer.number > 0 {
            return echo(peer);
        }
        peer.welcome(8, Regime::Credits);
        let _call = peer.call();
        peer.freeze();
    });
    let client = builder(&[&server]).keep_alive(Nanos::from_millis(10), Nanos::from_millis(500)).build().unwrap();
    match client.call_blocking(ECHO, "x") {
        Err(CallError::Disconnected { effect: Effect::Possible, reason }) => {
            assert!(reason.contains("respond to pings"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(client.call_blocking(ECHO, "y").unwrap().payload, b"y");
}

#[test]
fn an_idle_connection_is_kept_alive() {
    let server = ScriptedServer::start(echo);
    let client = builder(&[&server]).keep_alive(Nanos::from_millis(2), Nanos::from_secs(30)).build().unwrap();
    until("it is connected", || client.connected() == 1);
    // Thirty intervals without a call.
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(client.call_blocking(ECHO, "x").unwrap().payload, b"x");
    assert_eq!(server.accepted(), 1);
}

#[test]
fn a_lost_connection_fails_sent_calls_and_moves_queued_ones() {
    let server = ScriptedServer::start(|mut peer| {
        if peer.number > 0 {
            return echo(peer);
        }
        // Closes the connection on the first call.
        peer.welcome(1, Regime::Credits);
        peer.call();
    });
    let client = client(&[&server]);
    let sent = client.call(ECHO, "sent");
    let waited = client.call(ECHO, "waited");
    let result = pollster::block_on(sent);
    assert!(matches!(result, Err(CallError::Disconnected { effect: Effect::Possible, .. })), "{result:?}");
    assert_eq!(pollster::block_on(waited).unwrap().payload, b"waited");
    assert_eq!(client.counts().connects, 2);
}

#[test]
fn garbage_from_the_server_is_an_error_and_the_next_connection_serves() {
    let stray = |peer: &mut ServerPeer, call: &ReceivedCall| {
        let request = RequestId::new(u64::MAX).unwrap();
        peer.respond(&ReceivedCall { request, ..call.clone() }, 8, b"stray");
    };
    let wrong_clock = |peer: &mut ServerPeer, call: &ReceivedCall| {
        let timestamp = leeward_rpc::wire::Timestamp(1);
        peer.respond(&ReceivedCall { timestamp, ..call.clone() }, 8, b"not my call");
    };
    type Misbehavior = Box<dyn Fn(&mut ServerPeer, &ReceivedCall) + Send + Sync>;
    let misbehaviors: Vec<Misbehavior> = vec![
        Box::new(|peer, _| peer.send_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
        Box::new(|peer, _| peer.send_bytes(&[0; 64])),
        Box::new(stray),
        Box::new(wrong_clock),
        Box::new(|peer, call| {
            peer.respond(call, 8, b"right");
            peer.respond(call, 8, b"twice");
        }),
        // Sends half a frame and closes the connection.
        Box::new(|peer, _| peer.send_bytes(b"LW\x01\x04")),
    ];
    let count = misbehaviors.len();
    let server = ScriptedServer::start(move |mut peer| {
        let Some(misbehave) = misbehaviors.get(peer.number) else { return echo(peer) };
        peer.welcome(8, Regime::Credits);
        let Some(call) = peer.call() else { return };
        misbehave(&mut peer, &call);
        if peer.number < 5 {
            while peer.receive().is_some() {}
        }
    });
    let client = client(&[&server]);
    for number in 0..count {
        match client.call_blocking(ECHO, "x") {
            Err(CallError::Protocol { violation }) if number < 4 => assert!(!violation.is_empty()),
            // The response came before the nonsense.
            Ok(response) if number == 4 => assert_eq!(response.payload, b"right"),
            // The connection may just have ended.
            Err(CallError::Disconnected { effect: Effect::Possible, .. }) if number == 5 => {}
            other => panic!("{number}: {other:?}"),
        }
        until("it is given up and replaced", || client.counts().connects == number as u64 + 2);
    }
    assert_eq!(client.call_blocking(ECHO, "well").unwrap().payload, b"well");
}

#[test]
fn the_servers_final_error_is_the_reason() {
    let server = ScriptedServer::start(|mut peer| {
        peer.welcome(8, Regime::Credits);
        peer.call();
        let (code, message) = (ErrorCode::Internal, Message::new("on fire"));
        peer.send(&Frame::Error(FatalError { code, message }));
    });
    let client = client(&[&server]);
    match client.call_blocking(ECHO, "x") {
        Err(CallError::Disconnected { effect: Effect::Possible, reason }) => {
            assert!(reason.contains("on fire"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rejected_call_is_served_by_the_other_replica() {
    let (full, free) = (rejecting(RejectCode::Delay, 0), ScriptedServer::start(echo));
    let client = builder(&[&full, &free]).retries(1, 100).build().unwrap();
    until("both are connected", || client.connected() == 2);
    for round in 0..50_u8 {
        let response = client.call_blocking(ECHO, [round]).unwrap();
        assert_eq!((response.payload, response.replica), (vec![round], 1));
        assert!(response.retries <= 1);
    }
    let counts = client.counts();
    assert!(counts.retries > 0 && counts.rejected == 0, "{counts:?}");
}

#[test]
fn possibly_executed_and_deferred_calls_are_not_retried() {
    for (reason, retry_after, effect) in [
        (RejectCode::Other, 0, Effect::Possible),
        (RejectCode::Lock, 0, Effect::Possible),
        (RejectCode::Delay, 5_000, Effect::Excluded),
    ] {
        let both = [rejecting(reason, retry_after), rejecting(reason, retry_after)];
        let client = client(&[&both[0], &both[1]]);
        let hint = (retry_after > 0).then_some(Nanos(retry_after.into()));
        match client.call_blocking(ECHO, "x") {
            Err(error @ CallError::Rejected { .. }) => {
                assert!(matches!(&error, CallError::Rejected { reason: why, retry_after, .. }
                    if *why == reason && *retry_after == hint));
                assert_eq!(error.effect(), effect);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(client.counts().retries, 0);
    }
}

#[test]
fn retries_stay_within_their_budget() {
    let all = [rejecting(RejectCode::Delay, 0), rejecting(RejectCode::Delay, 0), rejecting(RejectCode::Delay, 0)];
    let client = builder(&[&all[0], &all[1], &all[2]]).retries(2, 10).build().unwrap();
    until("all are connected", || client.connected() == 3);
    for _ in 0..500 {
        let result = client.call_blocking(ECHO, "x");
        assert!(matches!(result, Err(CallError::Rejected { reason: RejectCode::Delay, .. })), "{result:?}");
    }
    let counts = client.counts();
    assert_eq!((counts.rejected, counts.calls), (500, 500));
    // Ten saved up, and one for each ten calls.
    assert!((40..=60).contains(&counts.retries), "{counts:?}");
}

#[test]
fn a_server_that_is_stopping_is_avoided() {
    let (leaving, staying) = (rejecting(RejectCode::ShuttingDown, 0), ScriptedServer::start(echo));
    let client = builder(&[&leaving, &staying]).retries(1, 100).build().unwrap();
    until("both are connected", || client.connected() == 2);
    for _ in 0..100 {
        assert_eq!(client.call_blocking(ECHO, "x").unwrap().replica, 1);
    }
    assert!(client.counts().retries <= 20, "once it has said so it is asked no more: {:?}", client.counts());
}

#[test]
fn a_dropped_future_frees_its_queue_slot_and_is_never_sent() {
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    let (resume, resumed) = mpsc::channel::<()>();
    let resumed = Mutex::new(resumed);
    let server = ScriptedServer::start(move |mut peer| {
        peer.welcome(1, Regime::Credits);
        let mut first = true;
        while let Some(call) = peer.call() {
            sender.lock().unwrap().send(String::from_utf8(call.payload.clone()).unwrap()).unwrap();
            if std::mem::take(&mut first) {
                let _ = resumed.lock().unwrap().recv();
            }
            peer.respond(&call, 1, &call.payload);
        }
    });
    let client = builder(&[&server]).queue(1).build().unwrap();
    until("it is connected", || client.connected() == 1);
    let first = client.call(ECHO, "first");
    assert_eq!(receiver.recv().unwrap(), "first");
    let unwanted = client.call(ECHO, "unwanted");
    drop(unwanted);
    let last = client.call(ECHO, "last");
    until("the unwanted one is gone", || client.counts().cancelled == 1);
    // Dropped after it was sent: its response is discarded, and its credit returns with it.
    drop(first);
    until("so is the first", || client.counts().cancelled == 2);
    resume.send(()).unwrap();
    assert_eq!(pollster::block_on(last).unwrap().payload, b"last");
    assert_eq!(receiver.recv().unwrap(), "last");
    assert_eq!((client.counts().queue_full, client.counts().connects), (0, 1));
}

#[test]
fn closing_the_client_deregisters_it() {
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    let server = ScriptedServer::start(move |mut peer| {
        peer.welcome(8, Regime::Credits);
        let mut last = None;
        while let Some(message) = peer.receive() {
            last = Some(message);
        }
        sender.lock().unwrap().send(last).unwrap();
    });
    drop(client(&[&server]));
    assert_eq!(receiver.recv_timeout(Duration::from_secs(60)).unwrap(), Some(ClientMessage::Deregister));
}

/// A server that treats each connection and call in a random way, drawn from a seed.
fn erratic(mut peer: ServerPeer, seed: u64) {
    let mut random = Xorshift(seed ^ (peer.number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    match random.below(12) {
        // Never welcomes, or wrongly.
        0 => return,
        1 => return peer.send_bytes(b"no"),
        2 => return while peer.receive().is_some() {},
        _ => {}
    }
    if peer.welcome(1 + random.below(8) as u32, Regime::Credits).is_none() {
        return;
    }
    let mut owed = Vec::new();
    while let Some(call) = peer.call() {
        owed.push(call);
        let window = 1 + random.below(8) as u32;
        match random.below(100) {
            0 => return,
            1 => return peer.send_bytes(&[random.below(256) as u8; 70]),
            // Forgets a call.
            2..5 => drop(owed.pop()),
            // Responds later, in another order.
            5..20 => continue,
            _ => {}
        }
        while !owed.is_empty() {
            let call = owed.swap_remove(random.below(owed.len() as u64) as usize);
            match random.below(10) {
                0 => peer.reject(&call, window, RejectCode::Delay, 0),
                1 => peer.reject(&call, window, RejectCode::Other, 0),
                2 => peer.fail(&call, window, "a mood"),
                _ => peer.respond(&call, window, &call.payload),
            }
        }
    }
}

struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, count: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % count
    }
}

#[test]
fn every_call_ends_once_whatever_the_servers_do() {
    for seed in [0x5eed_0001, 0x5eed_0002, 0x5eed_0003] {
        let servers: Vec<ScriptedServer> =
            (0..3_u64).map(|which| ScriptedServer::start(move |peer| erratic(peer, seed * 10 + which))).collect();
        let servers: Vec<&ScriptedServer> = servers.iter().collect();
        let client = builder(&servers)
            .connections(2)
            .seed(seed)
            .expiry(Nanos::from_millis(20))
            .connection_wait(Nanos::from_millis(50))
            .timeout(Nanos::from_millis(100))
            .connect_timeout(Nanos::from_millis(50))
            .retries(2, 50)
            .build()
            .unwrap();
        let executor = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        let tasks: Vec<_> = (0..24_u64)
            .map(|task| {
                let client = client.clone();
                executor.spawn(async move {
                    let mut random = Xorshift(seed + task * 7 + 1);
                    for turn in 0..40_u32 {
                        let argument = format!("{task}:{turn}:{}", "x".repeat(random.below(3_000) as usize));
                        let call = client.call(ECHO, argument.as_str());
                        if random.below(8) == 0 {
                            // Gives up, at once or after a moment.
                            let _ = tokio::time::timeout(Duration::from_micros(random.below(2_000)), call).await;
                        } else if let Ok(response) = call.await {
                            assert_eq!(response.payload, argument.as_bytes(), "another call's answer");
                        }
                    }
                })
            })
            .collect();
        let all = async {
            for task in tasks {
                task.await.unwrap();
            }
        };
        let all = async { tokio::time::timeout(Duration::from_secs(120), all).await };
        executor.block_on(all).unwrap_or_else(|_| panic!("seed {seed:#x}: a call never ends: {:?}", client.counts()));
        until("the books are closed", || client.counts().ended() == client.counts().calls);
        let counts = client.counts();
        assert_eq!(counts.calls, 24 * 40, "seed {seed:#x}");
        assert!(counts.completed > 0 && counts.shut_down == 0, "seed {seed:#x}: {counts:?}");
        assert!(counts.retries <= 10 + counts.calls / 2, "seed {seed:#x}: {counts:?}");
    }
}
