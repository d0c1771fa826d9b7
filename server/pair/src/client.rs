//! Clients of a pair: the real client, which accounts for its own requests, and a raw client, which
//! sends arbitrary bytes.

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

/// How a client reads arrived bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// All of them, at once.
    Eager,
    /// At most so many bytes at a time, at this interval.
    Slow(usize, Nanos),
    /// None.
    Paused,
}

/// End of a request of an honest client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Completed with this result.
    Completed(Vec<u8>),
    /// Rejected by the server.
    Rejected(RejectCode),
    /// Admitted, and without a result; the text has the reason.
    Failed(FailureCode, String),
    /// Ended at the client, without being sent.
    Local(LocalReason),
    /// The argument was too long.
    TooLong,
    /// Ended with its connection.
    Disconnected(RequestStage),
    /// Cancelled by the application.
    Cancelled,
}

/// The real client of `leeward-session`, which follows the protocol.
pub(super) struct HonestClient {
    pub(super) connection: Connection<usize>,
    /// End of each request, by token.
    pub(super) outcomes: Vec<Option<RequestOutcome>>,
    /// Identifier of each accepted request.
    request_ids: Vec<Option<RequestId>>,
    /// Submission time of each request, and latencies of completed requests.
    submitted: Vec<Time>,
    pub(super) latencies: Vec<Nanos>,
    /// Number of requests without an end.
    pub(super) open: usize,
    /// A request that ended twice, or in a forbidden way.
    pub(super) violation: Option<String>,
    /// Time of the next timer event.
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

    /// Calls `act` on the connection and records the requests that end by it.
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
        let request_id = self.with(now, |connection, mut events| match budget.remaining() {
            None => connection.submit(now, token, &request, &mut events),
            Some(_) => connection.submit_within(now, token, &request, budget, &mut events),
        });
        self.request_ids.push(request_id);
        token
    }

    /// Cancels a request. Returns whether it had no end yet.
    pub(super) fn cancel(&mut self, now: Time, token: usize) -> bool {
        let Some(request_id) = self.request_ids.get(token).copied().flatten() else { return false };
        let cancelled = self.with(now, |connection, mut events| connection.cancel(now, request_id, &mut events));
        let Some((found, _)) = cancelled else { return false };
        if found != token || self.outcomes[token].is_some() {
            self.violation = Some(format!("request {token} was cancelled as {found}: {:?}", self.outcomes[token]));
        } else {
            self.open -= 1;
        }
        self.outcomes[token] = Some(RequestOutcome::Cancelled);
        true
    }

    /// Reads up to `most` arrived bytes. Returns an error if this closed the connection.
    pub(super) fn read(
        &mut self,
        stream: &mut Stream,
        most: usize,
        now: Time,
        queue: &mut EventQueue,
    ) -> Option<ConnectionError> {
        let mut left = most;
        while left > 0 && stream.readable() > 0 && self.connection.phase() != Phase::Closed {
            let count = stream.read(self.connection.spare(), left, now, queue);
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

/// A client that sends arbitrary bytes and decodes the server's frames.
pub(super) struct RawClient {
    /// Bytes that wait for the wire.
    pub(super) unsent: Vec<u8>,
    /// Whether the client ends its half once `unsent` is empty.
    pub(super) is_closing: bool,
    decoder: Decoder,
    /// Received frames as text.
    pub(super) frames: VecDeque<String>,
    /// Whether the stream has ended.
    pub(super) is_eof: bool,
    /// The newest window, and whether windows bind.
    pub(super) window: u32,
    pub(super) window_binds: bool,
    /// Answers received.
    pub(super) answers: u64,
    /// The server sent bytes that are no frame, or a frame at the wrong position.
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

    pub(super) fn read(&mut self, stream: &mut Stream, most: usize, now: Time, queue: &mut EventQueue) {
        let mut left = most;
        while left > 0 && stream.readable() > 0 && self.violation.is_none() {
            let count = stream.read(self.decoder.spare(), left, now, queue);
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
                Frame::Drop(rejection) => Some(rejection.answer.feedback),
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

/// Whether a server may end an honest client's connection with this error.
pub(super) fn is_expected_error(error: &ConnectionError) -> bool {
    match error {
        ConnectionError::Server { code, .. } => {
            matches!(code, ErrorCode::ShuttingDown | ErrorCode::ConnectionLimit | ErrorCode::Timeout)
        }
        // A server's half, or both, may be cut inside a frame.
        ConnectionError::Wire(WireError::Truncated { .. })
        | ConnectionError::ClosedByServer
        | ConnectionError::LocallyClosed => true,
        _ => false,
    }
}
