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
    /// Bytes that were read for them; 0: unknown.
    pub bytes: u32,
    /// Bytes of a request, as learnt; 0: unknown.
    pub size: u32,
    /// Not 0 if the last read filled its buffer; 2 if `received_ns` is then estimated by what it
    /// left in the socket.
    pub filled: u16,
    /// Not 0 if a read has brought several requests lately.
    pub pipelines: u16,
}

/// Reads with one request after which a connection no longer counts as one that pipelines.
const MEMORY: u16 = 1_024;

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

/// A read that brought bytes; times are nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Read {
    pub(crate) received_ns: u64,
    pub(crate) now: u64,
    /// Number of bytes; 0: unknown.
    pub(crate) bytes: usize,
    /// The read filled its buffer, so the socket may have more.
    pub(crate) filled: bool,
    /// Bytes that it has left in the socket, if that is known.
    pub(crate) left: Option<u64>,
    /// The thread would have read earlier bytes before ([`crate::thread::not_before`]).
    pub(crate) not_before: u64,
}

/// Updates a connection's stamp after a read.
///
/// What a read leaves in the socket may have the newest byte, whose time the kernel gives to all.
/// The read's own last byte is then as much earlier as its share of the bytes tells.
pub(crate) fn after_read(stamp: &mut Stamp, read: &Read) {
    match stamp.filled {
        0 => stamp.since_ns = stamp.read_ns.max(read.not_before),
        ESTIMATED => stamp.since_ns = stamp.received_ns,
        _ => {}
    }
    settle(stamp);
    stamp.bytes = stamp.bytes.saturating_add(u32::try_from(read.bytes).unwrap_or(u32::MAX));
    let has_left = read.filled && read.left != Some(0);
    (stamp.received_ns, stamp.read_ns, stamp.filled) = (read.received_ns, read.now, u16::from(has_left));
    if let (true, Some(left), 1..) = (has_left, read.left, read.received_ns) {
        let bytes = read.bytes as u64;
        stamp.received_ns = between(stamp.since_ns, read.received_ns, bytes, bytes.saturating_add(left));
        stamp.filled = ESTIMATED;
    }
}

/// Value of [`Stamp::filled`] where the time of the read's last byte is estimated.
const ESTIMATED: u16 = 2;

/// Time at `part` of `whole` between `since` and `received`. `received`, if `since` is unknown or a
/// wall clock was set in between.
fn between(since: u64, received: u64, part: u64, whole: u64) -> u64 {
    if since == 0 || since >= received || whole == 0 {
        return received;
    }
    since + (u128::from(received - since) * u128::from(part.min(whole)) / u128::from(whole)) as u64
}

/// Learns the size of a request from those of the last read, and returns it. In doubt it is too
/// small: more requests are then expected in a read, and each looks older, never younger.
pub(crate) fn settle(stamp: &mut Stamp) -> Option<u32> {
    // A read may bring a part of a request only, whose bytes count for it.
    let size = stamp.bytes.checked_div(stamp.requests)?;
    stamp.pipelines = if stamp.requests > 1 { MEMORY } else { stamp.pipelines.saturating_sub(1) };
    stamp.size = match stamp.size {
        0 => size,
        // A client that waits for answers sends one request, of whatever size.
        known if stamp.pipelines == 0 => known.max(size),
        known => smaller(known, size),
    };
    (stamp.requests, stamp.bytes) = (0, 0);
    Some(size)
}

/// The smaller size at once, and slowly a larger one.
pub(crate) fn smaller(known: u32, size: u32) -> u32 {
    if size > known { known + (size - known).div_ceil(8) } else { size }
}

/// Requests that the last read has brought, as far as their size tells.
fn expected(stamp: &Stamp) -> u32 {
    stamp.bytes.checked_div(stamp.size).unwrap_or(0).max(stamp.requests)
}

/// Whether [`next_request`] may spread the requests of a read of so many bytes, so that sleeps
/// count. The stamp is settled.
pub(crate) fn is_spread(stamp: &Stamp, bytes: usize) -> bool {
    let bytes = bytes.saturating_add(stamp.bytes as usize);
    stamp.pipelines > 0 || bytes.checked_div(stamp.size as usize).is_some_and(|count| count > 1)
}

/// Updates a connection's stamp after a read that found the socket empty.
pub(crate) fn after_empty_read(stamp: &mut Stamp, now: u64) {
    (stamp.read_ns, stamp.filled) = (now, 0);
}

