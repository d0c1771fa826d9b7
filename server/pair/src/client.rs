//! A pair's clients: one of ours, which keeps its own books, and one that says whatever bytes it is told to.

use super::event_queue::EventQueue;
use super::stream::Stream;
use leeward_core::client::LocalReason;
use leeward_core::units::{Nanos, Priority, Time};
use leeward_session::client::{Connection, ConnectionError, Event, Phase, Request, RequestStage};
use leeward_wire::{
    Budget, Decoder, ErrorCode, FailureCode, Frame, Method, PayloadLimit, Regime, RejectCode, RequestId, Side,
    WireError,
};
use std::collections::VecDeque;

/// How a client takes what has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// All of it, as it comes.
    Eager,
    /// So many bytes at a time, so long after each other.
    Slow(usize, Nanos),
    /// None of it.
    Paused,
}

/// How a request of one of our clients ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// With this result.
    Completed(Vec<u8>),
    /// Rejected by the server.
    Rejected(RejectCode),
    /// Admitted, and without a result; the words say why.
    Failed(FailureCode, String),
    /// At the client, without having been sent.
    Local(LocalReason),
    /// Its argument was too long.
    TooLong,
    /// With its connection.
    Disconnected(RequestStage),
    /// Taken back by the application.
    Cancelled,
}

