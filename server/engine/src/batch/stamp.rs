//! The kernel's receive timestamp among the control messages of a read.

use std::time::Duration;

/// Returns the kernel's receive time, if the first control message has it. This crate requests no
/// other message.
pub(super) fn parse(control: &[u64]) -> Option<Duration> {
    // A header (length; level and type in one word), then three times of two words each, the system
    // clock's first.
    let &[length, kind, seconds, nanos, ..] = control else { return None };
    let [level, is] = [kind as u32 as i32, (kind >> 32) as u32 as i32];
    let (level, is) = if cfg!(target_endian = "big") { (is, level) } else { (level, is) };
    let is_stamp = length >= 32 && level == libc::SOL_SOCKET && is == libc::SCM_TIMESTAMPING;
    // Zero: no timestamp was made.
    (is_stamp && (seconds, nanos) != (0, 0) && nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(level: i32, is: i32) -> u64 {
        let (low, high) = if cfg!(target_endian = "big") { (is, level) } else { (level, is) };
        u64::from(low as u32) | u64::from(high as u32) << 32
    }

    #[test]
    fn only_a_timestamp_message_is_parsed_as_one() {
        let stamp = kind(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING);
        assert_eq!(parse(&[64, stamp, 5, 7, 0, 0]), Some(Duration::new(5, 7)));
        for other in [
            &[64, stamp, 0, 0, 0][..],
            &[64, stamp, 5, 1_000_000_000],
            &[16, stamp, 5, 7],
            &[64, kind(libc::SOL_SOCKET, 0), 5, 7],
            &[0; 16],
            &[64, stamp, 5],
        ] {
            assert_eq!(parse(other), None, "{other:?}");
        }
    }
}
