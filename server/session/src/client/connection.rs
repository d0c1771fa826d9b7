//! A connection, sans I/O: the client shell of `leeward-core`, a decoder, and the bytes that wait
//! for the socket.

use std::mem;

use leeward_core::client::{Client, ClientParts, ClientSink, Header, LocalOutcome, LocalReason};
use leeward_core::server::{Feedback, Outcome};
use leeward_core::units::{CreditId, Nanos, Priority, Time};

use super::error::ConnectionError;
use super::event::{Event, Phase, RequestStage, WelcomeInfo};
use super::gate::InFlightLimit;
use super::send_buffer::SendBuffer;
use super::slots::Slots;
use leeward_wire::{
    Answer, Budget, Call, Cancel, Decoder, Demand, Encoder, Frame, Kind, Method, PayloadLimit, Ping, Pong, Regime,
    Register, RejectCode, RequestId, Side, Timestamp, Version, Welcome,
};

/// Limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionConfig {
    /// The longest result that this side accepts.
    pub payload_max: PayloadLimit,
    /// Bytes that may wait for the socket before calls have to wait, as if the algorithm's gate
    /// were closed. One more frame and a few frames of 64 B may exceed the limit.
    pub output_max: usize,
    /// Queueing delay that a call may spend at the server, unless the call has a budget of its own.
    pub budget: Budget,
    /// Version of the protocol. A server that does not speak it closes the connection: see
    /// [`ConnectionError::refuses_version`].
    pub version: Version,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        // Output limit: about the size of a default socket buffer.
        ConnectionConfig {
            payload_max: PayloadLimit::DEFAULT,
            output_max: 256 * 1024,
            budget: Budget::UNLIMITED,
            version: Version::NEWEST,
        }
    }
}

/// Request for [`Connection::submit`].
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The procedure.
    pub method: Method,
    /// Argument. Copied, and kept until the request is sent.
    pub payload: &'a [u8],
    /// Importance of the request.
    pub priority: Priority,
    /// 64 random bits, for algorithms that decide by chance.
    pub random: u64,
}

/// Condition under which a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendPolicy {
    /// When the algorithm permits.
    WhenAllowed,
    /// At once, on a reservation.
    Reserved,
}

/// The client's side of one connection. `T` is the owner's token for a request.
///
/// The owner moves bytes: from the socket through [`Connection::spare`] and
/// [`Connection::on_received`], to the socket from [`Connection::output`] and
/// [`Connection::consume`]. The owner calls [`Connection::on_timer`] at
/// [`Connection::next_timeout`]. Every method that can end a request takes an event callback. Each
/// submitted request ends in exactly one [`Event`], unless it is cancelled. Each of these methods
/// may append output.
///
/// Memory is bounded by the algorithm's queue and its `max_outstanding` (payloads of waiting
/// requests), by [`ConnectionConfig::output_max`], and by one frame that is being received.
pub struct Connection<T> {
    shell: Client<u32>,
    decoder: Decoder,
    state: ConnectionState<T>,
}

/// State without the shell and the decoder, which are borrowed separately.
struct ConnectionState<T> {
    config: ConnectionConfig,
    phase: Phase,
    error: Option<ConnectionError>,
    slots: Slots<T>,
    outbox: SendBuffer,
    cap: InFlightLimit,
    /// Calls that the server permits to be unanswered.
    window: u32,
    /// Calls that the transport permits to be unanswered.
    transport_limit: u32,
    call_max: PayloadLimit,
    registered_at: Option<Time>,
    welcome: Option<WelcomeInfo>,
    /// A demand could not be sent because the send buffer was full.
    demand_pending: bool,
    /// Send time of the ping that has not been answered.
    ping_sent_at: Option<Time>,
}

