//! A connection of the echo on io_uring: the kernel's work under way for it, and the bytes that wait for that.

use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

use super::bare;

/// A peer that reads so little that so many bytes wait for it is left alone.
const WAITING_MAX: usize = 4 << 20;

/// A socket, what is under way on it, and what is left over; that is empty nearly always.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    /// The kernel may still bring something.
    pub(super) is_receiving: bool,
    /// Bytes that the kernel is sending.
    pub(super) under_way: Option<usize>,
    /// Nothing is begun any more; it goes when nothing is under way.
    pub(super) is_over: bool,
    /// The beginning of a message.
    begun: Vec<u8>,
    /// Bytes that are being sent, if they do not lie in a buffer. Not touched meanwhile.
    sending: Vec<u8>,
    /// Bytes that are sent after those: the kernel may send out of order what is handed to it at once.
    waiting: Vec<u8>,
}

/// Where bytes to send lie.
pub(super) enum Source {
    /// In the buffer that was just received, at these places of its payload.
    Received(Range<usize>),
    /// With the connection.
    Own,
}

impl Connection {
    /// In place of a buffer's number.
    pub(super) const OWN: u16 = u16::MAX;

    /// With a receive about to be armed.
    pub(super) fn new(stream: TcpStream) -> Self {
        Connection {
            stream,
            is_receiving: true,
            under_way: None,
            is_over: false,
            begun: Vec::new(),
            sending: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Bytes of the connection's own that are to be sent.
    pub(super) fn sending(&self) -> &[u8] {
        &self.sending
    }

    /// Takes what came, works for every whole message and says what is to be sent now, if anything.
    pub(super) fn take(&mut self, payload: &[u8], work: Duration) -> Option<Source> {
        let is_fresh = self.begun.is_empty();
        if !is_fresh {
            self.begun.extend_from_slice(payload);
        }
        let Some(whole) = bare::whole(if is_fresh { payload } else { &self.begun }) else {
            self.is_over = true;
            return None;
        };
        if is_fresh {
            self.begun.extend_from_slice(&payload[whole..]);
            bare::work_on(&payload[..whole], work);
            if self.under_way.is_none() {
                return (whole > 0).then_some(Source::Received(0..whole));
            }
            self.waiting.extend_from_slice(&payload[..whole]);
        } else {
            let rest = self.begun.split_off(whole);
            let messages = std::mem::replace(&mut self.begun, rest);
            bare::work_on(&messages, work);
            self.waiting.extend_from_slice(&messages);
            if self.under_way.is_none() {
                return self.next().then_some(Source::Own);
            }
        }
        self.is_over |= self.waiting.len() > WAITING_MAX;
        None
    }

    /// Makes the waiting bytes the ones to send; false if none wait. Nothing of the connection's own may be under way.
    pub(super) fn next(&mut self) -> bool {
        self.sending.clear();
        std::mem::swap(&mut self.sending, &mut self.waiting);
        !self.sending.is_empty()
    }
}
