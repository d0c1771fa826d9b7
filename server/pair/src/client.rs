//! A pair's clients: one of ours, which keeps its own books, and one that says whatever bytes it is told to.

use super::agenda::Agenda;
use super::stream::Stream;
use leeward_core::client::LocalReason;
use leeward_core::units::{Nanos, Priority, Time};
use leeward_session::client::{Connection, ConnectionError, Disconnected, Event, Phase, Request};
use leeward_wire::{
    Budget, Decoder, DropReason, ErrorCode, FailureCode, Frame, Method, PayloadLimit, Regime, RequestId, Side,
    WireError,
};
use std::collections::VecDeque;

/// How a client takes what has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// All of it, as it comes.
    Eager,
    /// So many bytes at a time, so long after each other.
    Slow(usize, Nanos),
    /// None of it.
    Never,
}

/// How a request of one of our clients ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this result.
    Completed(Vec<u8>),
    /// Rejected by the server.
    Dropped(DropReason),
    /// Admitted, and without a result; the words say why.
    Failed(FailureCode, String),
    /// At the client, without having been sent.
    Local(LocalReason),
    /// Its argument was too long.
    TooLong,
    /// With its connection.
    Disconnected(Disconnected),
    /// Taken back by the application.
    Cancelled,
}

/// A client of this crate, which keeps the rules.
pub(super) struct Honest {
    pub(super) connection: Connection<usize>,
    /// How each request ended, by token.
    pub(super) ends: Vec<Option<Ended>>,
    /// The name of each request that was accepted.
    names: Vec<Option<RequestId>>,
    /// When each was submitted and how long it took, where it was completed.
    submitted: Vec<Time>,
    pub(super) latencies: Vec<Nanos>,
    /// Requests without an end.
    pub(super) open: usize,
    /// A request ended twice, or not as it may.
    pub(super) violation: Option<String>,
    /// When its timer goes off.
    pub(super) timer: Time,
}

impl Honest {
    pub(super) fn new(connection: Connection<usize>) -> Self {
        Honest {
            connection,
            ends: Vec::new(),
            names: Vec::new(),
            submitted: Vec::new(),
            latencies: Vec::new(),
            open: 0,
            violation: None,
            timer: Time::NEVER,
        }
    }

