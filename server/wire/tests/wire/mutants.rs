//! Mutants of the corpus (`tests/corpus/`), by seed: damaged, spliced, and cut into pieces.
//! `LEEWARD_FUZZ_ITERATIONS` sets the number of mutants, `LEEWARD_FUZZ_SEED` the seed. Shared with
//! server/session/tests.

use leeward_testkit::fuzz::{self, FuzzSearch};
use leeward_testkit::random::Random;
use leeward_wire::HEADER_LEN;
use std::path::Path;

/// Byte values at which the format's meaning changes.
const BOUNDARY_BYTES: [u8; 9] = [0, 1, 2, 12, 13, 127, 128, 129, 255];

/// A mutant of the corpus.
fn mutate(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..random.below(5) {
        let length = bytes.len();
        let at = random.below(length);
        match random.below(9) {
            0 => {
                // Appends the end of another file to the beginning of this one.
                let other = &corpus[random.below(corpus.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
            }
            1 => bytes.extend_from_slice(&corpus[random.below(corpus.len())]),
            2 => bytes.truncate(at),
            _ if length == 0 => {}
            3 => bytes[at] ^= 1 << random.below(8),
            4 => bytes[at] = random.byte(&BOUNDARY_BYTES),
            5 => {
                // Sets a length: of the first frame, or at the same offset 64, 128 or 192 bytes
                // later.
                let at = 4 + HEADER_LEN * random.below(4);
                let length = [0, 1, 63, 64, 1024, 1025, 1 << 20, (1 << 20) + 1, u32::MAX - 63, u32::MAX]
                    [random.below(10)]
                .to_le_bytes();
                if let Some(field) = bytes.get_mut(at..at + 4) {
                    field.copy_from_slice(&length);
                }
            }
            6 => {
                let count = random.below(80);
                bytes.drain(at..(at + count).min(length));
            }
            7 => {
                let piece: Vec<u8> = (0..random.below(80)).map(|_| random.byte(&BOUNDARY_BYTES)).collect();
                bytes.splice(at..at, piece);
            }
            // Sets a header field.
            _ => {
                let at = random.below(HEADER_LEN);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.byte(&BOUNDARY_BYTES);
                }
            }
        }
    }
    // Long enough for every mutation, short enough to be quick.
    bytes.truncate(8 * 1024);
    bytes
}

pub(crate) fn pieces(random: &mut Random) -> Vec<usize> {
    let most = [1, 8, 70, 5_000][random.below(4)];
    (0..1 + random.below(6)).map(|_| 1 + random.below(most)).collect()
}

/// Runs `check` on mutants of `side`'s frames; a failing mutant is kept in a file.
pub(crate) fn fuzz_corpus(name: &str, side: &str, iterations: u64, check: impl Fn(&mut Random, &[u8])) {
    let corpus = fuzz::corpus(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/corpus"), side, 16);
    let (name, findings) = (format!("{side}-{name}"), Path::new(env!("CARGO_TARGET_TMPDIR")));
    FuzzSearch { name: &name, findings, iterations }.run(|random| mutate(random, &corpus), check);
}
