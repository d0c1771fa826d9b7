//! memcached's protocol for the engine: a connection's requests are executed one after another, as its client expects; those
//! of different connections go through the run queues, and idle cores steal them.

use super::unix_seconds;
use crate::protocol::{After, Concern, Decoder, Executor, Next as Decoded, Refused, Request, TOO_LONG};
use crate::store::stats::Counter;
use crate::store::{PAGE, Visit as StoreVisit};
use leeward_core::server::RejectReason;
use leeward_core::units::{Method, Nanos, Tenant, Time};
use leeward_engine::{
    Account, After as Fate, DropReason, Ending, Greeting, Next, PeerIdentity, Protocol, Ran, Settled, Spares, Visit,
};
use leeward_host::Desk;
use leeward_runtime::budget;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A request's memory that is kept for the connection's next one, in bytes.
const KEPT_REQUEST: usize = 16 * 1024;
/// Beginning of each answer that says that the server could not, whatever the client did.
const FAILURE: &[u8] = b"SERVER_ERROR";

/// Protocol of a core.
pub(super) struct Memcached {
    executor: Executor,
}

/// A connection.
pub(super) struct Conversation {
    decoder: Decoder,
    /// Account of the one request under way: the next one waits for its end, for they have an order.
    account: Account,
    /// Where the next request is put.
    request: Request,
}

/// An admitted request on its way to the store.
pub(super) struct Call {
    request: Request,
    arrived: Time,
    /// Queueing delay that it may spend.
    may_spend: leeward_core::budget::Budget,
    /// The longest answer that there is memory for, bytes.
    longest: usize,
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
    /// There was no memory for its answer.
    TooLong,
    /// A defect.
    Panicked,
}

/// Method of a request, as the controller tells them apart.
fn method_of(request: &Request) -> Method {
    if Executor::only_reads(request) { Method::DEFAULT } else { Method(1) }
}

/// Last words for a client of another protocol. As from memcached there are none for a browser, and for a client of the
/// binary protocol, which could not read them.
fn told(foreign: Option<Greeting>) -> String {
    match foreign {
        None | Some(Greeting::Http | Greeting::Http2 | Greeting::MemcachedBinary) => String::new(),
        Some(greeting) => format!("CLIENT_ERROR this port speaks memcached's text protocol, not {greeting}\r\n"),
    }
}

impl Memcached {
    pub(super) fn new(executor: Executor) -> Self {
        Memcached { executor }
    }

    /// Has a decoded request executed, or answers it at once.
    fn begin(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Call>) -> Next<Call> {
        let concern = Executor::concern(&conversation.request);
        if concern == Concern::Nothing {
            let now = StoreVisit::at(unix_seconds());
            let after = self.executor.execute(&conversation.request, &now, visit.out());
            return if after == Ok(After::Close) { Next::End(Ending::QUIET) } else { Next::Handled };
        }
        let is_admitted = concern == Concern::Items;
        if !is_admitted {
            conversation.account.begin_unknown();
        } else if let Err(reason) = conversation.account.admit(method_of(&conversation.request), visit) {
            conversation.account.settle(visit.arrived(), Settled::Dropped(reason), visit);
            conversation.say_busy(visit);
            return Next::Refused;
        }
        let request = std::mem::take(&mut conversation.request);
        let longest = visit.longest_answer();
        let call = Call { request, arrived: visit.arrived(), may_spend: visit.limits.budget, longest };
        Next::Call { call, is_admitted }
    }
}

impl Conversation {
    /// Refuses the request, and what belongs to it and has not been decoded.
    fn say_busy(&mut self, visit: &mut Visit<'_, Call>) {
        let words = Executor::busy(&self.request);
        visit.out().extend_from_slice(words);
        self.decoder.skip_parts();
    }
}

impl Protocol for Memcached {
    type Connection = Conversation;
    type Input = Decoder;
    type Call = Call;
    type Done = Done;

    const TURN: usize = 64;
    const IS_SERIAL: bool = true;
    const HAS_TASKS: bool = false;
    const BOUNDS_ANSWERS: bool = true;

