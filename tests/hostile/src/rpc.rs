//! Attacks on Leeward's own protocol.

use crate::connections::{
    ReadBehaviour, connect, connect_and_reset, connect_many, drip as drip_bytes, flood, hold, reset, send_once,
};
use crate::target::Target;
use leeward_core::units::Priority;
use leeward_wire::{
    Budget, Call, CreditId, Demand, Encoder, Frame, Method, Nanos32, PayloadLimit, Ping, Register, RequestId, Timestamp,
};
use std::io::{Read, Write};
use std::time::Duration;

/// Encodes a synthetic request's argument: its service time in nanoseconds.
fn takes(nanos: u64) -> [u8; 8] {
    nanos.to_le_bytes()
}

fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Every frame here is within the payload limit.
    let _ = Encoder::new(PayloadLimit::MAX).append(frame, &mut bytes);
    bytes
}

fn register(demand: u32) -> Vec<u8> {
    bytes(&Frame::Register(Register { timestamp: Timestamp(1), demand, payload_max: PayloadLimit::DEFAULT }))
}

fn ping() -> Vec<u8> {
    bytes(&Frame::Ping(Ping { timestamp: Timestamp(1) }))
}

const ONE: RequestId = RequestId::new(1).expect("not 0");

/// Returns an ordinary call as a template for others.
fn lawful<'a>(request: u64, payload: &'a [u8]) -> Call<'a> {
    Call {
        request: RequestId::new(request).unwrap_or(ONE),
        timestamp: Timestamp(5),
        credit: CreditId::NONE,
        method: Method(0),
        demand: 0,
        budget: Budget::UNLIMITED,
        priority: Priority::from_random(1 << 63),
        payload,
    }
}

fn call(request: u64, demand: u32, payload: &[u8]) -> Vec<u8> {
    bytes(&Frame::Call(Call { demand, ..lawful(request, payload) }))
}

/// Encodes `count` calls with numbers from 1.
fn calls(count: u64, demand: u32, nanos: u64) -> Vec<u8> {
    (1..=count).flat_map(|request| call(request, demand, &takes(nanos))).collect()
}

pub(crate) fn mutated(target: &Target) -> String {
    let mut rng = target.rng();
    let demand = bytes(&Frame::Demand(Demand { demand: 5 }));
    let lawful = [register(1), call(1, 0, &takes(10_000)), ping(), demand].concat();
    let mut rounds = 0;
    while target.is_active() {
        let mut message = lawful.clone();
        for _ in 0..rng.below(4) {
            let at = rng.below(message.len());
            message[at] = rng.below(256) as u8;
        }
        if let Some(mut stream) = connect(target) {
            let _ = stream.write_all(&message);
            rounds += 1;
        }
    }
    format!("{rounds} connections")
}

pub(crate) fn half_frames(target: &Target) -> String {
    let half = [register(1), call(1, 0, &takes(10_000))[..40].to_vec()].concat();
    hold(target, &connect_many(target, 500, &half))
}

pub(crate) fn half_calls(target: &Target) -> String {
    let long = call(1, 0, &vec![0; 1 << 20]);
    send_once(target, 400, &[register(0), long[..1_000_000].to_vec()].concat())
}

pub(crate) fn drip(target: &Target) -> String {
    drip_bytes(target, 200, &[register(1), calls(10, 0, 10_000)].concat())
}

pub(crate) fn registered(target: &Target) -> String {
    hold(target, &connect_many(target, 2_000, &register(0)))
}

pub(crate) fn liars(target: &Target) -> String {
    hold(target, &connect_many(target, 500, &register(u32::MAX)))
}

pub(crate) fn hoarders(target: &Target) -> String {
    // Each session keeps reporting demand, so that it receives all available credit.
    let mut streams = connect_many(target, 100, &register(1_000));
    let again = bytes(&Frame::Demand(Demand { demand: 1_000 }));
    while target.is_active() {
        streams.retain_mut(|stream| stream.write_all(&again).is_ok());
        std::thread::sleep(Duration::from_millis(20));
    }
    format!("{} sessions left", streams.len())
}

pub(crate) fn demands(target: &Target) -> String {
    let demand = bytes(&Frame::Demand(Demand { demand: 1 << 31 }));
    flood(target, 8, &register(0), &demand.repeat(2_000), ReadBehaviour::All)
}

pub(crate) fn pings(target: &Target) -> String {
    flood(target, 8, &register(0), &ping().repeat(2_000), ReadBehaviour::All)
}

pub(crate) fn pings_one(target: &Target) -> String {
    flood(target, 1, &register(0), &ping().repeat(2_000), ReadBehaviour::All)
}

pub(crate) fn pings_singly(target: &Target) -> String {
    flood(target, 50, &register(0), &ping(), ReadBehaviour::All)
}

