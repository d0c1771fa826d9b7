//! Mutational fuzzing of all code that parses a memcached client's bytes.
//!
//! It damages, splices and cuts the sessions of the differential test and the stored corpus
//! (`tests/corpus/`), reproducibly by seed. `LEEWARD_FUZZ_ITERATIONS` sets the number of mutants,
//! `LEEWARD_FUZZ_SEED` the seed. A finding is written to a file that the failure names: put it into
//! `tests/corpus/` to replay it in every run.

use crate::support::{Client, serve, store};
use leeward_engine::Input;
use leeward_kv::protocol::{Decoder, DecoderOutput, Executor, LINE_MAX, Request, RequestScope};
use leeward_kv::store::{PAGE, RequestContext, Store, StoreConfig};
use leeward_testkit::fuzz::{self, FuzzSearch};
use leeward_testkit::random::Random;
use std::path::Path;
use std::sync::Arc;

fn corpus() -> Vec<Vec<u8>> {
    let text = include_str!("../sessions.txt");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut all: Vec<Vec<u8>> = lines
        .map(|line| line.replace("\\r", "\r").replace("\\n", "\n").replace("{251}", &"k".repeat(251)).into_bytes())
        .collect();
    all.extend(fuzz::corpus(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus"), "", 4));
    all
}

fn mutated(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..1 + random.below(6) {
        bytes.extend_from_slice(&corpus[random.below(corpus.len())]);
    }
    for _ in 0..random.below(6) {
        let length = bytes.len();
        let at = random.below(length);
        match random.below(7) {
            0 => bytes.truncate(at),
            _ if length == 0 => {}
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = b" \r\n\0-0129Mvkqb\x80\xff"[random.below(16)],
            3 => drop(bytes.drain(at..(at + random.below(40)).min(length))),
            4 => {
                let number = [
                    "-1",
                    "0",
                    "1",
                    "250",
                    "251",
                    "2048",
                    "1048576",
                    "2147483647",
                    "4294967296",
                    "99999999999999999999",
                ];
                bytes.splice(at..at, number[random.below(10)].bytes());
            }
            5 => drop(bytes.splice(at..at, (0..random.below(300)).map(|_| b'x').collect::<Vec<_>>())),
            _ => drop(bytes.splice(at..at, (0..random.below(60)).map(|byte| byte as u8).collect::<Vec<_>>())),
        }
    }
    bytes.truncate(16 * 1024);
    bytes
}

/// Returns a server's answers to these bytes in pieces of these sizes, and whether it would have
/// closed the connection.
fn answered(bytes: &[u8], mut piece: impl FnMut() -> usize) -> (Vec<u8>, bool) {
    let config = StoreConfig { memory: 4 * PAGE, hash_power: 10, ..StoreConfig::default() };
    let store = Arc::new(Store::new(&config).unwrap());
    let executor = Executor::new(Arc::clone(&store), 0);
    let (mut decoder, mut request, mut reply) = (Decoder::new(PAGE), Request::default(), Vec::new());
    let mut rest = bytes;
    while !rest.is_empty() {
        let spare = decoder.spare();
        let count = piece().min(spare.len()).min(rest.len());
        spare[..count].copy_from_slice(&rest[..count]);
        decoder.filled(count);
        rest = &rest[count..];
        loop {
            match decoder.next(&mut request) {
                DecoderOutput::Incomplete => break,
                DecoderOutput::Reply(bytes) => reply.extend_from_slice(bytes),
                DecoderOutput::Close => return (reply, true),
                DecoderOutput::Request if Executor::scope(&request) != RequestScope::Items => {}
                DecoderOutput::Request => {
                    _ = executor.execute(&request, &RequestContext::at(1_700_000_000), &mut reply).unwrap();
                }
            }
        }
        assert!(decoder.buffered() <= LINE_MAX + PAGE + 2 * 16 * 1024, "a buffer that grows");
    }
    let usage = store.usage();
    assert_eq!(usage.items, usage.class_usage.iter().map(|class| class.used).sum::<usize>());
    (reply, false)
}

fn run_fuzz(name: &str, iterations: u64, check: impl Fn(&mut Random, &[u8])) {
    let corpus = corpus();
    let (name, findings) = (format!("kv-{name}"), Path::new(env!("CARGO_TARGET_TMPDIR")));
    FuzzSearch { name: &name, findings, iterations }.run(|random| mutated(random, &corpus), check);
}

#[test]
fn fragmentation_does_not_change_answers() {
    run_fuzz("pieces", 600, |random, bytes| {
        let whole = answered(bytes, || 16 * 1024);
        let most = [1, 3, 40, 700][random.below(4)];
        let pieces = answered(bytes, || 1 + random.below(most));
        assert_eq!(whole.1, pieces.1);
        assert_eq!(String::from_utf8_lossy(&whole.0), String::from_utf8_lossy(&pieces.0));
    });
}

/// A server survives any input, and still answers others.
#[test]
fn a_server_survives_any_input() {
    let server = serve(&store());
    let mut witness = Client::new(server.address());
    run_fuzz("server", 150, |_, bytes| {
        let mut client = Client::new(server.address());
        let _ = std::io::Write::write_all(&mut client.0, bytes);
        let _ = client.0.shutdown(std::net::Shutdown::Write);
        drop(client.rest());
    });
    assert_eq!(witness.ask(b"mn\r\n"), "MN\r\n");
    drop(witness);
    crate::support::until("the end of all connections", || server.counts().connections == 0);
    let counts = server.stop().unwrap();
    assert_eq!(counts.received, counts.completed + counts.rejected + counts.abandoned);
}
