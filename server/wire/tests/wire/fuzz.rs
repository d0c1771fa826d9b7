//! Mutational fuzzing of both decoders. What a client and a server make of the same bytes: server/session/tests.
//!
//! A finding is written to a file, whose name the failure says. Put it into `tests/corpus/` under a name that tells what
//! must become of it (`corpus.rs` says how), and it is replayed for ever.

use crate::mutants::{fuzz_corpus, pieces};
use crate::support::decode_chunks;
use leeward_testkit::random::Random;
use leeward_wire::{PayloadLimit, Side};

/// However a stream is cut, the same comes out; nothing panics or holds more than it may; and what is accepted is
/// canonical (`decode_chunks` checks).
fn decoder(side: Side, random: &mut Random, bytes: &[u8]) {
    let limit = PayloadLimit::new([1024, 1 << 20][random.below(2)]);
    let whole = decode_chunks(bytes, &[], side, limit);
    assert_eq!(decode_chunks(bytes, &pieces(random), side, limit), whole);
    assert!(bytes.starts_with(&whole.frames.concat()));
}

#[test]
fn what_a_server_decodes() {
    fuzz_corpus("decoder", "client", 20_000, |random, bytes| decoder(Side::Client, random, bytes));
}

#[test]
fn what_a_client_decodes() {
    fuzz_corpus("decoder", "server", 20_000, |random, bytes| decoder(Side::Server, random, bytes));
}
