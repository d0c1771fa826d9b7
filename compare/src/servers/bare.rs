//! Messages of the bare echoes: a length of four bytes, little-endian, which includes itself; then
//! any bytes.

use std::time::{Duration, Instant};

/// Bytes of the length field.
pub(crate) const PREFIX: usize = 4;

/// Maximum length of a message; a longer one is an error.
const LONGEST: usize = 1 << 20;

/// Number of bytes at the beginning of `bytes` that are whole messages; `None` if a length is
/// invalid.
pub(crate) fn whole(bytes: &[u8]) -> Option<usize> {
    let mut end = 0;
    while let Some(prefix) = bytes[end..].first_chunk::<PREFIX>() {
        let length = u32::from_le_bytes(*prefix) as usize;
        if !(PREFIX..=LONGEST).contains(&length) {
            return None;
        }
        if bytes.len() - end < length {
            break;
        }
        end += length;
    }
    Some(end)
}

/// Keeps the CPU busy for `work` per message. `messages` must be whole.
pub(crate) fn work_on(messages: &[u8], work: Duration) {
    if work.is_zero() {
        return;
    }
    let (mut rest, mut total) = (messages, Duration::ZERO);
    while let Some(prefix) = rest.first_chunk::<PREFIX>() {
        total += work;
        rest = rest.get(u32::from_le_bytes(*prefix) as usize..).unwrap_or_default();
    }
    spin(total);
}

/// Keeps the CPU busy for `time`.
pub(crate) fn spin(time: Duration) {
    if time.is_zero() {
        return;
    }
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_messages_count() {
        let two = [6, 0, 0, 0, 1, 2].repeat(2);
        let found: Vec<_> = (0..=12).map(|length| whole(&two[..length]).unwrap()).collect();
        assert_eq!(found, [0, 0, 0, 0, 0, 0, 6, 6, 6, 6, 6, 6, 12]);
    }

    #[test]
    fn invalid_lengths_are_rejected() {
        assert_eq!(whole(&[3, 0, 0, 0]), None);
        assert_eq!(whole(&u32::MAX.to_le_bytes()), None);
    }
}
