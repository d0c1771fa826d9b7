//! The kernel's receive time of a connection's bytes, and a request's age by it. Does not contain
//! system calls.

use leeward_core::units::Time;
use leeward_runtime::wall;

/// A descriptor of the peer's process (`linux/socket.h`).
const SCM_PIDFD: i32 = 4;

/// When the kernel received a connection's bytes. One for each connection, zero at its beginning;
/// the members are the library's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Stamp {
    /// Receipt of the last byte that was read, in nanoseconds since 1970; 0: unknown.
    pub received_ns: u64,
    /// Time of the last read.
    pub read_ns: u64,
    /// Time at which the socket was empty, or its reader had nothing to do: no byte is older.
    pub since_ns: u64,
    /// Requests that arrived since the last read.
    pub requests: u32,
    /// Requests that arrived between the two reads before.
    pub expected: u32,
    /// 1 if the last read filled its buffer.
    pub filled: u32,
    /// 0.
    pub reserved: u32,
}

/// A control message of the level `SOL_SOCKET`.
struct ControlMessage<'a> {
    kind: i32,
    /// Length of the data in bytes.
    length: usize,
    data: &'a [u64],
}

/// The control messages of `recvmsg` of the level `SOL_SOCKET`.
fn messages(control: &[u64]) -> impl Iterator<Item = ControlMessage<'_>> {
    let mut rest = control;
    std::iter::from_fn(move || {
        // A header is one word with the length in bytes, header included, and one with level and
        // type.
        while let [length, kind, data @ ..] = rest
            && (16..=8 * rest.len() as u64).contains(length)
        {
            rest = rest.get((*length as usize).div_ceil(8)..).unwrap_or_default();
            let bytes = kind.to_ne_bytes();
            let half = |at: usize| i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            if half(0) == libc::SOL_SOCKET {
                return Some(ControlMessage { kind: half(4), length: *length as usize - 16, data });
            }
        }
        None
    })
}

/// Reads the kernel's receive time from the control messages of `recvmsg`, in nanoseconds since the
/// epoch; 0: there is none.
pub(crate) fn parse(control: &[u64]) -> u64 {
    for message in messages(control) {
        let is_stamp = matches!(message.kind, libc::SCM_TIMESTAMPNS | libc::SCM_TIMESTAMPING);
        if let ([seconds, nanos, ..], true, 16..) = (message.data, is_stamp, message.length)
            && *nanos < 1_000_000_000
        {
            return seconds.checked_mul(1_000_000_000).and_then(|sum| sum.checked_add(*nanos)).unwrap_or(0);
        }
    }
    0
}

/// The descriptors that the peer has passed, and that are open in this process now.
pub(crate) fn passed(control: &[u64]) -> impl Iterator<Item = i32> {
    messages(control).filter(|message| matches!(message.kind, libc::SCM_RIGHTS | SCM_PIDFD)).flat_map(|message| {
        let halves = message.data.iter().flat_map(|word| {
            let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
            [i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h])]
        });
        halves.take(message.length / 4)
    })
}

/// Updates a connection's stamp after a read at `now`; times are nanoseconds since the epoch.
///
/// `filled`: the read filled its buffer, so the socket may have more. `awake_since`: the thread has
/// not slept since then. It would have slept no longer if bytes had come earlier.
pub(crate) fn after_read(stamp: &mut Stamp, received_ns: u64, now: u64, filled: bool, awake_since: u64) {
    if stamp.filled == 0 {
        stamp.since_ns = stamp.read_ns.max(awake_since);
    }
    stamp.received_ns = received_ns;
    stamp.read_ns = now;
    // A read may bring a part of a request only.
    if stamp.requests > 0 {
        stamp.expected = stamp.requests;
    }
    (stamp.requests, stamp.filled) = (0, u32::from(filled));
}

/// Whether [`next_request`] will spread requests, so that `awake_since` counts.
pub(crate) fn is_spread(stamp: &Stamp) -> bool {
    stamp.expected.max(stamp.requests) > 1
}

/// Updates a connection's stamp after a read that found the socket empty.
pub(crate) fn after_empty_read(stamp: &mut Stamp, now: u64) {
    (stamp.read_ns, stamp.filled) = (now, 0);
}

/// Receipt of the connection's next request, and counts it.
///
/// The kernel keeps only the newest time of bytes that it holds, which a client that doesn't wait
/// for answers makes too young: the longer the server is away, the more requests one read brings.
/// Of several, the last has that time. The others are taken as spread over the time since the
/// socket was empty, as far as the thread has been awake.
pub(crate) fn next_request(stamp: &mut Stamp) -> u64 {
    stamp.requests = stamp.requests.saturating_add(1);
    let (number, count) = (stamp.requests, stamp.expected.max(stamp.requests));
    let (since, received) = (stamp.since_ns, stamp.received_ns);
    // A wall clock may have been set in between.
    if since == 0 || since >= received {
        return received;
    }
    let part = u128::from(received - since) * u128::from(number) / u128::from(count);
    since + part as u64
}

