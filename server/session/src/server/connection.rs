//! A server's connection, sans I/O: a decoder, the controller session, and the unanswered calls.

use super::control_quota::ControlQuota;
use super::decision_label::DecisionLabel;
use super::enforcement::{CallCheck, Enforcement};
use super::event::{Call, CallSummary, Event, Permit, ProtocolViolation, Reply, StatisticsQuery};
use super::sender_clock::SenderClock;
use leeward_core::budget::Budget;
use leeward_core::server::{
    Arrival, CoreId, Departure, Feedback, Outcome, Registration, Session, SessionSlot, Verdict,
};
use leeward_core::units::{self, Credits, Nanos, Tenant, Time};
use leeward_host::ConnectionContext;
use leeward_wire::{
    self as wire, Answer, ClientProtocol, Credit, Decoder, Encoder, ErrorCode, Failure, FailureCode, Frame, Message,
    Method, Nanos32, PayloadLimit, Pong, Regime, Register, RejectCode, Rejection, RequestId, Response, Side, Version,
    Welcome,
};

/// Configuration and limits of a server's connection.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    /// The connection's slot on its core. Slots are dense: the controller may index arrays by them.
    pub slot: SessionSlot,
    /// The connection's core.
    pub core: CoreId,
    /// Meaning of the controller's windows to the client.
    pub regime: Regime,
    /// The longest argument that the server accepts.
    pub payload_max: PayloadLimit,
    /// Limit of unanswered calls; [`ServerConnection::may_read`] is false at this limit.
    pub unanswered_max: usize,
    /// The newest protocol version that the server speaks.
    pub max_version: Version,
    /// Whether to compute calls' ages from client timestamps, for a controller in shadow mode.
    pub tracks_call_age: bool,
}

/// State of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No frame has arrived.
    New,
    /// Registered.
    Open,
    /// The client sends no more calls; answers are still pending.
    Closing,
    /// Closed: nothing more is sent.
    Closed,
}

/// The server's side of one connection.
///
/// The owner moves bytes: from the socket through [`ServerConnection::spare`] and
/// [`ServerConnection::filled`], to the socket from the context's output. The owner takes events by
/// [`ServerConnection::next`] while [`ServerConnection::may_read`] is true, and returns each call's
/// permit by [`ServerConnection::answer`].
///
/// Memory is bounded by one frame that is being received and by the number of unanswered calls. The
/// owner holds the output, and should take no events while much of it is unsent.
#[derive(Debug)]
pub struct ServerConnection {
    decoder: Decoder,
    session: ServerSession,
}

/// State without the decoder, from which a frame is borrowed while it is handled.
#[derive(Debug)]
struct ServerSession {
    config: ServerConfig,
    state: State,
    /// Protocol version of the client.
    version: Version,
    /// `Some` while registered.
    controller_session: Option<Session>,
    /// Checks the client against its window; without effect before the registration.
    enforcement: Enforcement,
    /// Tenant of all calls on this connection.
    tenant: Tenant,
    /// Quota of frames that are no calls.
    control_quota: ControlQuota,
    /// Estimator of the client's clock, if call ages are tracked.
    sender_clock: Option<Box<SenderClock>>,
    /// Unanswered calls. There are few, so a list is faster than a set.
    unanswered: Vec<RequestId>,
    encoder: Encoder,
}

impl ServerConnection {
    /// Creates a connection that has received nothing.
    pub fn new(config: ServerConfig) -> Self {
        ServerConnection {
            decoder: Decoder::new(Side::Client, config.payload_max),
            session: ServerSession {
                config,
                state: State::New,
                version: Version::One,
                controller_session: None,
                enforcement: Enforcement::advisory(),
                tenant: Tenant::DEFAULT,
                control_quota: ControlQuota::new(),
                sender_clock: config.tracks_call_age.then(Box::default),
                unanswered: Vec::new(),
                encoder: Encoder::new(config.payload_max),
            },
        }
    }

