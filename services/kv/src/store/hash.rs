//! The hash of keys: multiplies and folds eight bytes at a time.
//!
//! A seed prevents clients from targeting one bucket. The hash resists chance and mischief, not
//! cryptanalysis.

const FIRST: u64 = 0x9E37_79B9_7F4A_7C15;
const SECOND: u64 = 0xD6E8_FEB8_6659_FD93;

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Returns 32 well-mixed bits of `key`.
pub(super) fn hash(seed: u64, key: &[u8]) -> u32 {
    let (whole, rest) = key.as_chunks::<8>();
    let mut state = seed ^ FIRST;
    for bytes in whole {
        state = fold(state ^ u64::from_le_bytes(*bytes), SECOND ^ seed.rotate_left(32));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    state = fold(state ^ u64::from_le_bytes(last), FIRST);
    (fold(state ^ key.len() as u64, SECOND) >> 16) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_spread_over_locks_and_buckets() {
        // The low bits select the lock, the others the bucket: 10,240 typical keys over 1,024 slots
        // each.
        for shift in [0, 10, 20] {
            let mut counts = [0u32; 1024];
            for number in 0..10_240 {
                let key = format!("user:{number}");
                counts[(hash(7, key.as_bytes()) >> shift) as usize % 1024] += 1;
            }
            // The mean is ten; a hash that mixes badly has slots with hundreds.
            assert!(counts.iter().all(|count| *count < 40), "{:?}", counts.iter().max());
        }
    }

    #[test]
    fn the_hash_depends_on_every_byte_and_the_seed() {
        let key = *b"0123456789abcdefghi";
        let plain = hash(1, &key);
        for position in 0..key.len() {
            let mut changed = key;
            changed[position] ^= 1;
            assert_ne!(hash(1, &changed), plain);
        }
        assert_ne!(hash(2, &key), plain);
        assert_ne!(hash(1, b"a"), hash(1, b"a\0"));
    }
}
