//! A connection of a server, sans I/O: a decoder, the session's account with the controller, the calls that are
//! unanswered.

use super::chatter::Chatter;
use super::enforcement::{Enforcement, Ruling};
use super::event::{Answered, Call, Event, Fatal, Question, Reply, Ticket};
use super::number::Number;
use super::sender::SenderClock;
use leeward_core::budget::Budget;
use leeward_core::server::{Arrival, CoreId, Departure, Feedback, Opened, Outcome, Session, SessionSlot, Verdict};
use leeward_core::units::{self, Credits, Nanos, Tenant, Time};
use leeward_host::Desk;
use leeward_wire::{
    self as wire, Answer, Credit, Decoder, DropReason, Dropped, Encoder, ErrorCode, Failure, FailureCode, Frame,
    Greeting, Message, Method, Nanos32, PayloadLimit, Pong, Regime, Register, RequestId, Response, Side, Version,
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
    pub newest: Version,
    /// Whether calls' ages are read from their clients' clocks, for a controller that rehearses.
    pub reads_ages: bool,
}

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing has come yet.
    Fresh,
    /// Registered.
    Open,
    /// No more calls will come; answers are still owed.
    Leaving,
    /// Over: nothing more is said.
    Ended,
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
    account: Account,
}

/// All but the decoder, from which a frame is borrowed while it is handled.
#[derive(Debug)]
struct Account {
    config: ServerConfig,
    state: State,
    /// Version of the protocol that the client speaks.
    version: Version,
    /// `Some` while registered.
    session: Option<Session>,
    /// Whether the client keeps to its window; before it registers there is nothing to keep to.
    enforcement: Enforcement,
    /// On whose behalf all its calls are.
    tenant: Tenant,
    /// Account of its words besides its calls.
    chatter: Chatter,
    /// Clock by which it says when calls were sent, if their ages are read from it.
    sender: Option<Box<SenderClock>>,
    /// Calls that are unanswered. Few: a list is faster than a set.
    unanswered: Vec<RequestId>,
    encoder: Encoder,
}

impl ServerConnection {
    /// A connection from which nothing has come.
    pub fn new(config: ServerConfig) -> Self {
        ServerConnection {
            decoder: Decoder::new(Side::Client, config.payload_max),
            account: Account {
                config,
                state: State::Fresh,
                version: Version::One,
                session: None,
                enforcement: Enforcement::advising(),
                tenant: Tenant::DEFAULT,
                chatter: Chatter::new(),
                sender: config.reads_ages.then(Box::default),
                unanswered: Vec::new(),
                encoder: Encoder::new(config.payload_max),
            },
        }
    }

    /// Counts its calls for this tenant from now on: its carrier knows who the client is.
    pub fn count_for(&mut self, tenant: Tenant) {
        self.account.tenant = tenant;
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
        self.decoder.filled(count);
    }

    /// Bytes received and not yet handled.
    pub fn buffered(&self) -> usize {
        self.decoder.buffered()
    }

    /// Whether more of the client may be heard: it is not paused for cheating or for saying too much, and not as many of its
    /// calls are unanswered as may be.
    pub fn may_read(&self) -> bool {
        let account = &self.account;
        account.state != State::Ended
            && !account.enforcement.is_paused()
            && !account.chatter.is_spent()
            && account.unanswered.len() < account.config.unanswered_max
    }

    /// Calls that are unanswered.
    pub fn unanswered(&self) -> usize {
        self.account.unanswered.len()
    }

    /// The session's window as it is now; `None` while there is no session.
    pub fn window(&self) -> Option<Credits> {
        self.account.session.as_ref().map(|session| session.window)
    }

    /// Whether the client has said that no more calls will come.
    pub fn is_leaving(&self) -> bool {
        self.account.state == State::Leaving
    }

