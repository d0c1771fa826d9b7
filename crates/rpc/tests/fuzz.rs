//! Mutational fuzzing of everything that reads bytes from outside: both decoders, the client's state machine, and a
//! server behind real sockets. It begins with the kept corpus (`tests/corpus/`), damages and splices it, and cuts it into
//! pieces; by seed, so every run does the same. `LEEWARD_FUZZ_ITERATIONS` makes it longer, `LEEWARD_FUZZ_SEED` different.
//!
//! A finding is written to a file, whose name the failure says. Put it into `tests/corpus/` under a name that tells what
//! must become of it (`corpus.rs` says how), and it is replayed for ever.

mod peer;
mod support;

use leeward_control::registry::{Environment, Registry};
use leeward_control::units::{Nanos, Priority, Time};
use leeward_rpc::client::{Connection, ConnectionConfig, Event, Phase, Request};
use leeward_rpc::wire::{Decoder, Frame, HEADER_LEN, Kind, Method, PayloadLimit, Register, Side, Timestamp, Welcome};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use support::{encoded, examples, fed};

/// A stream of random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % below.max(1)
    }

    fn byte(&mut self) -> u8 {
        // The values at which something changes are likelier than chance.
        const EDGES: [u8; 9] = [0, 1, 2, 12, 13, 127, 128, 129, 255];
        if self.below(2) == 0 { EDGES[self.below(EDGES.len())] } else { self.below(256) as u8 }
    }
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Bytes of `side` in the kept corpus, in the order of the names.
fn corpus(side: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with(side));
    paths.sort();
    assert!(paths.len() > 15);
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Something near to what is known.
fn mutated(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..random.below(5) {
        let length = bytes.len();
        let at = random.below(length);
        match random.below(9) {
            0 => {
                // The other's end behind this one's beginning.
                let other = &corpus[random.below(corpus.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
            }
            1 => bytes.extend_from_slice(&corpus[random.below(corpus.len())]),
            2 => bytes.truncate(at),
            _ if length == 0 => {}
            3 => bytes[at] ^= 1 << random.below(8),
            4 => bytes[at] = random.byte(),
            5 => {
                // A length, of the first frame or of whatever lies 64 bytes further.
                let at = 4 + HEADER_LEN * random.below(4);
                let length = [0, 1, 63, 64, 1024, 1025, 1 << 20, (1 << 20) + 1, u32::MAX - 63, u32::MAX]
                    [random.below(10)]
                .to_le_bytes();
                if let Some(place) = bytes.get_mut(at..at + 4) {
                    place.copy_from_slice(&length);
                }
            }
            6 => {
                let count = random.below(80);
                bytes.drain(at..(at + count).min(length));
            }
            7 => {
                let piece: Vec<u8> = (0..random.below(80)).map(|_| random.byte()).collect();
                bytes.splice(at..at, piece);
            }
            // A field of a header.
            _ => {
                let at = random.below(HEADER_LEN);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.byte();
                }
            }
        }
    }
    // Long enough for every way, short enough to be quick.
    bytes.truncate(8 * 1024);
    bytes
}

fn pieces(random: &mut Random) -> Vec<usize> {
    let most = [1, 8, 70, 5_000][random.below(4)];
    (0..1 + random.below(6)).map(|_| 1 + random.below(most)).collect()
}

/// Does `check` to mutants of what `side` says; one that makes it fail is kept in a file.
fn hunt(name: &str, side: &str, iterations: u64, check: impl Fn(&mut Random, &[u8])) {
    let corpus = corpus(side);
    let seed = number("LEEWARD_FUZZ_SEED", 1);
    let times = number("LEEWARD_FUZZ_ITERATIONS", iterations);
    for iteration in 0..times {
        // Each has a seed of its own, so that a failure is found again without what came before it.
        let mut random = Random((seed << 40 | iteration).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let bytes = mutated(&mut random, &corpus);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(&mut random, &bytes))) {
            let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{side}-{name}-{seed}-{iteration}.bin"));
            fs::write(&path, &bytes).unwrap();
            eprintln!("found at iteration {iteration} of seed {seed}: {}", path.display());
            std::panic::resume_unwind(panic);
        }
    }
}

/// However a stream is cut, the same comes out; nothing panics or holds more than it may; and what is accepted is
/// canonical (`fed` checks).
fn decoder(side: Side, random: &mut Random, bytes: &[u8]) {
    let limit = PayloadLimit::new([1024, 1 << 20][random.below(2)]);
    let whole = fed(bytes, &[], side, limit);
    assert_eq!(fed(bytes, &pieces(random), side, limit), whole);
    assert!(bytes.starts_with(&whole.frames.concat()));
}

