//! The client against servers that do what they shouldn't: silence, nonsense, hanging up, rejecting. Scripts on real
//! sockets; no time is asserted, waits are long only so that a defect fails instead of hanging.

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

/// A client of Breakwater whose waits are long unless a test shortens them.
fn builder(puppets: &[&ScriptedServer]) -> Builder {
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let long = Nanos::from_secs(60);
    let builder = Client::builder().admission(&breakwater, Params::default()).objective(Nanos(10_000), long);
    let builder = builder.expiry(long).connection_wait(long).timeout(long).seed(7);
    let builder = builder.backoff(Nanos::from_millis(1), Nanos::from_millis(20));
    puppets.iter().fold(builder, |builder, puppet| builder.replica(puppet.address()))
}

fn client(puppets: &[&ScriptedServer]) -> Client {
    let client = builder(puppets).build().unwrap();
    until("all are connected", || client.connected() == puppets.len());
    client
}

/// Welcomes and echoes for as long as the connection lives.
fn echo(mut peer: ServerPeer) {
    if peer.welcome(8, Regime::Credits).is_some() {
        while let Some(call) = peer.call() {
            let payload = call.payload.clone();
            peer.respond(&call, 8, &payload);
        }
    }
}

/// Welcomes and rejects everything.
fn rejecting(reason: RejectCode, retry_after: u32) -> ScriptedServer {
    ScriptedServer::start(move |mut peer| {
        if peer.welcome(8, Regime::Credits).is_some() {
            while let Some(call) = peer.call() {
                peer.reject(&call, 8, reason, retry_after);
            }
        }
    })
}

/// Welcomes with this window and never says anything again.
fn mute(window: u32) -> ScriptedServer {
    ScriptedServer::start(move |mut peer| {
        peer.welcome(window, Regime::Credits);
        while peer.receive().is_some() {}
    })
}

#[test]
fn without_credit_a_call_expires_and_a_full_queue_ends_the_oldest() {
    let puppet = mute(0);
    let client = builder(&[&puppet]).expiry(Nanos::from_millis(5)).queue(2).build().unwrap();
    until("it is connected", || client.connected() == 1);
    match client.call_blocking(ECHO, "x") {
        Err(CallError::Expired { waited }) => assert!(waited >= Nanos::from_millis(5)),
        other => panic!("{other:?}"),
    }
    let client = builder(&[&puppet]).queue(2).build().unwrap();
    until("it is connected", || client.connected() == 1);
    let mut calls: Vec<_> = (0..3).map(|_| client.call(ECHO, "x")).collect();
    let end = pollster::block_on(calls.remove(0));
    assert!(matches!(end, Err(CallError::QueueFull { .. })), "{end:?}");
    drop(calls);
    until("all have ended", || client.counts().ended() == 3);
}

#[test]
fn more_than_all_queues_hold_is_refused_at_once() {
    let puppet = mute(0);
    let limits = [("client_queue", RawParam::Integer(2)), ("max_outstanding", RawParam::Integer(3))];
    let none = leeward_controllers::builtin().find("none").unwrap().clone();
    let params = none.params(&limits).unwrap();
    let client = builder(&[&puppet]).admission(&none, params).build().unwrap();
    let calls: Vec<_> = (0..100).map(|_| client.call(ECHO, "x")).collect();
    let full = client.counts().queue_full;
    assert!((100 - 7..100).contains(&full), "{full}");
    drop(calls);
    until("all have ended", || client.counts().ended() == 100);
}

#[test]
fn a_time_out_says_whether_the_call_was_sent() {
    let options = CallOptions::new().timeout(Nanos::from_millis(30));
    // One that never welcomes, and one that never answers.
    let stone = ScriptedServer::start(|mut peer| while peer.receive().is_some() {});
    let unwelcome = builder(&[&stone]).build().unwrap();
    let end = unwelcome.call_blocking_with(ECHO, "x", options);
    assert!(matches!(end, Err(CallError::TimedOut { effect: Effect::Excluded, .. })), "{end:?}");

    let puppet = mute(1);
    let client = client(&[&puppet]);
    let first = client.call_with(ECHO, "sent", options);
    let second = client.call_with(ECHO, "waits for credit", options);
    let end = pollster::block_on(first);
    assert!(matches!(end, Err(CallError::TimedOut { effect: Effect::Possible, .. })), "{end:?}");
    let end = pollster::block_on(second);
    assert!(matches!(end, Err(CallError::TimedOut { effect: Effect::Excluded, .. })), "{end:?}");
}