/// Receipt of the connection's next request, and counts it. `unparsed`: bytes that were read and
/// follow the request, if the program tells.
///
/// The kernel keeps only the newest time of bytes that it holds, which a client that doesn't wait
/// for answers makes too young: the longer the server is away, the more requests one read brings.
/// Of several, the last has that time. The others are taken as spread over the time since the
/// socket was empty, as far as the thread has been awake. Where nothing tells how many there are,
/// each may be the oldest.
pub(crate) fn next_request(stamp: &mut Stamp, unparsed: Option<u32>) -> u64 {
    stamp.requests = stamp.requests.saturating_add(1);
    let (since, received) = (stamp.since_ns, stamp.received_ns);
    if let (Some(unparsed), 1..) = (unparsed, stamp.bytes) {
        if unparsed > 0 {
            stamp.pipelines = MEMORY;
        }
        let bytes = u64::from(stamp.bytes);
        return between(since, received, bytes.saturating_sub(u64::from(unparsed)), bytes);
    }
    if stamp.bytes == 0 && stamp.pipelines > 0 {
        return between(since, received, 0, 1);
    }
    between(since, received, u64::from(stamp.requests), u64::from(expected(stamp)))
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

    fn read(stamp: &mut Stamp, received_ns: u64, now: u64, bytes: usize) {
        after_read(stamp, &Read { received_ns, now, bytes, ..Read::default() });
    }

    #[test]
    fn requests_of_one_read_are_spread_over_the_time_since_the_last() {
        let mut stamp = Stamp::default();
        read(&mut stamp, 1_000, 1_010, 20);
        assert_eq!(
            [next_request(&mut stamp, None), next_request(&mut stamp, None)],
            [1_000, 1_000],
            "nothing is known yet"
        );
        read(&mut stamp, 3_010, 4_000, 20);
        assert_eq!([next_request(&mut stamp, None), next_request(&mut stamp, None)], [2_010, 3_010]);
        assert_eq!(next_request(&mut stamp, None), 3_010, "one more than expected");
        let filling = Read { received_ns: 4_300, now: 5_000, bytes: 18, filled: true, ..Read::default() };
        after_read(&mut stamp, &filling);
        assert_eq!(next_request(&mut stamp, None), 4_100, "three of six bytes, as the last ones");
        read(&mut stamp, 4_900, 6_000, 18);
        assert_eq!((stamp.since_ns, next_request(&mut stamp, None)), (4_000, 4_450), "the first read left some");
        after_empty_read(&mut stamp, 7_000);
        read(&mut stamp, 7_500, 8_000, 18);
        assert_eq!(next_request(&mut stamp, None), 7_500, "one of this size came in each of the reads before");
    }

    #[test]
    fn requests_of_any_sizes_are_spread_by_the_bytes_that_follow_them() {
        let mut stamp = Stamp::default();
        read(&mut stamp, 1_000, 1_010, 27);
        assert_eq!(next_request(&mut stamp, Some(0)), 1_000);
        // A large request, two small ones, a large one, by turns over 1,000 ns.
        read(&mut stamp, 2_010, 2_100, 1_000);
        let times = [600, 573, 546, 0].map(|unparsed| next_request(&mut stamp, Some(unparsed)));
        assert_eq!(times, [1_410, 1_437, 1_464, 2_010]);
        // One request by itself has the kernel's time, whatever its size.
        read(&mut stamp, 5_000, 5_100, 27);
        assert_eq!(next_request(&mut stamp, Some(0)), 5_000);
        read(&mut stamp, 6_000, 6_100, 27);
        assert_eq!(next_request(&mut stamp, Some(u32::MAX)), 5_100, "more than was read");
    }

    /// A socket has more than the buffer takes: the second read goes on where the first has ended.
    #[test]
    fn what_a_read_leaves_is_younger_than_what_it_takes() {
        let mut stamp = Stamp::default();
        after_empty_read(&mut stamp, 1_000);
        let filling = Read { received_ns: 2_000, now: 2_100, bytes: 400, filled: true, left: Some(600), not_before: 0 };
        after_read(&mut stamp, &filling);
        assert_eq!([200, 0].map(|unparsed| next_request(&mut stamp, Some(unparsed))), [1_200, 1_400]);
        after_read(&mut stamp, &Read { now: 2_200, left: Some(200), ..filling });
        assert_eq!([200, 0].map(|unparsed| next_request(&mut stamp, Some(unparsed))), [1_600, 1_800]);
        after_read(&mut stamp, &Read { now: 2_300, bytes: 200, left: Some(0), ..filling });
        assert_eq!(next_request(&mut stamp, Some(0)), 2_000);
        // That read has filled its buffer, and left nothing. Its thread then slept.
        after_read(&mut stamp, &Read { received_ns: 9_000, now: 9_100, not_before: 9_050, ..filling });
        assert_eq!(next_request(&mut stamp, Some(200)), 9_000);
    }

    /// A server that was fast reads one request at a time. Then it is away, and one read brings
    /// eleven: the first is as old as the socket has been full.
    #[test]
    fn many_requests_after_one_are_as_old_as_their_bytes_tell() {
        let mut stamp = Stamp::default();
        for at in 1..=3 {
            read(&mut stamp, at * 1_000, at * 1_000 + 10, 20);
            assert_eq!(next_request(&mut stamp, None), at * 1_000, "a client that waits has the kernel's time");
        }
        read(&mut stamp, 14_010, 14_020, 11 * 20);
        let times: Vec<u64> = (0..11).map(|_| next_request(&mut stamp, None)).collect();
        assert_eq!(times, (1..=11).map(|number| 3_010 + number * 1_000).collect::<Vec<_>>());
        // One of them is large: the others are not younger for that.
        for size in [20, 500, 20] {
            read(&mut stamp, 15_000, 15_000, size);
            next_request(&mut stamp, None);
        }
        read(&mut stamp, 26_000, 26_010, 11 * 20);
        assert_eq!(next_request(&mut stamp, None), 16_000);
    }

    #[test]
    fn a_client_that_waits_for_answers_has_the_kernels_time_whatever_it_sends() {
        let mut stamp = Stamp::default();
        let mut late = 0;
        for at in 1..=100_u64 {
            let size = [540, 20, 27, 300][at as usize % 4];
            read(&mut stamp, at * 1_000, at * 1_000 + 10, size);
            late += u32::from(next_request(&mut stamp, None) < at * 1_000);
        }
        // The first large one could have been many small ones.
        assert_eq!(late, 1);
    }

    #[test]
    fn a_request_in_many_pieces_is_as_old_as_its_last_byte() {
        let mut stamp = Stamp::default();
        for at in 1..=40_u64 {
            read(&mut stamp, at * 1_000, at * 1_000 + 10, 1_448);
            if at % 8 == 0 {
                assert_eq!(next_request(&mut stamp, None), at * 1_000);
            }
        }
    }

    #[test]
    fn without_bytes_a_client_that_pipelines_is_taken_as_early() {
        let mut stamp = Stamp::default();
        read(&mut stamp, 1_000, 1_010, 0);
        assert_eq!([next_request(&mut stamp, None), next_request(&mut stamp, None)], [1_000, 1_000]);
        for at in [5_000, 9_000] {
            let since = stamp.read_ns;
            read(&mut stamp, at, at + 10, 0);
            assert_eq!(next_request(&mut stamp, None), since);
        }
    }

    #[test]
    fn a_thread_that_slept_makes_no_request_old() {
        let mut stamp = Stamp::default();
        read(&mut stamp, 1_000, 1_010, 200);
        for _ in 0..10 {
            next_request(&mut stamp, None);
        }
        settle(&mut stamp);
        assert!(is_spread(&stamp, 20));
        after_empty_read(&mut stamp, 1_020);
        // Ten seconds later: the thread woke for these bytes.
        let woken = Read { received_ns: 10_000_001_000, now: 10_000_001_100, bytes: 200, ..Read::default() };
        after_read(&mut stamp, &Read { not_before: woken.now, ..woken });
        assert_eq!(next_request(&mut stamp, None), 10_000_001_000);
        let mut fresh = Stamp::default();
        read(&mut fresh, 1_000, 1_010, 20);
        next_request(&mut fresh, None);
        settle(&mut fresh);
        assert!(!is_spread(&fresh, 20), "one request comes at a time");
        assert!(is_spread(&fresh, 40));
    }

    #[test]
    fn without_a_stamp_or_after_a_step_of_the_clock_nothing_is_spread() {
        let mut stamp = Stamp { read_ns: 9_000, requests: 4, bytes: 80, ..Stamp::default() };
        read(&mut stamp, 0, 9_500, 80);
        assert_eq!(next_request(&mut stamp, None), 0);
        read(&mut stamp, 2_000, 2_100, 80);
        assert_eq!(next_request(&mut stamp, None), 2_000);
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
        fn a_request_is_never_older_than_the_empty_socket(steps in prop::collection::vec((0..3_u8, 0..100_u64, any::<bool>(), 0..300_usize, prop::option::of(0..400_u32)), 0..60)) {
            let (mut stamp, mut now) = (Stamp::default(), 1_000);
            for (kind, passed, filled, bytes, known) in steps {
                now += passed;
                match kind {
                    0 => {
                        let (received_ns, left) = (now - passed / 2, known.map(u64::from));
                        after_read(&mut stamp, &Read { received_ns, now, bytes, filled, not_before: now - now % 64, left });
                    }
                    1 => after_empty_read(&mut stamp, now),
                    _ => {
                        let (before, at) = (stamp, next_request(&mut stamp, known));
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