/// A client of this crate, which keeps the rules.
pub(super) struct HonestClient {
    pub(super) connection: Connection<usize>,
    /// How each request ended, by token.
    pub(super) outcomes: Vec<Option<RequestOutcome>>,
    /// The name of each request that was accepted.
    request_ids: Vec<Option<RequestId>>,
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

impl HonestClient {
    pub(super) fn new(connection: Connection<usize>) -> Self {
        HonestClient {
            connection,
            outcomes: Vec::new(),
            request_ids: Vec::new(),
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
        let HonestClient { connection, outcomes: ends, submitted, latencies, open, violation, .. } = self;
        act(connection, &mut |event| {
            let token = *event.token();
            let end = outcome(&event);
            if let RequestOutcome::Completed(_) = end {
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
        let token = self.outcomes.len();
        self.outcomes.push(None);
        self.submitted.push(now);
        self.open += 1;
        let request = Request { method: Method(1), payload, priority, random };
        let name = self.with(now, |connection, mut events| match budget.remaining() {
            None => connection.submit(now, token, &request, &mut events),
            Some(_) => connection.submit_within(now, token, &request, budget, &mut events),
        });
        self.request_ids.push(name);
        token
    }

    /// Takes a request back. Whether it had no end yet.
    pub(super) fn cancel(&mut self, now: Time, token: usize) -> bool {
        let Some(name) = self.request_ids.get(token).copied().flatten() else { return false };
        let cancelled = self.with(now, |connection, mut events| connection.cancel(now, name, &mut events));
        let Some((found, _)) = cancelled else { return false };
        if found != token || self.outcomes[token].is_some() {
            self.violation = Some(format!("request {token} was cancelled as {found}: {:?}", self.outcomes[token]));
        } else {
            self.open -= 1;
        }
        self.outcomes[token] = Some(RequestOutcome::Cancelled);
        true
    }

    /// Takes up to `most` bytes of what has arrived. Why the connection is over, if that is so by this.
    pub(super) fn read(
        &mut self,
        stream: &mut Stream,
        most: usize,
        now: Time,
        agenda: &mut EventQueue,
    ) -> Option<ConnectionError> {
        let mut left = most;
        while left > 0 && stream.readable() > 0 && self.connection.phase() != Phase::Closed {
            let count = stream.read(self.connection.spare(), left, now, agenda);
            left -= count;
            if let Err(error) = self.with(now, |connection, mut events| connection.on_received(now, count, &mut events))
            {
                return Some(error);
            }
        }
        if stream.is_eof(now) && self.connection.phase() != Phase::Closed {
            return self.with(now, |connection, mut events| connection.on_eof(now, &mut events)).err();
        }
        None
    }
}

fn outcome(event: &Event<'_, usize>) -> RequestOutcome {
    match event {
        Event::Completed { payload, .. } => RequestOutcome::Completed(payload.to_vec()),
        Event::Rejected { reason, .. } => RequestOutcome::Rejected(*reason),
        Event::Failed { code, message, .. } => RequestOutcome::Failed(*code, message.as_str().into()),
        Event::EndedLocally { end, .. } => RequestOutcome::Local(end.reason),
        Event::TooLong { .. } => RequestOutcome::TooLong,
        Event::Disconnected { stage: at, .. } => RequestOutcome::Disconnected(*at),
    }
}

/// A client that says any bytes, and understands what it is told.
pub(super) struct RawClient {
    /// Bytes that wait for the wire.
    pub(super) unsent: Vec<u8>,
    /// Whether it has ended its half once `unsent` is empty.
    pub(super) is_closing: bool,
    decoder: Decoder,
    /// Frames as text, with what they say of the session.
    pub(super) frames: VecDeque<String>,
    /// Whether the stream is at its end.
    pub(super) is_eof: bool,
    /// The last window that it was told, and whether windows bind.
    pub(super) window: u32,
    pub(super) window_binds: bool,
    /// Answers that it was given.
    pub(super) answers: u64,
    /// The server has said something that is no frame of the protocol, or not in its place.
    pub(super) violation: Option<String>,
    has_received: bool,
}

impl RawClient {
    pub(super) fn new() -> Self {
        RawClient {
            unsent: Vec::new(),
            is_closing: false,
            decoder: Decoder::new(Side::Server, PayloadLimit::DEFAULT),
            frames: VecDeque::new(),
            is_eof: false,
            window: 1,
            window_binds: true,
            answers: 0,
            violation: None,
            has_received: false,
        }
    }

    pub(super) fn read(&mut self, stream: &mut Stream, most: usize, now: Time, agenda: &mut EventQueue) {
        let mut left = most;
        while left > 0 && stream.readable() > 0 && self.violation.is_none() {
            let count = stream.read(self.decoder.spare(), left, now, agenda);
            left -= count;
            self.decoder.advance(count);
            self.handle_frames();
        }
        self.is_eof |= stream.is_eof(now);
    }

    fn handle_frames(&mut self) {
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
                    if self.has_received {
                        self.violation = Some("a welcome that is not the first frame".into());
                    }
                    self.window_binds = welcome.regime == Regime::Credits;
                    Some(welcome.feedback)
                }
                Frame::Credit(credit) => Some(credit.feedback),
                Frame::Response(response) => Some(response.answer.feedback),
                Frame::Drop(dropped) => Some(dropped.answer.feedback),
                Frame::Failure(failure) => Some(failure.answer.feedback),
                Frame::Error(_) => None,
                _ if !self.has_received => {
                    self.violation = Some(format!("the first frame is a {}", frame.kind()));
                    None
                }
                _ => None,
            };
            self.has_received = true;
            self.answers += u64::from(matches!(frame, Frame::Response(_) | Frame::Drop(_) | Frame::Failure(_)));
            self.window = feedback.map_or(self.window, |feedback| feedback.window.0);
            self.frames.push_back(format!("{frame:?}"));
        }
    }
}

/// Whether a server may say this to a client that has done nothing wrong.
pub(super) fn is_expected_error(error: &ConnectionError) -> bool {
    match error {
        ConnectionError::Server { code, .. } => {
            matches!(code, ErrorCode::ShuttingDown | ErrorCode::ConnectionLimit | ErrorCode::Timeout)
        }
        // The server's half, or both, were cut inside a frame.
        ConnectionError::Wire(WireError::Truncated { .. })
        | ConnectionError::ClosedByServer
        | ConnectionError::LocallyClosed => true,
        _ => false,
    }
}
