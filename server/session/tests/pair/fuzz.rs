//! Mutational fuzzing of both ends: the client with mutated server frames, and the server with
//! mutated client frames. Mutants and corpus are those of the wire format's tests.

use crate::mutants::{fuzz_corpus, pieces};
use crate::support::{PairExt, encode_version, fragmenting_wire, pair};
use leeward_core::registry::Environment;
use leeward_core::server::Feedback;
use leeward_core::units::{Credits, Nanos, Priority, Time};
use leeward_pair::{Pair, PairConfig, echo};
use leeward_session::client::{Connection, ConnectionConfig, Event, Phase, Request};
use leeward_testkit::random::Random;
use leeward_wire::{CreditId, Frame, Method, PayloadLimit, Regime, Register, Timestamp, Version, Welcome};
use std::cell::RefCell;

/// A welcome to a registration at this time, so that the client also handles the frames after it.
fn welcome(registered: Timestamp, version: Version) -> Vec<u8> {
    let feedback = Feedback { window: Credits(1), credit: CreditId(0x29), ..Feedback::NONE };
    let (payload_max, regime) = (PayloadLimit::DEFAULT, Regime::Credits);
    encode_version(version, &Frame::Welcome(Welcome { timestamp: registered, feedback, payload_max, regime }))
}

/// Checks that each request has one end and that the client's output is bounded.
fn client(random: &mut Random, bytes: &[u8]) {
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find("breakwater").unwrap();
    let environment = Environment::new(1, Nanos(10_000), Nanos(200_000));
    let parts = (algorithm.build_client)(&algorithm.params(&[]).unwrap(), &environment).unwrap();
    let version = Version::ALL[random.below(2)];
    let mut connection = Connection::new(parts, ConnectionConfig { version, ..ConnectionConfig::default() });
    let mut ends = [0_u32; 8];
    let now = Time(0x0102_0304_0506_0708);
    let mut submitted = 0;
    let mut submit = |connection: &mut Connection<usize>, ends: &mut [u32; 8]| {
        if submitted < ends.len() {
            let request = Request { method: Method(1), payload: b"x", priority: Priority::HIGHEST, random: 0 };
            connection.submit(now, submitted, &request, &mut |event: Event<'_, usize>| ends[*event.token()] += 1);
            submitted += 1;
        }
    };
    submit(&mut connection, &mut ends);
    let _ = connection.output(now);
    let mut all = if random.below(4) > 0 { welcome(Timestamp(now.0), version) } else { Vec::new() };
    // Turns the mutant into an answer to the first call; the corpus answers call 7.
    let mut targeted = bytes.to_vec();
    if random.below(2) == 0 && targeted.len() >= 16 {
        targeted[8..16].copy_from_slice(&1_u64.to_le_bytes());
    }
    all.extend(targeted);
    let pieces = pieces(random);
    let mut rest = &all[..];
    for piece in pieces.iter().cycle() {
        let spare = connection.spare();
        let count = (*piece).min(rest.len()).min(spare.len());
        if count == 0 {
            break;
        }
        spare[..count].copy_from_slice(&rest[..count]);
        rest = &rest[count..];
        let _ = connection.on_received(now, count, &mut |event| ends[*event.token()] += 1);
        submit(&mut connection, &mut ends);
        assert!(connection.output(now).len() < 512 * 1024);
    }
    while submitted_less_than(&ends, submitted) && connection.phase() != Phase::Closed {
        let _ = connection.on_eof(now, &mut |event| ends[*event.token()] += 1);
    }
    assert!(ends[..submitted].iter().all(|end| *end == 1), "{ends:?}");
}

fn submitted_less_than(ends: &[u32; 8], submitted: usize) -> bool {
    ends[..submitted].contains(&0)
}

#[test]
fn fuzz_client_with_mutated_frames() {
    fuzz_corpus("client", "server", 10_000, client);
}

/// Checks that the server sends only valid frames (by the conservation checks), ends the connection
/// of every such client, and still serves others.
fn server(pair: &mut Pair, random: &mut Random, mutant: &[u8]) {
    let client = pair.connect_raw();
    if random.below(4) > 0 {
        let register = Register { timestamp: Timestamp(1), demand: 3, payload_max: PayloadLimit::DEFAULT };
        pair.send_bytes(client, &encode_version(Version::ALL[random.below(2)], &Frame::Register(register)));
    }
    let mut rest = mutant;
    for piece in pieces(random).iter().cycle() {
        let (chunk, others) = rest.split_at((*piece).max(rest.len() / 20).min(rest.len()));
        if chunk.is_empty() {
            break;
        }
        pair.send_bytes(client, chunk);
        pair.run_for(Nanos(random.below(20_000) as u64));
        rest = others;
    }
    pair.close(client);
    while pair.receive(client).is_some() {}
}

#[test]
fn fuzz_server_with_mutated_frames() {
    for controller in ["breakwater", "none", "dagor"] {
        let config = PairConfig { wire: fragmenting_wire(), ..PairConfig::default() };
        let pair = RefCell::new(pair(controller, config, echo(Nanos::from_micros(10))));
        fuzz_corpus(&format!("server-{controller}"), "client", 1_500, |random, mutant| {
            server(&mut pair.borrow_mut(), random, mutant);
        });
        let mut pair = pair.into_inner();
        pair.assert_settled();
        pair.assert_serving();
    }
}