    /// Lets `act` do something to the connection and notes which requests end by it.
    pub(super) fn with<R>(
        &mut self,
        now: Time,
        act: impl FnOnce(&mut Connection<usize>, &mut dyn FnMut(Event<'_, usize>)) -> R,
    ) -> R {
        let Honest { connection, ends, submitted, latencies, open, violation, .. } = self;
        act(connection, &mut |event| {
            let token = *event.token();
            let end = end_of(&event);
            if let Ended::Completed(_) = end {
                latencies.push(now.since(submitted[token]));
            }
            match &ends[token] {
                None => *open -= 1,
                Some(before) => *violation = Some(format!("request {token} ended as {before:?}, then as {end:?}")),
            }
            ends[token] = Some(end);
        })
    }

    pub(super) fn submit(
        &mut self,
        now: Time,
        payload: &[u8],
        budget: Budget,
        priority: Priority,
        random: u64,
    ) -> usize {
        let token = self.ends.len();
        self.ends.push(None);
        self.submitted.push(now);
        self.open += 1;
        let request = Request { method: Method(1), payload, priority, random };
        let name = self.with(now, |connection, mut events| match budget.remaining() {
            None => connection.submit(now, token, &request, &mut events),
            Some(_) => connection.submit_within(now, token, &request, budget, &mut events),
        });
        self.names.push(name);
        token
    }

    /// Takes a request back. Whether it had no end yet.
    pub(super) fn cancel(&mut self, now: Time, token: usize) -> bool {
        let Some(name) = self.names.get(token).copied().flatten() else { return false };
        let cancelled = self.with(now, |connection, mut events| connection.cancel(now, name, &mut events));
        let Some((found, _)) = cancelled else { return false };
        if found != token || self.ends[token].is_some() {
            self.violation = Some(format!("request {token} was cancelled as {found}: {:?}", self.ends[token]));
        } else {
            self.open -= 1;
        }
        self.ends[token] = Some(Ended::Cancelled);
        true
    }

    /// Takes up to `most` bytes of what has arrived. Why the connection is over, if that is so by this.
    pub(super) fn read(
        &mut self,
        stream: &mut Stream,
        most: usize,
        now: Time,
        agenda: &mut Agenda,
    ) -> Option<ConnectionError> {
        let mut left = most;
        while left > 0 && stream.readable() > 0 && self.connection.phase() != Phase::Closed {
            let count = stream.read(self.connection.spare(), left, now, agenda);
            left -= count;
            if let Err(error) = self.with(now, |connection, mut events| connection.received(now, count, &mut events)) {
                return Some(error);
            }
        }
        if stream.is_over(now) && self.connection.phase() != Phase::Closed {
            return self.with(now, |connection, mut events| connection.ended(now, &mut events)).err();
        }
        None
    }
}

fn end_of(event: &Event<'_, usize>) -> Ended {
    match event {
        Event::Completed { payload, .. } => Ended::Completed(payload.to_vec()),
        Event::Dropped { reason, .. } => Ended::Dropped(*reason),
        Event::Failed { code, message, .. } => Ended::Failed(*code, message.as_str().into()),
        Event::Ended { end, .. } => Ended::Local(end.reason),
        Event::TooLong { .. } => Ended::TooLong,
        Event::Disconnected { at, .. } => Ended::Disconnected(*at),
    }
}

/// A client that says any bytes, and understands what it is told.
pub(super) struct Raw {
    /// Bytes that wait for the wire.
    pub(super) unsent: Vec<u8>,
    /// Whether it has ended its half once `unsent` is empty.
    pub(super) ends: bool,
    decoder: Decoder,
    /// Frames as text, with what they say of the session.
    pub(super) heard: VecDeque<String>,
    /// Whether the stream is at its end.
    pub(super) is_over: bool,
    /// The last window that it was told, and whether windows bind.
    pub(super) window: u32,
    pub(super) binds: bool,
    /// Answers that it was given.
    pub(super) answers: u64,
    /// The server has said something that is no frame of the protocol, or not in its place.
    pub(super) violation: Option<String>,
    has_heard: bool,
}

impl Raw {
    pub(super) fn new() -> Self {
        Raw {
            unsent: Vec::new(),
            ends: false,
            decoder: Decoder::new(Side::Server, PayloadLimit::DEFAULT),
            heard: VecDeque::new(),
            is_over: false,
            window: 1,
            binds: true,
            answers: 0,
            violation: None,
            has_heard: false,
        }
    }

    pub(super) fn read(&mut self, stream: &mut Stream, most: usize, now: Time, agenda: &mut Agenda) {
        let mut left = most;
        while left > 0 && stream.readable() > 0 && self.violation.is_none() {
            let count = stream.read(self.decoder.spare(), left, now, agenda);
            left -= count;
            self.decoder.filled(count);
            self.take_frames();
        }
        self.is_over |= stream.is_over(now);
    }

    fn take_frames(&mut self) {
        loop {
            let frame = match self.decoder.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(error) => {
                    self.violation = Some(format!("a server said what is no frame: {error}"));
                    return;
                }
            };
            let feedback = match &frame {
                Frame::Welcome(welcome) => {
                    if self.has_heard {
                        self.violation = Some("a welcome that is not the first frame".into());
                    }
                    self.binds = welcome.regime == Regime::Credits;
                    Some(welcome.feedback)
                }
                Frame::Credit(credit) => Some(credit.feedback),
                Frame::Response(response) => Some(response.answer.feedback),
                Frame::Drop(dropped) => Some(dropped.answer.feedback),
                Frame::Failure(failure) => Some(failure.answer.feedback),
                Frame::Error(_) => None,
                _ if !self.has_heard => {
                    self.violation = Some(format!("the first frame is a {}", frame.kind()));
                    None
                }
                _ => None,
            };
            self.has_heard = true;
            self.answers += u64::from(matches!(frame, Frame::Response(_) | Frame::Drop(_) | Frame::Failure(_)));
            self.window = feedback.map_or(self.window, |feedback| feedback.window.0);
            self.heard.push_back(format!("{frame:?}"));
        }
    }
}

/// Whether a server may say this to a client that has done nothing wrong.
pub(super) fn is_no_reproach(error: &ConnectionError) -> bool {
    match error {
        ConnectionError::Server { code, .. } => {
            matches!(code, ErrorCode::ShuttingDown | ErrorCode::ConnectionLimit | ErrorCode::Timeout)
        }
        // The server's half, or both, were cut inside a frame.
        ConnectionError::Wire(WireError::Truncated { .. }) | ConnectionError::Ended | ConnectionError::Closed => true,
        _ => false,
    }
}