    /// Handles the next whole frame. What came with it had `waited` since its packet arrived. A call is decided at once,
    /// and dropped at once if the controller says so.
    ///
    /// # Errors
    /// What the client must not do: [`ServerConnection::end`] should follow.
    pub fn next(&mut self, waited: Nanos, desk: &mut impl Desk) -> Result<Event<'_>, Fatal> {
        if let Some(event) = self.foresee(waited, desk)? {
            return Ok(event);
        }
        if self.account.state == State::Fresh {
            self.account.meet(self.decoder.version())?;
        }
        match self.decoder.next_frame() {
            Ok(Some(frame)) => self.account.take(frame, waited, desk),
            Ok(None) => Ok(Event::Nothing),
            Err(error) => Err(Fatal { code: code_of(&error), words: error.to_string() }),
        }
    }

    /// Refuses a long call that has no credit before it is received: it gets no memory.
    fn foresee(&mut self, waited: Nanos, desk: &mut impl Desk) -> Result<Option<Event<'static>>, Fatal> {
        let account = &mut self.account;
        let Some(Frame::Call(call)) = self.decoder.coming() else { return Ok(None) };
        if account.state != State::Open || !account.enforcement.is_used_up() {
            return Ok(None);
        }
        if account.enforcement.call() == Ruling::Expelled {
            return Err(expelled());
        }
        let event = account.refuse(&call, waited, desk);
        self.decoder.skip();
        Ok(Some(event))
    }

    /// Ends a call: settles its account with the controller and appends the answer. `None` if its client has gone.
    pub fn answer(&mut self, ticket: Ticket, reply: Reply<'_>, desk: &mut impl Desk) -> Option<Answered> {
        self.account.answer(ticket, reply, desk)
    }

    /// Answers a question about the server. It is no call: neither the controller nor the client's window knows of it.
    pub fn tell(&mut self, question: Question, told: &[u8], desk: &mut impl Desk) {
        let window = self.window().unwrap_or_default();
        let feedback = Feedback { window, ..Feedback::NONE };
        self.account.enforcement.told(window);
        let Question { request, timestamp } = question;
        let answer = Answer { request, timestamp, feedback, sojourn: Nanos32::default() };
        let frame = Frame::Response(Response { answer, payload: told });
        if self.account.encoder.append(&frame, desk.out()).is_err() {
            let words = "the statistics are longer than this client accepts";
            self.account.say(&failure(answer, FailureCode::ResponseTooLarge, words), desk);
        }
    }

    /// Sends an explicit credit. Whether there was a session to send it to.
    pub fn credit(&mut self, desk: &mut impl Desk) -> bool {
        let now = desk.now();
        let Some(session) = &mut self.account.session else { return false };
        let feedback = desk.admission().wake(session, now);
        self.account.grant(feedback, desk);
        true
    }

    /// Appends the last words, with the reason for which the connection ends, and gives the session's window back at
    /// once, whether the client hears it or not. Returns the number of calls that get no answer.
    pub fn end(&mut self, code: ErrorCode, words: &str, desk: &mut impl Desk) -> usize {
        if self.account.state == State::Ended {
            return 0;
        }
        let abandoned = self.abandon(desk);
        // The error speaks of TLS itself.
        let foreign = self.decoder.foreign().filter(|greeting| *greeting != Greeting::Tls);
        let heard = foreign.map(|greeting| format!("{words}. They are of {greeting}"));
        let message = Message::new(heard.as_deref().unwrap_or(words));
        self.account.say(&Frame::Error(wire::Fatal { code, message }), desk);
        abandoned
    }

    /// Gives the session's window back, exactly once, because the connection has gone. Returns the number of calls that
    /// get no answer.
    pub fn abandon(&mut self, desk: &mut impl Desk) -> usize {
        self.account.state = State::Ended;
        self.account.leave(desk);
        let abandoned = self.account.unanswered.len();
        self.account.unanswered.clear();
        abandoned
    }

    /// A fixed span has passed. Whether that ends a pause, so that the client may be read again.
    pub fn on_sweep(&mut self) -> bool {
        let spoke = self.account.chatter.swept();
        self.account.enforcement.swept() || spoke
    }
}

