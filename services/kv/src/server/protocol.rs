//! memcached's protocol for the engine: a connection's requests are executed one after another, as its client expects; those
//! of different connections go through the run queues, and idle cores steal them.

use super::unix_seconds;
use crate::protocol::{After, Concern, Decoder, Executor, Next as Decoded, Request};
use crate::store::{PAGE, Visit as StoreVisit};
use leeward_control::server::{
    Arrival, CoreId, Departure, Opened, Outcome, RejectReason, Session, SessionSlot, Ticket, Verdict,
};
use leeward_control::units::{CreditId, Nanos, Priority, Time};
use leeward_host::Desk;
use leeward_port::{After as Fate, DropReason, Ending, Next, Protocol, Ran, Spares, Visit};
use leeward_runtime::budget;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A request's memory that is kept for the connection's next one, in bytes.
const KEPT_REQUEST: usize = 16 * 1024;

/// One core's protocol.
pub(super) struct Memcached {
    executor: Executor,
}

/// One connection.
pub(super) struct Conversation {
    decoder: Decoder,
    /// `None` once its window was given back.
    session: Option<Session>,
    /// Where the next request is put.
    request: Request,
    /// The request that is with the cores; the next one waits for its end, for they have an order.
    in_flight: Option<InFlight>,
}

/// How the controller sees a request that is under way.
#[derive(Debug)]
enum InFlight {
    /// The controller has admitted it, and may refuse it yet.
    Admitted(Ticket),
    /// The controller does not know of it: the request is about the server.
    Unknown,
}

/// An admitted request on its way to the store.
pub(super) struct Call {
    request: Request,
    arrived: Time,
    /// Queueing delay that it may spend.
    may_spend: leeward_control::budget::Budget,
}

/// A request's end. The request's memory is used again.
pub(super) struct Done {
    request: Request,
    arrived: Time,
    reply: Vec<u8>,
    end: End,
}

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Executed(After),
    /// The controller said no when its turn had come, or a lock was congested.
    Dropped(DropReason),
    /// A defect.
    Panicked,
}

impl Memcached {
    pub(super) fn new(executor: Executor) -> Self {
        Memcached { executor }
    }

    /// Has a decoded request executed, or answers it at once.
    fn begin(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Self>) -> Next<Call> {
        let concern = Executor::concern(&conversation.request);
        if concern == Concern::Nothing {
            let now = StoreVisit::at(unix_seconds());
            let after = self.executor.execute(&conversation.request, &now, visit.out());
            return if after == Ok(After::Close) { Next::End(quietly()) } else { Next::Handled };
        }
        let is_admitted = concern == Concern::Items;
        let in_flight = if is_admitted {
            let Some(ticket) = conversation.admit(visit) else { return Next::Handled };
            InFlight::Admitted(ticket)
        } else {
            InFlight::Unknown
        };
        conversation.in_flight = Some(in_flight);
        let request = std::mem::take(&mut conversation.request);
        let call = Call { request, arrived: visit.arrived(), may_spend: visit.limits.budget };
        Next::Call { call, is_admitted }
    }
}

impl Conversation {
    /// Asks the controller about the request that has been decoded. One that is not admitted has its answer.
    fn admit(&mut self, visit: &mut Visit<'_, Memcached>) -> Option<Ticket> {
        let session = self.session.as_mut()?;
        visit.count_received();
        let (now, delay, random) = (visit.now, visit.delay(), visit.random());
        let arrival =
            Arrival::new(now).with_priority(Priority::from_random(random)).with_delay(delay).with_random(random);
        let (verdict, ticket) = session.request(visit.admission(), &arrival);
        let reason = match verdict {
            Verdict::Reject(reason) => DropReason::from(reason),
            Verdict::Admit if visit.is_stopping() => DropReason::ShuttingDown,
            Verdict::Admit => return Some(ticket),
        };
        self.settle(visit, ticket, visit.arrived(), Some(reason));
        self.say_busy(visit);
        None
    }

    /// Settles a request's account with the controller, and counts it.
    fn settle(&mut self, visit: &mut Visit<'_, Memcached>, ticket: Ticket, arrived: Time, dropped: Option<DropReason>) {
        let sojourn = visit.now.since(arrived);
        let outcome = match dropped {
            None => Outcome::Completed,
            Some(_) => Outcome::Dropped,
        };
        if let Some(session) = &mut self.session {
            // A memcached client names no credit, and hears of none.
            let departure = Departure { now: visit.now, outcome, sojourn, credit: CreditId::NONE };
            let _ = session.reply(visit.admission(), ticket, &departure);
        }
        match dropped {
            None => visit.count_completed(sojourn),
            Some(reason) => visit.counters.drop_for(reason),
        }
    }

    /// Refuses the request, and what belongs to it and has not been decoded.
    fn say_busy(&mut self, visit: &mut Visit<'_, Memcached>) {
        let words = Executor::busy(&self.request);
        visit.out().extend_from_slice(words);
        self.decoder.skip_parts();
    }

