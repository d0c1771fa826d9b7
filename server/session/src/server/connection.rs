//! A connection of a server, sans I/O: a decoder, the session's account with the controller, the calls that are
//! unanswered.

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
    Welcome, WireError,
};

/// Bounds of a server's connection, and where it stands.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    /// The connection's place on its core. Places are dense: the controller may index arrays by them.
    pub slot: SessionSlot,
    /// Its core.
    pub core: CoreId,
    /// Meaning of the controller's windows to a client.
    pub regime: Regime,
    /// The longest argument that is accepted.
    pub payload_max: PayloadLimit,
    /// Calls that may be unanswered; [`ServerConnection::may_read`] is false while there are as many.
    pub unanswered_max: usize,
    /// The newest version of the protocol that is spoken.
    pub max_version: Version,
    /// Whether calls' ages are read from their clients' clocks, for a controller that rehearses.
    pub tracks_call_age: bool,
}

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing has come yet.
    New,
    /// Registered.
    Open,
    /// No more calls will come; answers are still owed.
    Closing,
    /// Over: nothing more is said.
    Closed,
}

/// The server's side of one connection.
///
/// The owner moves bytes: from the socket through [`ServerConnection::spare`] and [`ServerConnection::filled`], to the socket
/// from the desk's output. It takes events by [`ServerConnection::next`] as long as [`ServerConnection::may_read`], and gives
/// each call's ticket back by [`ServerConnection::answer`].
///
/// Memory is bounded by one frame that is being received and by the number of unanswered calls. The output is the owner's:
/// it should take no events while much of it is unsent.
#[derive(Debug)]
pub struct ServerConnection {
    decoder: Decoder,
    session: ServerSession,
}

/// All but the decoder, from which a frame is borrowed while it is handled.
#[derive(Debug)]
struct ServerSession {
    config: ServerConfig,
    state: State,
    /// Version of the protocol that the client speaks.
    version: Version,
    /// `Some` while registered.
    controller_session: Option<Session>,
    /// Whether the client keeps to its window; before it registers there is nothing to keep to.
    enforcement: Enforcement,
    /// On whose behalf all its calls are.
    tenant: Tenant,
    /// Account of its words besides its calls.
    control_quota: ControlQuota,
    /// Clock by which it says when calls were sent, if their ages are read from it.
    sender_clock: Option<Box<SenderClock>>,
    /// Calls that are unanswered. Few: a list is faster than a set.
    unanswered: Vec<RequestId>,
    encoder: Encoder,
}

impl ServerConnection {
    /// A connection from which nothing has come.
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

    /// Counts its calls for this tenant from now on: its carrier knows who the client is.
    pub fn set_tenant(&mut self, tenant: Tenant) {
        self.session.tenant = tenant;
    }

    /// The receive buffer, for a carrier that bounds its memory. Frames are for [`ServerConnection::next`] alone.
    pub fn decoder(&mut self) -> &mut Decoder {
        &mut self.decoder
    }

    /// Where the next bytes from the socket go.
    pub fn spare(&mut self) -> &mut [u8] {
        self.decoder.spare()
    }

    /// The first `count` bytes of [`ServerConnection::spare`] have come from the socket.
    ///
    /// # Panics
    /// If there was no room for as many bytes.
    pub fn filled(&mut self, count: usize) {
        self.decoder.advance(count);
    }

    /// Bytes received and not yet handled.
    pub fn buffered(&self) -> usize {
        self.decoder.buffered()
    }

    /// Whether more of the client may be heard: it is not paused for cheating or for saying too much, and not as many of its
    /// calls are unanswered as may be.
    pub fn may_read(&self) -> bool {
        let account = &self.session;
        account.state != State::Closed
            && !account.enforcement.is_paused()
            && !account.control_quota.is_exhausted()
            && account.unanswered.len() < account.config.unanswered_max
    }

    /// Calls that are unanswered.
    pub fn unanswered(&self) -> usize {
        self.session.unanswered.len()
    }

    /// The session's window as it is now; `None` while there is no session.
    pub fn window(&self) -> Option<Credits> {
        self.session.controller_session.as_ref().map(|session| session.window)
    }

    /// Whether the client has said that no more calls will come.
    pub fn is_closing(&self) -> bool {
        self.session.state == State::Closing
    }

