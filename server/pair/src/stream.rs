//! A direction of a connection: bytes that fly in chunks, land in order, and wait to be read. Never here: what they
//! mean.

use super::config::WireModel;
use super::event_queue::{Endpoint, EventQueue, SimEvent};
use super::rng::Rng;
use leeward_core::units::Time;
use std::collections::VecDeque;

/// A byte stream towards one end of a connection.
#[derive(Debug)]
pub(super) struct Stream {
    link: usize,
    to: Endpoint,
    model: WireModel,
    /// Chunks on their way, with the moments of their arrival.
    in_flight: VecDeque<(Time, Vec<u8>)>,
    in_flight_bytes: usize,
    /// Bytes that have come and were not read.
    received: VecDeque<u8>,
    /// When its end arrives; `None` while the writer may write more.
    end: Option<Time>,
    /// The last arrival: nothing overtakes within a stream.
    last: Time,
    /// A writer found no room.
    is_blocked: bool,
    /// Nothing arrives any more, and nobody is told.
    is_frozen: bool,
    /// Nobody reads any more: what is written is lost.
    reader_closed: bool,
}

impl Stream {
    pub(super) fn new(link: usize, to: Endpoint, model: WireModel) -> Self {
        Stream {
            link,
            to,
            model,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            received: VecDeque::new(),
            end: None,
            last: Time::ZERO,
            is_blocked: false,
            is_frozen: false,
            reader_closed: false,
        }
    }

    /// Takes as many of `bytes` as there is room for, in chunks that are cut at random places. Returns how many.
    pub(super) fn write(&mut self, bytes: &[u8], now: Time, agenda: &mut EventQueue, chance: &mut Rng) -> usize {
        if self.reader_closed || self.end.is_some() {
            return bytes.len();
        }
        let room = self.model.buffer_max.saturating_sub(self.in_flight_bytes + self.received.len());
        let taken = room.min(bytes.len());
        self.is_blocked = taken < bytes.len();
        let mut rest = &bytes[..taken];
        while !rest.is_empty() {
            let most = if self.model.chunk_max == 0 { rest.len() } else { self.model.chunk_max };
            let count = if self.model.chunk_max == 0 { most } else { 1 + chance.below(most as u64) as usize };
            let (chunk, others) = rest.split_at(count.min(rest.len()));
            let at = self.arrival(now, chance);
            self.transmit(at, chunk.to_vec(), agenda);
            rest = others;
        }
        taken
    }

    fn arrival(&mut self, now: Time, chance: &mut Rng) -> Time {
        let extra = chance.below(self.model.jitter.0 + 1);
        let at = Time((now + self.model.delay).0 + extra).max(self.last);
        self.last = at;
        at
    }

    fn transmit(&mut self, at: Time, chunk: Vec<u8>, agenda: &mut EventQueue) {
        if self.in_flight.back().is_none_or(|(last, _)| *last != at) {
            agenda.schedule(at, SimEvent::Arrive(self.link, self.to));
        }
        self.in_flight_bytes += chunk.len();
        self.in_flight.push_back((at, chunk));
    }

    /// No more will be written; the reader learns it after all that was.
    pub(super) fn finish(&mut self, now: Time, agenda: &mut EventQueue) {
        if self.end.is_none() {
            let at = (now + self.model.delay).max(self.last);
            self.end = Some(at);
            agenda.schedule(at, SimEvent::Arrive(self.link, self.to));
        }
    }

    /// Resets the direction: bytes on their way are lost, and it ends here.
    pub(super) fn reset(&mut self, now: Time) {
        self.in_flight.clear();
        self.in_flight_bytes = 0;
        self.received.clear();
        self.end = Some(now);
        self.reader_closed = true;
    }

    /// Nobody reads any more.
    pub(super) fn close_reader(&mut self) {
        self.reader_closed = true;
        self.received.clear();
    }

    /// Nothing arrives from now on.
    pub(super) fn freeze(&mut self) {
        self.is_frozen = true;
    }

    /// Lands what has arrived by now.
    pub(super) fn deliver_due(&mut self, now: Time, agenda: &mut EventQueue) {
        while !self.is_frozen
            && let Some((at, _)) = self.in_flight.front()
            && *at <= now
            && let Some((_, chunk)) = self.in_flight.pop_front()
        {
            self.in_flight_bytes -= chunk.len();
            agenda.trace().bytes(&chunk);
            if !self.reader_closed {
                self.received.extend(chunk);
            }
        }
    }

    /// Bytes that something else has carried are there.
    pub(super) fn deliver(&mut self, bytes: &[u8]) {
        if !self.reader_closed {
            self.received.extend(bytes);
        }
    }

    /// No more will come. Whether that is news.
    pub(super) fn end_now(&mut self, now: Time) -> bool {
        let is_news = self.end.is_none();
        self.end.get_or_insert(now);
        is_news
    }

    /// Bytes that can be read.
    pub(super) fn readable(&self) -> usize {
        self.received.len()
    }

    /// Reads into `buffer`, up to `most` bytes. Returns how many.
    pub(super) fn read(&mut self, buffer: &mut [u8], most: usize, now: Time, agenda: &mut EventQueue) -> usize {
        let count = buffer.len().min(most).min(self.received.len());
        for (place, byte) in buffer.iter_mut().zip(self.received.drain(..count)) {
            *place = byte;
        }
        self.notify_writer(count, now, agenda);
        count
    }

    /// Throws away what can be read.
    pub(super) fn discard(&mut self, now: Time, agenda: &mut EventQueue) {
        let count = self.received.len();
        self.received.clear();
        self.notify_writer(count, now, agenda);
    }

    /// A writer that waits for room hears of it as late as the wire is long.
    fn notify_writer(&mut self, count: usize, now: Time, agenda: &mut EventQueue) {
        if count > 0 && self.is_blocked && !self.is_frozen {
            self.is_blocked = false;
            let writer = if self.to == Endpoint::Server { Endpoint::Client } else { Endpoint::Server };
            agenda.schedule(now + self.model.delay, SimEvent::Writable(self.link, writer));
        }
    }

    /// Whether the reader is at the end.
    pub(super) fn is_eof(&self, now: Time) -> bool {
        let has_ended = self.end.is_some_and(|end| end <= now);
        has_ended && !self.is_frozen && self.in_flight.is_empty() && self.received.is_empty()
    }

    /// Changes what is on its way.
    pub(super) fn tamper(&mut self, now: Time, agenda: &mut EventQueue, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
        let (times, mut chunks): (Vec<Time>, Vec<Vec<u8>>) = self.in_flight.drain(..).unzip();
        self.in_flight_bytes = 0;
        change(&mut chunks);
        let mut times = times.into_iter();
        let mut at = (now + self.model.delay).max(self.last);
        for chunk in chunks {
            at = times.next().unwrap_or(at);
            self.transmit(at, chunk, agenda);
        }
    }
}