/// Age of bytes with this stamp, in nanoseconds; `None` without a stamp.
///
/// The wall clock may be set: a stamp of the future has age 0.
#[inline]
pub(crate) fn age(stamp: u64, reading: Time) -> Option<u64> {
    if stamp == 0 { None } else { Some(wall::at(reading)?.saturating_sub(stamp)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_runtime::clock;
    use proptest::prelude::*;

    fn word(low: i32, high: i32) -> u64 {
        let [low, high] = [low.to_ne_bytes(), high.to_ne_bytes()];
        u64::from_ne_bytes([low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]])
    }

    #[test]
    fn a_stamp_is_found_among_other_messages() {
        let stamp = [32, word(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS), 5, 7];
        let three = [28, word(libc::SOL_SOCKET, libc::SCM_RIGHTS), word(3, 4), word(5, -1)];
        assert_eq!(passed(&[three, stamp].concat()).collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!((passed(&stamp).count(), parse(&[three, stamp].concat())), (0, parse(&stamp)));
        let hardware = [64, word(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING), 6, 8, 0, 0, 0, 0];
        let count = [20, word(libc::SOL_SOCKET, libc::SO_RXQ_OVFL), word(9, 0)];
        assert_eq!(parse(&stamp), 5_000_000_007);
        assert_eq!(parse(&hardware), 6_000_000_008);
        assert_eq!(parse(&[&count[..], &stamp[..]].concat()), 5_000_000_007);
        assert_eq!((parse(&stamp[..3]), parse(&count), parse(&[0; 8]), parse(&[])), (0, 0, 0, 0));
        let odd = [32, stamp[1], u64::MAX, 7];
        assert_eq!((parse(&odd), parse(&[32, stamp[1], 5, 1_000_000_000])), (0, 0));
    }

    #[test]
    fn requests_of_one_read_are_spread_over_the_time_since_the_last() {
        let mut stamp = Stamp::default();
        after_read(&mut stamp, 1_000, 1_010, false, 0);
        assert_eq!([next_request(&mut stamp), next_request(&mut stamp)], [1_000, 1_000], "nothing is known yet");
        after_read(&mut stamp, 3_010, 4_000, false, 0);
        // As many as in the read before: two.
        assert_eq!([next_request(&mut stamp), next_request(&mut stamp)], [2_010, 3_010]);
        assert_eq!(next_request(&mut stamp), 3_010, "one more than expected");
        after_read(&mut stamp, 4_300, 5_000, true, 0);
        assert_eq!(next_request(&mut stamp), 4_100);
        after_read(&mut stamp, 4_900, 6_000, false, 0);
        assert_eq!((stamp.since_ns, next_request(&mut stamp)), (4_000, 4_900), "the first read left some");
        after_empty_read(&mut stamp, 7_000);
        after_read(&mut stamp, 7_500, 8_000, false, 0);
        assert_eq!(next_request(&mut stamp), 7_500, "a client that waits for answers has the kernel's time");
    }

    #[test]
    fn a_thread_that_slept_makes_no_request_old() {
        let mut stamp = Stamp::default();
        after_read(&mut stamp, 1_000, 1_010, false, 0);
        for _ in 0..10 {
            next_request(&mut stamp);
        }
        assert!(is_spread(&stamp));
        after_empty_read(&mut stamp, 1_020);
        // Ten seconds later: the thread woke for these bytes.
        after_read(&mut stamp, 10_000_001_000, 10_000_001_100, false, 10_000_001_100);
        assert_eq!(next_request(&mut stamp), 10_000_001_000);
        after_read(&mut stamp, 10_000_003_000, 10_000_003_100, false, 10_000_001_000);
        assert!(!is_spread(&stamp), "one request came in the read before");
        assert_eq!(next_request(&mut stamp), 10_000_003_000);
    }

    #[test]
    fn without_a_stamp_or_after_a_step_of_the_clock_nothing_is_spread() {
        let mut stamp = Stamp { read_ns: 9_000, requests: 4, ..Stamp::default() };
        after_read(&mut stamp, 0, 9_500, false, 0);
        assert_eq!(next_request(&mut stamp), 0);
        after_read(&mut stamp, 2_000, 2_100, false, 0);
        assert_eq!(next_request(&mut stamp), 2_000);
    }

    #[test]
    fn a_changed_clock_gives_no_negative_age() {
        let now = clock::process();
        assert_eq!((age(0, now), age(u64::MAX, now)), (None, Some(0)));
        assert!(age(1, now).is_some_and(|age| age > 1_000_000_000));
    }

    proptest! {
        /// Of any reads and requests, a time is between the last empty socket and the newest byte.
        #[test]
        fn a_request_is_never_older_than_the_empty_socket(steps in prop::collection::vec((0..3_u8, 0..100_u64, any::<bool>()), 0..60)) {
            let (mut stamp, mut now) = (Stamp::default(), 1_000);
            for (kind, passed, filled) in steps {
                now += passed;
                match kind {
                    0 => after_read(&mut stamp, now - passed / 2, now, filled, now - now % 64),
                    1 => after_empty_read(&mut stamp, now),
                    _ => {
                        let (before, at) = (stamp, next_request(&mut stamp));
                        prop_assert!(at <= before.received_ns && at >= before.since_ns.min(before.received_ns));
                    }
                }
            }
        }

        #[test]
        fn any_control_bytes_are_parsed(control in prop::collection::vec(prop_oneof![any::<u64>(), 0..70_u64], 0..12)) {
            let _ = parse(&control);
        }
    }
}