impl<T> Connection<T> {
    /// Creates an unregistered connection with an algorithm's client half
    /// (`Algorithm::build_client`).
    pub fn new(parts: ClientParts, config: ConnectionConfig) -> Self {
        let cap = InFlightLimit::new();
        let half = cap.wrap(parts.half);
        Connection {
            shell: Client::new(ClientParts { half, config: parts.config }),
            decoder: decoder(&config),
            state: ConnectionState {
                config,
                phase: Phase::Registering,
                error: None,
                slots: Slots::new(),
                outbox: SendBuffer::new(config.output_max.max(1)),
                cap,
                window: 1,
                transport_limit: u32::MAX,
                call_max: PayloadLimit::MIN,
                registered_at: None,
                welcome: None,
                demand_pending: false,
                ping_sent_at: None,
            },
        }
    }

    /// Submits a request, which is sent, waits, or ends at once. The identifier is for
    /// [`Connection::cancel`].
    pub fn submit(
        &mut self,
        now: Time,
        token: T,
        request: &Request<'_>,
        events: &mut impl FnMut(Event<'_, T>),
    ) -> Option<RequestId> {
        self.accept(now, token, request, None, SendPolicy::WhenAllowed, events)
    }

    /// Reserves the permission to send one call. Returns `false` if no call may be sent now.
    ///
    /// For an owner that calls several servers and sends only if all of them permit it.
    /// [`Connection::submit_reserved`] uses the reservation, [`Connection::release`] gives it back.
    pub fn reserve(&mut self, now: Time) -> bool {
        self.state.phase == Phase::Ready && self.shell.reserve(now)
    }

    /// Gives a reservation back; a waiting call may be sent on it.
    pub fn release(&mut self, now: Time, events: &mut impl FnMut(Event<'_, T>)) {
        self.shell.release();
        self.on_timer(now, events);
    }

    /// Like [`Connection::submit_within`], on a reservation: the request is sent at once.
    pub fn submit_reserved(
        &mut self,
        now: Time,
        token: T,
        request: &Request<'_>,
        budget: Option<Budget>,
        events: &mut impl FnMut(Event<'_, T>),
    ) -> Option<RequestId> {
        self.accept(now, token, request, budget.map(|budget| (budget, now)), SendPolicy::Reserved, events)
    }

    /// Sets the number of requests that wait elsewhere for a reservation here. The demand reported
    /// to the server includes them.
    pub fn set_waiting_elsewhere(&mut self, now: Time, requests: u32, events: &mut impl FnMut(Event<'_, T>)) {
        if self.state.phase == Phase::Ready {
            self.shell.set_waiting_elsewhere(requests, &mut ShellSink { link: &mut self.state, now, events });
        }
    }

    /// Like [`Connection::submit`], with a budget of its own: queueing delay that the request may
    /// spend from now on, its wait in this client included.
    pub fn submit_within(
        &mut self,
        now: Time,
        token: T,
        request: &Request<'_>,
        budget: Budget,
        events: &mut impl FnMut(Event<'_, T>),
    ) -> Option<RequestId> {
        self.accept(now, token, request, Some((budget, now)), SendPolicy::WhenAllowed, events)
    }

    fn accept(
        &mut self,
        now: Time,
        token: T,
        request: &Request<'_>,
        budget: Option<(Budget, Time)>,
        policy: SendPolicy,
        events: &mut impl FnMut(Event<'_, T>),
    ) -> Option<RequestId> {
        let limit = self.state.call_max;
        let is_over = matches!(self.state.phase, Phase::Draining | Phase::Closed);
        if policy == SendPolicy::Reserved && (is_over || request.payload.len() > limit.bytes() as usize) {
            self.shell.release();
        }
        if is_over {
            events(Event::Disconnected { token, stage: RequestStage::Waiting });
            return None;
        }
        if request.payload.len() > limit.bytes() as usize {
            events(Event::TooLong { token, limit });
            return None;
        }
        let (slot, name) = self.state.slots.insert(token, request.method, request.payload, budget);
        if request.method == Method::STATISTICS {
            return self.submit_statistics(now, slot, events).then_some(name);
        }
        let mut out = ShellSink { link: &mut self.state, now, events };
        match policy {
            SendPolicy::WhenAllowed => self.shell.submit(now, slot, request.priority, request.random, &mut out),
            SendPolicy::Reserved => self.shell.submit_reserved(now, slot, request.priority, &mut out),
        }
        Some(name)
    }

    /// Sends a statistics request, which needs no credit and never waits. Returns whether there was
    /// space for it.
    fn submit_statistics(&mut self, now: Time, slot: u32, events: &mut impl FnMut(Event<'_, T>)) -> bool {
        if self.state.outbox.overflows() {
            if let Some(token) = self.state.slots.remove(slot) {
                let end = LocalOutcome { reason: LocalReason::Overflow, waited: Nanos::ZERO };
                events(Event::EndedLocally { token, end });
            }
            return false;
        }
        self.state.register(now, self.shell.demand());
        self.state.send_statistics_call(slot, now);
        true
    }

    /// Cancels a request and returns its token and stage; `None` if the request has ended. No event
    /// follows.
    ///
    /// A waiting request leaves the queue at once. For a sent request the server is notified, if
    /// the connection speaks version 2. The request holds its credit until its answer, which is
    /// counted and discarded.
    pub fn cancel(
        &mut self,
        now: Time,
        request: RequestId,
        events: &mut impl FnMut(Event<'_, T>),
    ) -> Option<(T, RequestStage)> {
        let Some(slot) = self.state.slots.find_waiting(request) else {
            let token = self.state.slots.abandon(request)?;
            self.state.send_cancel(request);
            return Some((token, RequestStage::Sent));
        };
        let token = self.state.slots.remove(slot)?;
        self.shell.cancel(now, |waiting| *waiting == slot, &mut ShellSink { link: &mut self.state, now, events });
        Some((token, RequestStage::Waiting))
    }

    /// Sends a ping, whose pong [`Connection::on_received`] handles. Returns whether the ping was
    /// sent.
    ///
    /// No ping is sent before the welcome, nor while another ping is unanswered.
    pub fn ping(&mut self, now: Time) -> bool {
        let asks =
            self.state.phase == Phase::Ready && self.state.ping_sent_at.is_none() && !self.state.outbox.overflows();
        if asks {
            self.state.ping_sent_at = Some(now);
            self.state.append(&Frame::Ping(Ping { timestamp: Timestamp(now.0) }));
        }
        asks
    }

    /// Whether a request submitted now would be sent at once: no request waits, the algorithm's
    /// gate is open, and the window and the send buffer permit it.
    pub fn would_send(&mut self, now: Time) -> bool {
        self.state.phase == Phase::Ready && self.shell.would_send(now)
    }

    /// Calls that the server permits to be unanswered: its newest window. [`u32::MAX`] where
    /// windows are advisory.
    pub fn window(&self) -> u32 {
        self.state.window
    }

    /// Handles the passage of time: requests expire, a rate limit permits the next one. A spurious
    /// call has no effect.
    pub fn on_timer(&mut self, now: Time, events: &mut impl FnMut(Event<'_, T>)) {
        if self.state.phase != Phase::Closed {
            self.shell.on_timer(now, &mut ShellSink { link: &mut self.state, now, events });
        }
    }

    /// Limits the number of unanswered calls, in addition to the window. A transport lowers it
    /// after a loss.
    pub fn set_transport_limit(&mut self, now: Time, calls: u32, events: &mut impl FnMut(Event<'_, T>)) {
        if calls != self.state.transport_limit {
            let grows = calls > self.state.transport_limit;
            self.state.transport_limit = calls.max(1);
            self.state.update_cap();
            if grows {
                self.on_timer(now, events);
            }
        }
    }

    /// Time of the next [`Connection::on_timer`]; `None` while no request waits.
    pub fn next_timeout(&mut self, now: Time) -> Option<Time> {
        self.shell.next_timeout(now)
    }

    /// Buffer for the next bytes from the socket. Empty only on a closed connection, if
    /// [`Connection::on_received`] follows each read.
    pub fn spare(&mut self) -> &mut [u8] {
        if self.state.phase == Phase::Closed {
            return &mut [];
        }
        self.decoder.spare()
    }

    /// Handles the first `count` bytes of [`Connection::spare`], which the socket has filled.
    ///
    /// # Errors
    /// The reason for which the connection is closed. All requests have then ended as
    /// [`Event::Disconnected`], and the owner should close the socket.
    ///
    /// # Panics
    /// If `count` exceeds the buffer.
    pub fn on_received(
        &mut self,
        now: Time,
        count: usize,
        events: &mut impl FnMut(Event<'_, T>),
    ) -> Result<(), ConnectionError> {
        if let Some(error) = &self.state.error {
            return Err(error.clone());
        }
        self.decoder.advance(count);
        match self.handle_frames(now, events) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.fail(now, error.clone(), events);
                Err(error)
            }
        }
    }

    fn handle_frames(&mut self, now: Time, events: &mut impl FnMut(Event<'_, T>)) -> Result<(), ConnectionError> {
        let Connection { shell, decoder, state: link } = self;
        while let Some(frame) = decoder.next_frame()? {
            link.handle_frame(now, &frame, shell, events)?;
        }
        Ok(())
    }

    /// Handles the end or the failure of the socket.
    ///
    /// # Errors
    /// The reason for which the connection is closed, unless this side had deregistered and no
    /// answer is missing.
    pub fn on_eof(&mut self, now: Time, events: &mut impl FnMut(Event<'_, T>)) -> Result<(), ConnectionError> {
        if let Some(error) = &self.state.error {
            return Err(error.clone());
        }
        let expected = self.state.phase == Phase::Draining && self.state.slots.in_flight() == 0;
        let error = match self.decoder.finish() {
            Err(error) => ConnectionError::Wire(error),
            Ok(()) if expected => ConnectionError::LocallyClosed,
            Ok(()) => ConnectionError::ClosedByServer,
        };
        self.fail(now, error.clone(), events);
        if error == ConnectionError::LocallyClosed { Ok(()) } else { Err(error) }
    }

    /// Deregisters the session: waiting calls end and the session returns its credits. Answers to
    /// sent calls still arrive; then the server closes the socket.
    pub fn deregister(&mut self, now: Time, events: &mut impl FnMut(Event<'_, T>)) {
        match self.state.phase {
            Phase::Draining | Phase::Closed => {}
            Phase::Registering | Phase::Ready => {
                self.state.register(now, 0);
                self.state.phase = Phase::Draining;
                self.state.update_cap();
                self.end_waiting(now, events);
                self.state.append(&Frame::Deregister);
            }
        }
    }

    /// Closes at once: all requests end, and no more bytes are sent.
    pub fn close(&mut self, now: Time, events: &mut impl FnMut(Event<'_, T>)) {
        if self.state.phase != Phase::Closed {
            self.fail(now, ConnectionError::LocallyClosed, events);
        }
    }

    fn fail(&mut self, now: Time, error: ConnectionError, events: &mut impl FnMut(Event<'_, T>)) {
        // A server that rejects the version has not read the call that followed the registration.
        let sent_stage = if error.refuses_version() { RequestStage::Waiting } else { RequestStage::Sent };
        self.state.phase = Phase::Closed;
        self.state.error = Some(error);
        self.state.update_cap();
        self.state.outbox.discard();
        self.decoder = decoder(&self.state.config);
        self.end_waiting(now, events);
        self.state.slots.drain_sent(|token| events(Event::Disconnected { token, stage: sent_stage }));
    }

    fn end_waiting(&mut self, now: Time, events: &mut impl FnMut(Event<'_, T>)) {
        let slots = &mut self.state.slots;
        self.shell.close(now, |slot, _| {
            if let Some(token) = slots.remove(slot) {
                events(Event::Disconnected { token, stage: RequestStage::Waiting });
            }
        });
    }

    /// Bytes for the socket, the registration first.
    pub fn output(&mut self, now: Time) -> &[u8] {
        if self.state.phase != Phase::Closed {
            self.state.register(now, self.shell.demand());
        }
        self.state.outbox.pending()
    }

    /// Removes the first `count` bytes of [`Connection::output`], which the socket has taken. Calls
    /// that waited for space may be appended.
    ///
    /// # Panics
    /// If `count` exceeds the output.
    pub fn consume(&mut self, now: Time, count: usize, events: &mut impl FnMut(Event<'_, T>)) {
        let was_full = self.state.outbox.is_full();
        self.state.outbox.consume(count);
        if was_full && !self.state.outbox.is_full() {
            self.state.update_cap();
            self.on_timer(now, events);
            let calls = matches!(self.state.phase, Phase::Registering | Phase::Ready);
            if mem::take(&mut self.state.demand_pending) && calls {
                self.state.append(&Frame::Demand(Demand { demand: self.shell.demand() }));
            }
        }
    }

    /// Phase of the connection's life.
    pub fn phase(&self) -> Phase {
        self.state.phase
    }

    /// Reason for which the connection is closed.
    pub fn error(&self) -> Option<&ConnectionError> {
        self.state.error.as_ref()
    }

    /// The server's welcome; `None` before its arrival.
    pub fn welcome(&self) -> Option<&WelcomeInfo> {
        self.state.welcome.as_ref()
    }

    /// Requests that wait in this client for permission to be sent.
    pub fn waiting(&self) -> u32 {
        self.shell.demand()
    }

    /// Requests sent and not answered.
    pub fn in_flight(&self) -> u32 {
        self.state.slots.in_flight()
    }
}

impl<T> ConnectionState<T> {
    /// Handles a frame from the server.
    fn handle_frame(
        &mut self,
        now: Time,
        frame: &Frame<'_>,
        shell: &mut Client<u32>,
        events: &mut impl FnMut(Event<'_, T>),
    ) -> Result<(), ConnectionError> {
        let kind = frame.kind();
        // The protocol: the welcome is the server's first frame, unless that is an `Error`. It
        // comes once.
        if kind != Kind::Error && (kind == Kind::Welcome) == self.welcome.is_some() {
            return Err(ConnectionError::Unexpected { kind });
        }
        match frame {
            Frame::Welcome(welcome) => self.on_welcome(now, welcome, shell, events),
            Frame::Response(response) => {
                let (token, trip) = self.complete_call(now, kind, &response.answer)?;
                let (round_trip, sojourn) = (trip.duration, response.answer.sojourn.nanos());
                if let Some(token) = token {
                    events(Event::Completed { token, payload: response.payload, round_trip, sojourn });
                }
                self.on_reply(now, trip, Outcome::Completed, &response.answer, shell, events);
                Ok(())
            }
            Frame::Drop(rejection) => {
                let (token, trip) = self.complete_call(now, kind, &rejection.answer)?;
                let (sojourn, retry_after) = (rejection.answer.sojourn.nanos(), rejection.retry_after.nanos());
                let round_trip = trip.duration;
                if let Some(token) = token {
                    let (reason, message) = (rejection.reason, rejection.message);
                    events(Event::Rejected { token, reason, message, retry_after, round_trip, sojourn });
                }
                let outcome = match rejection.reason {
                    // A cancellation by the client is no sign of overload.
                    RejectCode::Cancelled => Outcome::Completed,
                    _ => Outcome::Rejected,
                };
                self.on_reply(now, trip, outcome, &rejection.answer, shell, events);
                Ok(())
            }
            Frame::Failure(failure) => {
                let (token, trip) = self.complete_call(now, kind, &failure.answer)?;
                let (round_trip, sojourn) = (trip.duration, failure.answer.sojourn.nanos());
                if let Some(token) = token {
                    events(Event::Failed { token, code: failure.code, message: failure.message, round_trip, sojourn });
                }
                // The server admitted and executed the call: no sign of overload.
                self.on_reply(now, trip, Outcome::Completed, &failure.answer, shell, events);
                Ok(())
            }
            Frame::Credit(credit) => {
                self.apply_feedback(&credit.feedback);
                shell.on_credit(now, &credit.feedback, &mut ShellSink { link: self, now, events });
                Ok(())
            }
            Frame::Ping(ping) => {
                if self.outbox.overflows() {
                    return Err(ConnectionError::PingFlood);
                }
                self.append(&Frame::Pong(Pong { timestamp: ping.timestamp }));
                Ok(())
            }
            Frame::Pong(pong) => {
                let sent = self.ping_sent_at.take().ok_or(ConnectionError::Unexpected { kind })?;
                check_echo(kind, sent, pong.timestamp)
            }
            Frame::Error(fatal) => {
                Err(ConnectionError::Server { code: fatal.code, message: fatal.message.as_str().to_string() })
            }
            // Only clients send these frames; the decoder has rejected them before.
            _ => Err(ConnectionError::Unexpected { kind }),
        }
    }

    fn on_welcome(
        &mut self,
        now: Time,
        welcome: &Welcome,
        shell: &mut Client<u32>,
        events: &mut impl FnMut(Event<'_, T>),
    ) -> Result<(), ConnectionError> {
        let kind = Kind::Welcome;
        let sent = self.registered_at.ok_or(ConnectionError::Unexpected { kind })?;
        check_echo(kind, sent, welcome.timestamp)?;
        let Welcome { payload_max, regime, .. } = *welcome;
        self.welcome = Some(WelcomeInfo { round_trip: now.since(sent), payload_max, regime });
        self.call_max = payload_max;
        if self.phase == Phase::Registering {
            self.phase = Phase::Ready;
        }
        self.apply_feedback(&welcome.feedback);
        shell.on_credit(now, &welcome.feedback, &mut ShellSink { link: self, now, events });
        Ok(())
    }

    /// The request that an answer ends, unless it was cancelled, and its round trip.
    fn complete_call(
        &mut self,
        now: Time,
        kind: Kind,
        answer: &Answer,
    ) -> Result<(Option<T>, RoundTrip), ConnectionError> {
        let unknown = ConnectionError::UnknownRequest { request: answer.request.value() };
        let (sent, method) = self.slots.sent_at(answer.request).ok_or(unknown.clone())?;
        check_echo(kind, sent, answer.timestamp)?;
        let token = self.slots.complete(answer.request).ok_or(unknown)?;
        Ok((token, RoundTrip { method, duration: now.since(sent) }))
    }

    fn on_reply(
        &mut self,
        now: Time,
        trip: RoundTrip,
        outcome: Outcome,
        answer: &Answer,
        shell: &mut Client<u32>,
        events: &mut impl FnMut(Event<'_, T>),
    ) {
        self.apply_feedback(&answer.feedback);
        if trip.method == Method::STATISTICS {
            // A statistics request held no credit.
            return shell.on_credit(now, &answer.feedback, &mut ShellSink { link: self, now, events });
        }
        shell.on_reply(now, outcome, trip.duration, &answer.feedback, &mut ShellSink { link: self, now, events });
    }

    /// Replaces the window. The protocol: "The newest window replaces the last one as a whole."
    fn apply_feedback(&mut self, feedback: &Feedback) {
        let binding = self.welcome.is_some_and(|welcome| welcome.regime != Regime::Open);
        self.window = if binding { feedback.window.0 } else { u32::MAX };
        self.update_cap();
    }

    fn update_cap(&mut self) {
        let open = matches!(self.phase, Phase::Registering | Phase::Ready) && !self.outbox.is_full();
        self.cap.set(if open { self.window.min(self.transport_limit) } else { 0 });
    }

    fn send_statistics_call(&mut self, slot: u32, now: Time) {
        let (request, method, _) = self.slots.call(slot);
        let question = Frame::Call(Call {
            request,
            timestamp: Timestamp(now.0),
            credit: CreditId::NONE,
            method,
            demand: 0,
            budget: Budget::UNLIMITED,
            priority: Priority::HIGHEST,
            payload: &[],
        });
        self.append(&question);
        self.slots.mark_sent(slot, now);
    }

    /// Notifies the server that a call is cancelled. Skipped if the send buffer is full; the call
    /// is then answered as usual.
    fn send_cancel(&mut self, request: RequestId) {
        let may_speak = matches!(self.phase, Phase::Registering | Phase::Ready);
        if may_speak && self.config.version >= Kind::Cancel.min_version() && !self.outbox.overflows() {
            self.append(&Frame::Cancel(Cancel { request }));
        }
    }

    /// Appends the registration, unless that was done before.
    fn register(&mut self, now: Time, demand: u32) {
        if self.registered_at.is_none() {
            self.registered_at = Some(now);
            let payload_max = self.config.payload_max;
            self.append(&Frame::Register(Register { timestamp: Timestamp(now.0), demand, payload_max }));
        }
    }

    fn encoder(&self) -> Encoder {
        Encoder::new(self.call_max).with_version(self.config.version)
    }

    fn append(&mut self, frame: &Frame<'_>) {
        let encoded = self.outbox.append(self.encoder(), frame);
        debug_assert!(encoded.is_ok(), "only calls have payloads, and theirs were checked");
        self.update_cap();
    }
}

fn decoder(config: &ConnectionConfig) -> Decoder {
    Decoder::new(Side::Server, config.payload_max).with_version(config.version)
}

/// Round trip of one request.
#[derive(Clone, Copy)]
struct RoundTrip {
    /// The procedure that the request called.
    method: Method,
    duration: Nanos,
}

fn check_echo(kind: Kind, sent: Time, found: Timestamp) -> Result<(), ConnectionError> {
    if found.0 == sent.0 {
        Ok(())
    } else {
        Err(ConnectionError::TimestampMismatch { kind, sent: sent.0, found: found.0 })
    }
}

/// Sink for the shell's decisions.
struct ShellSink<'a, T, F> {
    link: &'a mut ConnectionState<T>,
    now: Time,
    events: &'a mut F,
}

impl<T, F: FnMut(Event<'_, T>)> ClientSink<u32> for ShellSink<'_, T, F> {
    fn send(&mut self, slot: u32, header: Header) {
        let link = &mut *self.link;
        link.register(self.now, header.demand);
        let budget = link.slots.budget(slot, self.now).unwrap_or(link.config.budget);
        let (request, method, payload) = link.slots.call(slot);
        let call = Frame::Call(Call {
            request,
            timestamp: Timestamp(self.now.0),
            credit: header.credit,
            method,
            demand: header.demand,
            budget,
            priority: header.priority,
            payload,
        });
        let encoded = link.outbox.append(link.encoder(), &call);
        // `submit` has checked the payload, and the limit never falls: before the welcome it is the
        // minimum.
        debug_assert!(encoded.is_ok(), "{encoded:?}");
        link.slots.mark_sent(slot, self.now);
        link.demand_pending = false;
        link.update_cap();
    }

    fn end(&mut self, slot: u32, end: LocalOutcome) {
        if let Some(token) = self.link.slots.remove(slot) {
            (self.events)(Event::EndedLocally { token, end });
        }
    }

    fn send_demand(&mut self, demand: u32) {
        // The registration carries the demand. While the buffer is full, the newest demand stays
        // pending.
        let link = &mut *self.link;
        match link.phase {
            Phase::Registering if link.registered_at.is_none() => {}
            Phase::Registering | Phase::Ready if link.outbox.is_full() => link.demand_pending = true,
            Phase::Registering | Phase::Ready => link.append(&Frame::Demand(Demand { demand })),
            Phase::Draining | Phase::Closed => {}
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
