//! Bytes of a connection that are not sent yet.

use crate::backlog::SHORT_ANSWER;
use leeward_core::units::Time;
use std::io;

/// Largest buffer that is kept when empty: a burst must not hold memory for ever.
const KEPT: usize = 64 * 1024;

/// Limit of unsent bytes of a peer whose socket is full, if a long response is among these or
/// memory is no longer plentiful. At the limit no more requests run.
const UNSENT_OF_STUCK: usize = 64 * 1024;

/// Bytes for a peer, in order.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    bytes: Vec<u8>,
    sent: usize,
    stuck_since: Option<Time>,
    lagging_since: Option<Time>,
    /// Bytes removed from `bytes` since it was last empty.
    drained: usize,
    reads_long_answers: bool,
    holds_long: bool,
}

impl SendBuffer {
    /// The buffer to append to.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Number of [`SendBuffer::bytes`] that are sent already.
    pub(crate) fn sent(&self) -> usize {
        self.sent
    }

    /// Number of bytes that wait to be sent.
    pub(crate) fn unsent(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Bytes of memory held while the peer has not taken everything.
    pub(crate) fn held(&self) -> usize {
        if self.unsent() > 0 { self.bytes.capacity() } else { 0 }
    }

    /// Time since which the peer has never taken everything. Unlike [`SendBuffer::stuck_since`] it
    /// also covers peers that take a byte now and then.
    pub(crate) fn lagging_since(&self) -> Option<Time> {
        self.lagging_since
    }

    /// Frees the memory of an idle connection.
    pub(crate) fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// Time since which a peer with unsent bytes has taken none.
    pub(crate) fn stuck_since(&self) -> Option<Time> {
        self.stuck_since
    }

    /// Returns whether the peer has taken more than a short response as a whole, and its socket has
    /// not been full since.
    pub(crate) fn reads_long_answers(&self) -> bool {
        self.reads_long_answers
    }

    /// Notes that one response, or one quantum's responses together, have added `bytes`.
    pub(crate) fn note_answer(&mut self, bytes: usize) {
        self.holds_long |= bytes > SHORT_ANSWER;
    }

    /// Limit of unsent bytes before no more requests run; `limit` for a peer that takes them. For a
    /// full socket with a long response pending, another long one would only wait. Short responses
    /// may go on up to `limit`. A client that sends all its requests before it reads waits for the
    /// server to take these, and would otherwise wait for ever.
    pub(crate) fn unsent_limit(&self, limit: usize) -> usize {
        if self.stuck_since.is_some() && self.holds_long { limit.min(UNSENT_OF_STUCK) } else { limit }
    }

    /// Returns whether more waits for a full socket than with a long response, so that requests run
    /// only because all responses are short.
    pub(crate) fn exceeds_stalled_limit(&self, limit: usize) -> bool {
        self.stuck_since.is_some() && (UNSENT_OF_STUCK..self.unsent_limit(limit)).contains(&self.unsent())
    }

    /// Unsent bytes, unless the socket was full.
    pub(crate) fn sendable(&self) -> Option<&[u8]> {
        (self.stuck_since.is_none() && self.unsent() > 0).then(|| &self.bytes[self.sent..])
    }

    /// Notes that the socket took `count` of [`SendBuffer::sendable`]. The caller then
    /// [flushes](SendBuffer::flush) the rest.
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent += count;
    }