    /// Handles the next whole frame. What came with it had `waited` since its packet arrived. A call is decided at once,
    /// and dropped at once if the controller says so.
    ///
    /// # Errors
    /// What the client must not do: [`ServerConnection::end`] should follow.
    pub fn next(&mut self, waited: Nanos, desk: &mut impl ConnectionContext) -> Result<Event<'_>, ProtocolViolation> {
        if let Some(event) = self.reject_early(waited, desk)? {
            return Ok(event);
        }
        if self.session.state == State::New {
            self.session.check_version(self.decoder.version())?;
        }
        match self.decoder.next_frame() {
            Ok(Some(frame)) => self.session.handle_frame(frame, waited, desk),
            Ok(None) => Ok(Event::Incomplete),
            Err(error) => Err(ProtocolViolation { code: error_code(&error), message: error.to_string() }),
        }
    }

    /// Refuses a long call that has no credit before it is received: it gets no memory.
    fn reject_early(
        &mut self,
        waited: Nanos,
        desk: &mut impl ConnectionContext,
    ) -> Result<Option<Event<'static>>, ProtocolViolation> {
        let account = &mut self.session;
        let Some(Frame::Call(call)) = self.decoder.partial_frame() else { return Ok(None) };
        if account.state != State::Open || !account.enforcement.is_exhausted() {
            return Ok(None);
        }
        if account.enforcement.on_call() == CallCheck::Disconnect {
            return Err(repeated_violation());
        }
        let event = account.reject_uncredited(&call, waited, desk);
        self.decoder.skip();
        Ok(Some(event))
    }

    /// Ends a call: settles its account with the controller and appends the answer. `None` if its client has gone.
    pub fn answer(
        &mut self,
        ticket: Permit,
        reply: Reply<'_>,
        desk: &mut impl ConnectionContext,
    ) -> Option<CallSummary> {
        self.session.answer(ticket, reply, desk)
    }

    /// Answers a question about the server. It is no call: neither the controller nor the client's window knows of it.
    pub fn answer_query(&mut self, question: StatisticsQuery, told: &[u8], desk: &mut impl ConnectionContext) {
        let window = self.window().unwrap_or_default();
        let feedback = Feedback { window, ..Feedback::NONE };
        self.session.enforcement.on_window_sent(window);
        let StatisticsQuery { request, timestamp } = question;
        let answer = Answer { request, timestamp, feedback, sojourn: Nanos32::default() };
        let frame = Frame::Response(Response { answer, payload: told });
        if self.session.encoder.append(&frame, desk.out()).is_err() {
            let words = "the statistics are longer than this client accepts";
            self.session.send_frame(&failure(answer, FailureCode::ResponseTooLarge, words), desk);
        }
    }

    /// Sends an explicit credit. Whether there was a session to send it to.
    pub fn send_credit(&mut self, desk: &mut impl ConnectionContext) -> bool {
        let now = desk.now();
        let Some(session) = &mut self.session.controller_session else { return false };
        let feedback = desk.admission().wake(session, now);
        self.session.grant(feedback, desk);
        true
    }

    /// Appends the last words, with the reason for which the connection ends, and gives the session's window back at
    /// once, whether the client hears it or not. Returns the number of calls that get no answer.
    pub fn close(&mut self, code: ErrorCode, words: &str, desk: &mut impl ConnectionContext) -> usize {
        if self.session.state == State::Closed {
            return 0;
        }
        let abandoned = self.abandon(desk);
        // The error speaks of TLS itself.
        let foreign = self.decoder.foreign_protocol().filter(|greeting| *greeting != ClientProtocol::Tls);
        let heard = foreign.map(|greeting| format!("{words}. They are of {greeting}"));
        let message = Message::new(heard.as_deref().unwrap_or(words));
        self.session.send_frame(&Frame::Error(wire::FatalError { code, message }), desk);
        abandoned
    }

    /// Gives the session's window back, exactly once, because the connection has gone. Returns the number of calls that
    /// get no answer.
    pub fn abandon(&mut self, desk: &mut impl ConnectionContext) -> usize {
        self.session.state = State::Closed;
        self.session.close_session(desk);
        let abandoned = self.session.unanswered.len();
        self.session.unanswered.clear();
        abandoned
    }

    /// A fixed span has passed. Whether that ends a pause, so that the client may be read again.
    pub fn on_scan(&mut self) -> bool {
        let spoke = self.session.control_quota.refill();
        self.session.enforcement.on_scan() || spoke
    }
}