    /// Gives the session's window back. Returns the requests that nobody will hear of.
    fn abandon(&mut self, visit: &mut Visit<'_, Memcached>) -> usize {
        if let Some(mut session) = self.session.take() {
            let now = visit.now;
            visit.admission().close(&mut session, now);
        }
        usize::from(matches!(self.in_flight.take(), Some(InFlight::Admitted(_))))
    }
}

impl Protocol for Memcached {
    type Connection = Conversation;
    type Call = Call;
    type Done = Done;

    const TURN: usize = 64;
    const IS_SERIAL: bool = true;
    const HAS_TASKS: bool = false;

    fn open(&mut self, visit: &mut Visit<'_, Self>) -> Conversation {
        let mut session = Session::new(SessionSlot(visit.id.slot), CoreId(visit.core as u32));
        let opened = Opened { now: visit.now, demand: 0 };
        visit.admission().open(&mut session, &opened);
        let decoder = Decoder::new(PAGE);
        Conversation { decoder, session: Some(session), request: Request::default(), in_flight: None }
    }

    fn next(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Self>) -> Next<Call> {
        match conversation.decoder.next(&mut conversation.request) {
            Decoded::Nothing => Next::Nothing,
            Decoded::Close => Next::End(quietly()),
            Decoded::Reply(reply) => {
                visit.out().extend_from_slice(reply);
                Next::Handled
            }
            Decoded::Request => self.begin(conversation, visit),
        }
    }

    fn answer(&mut self, conversation: &mut Conversation, done: Done, visit: &mut Visit<'_, Self>) -> Fate {
        let Done { request, arrived, reply, end } = done;
        let Some(in_flight) = conversation.in_flight.take() else { return Fate::GoOn };
        conversation.request = request;
        visit.out().extend_from_slice(&reply);
        visit.spares.keep(reply);
        let dropped = if let End::Dropped(reason) = end { Some(reason) } else { None };
        if let InFlight::Admitted(ticket) = in_flight {
            conversation.settle(visit, ticket, arrived, dropped);
        }
        if dropped.is_some() {
            conversation.say_busy(visit);
        }
        if conversation.request.capacity() > KEPT_REQUEST {
            // One large request is no reason to keep so much for ever.
            conversation.request = Request::default();
        }
        match end {
            End::Executed(After::Close) => Fate::End(quietly()),
            End::Panicked => Fate::End(Ending::Protocol { code: 0, words: "SERVER_ERROR internal error\r\n".into() }),
            _ => Fate::GoOn,
        }
    }

    /// A memcached client hears nothing of credits. The controller's lists are emptied all the same.
    fn credit(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Self>) -> bool {
        let now = visit.now;
        if let Some(session) = &mut conversation.session {
            let _ = visit.admission().wake(session, now);
        }
        false
    }

    fn refuse(&mut self, conversation: &mut Conversation, why: Ending, visit: &mut Visit<'_, Self>) -> usize {
        let words = match &why {
            Ending::ConnectionLimit => "ERROR Too many open connections\r\n",
            Ending::SlowRequest => "CLIENT_ERROR the request has taken too long\r\n",
            Ending::Protocol { words, .. } => words,
            Ending::Stopping | Ending::Stopped | Ending::Silence => "",
        };
        visit.out().extend_from_slice(words.as_bytes());
        conversation.abandon(visit)
    }

    fn close(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Self>) -> usize {
        conversation.abandon(visit)
    }

    fn spare(conversation: &mut Conversation) -> &mut [u8] {
        conversation.decoder.spare()
    }

    fn filled(conversation: &mut Conversation, count: usize) {
        conversation.decoder.filled(count);
    }

    fn buffered(conversation: &Conversation) -> usize {
        conversation.decoder.buffered()
    }

    fn may_read(conversation: &Conversation) -> bool {
        conversation.in_flight.is_none()
    }

    fn owed(conversation: &Conversation) -> usize {
        usize::from(conversation.in_flight.is_some())
    }

    fn is_leaving(_: &Conversation) -> bool {
        false
    }

    fn outlives_its_peer(_: &Conversation) -> bool {
        // What a client has asked for before it closed its half goes out first.
        true
    }

    fn execute(&self, call: Call, arrived: Time, waited: Nanos, spares: &mut Spares) -> Ran<Done> {
        let Call { request, mut may_spend, .. } = call;
        let mut reply = spares.take();
        may_spend.charge(waited);
        let visit = StoreVisit::at(unix_seconds());
        let executed = AssertUnwindSafe(|| self.executor.execute(&request, &visit, &mut reply));
        let end = match catch_unwind(|| budget::with(may_spend, executed).0) {
            Ok(Ok(after)) => End::Executed(after),
            Ok(Err(_)) => End::Dropped(DropReason::Lock),
            // A panic is a defect of one connection.
            Err(_) => End::Panicked,
        };
        if end == End::Panicked {
            reply.clear();
        }
        Ran::Done(Done { request, arrived, reply, end })
    }

    fn late(call: Call, reason: RejectReason) -> Done {
        Done { request: call.request, arrived: call.arrived, reply: Vec::new(), end: End::Dropped(reason.into()) }
    }
}

/// An end without words.
fn quietly() -> Ending {
    Ending::Protocol { code: 0, words: String::new() }
}
