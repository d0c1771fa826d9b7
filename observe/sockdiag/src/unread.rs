//! Age of a connection's oldest unread byte.
//!
//! The kernel tells when the *last* data of a connection came, not when the oldest unread byte did.
//! Both are the same while a request fits into one segment and its client waits for the response.
//! Otherwise the age lies between two bounds, which consecutive dumps narrow.

use std::time::Duration;

use crate::socket::TcpSocket;

/// An age, and its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeBounds {
    /// The likeliest age: the lower bound if the unread bytes are no more than the connection's
    /// mean segment, so that they probably came in one; else the middle of the bounds.
    pub estimate: Duration,
    /// The age is at least this.
    pub at_least: Duration,
    /// The age is at most this; `None` if the bytes stood there at the first dump.
    pub at_most: Option<Duration>,
}

/// Follows the unread bytes of one connection from dump to dump.
///
/// Times are offsets from an origin that the caller chooses, before which bytes may have arrived.
#[derive(Clone, Debug, Default)]
pub struct UnreadTracker {
    last: Option<Dump>,
    /// Unread bytes: least and greatest age of the oldest of them at the last dump.
    unread: Option<(Duration, Option<Duration>)>,
}

/// What matters of the last dump.
#[derive(Clone, Copy, Debug)]
struct Dump {
    at: Duration,
    bytes_read: u64,
    bytes_received: u64,
}

impl UnreadTracker {
    /// Takes the socket's state at the time `at`, and returns the age of its oldest unread byte;
    /// `None` if all bytes have been read.
    pub fn observe(&mut self, at: Duration, socket: &TcpSocket) -> Option<AgeBounds> {
        let last =
            self.last.replace(Dump { at, bytes_read: socket.bytes_read(), bytes_received: socket.bytes_received });
        if socket.unread == 0 {
            self.unread = None;
            return None;
        }
        // Ages, and not times of arrival: bytes may have come before the origin.
        let newest = socket.since_received;
        let elapsed = last.map(|last| at.saturating_sub(last.at)).unwrap_or_default();
        let (at_least, at_most) = match (self.unread, last) {
            // The program has read nothing since: the same byte is the oldest.
            (Some((at_least, at_most)), Some(last)) if last.bytes_read == socket.bytes_read() => {
                (at_least + elapsed, at_most.map(|at_most| at_most + elapsed))
            }
            // The oldest unread byte came after the last dump, if all before was read.
            (_, Some(last)) if socket.bytes_read() >= last.bytes_received => (newest, Some(elapsed.max(newest))),
            // The program has read a part of what stood there: the rest came between the former
            // oldest and the newest.
            (Some((_, at_most)), Some(_)) => (newest, at_most.map(|at_most| at_most + elapsed)),
            _ => (newest, None),
        };
        self.unread = Some((at_least, at_most));
        let is_one_segment = u64::from(socket.unread) * u64::from(socket.segments_received) <= socket.bytes_received;
        let estimate = match at_most {
            Some(at_most) if !is_one_segment => (at_least + at_most) / 2,
            _ => at_least,
        };
        Some(AgeBounds { estimate, at_least, at_most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::TcpState;

    const MS: Duration = Duration::from_millis(1);

    /// A connection that has received `received` bytes, the last `since` milliseconds ago, of which
    /// `unread` are unread.
    fn socket(received: u64, unread: u32, since: u32) -> TcpSocket {
        TcpSocket {
            local: "127.0.0.1:80".parse().unwrap(),
            peer: "127.0.0.1:4000".parse().unwrap(),
            state: TcpState::Established,
            inode: 1,
            unread,
            unsent: 0,
            since_received: since * MS,
            since_sent: Duration::ZERO,
            since_acknowledged: Duration::ZERO,
            bytes_received: received,
            // Segments of a hundred bytes.
            segments_received: u32::try_from(received / 100).unwrap(),
            segments_sent: 0,
            acknowledgements: 0,
            retransmitted: 0,
        }
    }

    /// Ages in milliseconds: the estimate and the bounds.
    fn ages(estimate: u32, at_least: u32, at_most: Option<u32>) -> Option<AgeBounds> {
        let at_most = at_most.map(|at_most| at_most * MS);
        Some(AgeBounds { estimate: estimate * MS, at_least: at_least * MS, at_most })
    }

    #[test]
    fn bytes_that_stood_there_first_have_no_upper_bound() {
        let mut tracker = UnreadTracker::default();
        assert_eq!(tracker.observe(1000 * MS, &socket(100, 100, 30)), ages(30, 30, None));
        assert_eq!(tracker.observe(1100 * MS, &socket(100, 100, 130)), ages(130, 130, None));
    }

    #[test]
    fn bytes_that_came_before_the_origin_have_their_whole_age() {
        let mut tracker = UnreadTracker::default();
        assert_eq!(tracker.observe(10 * MS, &socket(100, 100, 6000)), ages(6000, 6000, None));
        // A part was read: the rest may be as old as the first byte, whose age has no bound.
        assert_eq!(tracker.observe(3000 * MS, &socket(100, 60, 8990)), ages(8990, 8990, None));
        assert_eq!(tracker.observe(3100 * MS, &socket(100, 60, 9090)), ages(9090, 9090, None));
    }

    #[test]
    fn the_oldest_byte_came_after_the_dump_that_saw_all_read() {
        let mut tracker = UnreadTracker::default();
        assert_eq!(tracker.observe(1000 * MS, &socket(100, 0, 500)), None);
        assert_eq!(tracker.observe(1100 * MS, &socket(200, 100, 20)), ages(20, 20, Some(100)));
        // More came, and nothing was read: the same byte is the oldest.
        assert_eq!(tracker.observe(1200 * MS, &socket(300, 200, 10)), ages(160, 120, Some(200)));
        // The first hundred bytes were read: the oldest came at 1080 ms at the earliest.
        assert_eq!(tracker.observe(1300 * MS, &socket(300, 100, 110)), ages(110, 110, Some(300)));
        assert_eq!(tracker.observe(1400 * MS, &socket(300, 0, 210)), None);
    }

    #[test]
    fn a_request_that_replaced_another_between_two_dumps_is_young() {
        let mut tracker = UnreadTracker::default();
        tracker.observe(1000 * MS, &socket(100, 100, 300));
        assert_eq!(tracker.observe(1100 * MS, &socket(200, 100, 40)), ages(40, 40, Some(100)));
    }
}