#[test]
fn nobody_to_connect_to_ends_a_call_when_patience_does() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client =
        builder(&[]).replica(nobody.to_string()).connection_wait(Nanos::from_millis(50)).queue(3).build().unwrap();
    let mut calls: Vec<_> = (0..4).map(|_| client.call(ECHO, "x")).collect();
    let displaced = pollster::block_on(calls.remove(0));
    assert!(matches!(displaced, Err(CallError::QueueFull { .. })), "{displaced:?}");
    for call in calls {
        match pollster::block_on(call) {
            Err(CallError::Disconnected { effect: Effect::Excluded, reason }) => {
                assert!(reason.contains(&nobody.to_string()), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_server_that_never_welcomes_is_left_for_another_attempt() {
    let puppet = ScriptedServer::start(|mut peer| {
        if peer.number < 2 {
            while peer.receive().is_some() {}
        } else {
            echo(peer);
        }
    });
    let client = builder(&[&puppet]).connect_timeout(Nanos::from_millis(20)).build().unwrap();
    assert_eq!(client.call_blocking(ECHO, "at last").unwrap().payload, b"at last");
    assert!(puppet.accepted() >= 3);
}

#[test]
fn a_server_that_falls_silent_is_given_up() {
    let puppet = ScriptedServer::start(|mut peer| {
        if peer.number > 0 {
            return echo(peer);
        }
        peer.welcome(8, Regime::Credits);
        let _call = peer.call();
        peer.freeze();
    });
    let client = builder(&[&puppet]).keep_alive(Nanos::from_millis(10), Nanos::from_millis(500)).build().unwrap();
    match client.call_blocking(ECHO, "x") {
        Err(CallError::Disconnected { effect: Effect::Possible, reason }) => {
            assert!(reason.contains("sign of life"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(client.call_blocking(ECHO, "y").unwrap().payload, b"y");
}

#[test]
fn an_idle_connection_is_kept_alive() {
    let puppet = ScriptedServer::start(echo);
    let client = builder(&[&puppet]).keep_alive(Nanos::from_millis(2), Nanos::from_secs(30)).build().unwrap();
    until("it is connected", || client.connected() == 1);
    // Thirty intervals without a call.
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(client.call_blocking(ECHO, "x").unwrap().payload, b"x");
    assert_eq!(puppet.accepted(), 1);
}

#[test]
fn a_lost_connection_ends_what_was_sent_and_moves_what_waited() {
    let puppet = ScriptedServer::start(|mut peer| {
        if peer.number > 0 {
            return echo(peer);
        }
        // Hangs up on its first call.
        peer.welcome(1, Regime::Credits);
        peer.call();
    });
    let client = client(&[&puppet]);
    let sent = client.call(ECHO, "sent");
    let waited = client.call(ECHO, "waited");
    let end = pollster::block_on(sent);
    assert!(matches!(end, Err(CallError::Disconnected { effect: Effect::Possible, .. })), "{end:?}");
    assert_eq!(pollster::block_on(waited).unwrap().payload, b"waited");
    assert_eq!(client.counts().connects, 2);
}

#[test]
fn nonsense_from_the_server_is_an_error_and_the_next_connection_serves() {
    let stray = |peer: &mut ServerPeer, call: &ReceivedCall| {
        let request = RequestId::new(u64::MAX).unwrap();
        peer.respond(&ReceivedCall { request, ..call.clone() }, 8, b"stray");
    };
    let wrong_clock = |peer: &mut ServerPeer, call: &ReceivedCall| {
        let timestamp = leeward_rpc::wire::Timestamp(1);
        peer.respond(&ReceivedCall { timestamp, ..call.clone() }, 8, b"not my call");
    };
    type Misbehavior = Box<dyn Fn(&mut ServerPeer, &ReceivedCall) + Send + Sync>;
    let sayings: Vec<Misbehavior> = vec![
        Box::new(|peer, _| peer.send_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
        Box::new(|peer, _| peer.send_bytes(&[0; 64])),
        Box::new(stray),
        Box::new(wrong_clock),
        Box::new(|peer, call| {
            peer.respond(call, 8, b"right");
            peer.respond(call, 8, b"twice");
        }),
        // Begins a frame and hangs up.
        Box::new(|peer, _| peer.send_bytes(b"LW\x01\x04")),
    ];
    let count = sayings.len();
    let puppet = ScriptedServer::start(move |mut peer| {
        let Some(say) = sayings.get(peer.number) else { return echo(peer) };
        peer.welcome(8, Regime::Credits);
        let Some(call) = peer.call() else { return };
        say(&mut peer, &call);
        if peer.number < 5 {
            while peer.receive().is_some() {}
        }
    });
    let client = client(&[&puppet]);
    for number in 0..count {
        match client.call_blocking(ECHO, "x") {
            Err(CallError::Protocol { violation }) if number < 4 => assert!(!violation.is_empty()),
            // It was answered before the nonsense came.
            Ok(response) if number == 4 => assert_eq!(response.payload, b"right"),
            // It may just have died.
            Err(CallError::Disconnected { effect: Effect::Possible, .. }) if number == 5 => {}
            other => panic!("{number}: {other:?}"),
        }
        until("it is given up and replaced", || client.counts().connects == number as u64 + 2);
    }
    assert_eq!(client.call_blocking(ECHO, "well").unwrap().payload, b"well");
}

#[test]
fn the_servers_farewell_is_the_reason() {
    let puppet = ScriptedServer::start(|mut peer| {
        peer.welcome(8, Regime::Credits);
        peer.call();
        let (code, message) = (ErrorCode::Internal, Message::new("on fire"));
        peer.send(&Frame::Error(FatalError { code, message }));
    });
    let client = client(&[&puppet]);
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
    for turn in 0..50_u8 {
        let response = client.call_blocking(ECHO, [turn]).unwrap();
        assert_eq!((response.payload, response.replica), (vec![turn], 1));
        assert!(response.retries <= 1);
    }
    let counts = client.counts();
    assert!(counts.retries > 0 && counts.rejected == 0, "{counts:?}");
}

#[test]
fn what_may_have_begun_and_what_should_wait_is_not_retried() {
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
        let end = client.call_blocking(ECHO, "x");
        assert!(matches!(end, Err(CallError::Rejected { reason: RejectCode::Delay, .. })), "{end:?}");
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
fn a_dropped_future_frees_its_place_and_is_never_sent() {
    let (heard, hears) = mpsc::channel();
    let heard = Mutex::new(heard);
    let (go, goes) = mpsc::channel::<()>();
    let goes = Mutex::new(goes);
    let puppet = ScriptedServer::start(move |mut peer| {
        peer.welcome(1, Regime::Credits);
        let mut first = true;
        while let Some(call) = peer.call() {
            heard.lock().unwrap().send(String::from_utf8(call.payload.clone()).unwrap()).unwrap();
            if std::mem::take(&mut first) {
                let _ = goes.lock().unwrap().recv();
            }
            peer.respond(&call, 1, &call.payload);
        }
    });
    let client = builder(&[&puppet]).queue(1).build().unwrap();
    until("it is connected", || client.connected() == 1);
    let first = client.call(ECHO, "first");
    assert_eq!(hears.recv().unwrap(), "first");
    let unwanted = client.call(ECHO, "unwanted");
    drop(unwanted);
    let last = client.call(ECHO, "last");
    until("the unwanted one is gone", || client.counts().cancelled == 1);
    // Dropped when it has been sent: its answer is discarded, its credit comes back with it.
    drop(first);
    until("so is the first", || client.counts().cancelled == 2);
    go.send(()).unwrap();
    assert_eq!(pollster::block_on(last).unwrap().payload, b"last");
    assert_eq!(hears.recv().unwrap(), "last");
    assert_eq!((client.counts().queue_full, client.counts().connects), (0, 1));
}

#[test]
fn the_end_says_goodbye() {
    let (heard, hears) = mpsc::channel();
    let heard = Mutex::new(heard);
    let puppet = ScriptedServer::start(move |mut peer| {
        peer.welcome(8, Regime::Credits);
        let mut last = None;
        while let Some(said) = peer.receive() {
            last = Some(said);
        }
        heard.lock().unwrap().send(last).unwrap();
    });
    drop(client(&[&puppet]));
    assert_eq!(hears.recv_timeout(Duration::from_secs(60)).unwrap(), Some(ClientMessage::Deregister));
}

/// A server of moods: each call meets one, drawn from a seed.
fn moody(mut peer: ServerPeer, seed: u64) {
    let mut random = Xorshift(seed ^ (peer.number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    match random.below(12) {
        // Never welcomes, or not as it should.
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
            // Forgets it.
            2..5 => drop(owed.pop()),
            // Answers later, in another order.
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
        let puppets: Vec<ScriptedServer> =
            (0..3_u64).map(|which| ScriptedServer::start(move |peer| moody(peer, seed * 10 + which))).collect();
        let puppets: Vec<&ScriptedServer> = puppets.iter().collect();
        let client = builder(&puppets)
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
