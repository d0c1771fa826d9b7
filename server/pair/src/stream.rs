//! A direction of a connection: bytes travel in chunks, arrive in order, and wait for the reader.
//! Does not contain their meaning.

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
    /// Chunks in flight, with their arrival times.
    in_flight: VecDeque<(Time, Vec<u8>)>,
    in_flight_bytes: usize,
    /// Bytes that have arrived and were not read.
    received: VecDeque<u8>,
    /// Arrival time of the stream's end; `None` while the writer may write more.
    end: Option<Time>,
    /// The last arrival time: chunks of a stream never overtake.
    last: Time,
    /// A writer waits for buffer space.
    is_blocked: bool,
    /// No more bytes arrive, and neither end sees it.
    is_frozen: bool,
    /// The reader has gone: written bytes are lost.
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

    /// Takes as many of `bytes` as the buffer has space for, in chunks that are cut at random
    /// positions. Returns how many.
    pub(super) fn write(&mut self, bytes: &[u8], now: Time, queue: &mut EventQueue, random: &mut Rng) -> usize {
        if self.reader_closed || self.end.is_some() {
            return bytes.len();
        }
        let space = self.model.buffer_max.saturating_sub(self.in_flight_bytes + self.received.len());
        let taken = space.min(bytes.len());
        self.is_blocked = taken < bytes.len();
        let mut rest = &bytes[..taken];
        while !rest.is_empty() {
            let most = if self.model.chunk_max == 0 { rest.len() } else { self.model.chunk_max };
            let count = if self.model.chunk_max == 0 { most } else { 1 + random.below(most as u64) as usize };
            let (chunk, others) = rest.split_at(count.min(rest.len()));
            let at = self.arrival(now, random);
            self.transmit(at, chunk.to_vec(), queue);
            rest = others;
        }
        taken
    }

    fn arrival(&mut self, now: Time, random: &mut Rng) -> Time {
        let extra = random.below(self.model.jitter.0 + 1);
        let at = Time((now + self.model.delay).0 + extra).max(self.last);
        self.last = at;
        at
    }

    fn transmit(&mut self, at: Time, chunk: Vec<u8>, queue: &mut EventQueue) {
        if self.in_flight.back().is_none_or(|(last, _)| *last != at) {
            queue.schedule(at, SimEvent::Arrive(self.link, self.to));
        }
        self.in_flight_bytes += chunk.len();
        self.in_flight.push_back((at, chunk));
    }

    /// Ends the stream; the reader sees the end after all written bytes.
    pub(super) fn finish(&mut self, now: Time, queue: &mut EventQueue) {
        if self.end.is_none() {
            let at = (now + self.model.delay).max(self.last);
            self.end = Some(at);
            queue.schedule(at, SimEvent::Arrive(self.link, self.to));
        }
    }

    /// Resets the direction: bytes in flight are lost, and the stream ends now.
    pub(super) fn reset(&mut self, now: Time) {
        self.in_flight.clear();
        self.in_flight_bytes = 0;
        self.received.clear();
        self.end = Some(now);
        self.reader_closed = true;
    }

    /// The reader has gone.
    pub(super) fn close_reader(&mut self) {
        self.reader_closed = true;
        self.received.clear();
    }

    /// Stops all arrivals from now on.
    pub(super) fn freeze(&mut self) {
        self.is_frozen = true;
    }

    /// Moves chunks that have arrived by now to the reader.
    pub(super) fn deliver_due(&mut self, now: Time, queue: &mut EventQueue) {
        while !self.is_frozen
            && let Some((at, _)) = self.in_flight.front()
            && *at <= now
            && let Some((_, chunk)) = self.in_flight.pop_front()
        {
            self.in_flight_bytes -= chunk.len();
            queue.trace().bytes(&chunk);
            if !self.reader_closed {
                self.received.extend(chunk);
            }
        }
    }

    /// Appends bytes that another path has carried.
    pub(super) fn deliver(&mut self, bytes: &[u8]) {
        if !self.reader_closed {
            self.received.extend(bytes);
        }
    }

    /// Ends the stream now. Returns whether it was open.
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
    pub(super) fn read(&mut self, buffer: &mut [u8], most: usize, now: Time, queue: &mut EventQueue) -> usize {
        let count = buffer.len().min(most).min(self.received.len());
        for (slot, byte) in buffer.iter_mut().zip(self.received.drain(..count)) {
            *slot = byte;
        }
        self.notify_writer(count, now, queue);
        count
    }

    /// Discards the readable bytes.
    pub(super) fn discard(&mut self, now: Time, queue: &mut EventQueue) {
        let count = self.received.len();
        self.received.clear();
        self.notify_writer(count, now, queue);
    }

    /// Notifies a writer that waits for buffer space, after the wire's delay.
    fn notify_writer(&mut self, count: usize, now: Time, queue: &mut EventQueue) {
        if count > 0 && self.is_blocked && !self.is_frozen {
            self.is_blocked = false;
            let writer = if self.to == Endpoint::Server { Endpoint::Client } else { Endpoint::Server };
            queue.schedule(now + self.model.delay, SimEvent::Writable(self.link, writer));
        }
    }

    /// Whether the reader has reached the end.
    pub(super) fn is_eof(&self, now: Time) -> bool {
        let has_ended = self.end.is_some_and(|end| end <= now);
        has_ended && !self.is_frozen && self.in_flight.is_empty() && self.received.is_empty()
    }

    /// Changes the chunks in flight.
    pub(super) fn tamper(&mut self, now: Time, queue: &mut EventQueue, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
        let (times, mut chunks): (Vec<Time>, Vec<Vec<u8>>) = self.in_flight.drain(..).unzip();
        self.in_flight_bytes = 0;
        change(&mut chunks);
        let mut times = times.into_iter();
        let mut at = (now + self.model.delay).max(self.last);
        for chunk in chunks {
            at = times.next().unwrap_or(at);
            self.transmit(at, chunk, queue);
        }
    }
}