    /// Sends as much as `send` takes, and returns the number of bytes.
    ///
    /// # Errors
    /// The socket's error, except that it is full.
    pub(crate) fn flush(&mut self, mut send: impl FnMut(&[u8]) -> io::Result<usize>, now: Time) -> io::Result<usize> {
        let before = self.sent;
        while self.sent < self.bytes.len() {
            match send(&self.bytes[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let count = self.sent - before;
                    if count > 0 {
                        self.stuck_since = None;
                    }
                    self.stuck_since.get_or_insert(now);
                    self.lagging_since.get_or_insert(now);
                    self.reads_long_answers = false;
                    // Sent bytes are removed before all are sent; otherwise a slow reader's buffer
                    // would never shrink. Not for a few bytes each time, since moving the rest
                    // would cost more than sending it.
                    if self.sent > KEPT && self.sent > self.unsent() {
                        self.bytes.drain(..self.sent);
                        // Held memory is counted, and sent bytes need none.
                        self.bytes.shrink_to(self.bytes.len() + KEPT);
                        self.drained += self.sent;
                        self.sent = 0;
                    }
                    return Ok(count);
                }
                Err(error) => return Err(error),
            }
        }
        let count = self.sent - before;
        self.reads_long_answers |= self.drained + self.bytes.len() > SHORT_ANSWER;
        self.drained = 0;
        self.bytes.clear();
        if self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
        }
        self.sent = 0;
        self.holds_long = false;
        (self.stuck_since, self.lagging_since) = (None, None);
        Ok(count)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    /// A socket that takes the given number of bytes per call; 0 is `WouldBlock`.
    struct Socket<'a> {
        takes: &'a [usize],
        taken: &'a mut Vec<u8>,
    }

    impl Write for Socket<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let Some((most, rest)) = self.takes.split_first() else { return Err(io::ErrorKind::WouldBlock.into()) };
            self.takes = rest;
            match bytes.len().min(*most) {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                count => {
                    self.taken.extend_from_slice(&bytes[..count]);
                    Ok(count)
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Makes a send buffer for a peer that takes nothing, with responses of these lengths.
    fn stuck_with(answers: &[usize]) -> SendBuffer {
        let mut buffer = SendBuffer::default();
        for &length in answers {
            buffer.bytes().extend(std::iter::repeat_n(0, length));
            buffer.note_answer(length);
        }
        buffer.flush(|_| Err(io::ErrorKind::WouldBlock.into()), Time(1)).unwrap();
        buffer
    }

    #[test]
    fn a_full_socket_limits_long_responses_sooner_than_short_ones() {
        const LIMIT: usize = 1 << 20;
        let short = stuck_with(&[8; 100_000]);
        assert_eq!((short.unsent_limit(LIMIT), short.exceeds_stalled_limit(LIMIT)), (LIMIT, true));
        assert!(
            !stuck_with(&[8; 200_000]).exceeds_stalled_limit(LIMIT)
                && !stuck_with(&[8; 1_000]).exceeds_stalled_limit(LIMIT)
        );
        assert!(!stuck_with(&[UNSENT_OF_STUCK]).exceeds_stalled_limit(LIMIT));
        let mut buffer = stuck_with(&[8, SHORT_ANSWER + 1, 8]);
        assert_eq!((buffer.unsent_limit(LIMIT), buffer.unsent_limit(1_000)), (UNSENT_OF_STUCK, 1_000));
        // A peer that has taken everything starts over.
        buffer.flush(|bytes| Ok(bytes.len()), Time(2)).unwrap();
        buffer.bytes().push(0);
        buffer.flush(|_| Err(io::ErrorKind::WouldBlock.into()), Time(3)).unwrap();
        assert_eq!(buffer.unsent_limit(LIMIT), LIMIT);
    }

    proptest! {
        #[test]
        fn everything_goes_out_once_and_in_order(
            steps in prop::collection::vec((0usize..200_000, prop::collection::vec(0usize..100_000, 0..4)), 1..30)
        ) {
            let (mut buffer, mut expected_bytes, mut taken) = (SendBuffer::default(), Vec::new(), Vec::new());
            let (mut since_empty, mut takes_much) = (0, false);
            for (step, (more, takes)) in steps.iter().enumerate() {
                let bytes: Vec<u8> = (0..*more).map(|index| (index * 7 + step) as u8).collect();
                buffer.bytes().extend_from_slice(&bytes);
                since_empty += bytes.len();
                expected_bytes.extend(bytes);
                let (now, before) = (Time(step as u64 + 1), taken.len());
                let (stuck, lagging) = (buffer.stuck_since(), buffer.lagging_since());
                let mut socket = Socket { takes, taken: &mut taken };
                let count = buffer.flush(|bytes| socket.write(bytes), now).unwrap();
                prop_assert_eq!(count, taken.len() - before);
                prop_assert_eq!(buffer.unsent(), expected_bytes.len() - taken.len());
                let expected = if buffer.unsent() == 0 { None } else if count > 0 { Some(now) } else { stuck.or(Some(now)) };
                prop_assert_eq!(buffer.stuck_since(), expected);
                let expected = if buffer.unsent() == 0 { None } else { lagging.or(Some(now)) };
                prop_assert_eq!(buffer.lagging_since(), expected);
                prop_assert!(buffer.bytes.len() <= buffer.unsent().max(KEPT) * 2);
                takes_much = buffer.unsent() == 0 && (takes_much || since_empty > SHORT_ANSWER);
                prop_assert_eq!(buffer.reads_long_answers(), takes_much);
                since_empty = if buffer.unsent() == 0 { 0 } else { since_empty };
            }
            buffer.flush(|bytes| taken.write(bytes), Time(99)).unwrap();
            prop_assert!(taken == expected_bytes);
            prop_assert!(buffer.bytes.capacity() <= KEPT);
        }
    }
}
