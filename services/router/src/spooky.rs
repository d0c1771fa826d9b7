//! SpookyHash V2 by Bob Jenkins (public domain), with a 32-bit result.
//!
//! µSuite's Router spreads keys over leaves by this hash. Does not contain the mapping to leaves.

/// The author's `sc_const`: odd, and with a good mix of bits.
const SALT: u64 = 0xdead_beef_dead_beef;
/// Words of the long hash's state.
const WORDS: usize = 12;
/// Bytes per step of the long hash.
const BLOCK: usize = WORDS * 8;
/// Length in bytes from which the long hash is used; shorter messages have their own hash.
const LONG: usize = 2 * BLOCK;

/// Returns the 32-bit hash of `message` under `seed`.
///
/// ```
/// assert_eq!(leeward_router::spooky::hash32(b"user1234", 0), 1_804_262_412);
/// ```
pub fn hash32(message: &[u8], seed: u32) -> u32 {
    let seed = u64::from(seed);
    (if message.len() < LONG { short(message, seed) } else { long(message, seed) }) as u32
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

/// Combines up to eight bytes, the first the least significant.
fn part(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn short(message: &[u8], seed: u64) -> u64 {
    let mut state = [seed, seed, SALT, SALT];
    let (pairs, rest) = message.as_chunks::<32>();
    for pair in pairs {
        state[2] = state[2].wrapping_add(word(pair, 0));
        state[3] = state[3].wrapping_add(word(pair, 8));
        short_mix(&mut state);
        state[0] = state[0].wrapping_add(word(pair, 16));
        state[1] = state[1].wrapping_add(word(pair, 24));
    }
    let mut rest = rest;
    if let Some((half, after)) = rest.split_first_chunk::<16>() {
        state[2] = state[2].wrapping_add(word(half, 0));
        state[3] = state[3].wrapping_add(word(half, 8));
        short_mix(&mut state);
        rest = after;
    }
    state[3] = state[3].wrapping_add((message.len() as u64) << 56);
    let (low, high) = match rest.len() {
        0 => (SALT, SALT),
        // The first eight bytes go to the first word, the others to the second.
        length => (part(&rest[..length.min(8)]), part(&rest[length.min(8)..])),
    };
    state[2] = state[2].wrapping_add(low);
    state[3] = state[3].wrapping_add(high);
    short_end(&mut state);
    state[0]
}

/// Mixes the whole state, so that a bit of any word reaches all words.
fn short_mix(state: &mut [u64; 4]) {
    const TURNS: [u32; 12] = [50, 52, 30, 41, 54, 48, 38, 37, 62, 34, 5, 36];
    for (step, turn) in TURNS.into_iter().enumerate() {
        let (here, next, far) = ((step + 2) % 4, (step + 3) % 4, step % 4);
        state[here] = state[here].rotate_left(turn).wrapping_add(state[next]);
        state[far] ^= state[here];
    }
}

fn short_end(state: &mut [u64; 4]) {
    const TURNS: [u32; 11] = [15, 52, 26, 51, 28, 9, 47, 54, 32, 25, 63];
    for (step, turn) in TURNS.into_iter().enumerate() {
        let (before, here) = ((step + 2) % 4, (step + 3) % 4);
        state[here] ^= state[before];
        state[before] = state[before].rotate_left(turn);
        state[here] = state[here].wrapping_add(state[before]);
    }
}

fn long(message: &[u8], seed: u64) -> u64 {
    let mut state = [seed, seed, SALT, seed, seed, SALT, seed, seed, SALT, seed, seed, SALT];
    let (blocks, rest) = message.as_chunks::<BLOCK>();
    for block in blocks {
        long_mix(&mut state, block);
    }
    let mut last = [0; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    // The rest is shorter than a block.
    last[BLOCK - 1] = rest.len() as u8;
    for (at, state) in state.iter_mut().enumerate() {
        *state = state.wrapping_add(word(&last, at * 8));
    }
    for _ in 0..3 {
        long_end(&mut state);
    }
    state[0]
}

fn long_mix(state: &mut [u64; WORDS], block: &[u8; BLOCK]) {
    const TURNS: [u32; WORDS] = [11, 32, 43, 31, 17, 28, 39, 57, 55, 54, 22, 46];
    for (here, turn) in TURNS.into_iter().enumerate() {
        let index = |distance: usize| (here + distance) % WORDS;
        state[here] = state[here].wrapping_add(word(block, here * 8));
        state[index(2)] ^= state[index(10)];
        state[index(11)] ^= state[here];
        state[here] = state[here].rotate_left(turn);
        state[index(11)] = state[index(11)].wrapping_add(state[index(1)]);
    }
}

fn long_end(state: &mut [u64; WORDS]) {
    const TURNS: [u32; WORDS] = [44, 15, 34, 21, 38, 33, 10, 13, 38, 53, 42, 54];
    for (step, turn) in TURNS.into_iter().enumerate() {
        let index = |distance: usize| (step + distance) % WORDS;
        state[index(11)] = state[index(11)].wrapping_add(state[index(1)]);
        state[index(2)] ^= state[index(11)];
        state[index(1)] = state[index(1)].rotate_left(turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference values from the author's C++, through its Python package.
    #[test]
    fn hashes_equal_the_reference_implementation() {
        let lengths = [0, 1, 3, 4, 7, 8, 11, 12, 15, 16, 17, 31, 32, 33, 63, 95, 96, 191, 192, 193, 255, 300, 1000];
        let hashes = [
            1_811_220_761,
            2_308_767_536,
            2_362_120_546,
            1_042_315_657,
            3_199_216_706,
            2_527_315_453,
            3_758_048_342,
            3_372_726_499,
            2_784_230_633,
            2_094_056_685,
            1_564_816_049,
            2_310_614_540,
            1_762_541_812,
            2_887_432_084,
            1_692_344_141,
            1_430_469_021,
            3_786_742_290,
            568_786_948,
            3_249_781_199,
            1_450_488_770,
            354_333_997,
            3_420_436_132,
            413_473_541,
        ];
        let message: Vec<u8> = (0..1000u32).map(|at| (at * 7 + 3) as u8).collect();
        for (length, hash) in lengths.into_iter().zip(hashes) {
            assert_eq!(hash32(&message[..length], 0), hash, "{length} bytes");
        }
    }
}