    /// Counts all later calls for this tenant; the caller has identified the client.
    pub fn set_tenant(&mut self, tenant: Tenant) {
        self.session.tenant = tenant;
    }

    /// Receive buffer, for a caller that bounds its memory. Only [`ServerConnection::next`] may
    /// take frames from it.
    pub fn decoder(&mut self) -> &mut Decoder {
        &mut self.decoder
    }

    /// Buffer for the next bytes from the socket.
    pub fn spare(&mut self) -> &mut [u8] {
        self.decoder.spare()
    }

    /// Accepts the first `count` bytes of [`ServerConnection::spare`], which the socket has filled.
    ///
    /// # Panics
    /// If `count` exceeds the buffer.
    pub fn filled(&mut self, count: usize) {
        self.decoder.advance(count);
    }

    /// Bytes received and not yet handled.
    pub fn buffered(&self) -> usize {
        self.decoder.buffered()
    }

    /// Whether the owner may read more frames: the connection is open and not paused, its control
    /// quota is not exhausted, and the number of unanswered calls is below the limit.
    pub fn may_read(&self) -> bool {
        let session = &self.session;
        session.state != State::Closed
            && !session.enforcement.is_paused()
            && !session.control_quota.is_exhausted()
            && session.unanswered.len() < session.config.unanswered_max
    }

    /// Number of unanswered calls.
    pub fn unanswered(&self) -> usize {
        self.session.unanswered.len()
    }

    /// The session's current window; `None` while there is no session.
    pub fn window(&self) -> Option<Credits> {
        self.session.controller_session.as_ref().map(|session| session.window)
    }

    /// Whether the client has deregistered and sends no more calls.
    pub fn is_closing(&self) -> bool {
        self.session.state == State::Closing
    }

    /// Handles the next whole frame, whose packet arrived `waited` ago. The controller decides
    /// about a call at once, and a rejection is appended to the output at once.
    ///
    /// # Errors
    /// The client violated the protocol: the caller should call [`ServerConnection::close`].
    pub fn next(
        &mut self,
        waited: Nanos,
        context: &mut impl ConnectionContext,
    ) -> Result<Event<'_>, ProtocolViolation> {
        if let Some(event) = self.reject_early(waited, context)? {
            return Ok(event);
        }
        if self.session.state == State::New {
            self.session.check_version(self.decoder.version())?;
        }
        match self.decoder.next_frame() {
            Ok(Some(frame)) => self.session.handle_frame(frame, waited, context),
            Ok(None) => Ok(Event::Incomplete),
            Err(error) => Err(ProtocolViolation { code: error.code(), message: error.to_string() }),
        }
    }

    /// Rejects a long call without credit before it is received: it gets no memory.
    fn reject_early(
        &mut self,
        waited: Nanos,
        context: &mut impl ConnectionContext,
    ) -> Result<Option<Event<'static>>, ProtocolViolation> {
        let session = &mut self.session;
        let Some(Frame::Call(call)) = self.decoder.partial_frame() else { return Ok(None) };
        if session.state != State::Open || !session.enforcement.is_exhausted() {
            return Ok(None);
        }
        if session.enforcement.on_call() == CallCheck::Disconnect {
            return Err(repeated_violation());
        }
        let event = session.reject_uncredited(&call, waited, context);
        self.decoder.skip();
        Ok(Some(event))
    }

    /// Ends a call: reports its departure to the controller and appends the answer. `None` if the
    /// client has gone.
    pub fn answer(
        &mut self,
        permit: Permit,
        reply: Reply<'_>,
        context: &mut impl ConnectionContext,
    ) -> Option<CallSummary> {
        self.session.answer(permit, reply, context)
    }

    /// Answers a statistics query. A query is no call: it changes neither the controller's state
    /// nor the window.
    pub fn answer_query(&mut self, query: StatisticsQuery, statistics: &[u8], context: &mut impl ConnectionContext) {
        let window = self.window().unwrap_or_default();
        let feedback = Feedback { window, ..Feedback::NONE };
        self.session.enforcement.on_window_sent(window);
        let StatisticsQuery { request, timestamp } = query;
        let answer = Answer { request, timestamp, feedback, sojourn: Nanos32::default() };
        let frame = Frame::Response(Response { answer, payload: statistics });
        if self.session.encoder.append(&frame, context.out()).is_err() {
            let message = "the statistics are longer than this client accepts";
            self.session.send_frame(&failure(answer, FailureCode::ResponseTooLarge, message), context);
        }
    }

    /// Sends an explicit credit. Returns whether there was a session to send it to.
    pub fn send_credit(&mut self, context: &mut impl ConnectionContext) -> bool {
        let now = context.now();
        let Some(session) = &mut self.session.controller_session else { return false };
        let feedback = context.admission().wake(session, now);
        self.session.grant(feedback, context);
        true
    }

    /// Appends the final error frame and returns the session's window at once, even if the client
    /// never reads the frame. Returns the number of calls without an answer.
    pub fn close(&mut self, code: ErrorCode, text: &str, context: &mut impl ConnectionContext) -> usize {
        if self.session.state == State::Closed {
            return 0;
        }
        let abandoned = self.abandon(context);
        // The TLS error names TLS in its own message.
        let protocol = self.decoder.foreign_protocol().filter(|greeting| *greeting != ClientProtocol::Tls);
        let full_text = protocol.map(|greeting| format!("{text}. They are of {greeting}"));
        let message = Message::new(full_text.as_deref().unwrap_or(text));
        self.session.send_frame(&Frame::Error(wire::FatalError { code, message }), context);
        abandoned
    }

    /// Returns the session's window, exactly once, because the connection has gone. Returns the
    /// number of calls without an answer.
    pub fn abandon(&mut self, context: &mut impl ConnectionContext) -> usize {
        self.session.state = State::Closed;
        self.session.close_session(context);
        let abandoned = self.session.unanswered.len();
        self.session.unanswered.clear();
        abandoned
    }

    /// Handles the end of a scan interval. Returns whether a pause has ended, so that the
    /// connection may be read again.
    pub fn on_scan(&mut self) -> bool {
        let quota_refilled = self.session.control_quota.refill();
        self.session.enforcement.on_scan() || quota_refilled
    }
}

