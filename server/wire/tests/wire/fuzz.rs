//! Mutational fuzzing of both decoders. The reactions of a client and a server to mutants are
//! tested in server/session/tests.
//!
//! A finding is written to a file that the failure names. Moved to `tests/corpus/` under a name
//! with the expected outcome (see `corpus.rs`), it is replayed in every run.

use crate::mutants::{fuzz_corpus, pieces};
use crate::support::decode_chunks;
use leeward_testkit::random::Random;
use leeward_wire::{PayloadLimit, Side};

/// Checks that each split of a stream gives the same frames. `decode_chunks` checks the memory
/// limit and that accepted bytes are canonical.
fn decoder(side: Side, random: &mut Random, bytes: &[u8]) {
    let limit = PayloadLimit::new([1024, 1 << 20][random.below(2)]);
    let whole = decode_chunks(bytes, &[], side, limit);
    assert_eq!(decode_chunks(bytes, &pieces(random), side, limit), whole);
    assert!(bytes.starts_with(&whole.frames.concat()));
}

#[test]
fn fuzz_the_decoder_of_a_server() {
    fuzz_corpus("decoder", "client", 20_000, |random, bytes| decoder(Side::Client, random, bytes));
}

#[test]
fn fuzz_the_decoder_of_a_client() {
    fuzz_corpus("decoder", "server", 20_000, |random, bytes| decoder(Side::Server, random, bytes));
}
