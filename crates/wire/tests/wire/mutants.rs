//! Mutants of the kept corpus (`tests/corpus/`), for whoever reads bytes: damaged and spliced, and cut into pieces, by seed.
//! `LEEWARD_FUZZ_ITERATIONS` makes a hunt longer, `LEEWARD_FUZZ_SEED` different. Shared with crates/session/tests.

use leeward_wire::HEADER_LEN;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// A stream of random numbers (xorshift).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn below(&mut self, below: usize) -> usize {
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

#[allow(clippy::disallowed_methods)] // a test's own switch, not configuration
fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Bytes of `side` in the kept corpus, in the order of the names.
fn corpus(side: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/corpus");
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

pub(crate) fn pieces(random: &mut Random) -> Vec<usize> {
    let most = [1, 8, 70, 5_000][random.below(4)];
    (0..1 + random.below(6)).map(|_| 1 + random.below(most)).collect()
}

/// Does `check` to mutants of what `side` says; one that makes it fail is kept in a file.
pub(crate) fn hunt(name: &str, side: &str, iterations: u64, check: impl Fn(&mut Random, &[u8])) {
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