impl Account {
    fn take<'a>(&mut self, frame: Frame<'a>, waited: Nanos, desk: &mut impl Desk) -> Result<Event<'a>, Fatal> {
        let is_question = matches!(&frame, Frame::Call(call) if call.method == Method::STATISTICS);
        if is_question || !matches!(frame, Frame::Call(_)) {
            self.chatter.word();
        }
        match (self.state, frame) {
            (State::Ended, _) => Ok(Event::Other),
            (State::Fresh, Frame::Register(register)) => {
                self.register(&register, desk);
                Ok(Event::Other)
            }
            (State::Open, Frame::Call(wire::Call { request, timestamp, .. })) if is_question => {
                Ok(Event::Question(Question { request, timestamp }))
            }
            (State::Open, Frame::Call(call)) => match self.enforcement.call() {
                Ruling::Lawful => {
                    self.chatter.call();
                    self.call(&call, waited, desk)
                }
                Ruling::Refused => Ok(self.refuse(&call, waited, desk)),
                Ruling::Expelled => Err(expelled()),
            },
            (State::Open, Frame::Demand(demand)) => {
                let now = desk.now();
                if let Some(session) = &mut self.session {
                    session.demand = demand.demand;
                    if let Some(feedback) = desk.admission().demand(session, now) {
                        self.grant(feedback, desk);
                    }
                }
                Ok(Event::Demand)
            }
            (State::Open, Frame::Deregister) => {
                self.state = State::Leaving;
                self.leave(desk);
                Ok(Event::Other)
            }
            (State::Open | State::Leaving, Frame::Ping(ping)) => {
                self.say(&Frame::Pong(Pong { timestamp: ping.timestamp }), desk);
                Ok(Event::Other)
            }
            (State::Open | State::Leaving, Frame::Pong(_)) => Ok(Event::Other),
            // An answer may have crossed it.
            (State::Open | State::Leaving, Frame::Cancel(cancel)) => {
                let is_known = self.unanswered.contains(&cancel.request);
                Ok(if is_known { Event::Cancel(cancel.request) } else { Event::Other })
            }
            (_, frame) => Err(unexpected(format!("a {} frame has no place here", frame.kind()))),
        }
    }

    /// The first frame has such a version, as far as is known.
    fn meet(&mut self, version: Option<Version>) -> Result<(), Fatal> {
        self.version = version.unwrap_or_default();
        let newest = self.config.newest;
        if self.version <= newest {
            return Ok(());
        }
        let words = format!("version {} is not spoken here; up to {} is", self.version.number(), newest.number());
        Err(Fatal { code: ErrorCode::Version, words })
    }

    fn register(&mut self, register: &Register, desk: &mut impl Desk) {
        let config = self.config;
        let mut session = Session::new(config.slot, config.core);
        let now = desk.now();
        desk.admission().open(&mut session, &Opened { now, demand: register.demand });
        let feedback = Feedback { window: session.window, ..Feedback::NONE };
        self.session = Some(session);
        self.state = State::Open;
        // The longest payload that the client accepts.
        self.encoder = Encoder::new(register.payload_max).speaking(self.version);
        if config.regime == Regime::Credits {
            self.enforcement = Enforcement::binding();
            self.enforcement.told(feedback.window);
        }
        let (timestamp, payload_max, regime) = (register.timestamp, config.payload_max, config.regime);
        self.say(&Frame::Welcome(Welcome { timestamp, feedback, payload_max, regime }), desk);
    }

    /// Decides about a call.
    fn call<'a>(&mut self, call: &wire::Call<'a>, waited: Nanos, desk: &mut impl Desk) -> Result<Event<'a>, Fatal> {
        let Some(session) = &mut self.session else { return Ok(Event::Other) };
        if self.unanswered.contains(&call.request) {
            let words = format!("request {} is unanswered", call.request.value());
            return Err(Fatal { code: ErrorCode::DuplicateRequest, words });
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
        if let Some(sender) = &mut self.sender {
            arrival = arrival.with_age(sender.age(now, call.timestamp).max(waited));
        }
        if let Some(budget) = call.budget.remaining() {
            arrival = arrival.with_budget(Budget::of(budget));
        }
        let (verdict, owed) = session.request(desk.admission(), &arrival);
        let ticket = Ticket {
            request: call.request,
            timestamp: call.timestamp,
            credit: call.credit,
            arrived: Time(now.0.saturating_sub(waited.0)),
            method: call.method,
            owed,
        };
        let mut number = Number::default();
        let reason = match verdict {
            Verdict::Reject(reason) => {
                number = desk.refusal().map_or_else(Number::default, Number::of);
                DropReason::from(reason)
            }
            Verdict::Admit if desk.is_stopping() => DropReason::ShuttingDown,
            Verdict::Admit => {
                return Ok(Event::Call(Call {
                    ticket,
                    method: call.method,
                    budget: call.budget,
                    payload: call.payload,
                }));
            }
        };
        let _ = self.answer(ticket, Reply::Drop(reason, number.words()), desk);
        Ok(Event::Dropped(reason))
    }

    /// Drops a call that was sent without credit. The controller hears nothing of it: neither the session's account nor
    /// the signals change.
    fn refuse(&mut self, call: &wire::Call<'_>, waited: Nanos, desk: &mut impl Desk) -> Event<'static> {
        let Some(session) = &self.session else { return Event::Other };
        let feedback = Feedback { window: session.window, ..Feedback::NONE };
        self.enforcement.answered(feedback.window);
        let sojourn = Nanos32::saturating(waited);
        let answer = Answer { request: call.request, timestamp: call.timestamp, feedback, sojourn };
        self.say(&dropped(answer, DropReason::NoCredit, ""), desk);
        Event::Dropped(DropReason::NoCredit)
    }

    fn answer(&mut self, ticket: Ticket, reply: Reply<'_>, desk: &mut impl Desk) -> Option<Answered> {
        let place = self.unanswered.iter().position(|request| *request == ticket.request)?;
        self.unanswered.swap_remove(place);
        let now = desk.now();
        let sojourn = now.since(ticket.arrived);
        let outcome = match reply {
            Reply::Result(_) | Reply::Failure(..) => Outcome::Completed,
            Reply::Drop(..) => Outcome::Dropped,
        };
        let feedback = match &mut self.session {
            Some(session) => {
                let departure = Departure { now, outcome, sojourn, credit: ticket.credit };
                session.reply(desk.admission(), ticket.owed, &departure)
            }
            None => Feedback::NONE,
        };
        self.enforcement.answered(feedback.window);
        let (request, timestamp) = (ticket.request, ticket.timestamp);
        let answer = Answer { request, timestamp, feedback, sojourn: Nanos32::saturating(sojourn) };
        let frame = match reply {
            Reply::Result(payload) => Frame::Response(Response { answer, payload }),
            Reply::Failure(code, words) => failure(answer, code, words),
            Reply::Drop(reason, words) => dropped(answer, reason, words),
        };
        let mut failed = if let Reply::Failure(code, _) = reply { Some(code) } else { None };
        if self.encoder.append(&frame, desk.out()).is_err() {
            let words = "the result is longer than this client accepts";
            self.say(&failure(answer, FailureCode::ResponseTooLarge, words), desk);
            failed = Some(FailureCode::ResponseTooLarge);
        }
        let dropped = if let Reply::Drop(reason, _) = reply { Some(reason) } else { None };
        Some(Answered { method: ticket.method, sojourn, dropped, failed })
    }

    /// Tells a window that answers nothing.
    fn grant(&mut self, feedback: Feedback, desk: &mut impl Desk) {
        self.enforcement.told(feedback.window);
        self.say(&Frame::Credit(Credit { feedback }), desk);
    }

    fn say(&self, frame: &Frame<'_>, desk: &mut impl Desk) {
        // What the server says by itself always fits.
        let _ = self.encoder.append(frame, desk.out());
    }

    /// Gives the session's window back.
    fn leave(&mut self, desk: &mut impl Desk) {
        let now = desk.now();
        if let Some(mut session) = self.session.take() {
            desk.admission().close(&mut session, now);
        }
    }
}

fn expelled() -> Fatal {
    unexpected("calls without credit, again and again".into())
}

fn unexpected(words: String) -> Fatal {
    Fatal { code: ErrorCode::Unexpected, words }
}

fn dropped(answer: Answer, reason: DropReason, words: &str) -> Frame<'_> {
    Frame::Drop(Dropped { answer, reason, message: Message::new(words), retry_after: Nanos32::default() })
}

fn failure<'a>(answer: Answer, code: FailureCode, words: &'a str) -> Frame<'a> {
    Frame::Failure(Failure { answer, code, message: Message::new(words) })
}

fn code_of(error: &WireError) -> ErrorCode {
    match error {
        WireError::Version { .. } => ErrorCode::Version,
        WireError::PayloadTooLarge { .. } => ErrorCode::TooLarge,
        _ => ErrorCode::Malformed,
    }
}