impl ServerSession {
    fn handle_frame<'a>(
        &mut self,
        frame: Frame<'a>,
        waited: Nanos,
        desk: &mut impl ConnectionContext,
    ) -> Result<Event<'a>, ProtocolViolation> {
        let is_question = matches!(&frame, Frame::Call(call) if call.method == Method::STATISTICS);
        if is_question || !matches!(frame, Frame::Call(_)) {
            self.control_quota.on_control_frame();
        }
        match (self.state, frame) {
            (State::Closed, _) => Ok(Event::Other),
            (State::New, Frame::Register(register)) => {
                self.register(&register, desk);
                Ok(Event::Other)
            }
            (State::Open, Frame::Call(wire::Call { request, timestamp, .. })) if is_question => {
                Ok(Event::Query(StatisticsQuery { request, timestamp }))
            }
            (State::Open, Frame::Call(call)) => match self.enforcement.on_call() {
                CallCheck::WithinWindow => {
                    self.control_quota.on_call();
                    self.handle_call(&call, waited, desk)
                }
                CallCheck::NoCredit => Ok(self.reject_uncredited(&call, waited, desk)),
                CallCheck::Disconnect => Err(repeated_violation()),
            },
            (State::Open, Frame::Demand(demand)) => {
                let now = desk.now();
                if let Some(session) = &mut self.controller_session {
                    session.demand = demand.demand;
                    if let Some(feedback) = desk.admission().demand(session, now) {
                        self.grant(feedback, desk);
                    }
                }
                Ok(Event::Demand)
            }
            (State::Open, Frame::Deregister) => {
                self.state = State::Closing;
                self.close_session(desk);
                Ok(Event::Other)
            }
            (State::Open | State::Closing, Frame::Ping(ping)) => {
                self.send_frame(&Frame::Pong(Pong { timestamp: ping.timestamp }), desk);
                Ok(Event::Other)
            }
            (State::Open | State::Closing, Frame::Pong(_)) => Ok(Event::Other),
            // An answer may have crossed it.
            (State::Open | State::Closing, Frame::Cancel(cancel)) => {
                let is_known = self.unanswered.contains(&cancel.request);
                Ok(if is_known { Event::Cancel(cancel.request) } else { Event::Other })
            }
            (_, frame) => Err(unexpected(format!("a {} frame has no place here", frame.kind()))),
        }
    }

    /// The first frame has such a version, as far as is known.
    fn check_version(&mut self, version: Option<Version>) -> Result<(), ProtocolViolation> {
        self.version = version.unwrap_or_default();
        let newest = self.config.max_version;
        if self.version <= newest {
            return Ok(());
        }
        let words = format!("version {} is not spoken here; up to {} is", self.version.number(), newest.number());
        Err(ProtocolViolation { code: ErrorCode::Version, message: words })
    }

    fn register(&mut self, register: &Register, desk: &mut impl ConnectionContext) {
        let config = self.config;
        let mut session = Session::new(config.slot, config.core);
        let now = desk.now();
        desk.admission().open(&mut session, &Registration { now, demand: register.demand });
        let feedback = Feedback { window: session.window, ..Feedback::NONE };
        self.controller_session = Some(session);
        self.state = State::Open;
        // The longest payload that the client accepts.
        self.encoder = Encoder::new(register.payload_max).with_version(self.version);
        if config.regime == Regime::Credits {
            self.enforcement = Enforcement::binding();
            self.enforcement.on_window_sent(feedback.window);
        }
        let (timestamp, payload_max, regime) = (register.timestamp, config.payload_max, config.regime);
        self.send_frame(&Frame::Welcome(Welcome { timestamp, feedback, payload_max, regime }), desk);
    }

    /// Decides about a call.
    fn handle_call<'a>(
        &mut self,
        call: &wire::Call<'a>,
        waited: Nanos,
        desk: &mut impl ConnectionContext,
    ) -> Result<Event<'a>, ProtocolViolation> {
        let Some(session) = &mut self.controller_session else { return Ok(Event::Other) };
        if self.unanswered.contains(&call.request) {
            let words = format!("request {} is unanswered", call.request.value());
            return Err(ProtocolViolation { code: ErrorCode::DuplicateRequest, message: words });
        }
        self.unanswered.push(call.request);
        let (now, delay, random) = (desk.now(), desk.delay(), desk.random());
        let mut arrival = Arrival::new(now)
            .with_demand(call.demand)
            .with_priority(call.priority)
            .with_tenant(self.tenant)
            .with_delay(delay)
            .with_random(random)
            .with_method(units::Method(call.method.0));
        if let Some(sender) = &mut self.sender_clock {
            arrival = arrival.with_age(sender.age(now, call.timestamp).max(waited));
        }
        if let Some(budget) = call.budget.remaining() {
            arrival = arrival.with_budget(Budget::new(budget));
        }
        let (verdict, owed) = session.request(desk.admission(), &arrival);
        let ticket = Permit {
            request: call.request,
            timestamp: call.timestamp,
            credit: call.credit,
            arrival: Time(now.0.saturating_sub(waited.0)),
            method: call.method,
            pending: owed,
        };
        let mut number = DecisionLabel::default();
        let reason = match verdict {
            Verdict::Reject(reason) => {
                number = desk.refusal().map_or_else(DecisionLabel::default, DecisionLabel::new);
                RejectCode::from(reason)
            }
            Verdict::Admit if desk.is_stopping() => RejectCode::ShuttingDown,
            Verdict::Admit => {
                return Ok(Event::Call(Call {
                    permit: ticket,
                    method: call.method,
                    budget: call.budget,
                    payload: call.payload,
                }));
            }
        };
        let _ = self.answer(ticket, Reply::Reject(reason, number.as_str()), desk);
        Ok(Event::Rejected(reason))
    }

    /// Drops a call that was sent without credit. The controller hears nothing of it: neither the session's account nor
    /// the signals change.
    fn reject_uncredited(
        &mut self,
        call: &wire::Call<'_>,
        waited: Nanos,
        desk: &mut impl ConnectionContext,
    ) -> Event<'static> {
        let Some(session) = &self.controller_session else { return Event::Other };
        let feedback = Feedback { window: session.window, ..Feedback::NONE };
        self.enforcement.on_answer_sent(feedback.window);
        let sojourn = Nanos32::saturating(waited);
        let answer = Answer { request: call.request, timestamp: call.timestamp, feedback, sojourn };
        self.send_frame(&rejection(answer, RejectCode::NoCredit, ""), desk);
        Event::Rejected(RejectCode::NoCredit)
    }

    fn answer(&mut self, ticket: Permit, reply: Reply<'_>, desk: &mut impl ConnectionContext) -> Option<CallSummary> {
        let place = self.unanswered.iter().position(|request| *request == ticket.request)?;
        self.unanswered.swap_remove(place);
        let now = desk.now();
        let sojourn = now.since(ticket.arrival);
        let outcome = match reply {
            Reply::Result(_) | Reply::Failure(..) => Outcome::Completed,
            Reply::Reject(..) => Outcome::Rejected,
        };
        let feedback = match &mut self.controller_session {
            Some(session) => {
                let departure = Departure { now, outcome, sojourn, credit: ticket.credit };
                session.reply(desk.admission(), ticket.pending, &departure)
            }
            None => Feedback::NONE,
        };
        self.enforcement.on_answer_sent(feedback.window);
        let (request, timestamp) = (ticket.request, ticket.timestamp);
        let answer = Answer { request, timestamp, feedback, sojourn: Nanos32::saturating(sojourn) };
        let frame = match reply {
            Reply::Result(payload) => Frame::Response(Response { answer, payload }),
            Reply::Failure(code, words) => failure(answer, code, words),
            Reply::Reject(reason, words) => rejection(answer, reason, words),
        };
        let mut failed = if let Reply::Failure(code, _) = reply { Some(code) } else { None };
        if self.encoder.append(&frame, desk.out()).is_err() {
            let words = "the result is longer than this client accepts";
            self.send_frame(&failure(answer, FailureCode::ResponseTooLarge, words), desk);
            failed = Some(FailureCode::ResponseTooLarge);
        }
        let dropped = if let Reply::Reject(reason, _) = reply { Some(reason) } else { None };
        Some(CallSummary { method: ticket.method, sojourn, rejection: dropped, failure: failed })
    }

    /// Tells a window that answers nothing.
    fn grant(&mut self, feedback: Feedback, desk: &mut impl ConnectionContext) {
        self.enforcement.on_window_sent(feedback.window);
        self.send_frame(&Frame::Credit(Credit { feedback }), desk);
    }

    fn send_frame(&self, frame: &Frame<'_>, desk: &mut impl ConnectionContext) {
        // What the server says by itself always fits.
        let _ = self.encoder.append(frame, desk.out());
    }

    /// Gives the session's window back.
    fn close_session(&mut self, desk: &mut impl ConnectionContext) {
        let now = desk.now();
        if let Some(mut session) = self.controller_session.take() {
            desk.admission().close(&mut session, now);
        }
    }
}

fn repeated_violation() -> ProtocolViolation {
    unexpected("calls without credit, again and again".into())
}

fn unexpected(words: String) -> ProtocolViolation {
    ProtocolViolation { code: ErrorCode::Unexpected, message: words }
}

fn rejection(answer: Answer, reason: RejectCode, words: &str) -> Frame<'_> {
    Frame::Drop(Rejection { answer, reason, message: Message::new(words), retry_after: Nanos32::default() })
}

fn failure<'a>(answer: Answer, code: FailureCode, words: &'a str) -> Frame<'a> {
    Frame::Failure(Failure { answer, code, message: Message::new(words) })
}

fn error_code(error: &WireError) -> ErrorCode {
    match error {
        WireError::Version { .. } => ErrorCode::Version,
        WireError::PayloadTooLarge { .. } => ErrorCode::TooLarge,
        _ => ErrorCode::Malformed,
    }
}