    fn open(&mut self, visit: &mut Visit<'_, Call>) -> Conversation {
        Conversation { decoder: Decoder::new(PAGE), account: Account::open(visit), request: Request::default() }
    }

    fn identify(conversation: &mut Conversation, _: PeerIdentity, tenant: Tenant) {
        conversation.account.count_for(tenant);
    }

    fn next(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Call>) -> Next<Call> {
        match conversation.decoder.next(&mut conversation.request) {
            Decoded::Nothing => Next::Nothing,
            Decoded::Close => Next::End(Ending::Protocol { code: 0, words: told(conversation.decoder.foreign()) }),
            Decoded::Reply(reply) => {
                visit.out().extend_from_slice(reply);
                Next::Handled
            }
            Decoded::Request => self.begin(conversation, visit),
        }
    }

    fn answer(&mut self, conversation: &mut Conversation, done: Done, visit: &mut Visit<'_, Call>) -> Fate {
        let Done { request, arrived, reply, end } = done;
        let settled = match end {
            End::Dropped(reason) => Settled::Dropped(reason),
            End::Executed(_) => Settled::Answered { succeeded: !reply.starts_with(FAILURE) },
            End::TooLong | End::Panicked => Settled::Answered { succeeded: false },
        };
        if !conversation.account.settle(arrived, settled, visit) {
            return Fate::GoOn;
        }
        conversation.request = request;
        visit.say(reply);
        if let Settled::Dropped(_) = settled {
            conversation.say_busy(visit);
        }
        if end == End::TooLong {
            visit.out().extend_from_slice(TOO_LONG);
            conversation.decoder.skip_parts();
        }
        if conversation.request.capacity() > KEPT_REQUEST {
            // One large request is no reason to keep so much for ever.
            conversation.request = Request::default();
        }
        match end {
            End::Executed(After::Close) => Fate::End(Ending::QUIET),
            // It may ask again, but not as fast as it can.
            End::TooLong => Fate::Pause,
            End::Panicked => Fate::End(Ending::Protocol { code: 0, words: "SERVER_ERROR internal error\r\n".into() }),
            _ => Fate::GoOn,
        }
    }

    fn credit(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Call>) -> bool {
        conversation.account.credit(visit);
        false
    }

    fn refuse(&mut self, conversation: &mut Conversation, why: Ending, visit: &mut Visit<'_, Call>) -> usize {
        let words = match &why {
            Ending::ConnectionLimit => "ERROR Too many open connections\r\n",
            Ending::Unencrypted => "SERVER_ERROR this port speaks TLS alone\r\n",
            Ending::Stranger => "SERVER_ERROR no client of this certificate's name is taken\r\n",
            Ending::SlowRequest => "CLIENT_ERROR the request has taken too long\r\n",
            Ending::Protocol { words, .. } => words,
            Ending::Stopping | Ending::Stopped | Ending::Silence => "",
        };
        if why == Ending::ConnectionLimit {
            self.executor.store().stats().count(Counter::RejectedConnections);
        }
        visit.out().extend_from_slice(words.as_bytes());
        conversation.account.abandon(visit)
    }

    fn close(&mut self, conversation: &mut Conversation, visit: &mut Visit<'_, Call>) -> usize {
        conversation.account.abandon(visit)
    }

    fn input(conversation: &mut Conversation) -> &mut Decoder {
        &mut conversation.decoder
    }

    fn owed(conversation: &Conversation) -> usize {
        conversation.account.owed()
    }

    fn method(call: &Call) -> Method {
        method_of(&call.request)
    }

    fn execute(&self, call: Call, arrived: Time, waited: Nanos, spares: &mut Spares) -> Ran<Done> {
        let Call { request, mut may_spend, longest, .. } = call;
        let mut reply = spares.take();
        may_spend.charge(waited);
        let visit = StoreVisit { now: unix_seconds(), longest };
        let executed = AssertUnwindSafe(|| self.executor.execute(&request, &visit, &mut reply));
        let end = match catch_unwind(|| budget::with(may_spend, executed).0) {
            Ok(Ok(after)) => End::Executed(after),
            Ok(Err(Refused::Congested(_))) => End::Dropped(DropReason::Lock),
            Ok(Err(Refused::TooLong)) => End::TooLong,
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