#[test]
fn what_a_server_decodes() {
    hunt("decoder", "client", 20_000, |random, bytes| decoder(Side::Client, random, bytes));
}

#[test]
fn what_a_client_decodes() {
    hunt("decoder", "server", 20_000, |random, bytes| decoder(Side::Server, random, bytes));
}

/// A welcome that our own registration gets, so that what comes after it is looked at too.
fn welcome(registered: Timestamp) -> Vec<u8> {
    let example = examples().into_iter().find(|(_, frame)| frame.kind() == Kind::Welcome).unwrap().1;
    let Frame::Welcome(example) = example else { unreachable!() };
    encoded(&Frame::Welcome(Welcome { timestamp: registered, ..example }))
}

/// Each request has one end, whatever the server says, and what the client holds is bounded.
fn client(random: &mut Random, bytes: &[u8]) {
    let registry = Registry::builtin();
    let algorithm = registry.find("breakwater").unwrap();
    let environment = Environment::new(1, Nanos(10_000), Nanos(200_000));
    let parts = (algorithm.build_client)(&algorithm.params(&[]).unwrap(), &environment).unwrap();
    let mut connection = Connection::new(parts, ConnectionConfig::default());
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
    let mut all = if random.below(4) > 0 { welcome(Timestamp(now.0)) } else { Vec::new() };
    // An answer to our first call, as the corpus has one to call 7.
    let mut aimed = bytes.to_vec();
    if random.below(2) == 0 && aimed.len() >= 16 {
        aimed[8..16].copy_from_slice(&1_u64.to_le_bytes());
    }
    all.extend(aimed);
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
        let _ = connection.received(now, count, &mut |event| ends[*event.token()] += 1);
        submit(&mut connection, &mut ends);
        assert!(connection.output(now).len() < 512 * 1024);
    }
    while submitted_less_than(&ends, submitted) && connection.phase() != Phase::Closed {
        let _ = connection.ended(now, &mut |event| ends[*event.token()] += 1);
    }
    assert!(ends[..submitted].iter().all(|end| *end == 1), "{ends:?}");
}

fn submitted_less_than(ends: &[u32; 8], submitted: usize) -> bool {
    ends[..submitted].contains(&0)
}

#[test]
fn what_a_client_makes_of_it() {
    hunt("client", "server", 10_000, client);
}

/// A server behind sockets: it says only what the protocol allows, comes to an end with every such peer, and serves on.
#[test]
fn what_a_server_makes_of_it() {
    for (controller, iterations) in [("breakwater", 1_000), ("none", 500)] {
        let server = peer::start(controller, 2);
        hunt(&format!("server-{controller}"), "client", iterations, |random, bytes| {
            let mut stream = peer::Peer::connect(&server).stream;
            if random.below(4) > 0 {
                let register = Register { timestamp: Timestamp(1), demand: 3, payload_max: PayloadLimit::DEFAULT };
                let _ = stream.write_all(&encoded(&Frame::Register(register)));
            }
            // It may have been sent away already: what it was told can still be read.
            let pieces = pieces(random);
            let mut rest = bytes;
            for piece in pieces.iter().cycle() {
                let count = (*piece).max(rest.len() / 20).min(rest.len());
                if count == 0 || stream.write_all(&rest[..count]).is_err() {
                    break;
                }
                rest = &rest[count..];
            }
            let _ = stream.shutdown(Shutdown::Write);
            let mut decoder = Decoder::new(Side::Server, PayloadLimit::DEFAULT);
            let mut first = true;
            loop {
                match stream.read(decoder.spare()) {
                    Ok(0) => break,
                    Ok(count) => decoder.filled(count),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => {
                        // Sent away with bytes that were not read. Silence would be a defect.
                        assert_ne!(error.kind(), ErrorKind::WouldBlock, "no end after 20 s");
                        break;
                    }
                }
                while let Some(frame) = decoder.next_frame().expect("a server speaks the protocol") {
                    let kind = frame.kind();
                    assert!(kind == Kind::Error || (kind == Kind::Welcome) == first, "{kind}");
                    first = false;
                }
            }
        });
        peer::is_settled(&server);
        peer::is_well(&server);
        server.stop().unwrap();
    }
}