pub(crate) fn pings_unread(target: &Target) -> String {
    flood(target, 50, &register(0), &ping().repeat(2_000), ReadBehaviour::Nothing)
}

pub(crate) fn statistics(target: &Target) -> String {
    let query = |request| bytes(&Frame::Call(Call { method: Method::STATISTICS, ..lawful(request, &[]) }));
    let queries: Vec<u8> = (1..=1_000).flat_map(query).collect();
    flood(target, 8, &register(0), &queries, ReadBehaviour::All)
}

pub(crate) fn flood_calls(target: &Target) -> String {
    flood(target, 16, &register(1_000), &calls(500, 1 << 20, 100_000), ReadBehaviour::All)
}

pub(crate) fn unread(target: &Target) -> String {
    let mut payload = target.rng().bytes(200_000);
    payload[..8].copy_from_slice(&takes(1_000));
    flood(target, 100, &register(100), &call(1, 0, &payload), ReadBehaviour::Nothing)
}

pub(crate) fn storm(target: &Target) -> String {
    connect_and_reset(target, b"")
}

pub(crate) fn storm_calls(target: &Target) -> String {
    connect_and_reset(target, &[register(1 << 31), call(1, 0, &takes(10_000))].concat())
}

pub(crate) fn churn(target: &Target) -> String {
    // At least a full window of calls, answered or not.
    let message = [register(1_000), calls(64, 1_000, 20_000)].concat();
    let mut rounds = 0;
    while target.is_active() {
        let streams = connect_many(target, 16, &message);
        rounds += streams.len();
        std::thread::sleep(Duration::from_millis(1));
        streams.into_iter().for_each(reset);
    }
    format!("{rounds} sessions")
}

/// Runs sessions with one call in flight each; `make` builds the call with a given number.
fn in_turns(target: &Target, sessions: usize, make: impl Fn(u64) -> Vec<u8> + Copy + Send + 'static) -> String {
    let run_session = move |target: Target| {
        let mut answers = 0;
        while target.is_active() {
            let Some(mut stream) = connect(&target) else { continue };
            let mut number = 0;
            let mut result = stream.write_all(&register(10));
            while result.is_ok() && target.is_active() {
                number += 1;
                result = stream.write_all(&make(number)).and_then(|()| answer(&mut stream));
                answers += u64::from(result.is_ok());
            }
        }
        answers
    };
    let threads: Vec<_> = (0..sessions)
        .map(|at| Target::new(target.address, target.until, at as u64))
        .map(|target| std::thread::spawn(move || run_session(target)))
        .collect();
    let answers: u64 = threads.into_iter().filter_map(|thread| thread.join().ok()).sum();
    format!("{answers} answers")
}

/// Reads frames up to the answer to a call.
fn answer(stream: &mut std::net::TcpStream) -> std::io::Result<()> {
    loop {
        let mut header = [0; 64];
        stream.read_exact(&mut header)?;
        let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        std::io::copy(&mut (&*stream).take(length.into()), &mut std::io::sink())?;
        // Response, rejection or failure (docs/protocol.md, "Frames").
        if matches!(header[3], 4..=6) {
            return Ok(());
        }
    }
}

pub(crate) fn big(target: &Target) -> String {
    in_turns(target, 8, |number| call(number, 10, &vec![0; 1 << 20]))
}

pub(crate) fn priorities(target: &Target) -> String {
    in_turns(target, 8, |number| {
        bytes(&Frame::Call(Call { priority: Priority::HIGHEST, demand: u32::MAX, ..lawful(number, &takes(50_000)) }))
    })
}

pub(crate) fn same_ids(target: &Target) -> String {
    // A number that is repeated while unanswered is a protocol violation; after a reconnect it is a
    // new request.
    let twice = [register(10), call(7, 1, &takes(100_000)), call(7, 1, &takes(100_000))].concat();
    let once = [register(10), call(7, 1, &takes(100_000))].concat();
    let mut rounds = 0;
    while target.is_active() {
        rounds += connect_many(target, 4, &once).len();
        let offenders = connect_many(target, 4, &twice);
        rounds += offenders.len();
        std::thread::sleep(Duration::from_millis(1));
        offenders.into_iter().for_each(reset);
    }
    format!("{rounds} sessions")
}

pub(crate) fn clocks(target: &Target) -> String {
    in_turns(target, 8, |number| {
        let timestamp = Timestamp([0, 1, u64::MAX, number << 60][(number % 4) as usize]);
        let budget = Budget::of(Nanos32([0, 1, u32::MAX, 80_000][(number % 4) as usize]).nanos());
        bytes(&Frame::Call(Call { timestamp, budget, ..lawful(number, &takes(10_000)) }))
    })
}