impl ServerSession {
    fn handle_frame<'a>(
        &mut self,
        frame: Frame<'a>,
        waited: Nanos,
        context: &mut impl ConnectionContext,
    ) -> Result<Event<'a>, ProtocolViolation> {
        let is_query = matches!(&frame, Frame::Call(call) if call.method == Method::STATISTICS);
        if is_query || !matches!(frame, Frame::Call(_)) {
            self.control_quota.on_control_frame();
        }
        match (self.state, frame) {
            (State::Closed, _) => Ok(Event::Other),
            (State::New, Frame::Register(register)) => {
                self.register(&register, context);
                Ok(Event::Other)
            }
            (State::Open, Frame::Call(wire::Call { request, timestamp, .. })) if is_query => {
                Ok(Event::Query(StatisticsQuery { request, timestamp }))
            }
            (State::Open, Frame::Call(call)) => match self.enforcement.on_call() {
                CallCheck::WithinWindow => {
                    self.control_quota.on_call();
                    self.handle_call(&call, waited, context)
                }
                CallCheck::NoCredit => Ok(self.reject_uncredited(&call, waited, context)),
                CallCheck::Disconnect => Err(repeated_violation()),
            },
            (State::Open, Frame::Demand(demand)) => {
                let now = context.now();
                if let Some(session) = &mut self.controller_session {
                    session.demand = demand.demand;
                    if let Some(feedback) = context.admission().demand(session, now) {
                        self.grant(feedback, context);
                    }
                }
                Ok(Event::Demand)
            }
            (State::Open, Frame::Deregister) => {
                self.state = State::Closing;
                self.close_session(context);
                Ok(Event::Other)
            }
            (State::Open | State::Closing, Frame::Ping(ping)) => {
                self.send_frame(&Frame::Pong(Pong { timestamp: ping.timestamp }), context);
                Ok(Event::Other)
            }
            (State::Open | State::Closing, Frame::Pong(_)) => Ok(Event::Other),
            // The answer may have been sent before the cancellation arrived.
            (State::Open | State::Closing, Frame::Cancel(cancel)) => {
                let is_known = self.unanswered.contains(&cancel.request);
                Ok(if is_known { Event::Cancel(cancel.request) } else { Event::Other })
            }
            (_, frame) => Err(unexpected(format!("a {} frame has no place here", frame.kind()))),
        }
    }

    /// Checks the protocol version of the first frame, as far as it is known.
    fn check_version(&mut self, version: Option<Version>) -> Result<(), ProtocolViolation> {
        self.version = version.unwrap_or_default();
        let newest = self.config.max_version;
        if self.version <= newest {
            return Ok(());
        }
        let text = format!("version {} is not spoken here; up to {} is", self.version.number(), newest.number());
        Err(ProtocolViolation { code: ErrorCode::Version, message: text })
    }

    fn register(&mut self, register: &Register, context: &mut impl ConnectionContext) {
        let config = self.config;
        let mut session = Session::new(config.slot, config.core);
        let now = context.now();
        context.admission().open(&mut session, &Registration { now, demand: register.demand });
        let feedback = Feedback { window: session.window, ..Feedback::NONE };
        self.controller_session = Some(session);
        self.state = State::Open;
        // The encoder's limit is the longest payload that the client accepts.
        self.encoder = Encoder::new(register.payload_max).with_version(self.version);
        if config.regime == Regime::Credits {
            self.enforcement = Enforcement::binding();
            self.enforcement.on_window_sent(feedback.window);
        }
        let (timestamp, payload_max, regime) = (register.timestamp, config.payload_max, config.regime);
        self.send_frame(&Frame::Welcome(Welcome { timestamp, feedback, payload_max, regime }), context);
    }

    /// Lets the controller decide about a call.
    fn handle_call<'a>(
        &mut self,
        call: &wire::Call<'a>,
        waited: Nanos,
        context: &mut impl ConnectionContext,
    ) -> Result<Event<'a>, ProtocolViolation> {
        let Some(session) = &mut self.controller_session else { return Ok(Event::Other) };
        if self.unanswered.contains(&call.request) {
            let text = format!("request {} is unanswered", call.request.value());
            return Err(ProtocolViolation { code: ErrorCode::DuplicateRequest, message: text });
        }
        self.unanswered.push(call.request);
        let (now, delay, random) = (context.now(), context.delay(), context.random());
        let mut arrival = Arrival::new(now)
            .with_demand(call.demand)
            .with_priority(call.priority)
            .with_tenant(self.tenant)
            .with_delay(delay)
            .with_random(random)
            .with_method(units::Method(call.method.0));
        if let Some(clock) = &mut self.sender_clock {
            arrival = arrival.with_age(clock.age(now, call.timestamp).max(waited));
        }
        if let Some(budget) = call.budget.remaining() {
            arrival = arrival.with_budget(Budget::new(budget));
        }
        let (verdict, pending_request) = session.request(context.admission(), &arrival);
        let call_permit = Permit {
            request: call.request,
            timestamp: call.timestamp,
            credit: call.credit,
            arrival: Time(now.0.saturating_sub(waited.0)),
            method: call.method,
            pending: pending_request,
        };
        let mut label = DecisionLabel::default();
        let reason = match verdict {
            Verdict::Reject(reason) => {
                label = context.refusal().map_or_else(DecisionLabel::default, DecisionLabel::new);
                RejectCode::from(reason)
            }
            Verdict::Admit if context.is_stopping() => RejectCode::ShuttingDown,
            Verdict::Admit => {
                return Ok(Event::Call(Call {
                    permit: call_permit,
                    method: call.method,
                    budget: call.budget,
                    payload: call.payload,
                }));
            }
        };
        let _ = self.answer(call_permit, Reply::Reject(reason, label.as_str()), context);
        Ok(Event::Rejected(reason))
    }

    /// Rejects a call that was sent without credit. The controller does not see it: neither its
    /// session nor its signals change.
    fn reject_uncredited(
        &mut self,
        call: &wire::Call<'_>,
        waited: Nanos,
        context: &mut impl ConnectionContext,
    ) -> Event<'static> {
        let Some(session) = &self.controller_session else { return Event::Other };
        let feedback = Feedback { window: session.window, ..Feedback::NONE };
        self.enforcement.on_answer_sent(feedback.window);
        let sojourn = Nanos32::saturating(waited);
        let answer = Answer { request: call.request, timestamp: call.timestamp, feedback, sojourn };
        self.send_frame(&rejection(answer, RejectCode::NoCredit, ""), context);
        Event::Rejected(RejectCode::NoCredit)
    }

    fn answer(
        &mut self,
        permit: Permit,
        reply: Reply<'_>,
        context: &mut impl ConnectionContext,
    ) -> Option<CallSummary> {
        let index = self.unanswered.iter().position(|request| *request == permit.request)?;
        self.unanswered.swap_remove(index);
        let now = context.now();
        let sojourn = now.since(permit.arrival);
        let outcome = match reply {
            Reply::Result(_) | Reply::Failure(..) => Outcome::Completed,
            Reply::Reject(..) => Outcome::Rejected,
        };
        let feedback = match &mut self.controller_session {
            Some(session) => {
                let departure = Departure { now, outcome, sojourn, credit: permit.credit };
                session.reply(context.admission(), permit.pending, &departure)
            }
            None => Feedback::NONE,
        };
        self.enforcement.on_answer_sent(feedback.window);
        let (request, timestamp) = (permit.request, permit.timestamp);
        let answer = Answer { request, timestamp, feedback, sojourn: Nanos32::saturating(sojourn) };
        let frame = match reply {
            Reply::Result(payload) => Frame::Response(Response { answer, payload }),
            Reply::Failure(code, message) => failure(answer, code, message),
            Reply::Reject(reason, message) => rejection(answer, reason, message),
        };
        let mut failure_code = if let Reply::Failure(code, _) = reply { Some(code) } else { None };
        if self.encoder.append(&frame, context.out()).is_err() {
            let message = "the result is longer than this client accepts";
            self.send_frame(&failure(answer, FailureCode::ResponseTooLarge, message), context);
            failure_code = Some(FailureCode::ResponseTooLarge);
        }
        let reject_code = if let Reply::Reject(reason, _) = reply { Some(reason) } else { None };
        Some(CallSummary { method: permit.method, sojourn, rejection: reject_code, failure: failure_code })
    }

    /// Sends a window that answers no call.
    fn grant(&mut self, feedback: Feedback, context: &mut impl ConnectionContext) {
        self.enforcement.on_window_sent(feedback.window);
        self.send_frame(&Frame::Credit(Credit { feedback }), context);
    }

    fn send_frame(&self, frame: &Frame<'_>, context: &mut impl ConnectionContext) {
        // Frames that the server itself sends always fit.
        let _ = self.encoder.append(frame, context.out());
    }

    /// Returns the session's window.
    fn close_session(&mut self, context: &mut impl ConnectionContext) {
        let now = context.now();
        if let Some(mut session) = self.controller_session.take() {
            context.admission().close(&mut session, now);
        }
    }
}

fn repeated_violation() -> ProtocolViolation {
    unexpected("calls without credit, again and again".into())
}

fn unexpected(text: String) -> ProtocolViolation {
    ProtocolViolation { code: ErrorCode::Unexpected, message: text }
}

fn rejection(answer: Answer, reason: RejectCode, message: &str) -> Frame<'_> {
    Frame::Drop(Rejection { answer, reason, message: Message::new(message), retry_after: Nanos32::default() })
}

fn failure<'a>(answer: Answer, code: FailureCode, message: &'a str) -> Frame<'a> {
    Frame::Failure(Failure { answer, code, message: Message::new(message) })
}
