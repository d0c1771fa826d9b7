//! Bytes of a connection that shall go out and are not sent.

use crate::backlog::SHORT_ANSWER;
use leeward_core::units::Time;
use std::io;

/// A buffer that was larger is given back when it is empty: a burst should not be paid for ever.
const KEPT: usize = 64 * 1024;

/// Bytes that wait for a peer whose socket is full before no more of its requests are executed, where a long answer is among them or memory
/// is no longer plentiful.
const UNSENT_OF_STUCK: usize = 64 * 1024;

/// Bytes for a peer, in order.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    bytes: Vec<u8>,
    sent: usize,
    stuck_since: Option<Time>,
    lagging_since: Option<Time>,
    /// Bytes that are no longer in `bytes` since that was last empty.
    drained: usize,
    reads_long_answers: bool,
    holds_long: bool,
}

impl SendBuffer {
    /// Where more is appended.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// How many of [`Outbox::bytes`] have been sent already.
    pub(crate) fn sent(&self) -> usize {
        self.sent
    }

    /// How many bytes wait to be sent.
    pub(crate) fn unsent(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Bytes of memory that are held for what the peer has not taken.
    pub(crate) fn held(&self) -> usize {
        if self.unsent() > 0 { self.bytes.capacity() } else { 0 }
    }

    /// Since when the peer has always left something. Unlike [`Outbox::stuck_since`] it knows those that take a byte now and then.
    pub(crate) fn lagging_since(&self) -> Option<Time> {
        self.lagging_since
    }

    /// Gives the memory of a connection back that says nothing.
    pub(crate) fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// Since when a peer for which bytes wait has taken none.
    pub(crate) fn stuck_since(&self) -> Option<Time> {
        self.stuck_since
    }

    /// Whether the peer has taken more than a short answer as a whole, and nothing waits that its socket had no room for.
    pub(crate) fn reads_long_answers(&self) -> bool {
        self.reads_long_answers
    }

    /// Notes that one answer, or those of one turn of the connection together, have added `bytes`.
    pub(crate) fn note_answer(&mut self, bytes: usize) {
        self.holds_long |= bytes > SHORT_ANSWER;
    }

    /// Bytes that may wait before no more requests are executed, if it is `limit` for a peer that takes them. While its socket is full a peer
    /// for which a long answer waits would only have another long one wait. Short answers may go on up to the limit: a client that sends all
    /// its requests before it reads waits for the server to take them, and would wait for ever.
    pub(crate) fn unsent_limit(&self, limit: usize) -> usize {
        if self.stuck_since.is_some() && self.holds_long { limit.min(UNSENT_OF_STUCK) } else { limit }
    }

    /// Whether more waits for a full socket than a long answer would allow, and requests are executed only because all answers are short.
    pub(crate) fn exceeds_stalled_limit(&self, limit: usize) -> bool {
        self.stuck_since.is_some() && (UNSENT_OF_STUCK..self.unsent_limit(limit)).contains(&self.unsent())
    }

    /// Bytes that wait to be sent, unless the socket had no room for them.
    pub(crate) fn sendable(&self) -> Option<&[u8]> {
        (self.stuck_since.is_none() && self.unsent() > 0).then(|| &self.bytes[self.sent..])
    }

    /// The socket took so much of [`Outbox::sendable`]. What is left wants a [`Outbox::flush`].
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent += count;
    }

    /// Sends what `send` takes; how many bytes that was.
    ///
    /// # Errors
    /// The socket's, but for having no room.
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
                    // What has gone is not kept until the rest has: a slow reader's buffer would never shrink. Not for a few
                    // bytes each time, or moving what is left would cost more than sending it.
                    if self.sent > KEPT && self.sent > self.unsent() {
                        self.bytes.drain(..self.sent);
                        // Memory that is held is counted, and what has gone needs none.
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

    /// Takes so many bytes at a time, and nothing where that is 0.
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

    /// An outbox for a peer that takes nothing, after answers of these lengths.
    fn stuck_with(answers: &[usize]) -> SendBuffer {
        let mut outbox = SendBuffer::default();
        for &length in answers {
            outbox.bytes().extend(std::iter::repeat_n(0, length));
            outbox.note_answer(length);
        }
        outbox.flush(|_| Err(io::ErrorKind::WouldBlock.into()), Time(1)).unwrap();
        outbox
    }

    #[test]
    fn a_full_socket_bounds_long_answers_sooner_than_short_ones() {
        const LIMIT: usize = 1 << 20;
        let short = stuck_with(&[8; 100_000]);
        assert_eq!((short.unsent_limit(LIMIT), short.exceeds_stalled_limit(LIMIT)), (LIMIT, true));
        assert!(
            !stuck_with(&[8; 200_000]).exceeds_stalled_limit(LIMIT)
                && !stuck_with(&[8; 1_000]).exceeds_stalled_limit(LIMIT)
        );
        assert!(!stuck_with(&[UNSENT_OF_STUCK]).exceeds_stalled_limit(LIMIT));
        let mut outbox = stuck_with(&[8, SHORT_ANSWER + 1, 8]);
        assert_eq!((outbox.unsent_limit(LIMIT), outbox.unsent_limit(1_000)), (UNSENT_OF_STUCK, 1_000));
        // A peer that has taken all begins anew.
        outbox.flush(|bytes| Ok(bytes.len()), Time(2)).unwrap();
        outbox.bytes().push(0);
        outbox.flush(|_| Err(io::ErrorKind::WouldBlock.into()), Time(3)).unwrap();
        assert_eq!(outbox.unsent_limit(LIMIT), LIMIT);
    }

    proptest! {
        #[test]
        fn everything_goes_out_once_and_in_order(
            steps in prop::collection::vec((0usize..200_000, prop::collection::vec(0usize..100_000, 0..4)), 1..30)
        ) {
            let (mut outbox, mut wanted, mut taken) = (SendBuffer::default(), Vec::new(), Vec::new());
            let (mut since_empty, mut takes_much) = (0, false);
            for (step, (more, takes)) in steps.iter().enumerate() {
                let bytes: Vec<u8> = (0..*more).map(|place| (place * 7 + step) as u8).collect();
                outbox.bytes().extend_from_slice(&bytes);
                since_empty += bytes.len();
                wanted.extend(bytes);
                let (now, before) = (Time(step as u64 + 1), taken.len());
                let (stuck, behind) = (outbox.stuck_since(), outbox.lagging_since());
                let mut socket = Socket { takes, taken: &mut taken };
                let count = outbox.flush(|bytes| socket.write(bytes), now).unwrap();
                prop_assert_eq!(count, taken.len() - before);
                prop_assert_eq!(outbox.unsent(), wanted.len() - taken.len());
                let expected = if outbox.unsent() == 0 { None } else if count > 0 { Some(now) } else { stuck.or(Some(now)) };
                prop_assert_eq!(outbox.stuck_since(), expected);
                let expected = if outbox.unsent() == 0 { None } else { behind.or(Some(now)) };
                prop_assert_eq!(outbox.lagging_since(), expected);
                prop_assert!(outbox.bytes.len() <= outbox.unsent().max(KEPT) * 2);
                takes_much = outbox.unsent() == 0 && (takes_much || since_empty > SHORT_ANSWER);
                prop_assert_eq!(outbox.reads_long_answers(), takes_much);
                since_empty = if outbox.unsent() == 0 { 0 } else { since_empty };
            }
            outbox.flush(|bytes| taken.write(bytes), Time(99)).unwrap();
            prop_assert!(taken == wanted);
            prop_assert!(outbox.bytes.capacity() <= KEPT);
        }
    }
}
