//! The server's end of one connection of a pair, in virtual time. Its reads, answers, scans and
//! closes are those of an engine with sockets (`leeward-engine`).

use super::config::{PairConfig, Work};
use super::core::{Core, Job};
use super::datagram_path::DatagramPath;
use super::event_queue::EventQueue;
use super::rng::Rng;
use super::stream::Stream;
use leeward_core::units::{Nanos, Time};
use leeward_host::{Answer, add, reason_of};
use leeward_session::server::{Event, Permit, Reply, ServerConnection};
use leeward_wire::{ErrorCode, FailureCode, RejectCode};

/// The server's end of an open connection.
pub(super) struct ServerEnd {
    pub(super) link: usize,
    pub(super) slot: u32,
    pub(super) connection: ServerConnection,
    /// Bytes that wait for the wire.
    pub(super) out: Vec<u8>,
    /// Time since which the client has taken no output.
    stuck_since: Option<Time>,
    /// Time since which the connection is closing.
    closing_since: Option<Time>,
    /// The client has ended its half, and answers are pending.
    peer_closed: bool,
    last_received: Time,
    /// Time since which a frame is incomplete.
    partial_since: Option<Time>,
    /// Calls rejected for missing credit.
    pub(super) rejected_uncredited: u64,
    /// Reason for which the server closed the connection.
    pub(super) close_reason: Option<(ErrorCode, String)>,
}

/// Whether a connection stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum PollOutcome {
    Keep,
    Close,
}

/// Context of one end while it is polled.
pub(super) struct ServerContext<'a> {
    pub(super) now: Time,
    pub(super) core: &'a mut Core,
    /// From the client.
    pub(super) up: &'a mut Stream,
    /// To the client.
    pub(super) down: &'a mut Stream,
    /// Both ways, if the connection uses datagrams.
    pub(super) datagrams: Option<&'a mut DatagramPath>,
    pub(super) event_queue: &'a mut EventQueue,
    pub(super) rng: &'a mut Rng,
    pub(super) config: &'a PairConfig,
}

impl ServerEnd {
    pub(super) fn new(link: usize, session_slot: u32, connection: ServerConnection, now: Time) -> Self {
        ServerEnd {
            link,
            slot: session_slot,
            connection,
            out: Vec::new(),
            stuck_since: None,
            closing_since: None,
            peer_closed: false,
            last_received: now,
            partial_since: None,
            rejected_uncredited: 0,
            close_reason: None,
        }
    }

    /// Whether the end may receive another frame now.
    pub(super) fn can_receive(&self, config: &PairConfig) -> bool {
        self.closing_since.is_none() && self.connection.may_read() && self.out.len() < config.unsent_max
    }

    /// Whether answers or output are pending.
    pub(super) fn has_pending(&self) -> bool {
        self.connection.unanswered() > 0 || !self.out.is_empty()
    }

    /// Reads, handles and sends as much as possible now.
    pub(super) fn serve(&mut self, context: &mut ServerContext<'_>) -> PollOutcome {
        while self.closing_since.is_none() && self.handle(context) && context.up.readable() > 0 {
            // Reads less at random: bytes that arrive together need not be read together.
            let most = if context.rng.one_in(4) { 1 + context.rng.below(100) as usize } else { usize::MAX };
            let count = context.up.read(self.connection.spare(), most, context.now, context.event_queue);
            self.connection.filled(count);
            self.last_received = context.now;
        }
        if self.closing_since.is_some() {
            context.up.discard(context.now, context.event_queue);
        }
        self.flush(context)
    }

    /// Handles all whole frames. Returns whether more bytes may be read.
    fn handle(&mut self, context: &mut ServerContext<'_>) -> bool {
        let mut handled = 0;
        while self.connection.may_read() && self.out.len() < context.config.unsent_max {
            handled += 1;
            let ServerContext { now, core, .. } = context;
            let now = *now;
            match self.connection.next(Nanos::ZERO, &mut core.context(now, &mut self.out)) {
                Ok(Event::Incomplete) => {
                    self.partial_since = match self.connection.buffered() {
                        0 => None,
                        _ if handled > 1 => Some(now),
                        _ => self.partial_since.or(Some(now)),
                    };
                    return true;
                }
                Ok(Event::Call(call)) => {
                    let (permit, payload) = (call.permit, call.payload.to_vec());
                    add(&core.counters[0].received, 1);
                    core.tally.admitted += 1;
                    core.queue(self.link, permit, payload, now);
                }
                Ok(Event::Rejected(reason)) => {
                    add(&core.counters[0].received, 1);
                    core.counters[0].reject(reason_of(reason));
                    if reason == RejectCode::NoCredit {
                        add(&core.counters[0].without_credit, 1);
                        self.rejected_uncredited += 1;
                    }
                }
                Ok(Event::Query(query)) => {
                    self.connection.answer_query(query, b"{}", &mut core.context(now, &mut self.out));
                }
                Ok(Event::Cancel(request)) => {
                    // A call in execution is answered by its worker.
                    if let Some(job) = core.remove_queued(self.link, request) {
                        core.tally.cancelled += 1;
                        self.settle(job.permit, Reply::Reject(RejectCode::Cancelled, ""), core, now);
                    }
                }
                Ok(Event::Demand | Event::Other) => {}
                Err(violation) => {
                    self.end(violation.code, &violation.message, context);
                    return false;
                }
            }
        }
        self.partial_since = None;
        false
    }

    /// Closes the connection with an error frame.
    pub(super) fn end(&mut self, code: ErrorCode, message: &str, context: &mut ServerContext<'_>) {
        if self.closing_since.is_some() {
            return;
        }
        self.closing_since = Some(context.now);
        self.close_reason = Some((code, message.to_string()));
        let abandoned = self.connection.close(code, message, &mut context.core.context(context.now, &mut self.out));
        abandon(context.core, abandoned);
    }

    /// Returns the session's window.
    pub(super) fn abandon(&mut self, now: Time, core: &mut Core) {
        let abandoned = self.connection.abandon(&mut core.context(now, &mut self.out));
        abandon(core, abandoned);
    }

    fn flush(&mut self, context: &mut ServerContext<'_>) -> PollOutcome {
        let ServerContext { now, up, down, datagrams: path, event_queue: queue, rng: random, .. } = context;
        let now = *now;
        let taken = match path {
            Some(path) => path.server_send(&self.out, now, queue, random),
            None => down.write(&self.out, now, queue, random),
        };
        self.out.drain(..taken);
        if taken > 0 || self.out.is_empty() {
            self.stuck_since = None;
        }
        if !self.out.is_empty() {
            self.stuck_since = self.stuck_since.or(Some(now));
        }
        if self.closing_since.is_some() {
            if !self.out.is_empty() {
                return PollOutcome::Keep;
            }
            // The final frame is sent; the end lingers until the client ends its half.
            if path.is_some() {
                return PollOutcome::Close;
            }
            down.finish(now, queue);
            return if up.is_eof(now) { PollOutcome::Close } else { PollOutcome::Keep };
        }
        let is_closing = self.connection.is_closing();
        if up.is_eof(now) && self.connection.may_read() && self.out.len() < context.config.unsent_max {
            self.peer_closed = true;
        }
        let is_done = !self.has_pending();
        if (self.peer_closed && !is_closing) || (is_closing && is_done) {
            PollOutcome::Close
        } else {
            PollOutcome::Keep
        }
    }

    /// Answers a call.
    pub(super) fn answer(&mut self, permit: Permit, reply: Reply<'_>, context: &mut ServerContext<'_>) -> PollOutcome {
        self.settle(permit, reply, context.core, context.now);
        self.serve(context)
    }

    fn settle(&mut self, permit: Permit, reply: Reply<'_>, core: &mut Core, now: Time) {
        if let Some(summary) = self.connection.answer(permit, reply, &mut core.context(now, &mut self.out)) {
            core.tally.answered += 1;
            match summary.rejection {
                Some(reason) => core.counters[0].reject(reason_of(reason)),
                None => core.counters[0].complete(Answer::InTime, Nanos::ZERO),
            }
        }
    }

    /// Answers a call with the outcome of its work.
    pub(super) fn complete(&mut self, job: Job, work: &Work, context: &mut ServerContext<'_>) -> PollOutcome {
        let reply = match work {
            Work::Result(_, result) => Reply::Result(result),
            Work::Failure(_, message) => Reply::Failure(FailureCode::Failed, message),
            Work::Congested(_, lock) => Reply::Reject(RejectCode::Lock, lock),
            Work::Hang => return PollOutcome::Keep,
        };
        self.answer(job.permit, reply, context)
    }

    /// Checks for silence, for a stuck writer, and for the end of a pause.
    pub(super) fn scan(&mut self, context: &mut ServerContext<'_>) -> PollOutcome {
        let silent = context.now.since(self.last_received);
        if let Some(path) = &mut context.datagrams
            && path.scan(silent, context.now, context.event_queue, context.rng)
        {
            return PollOutcome::Close;
        }
        let (now, config) = (context.now, context.config);
        let longer = |since: Option<Time>, span| since.is_some_and(|since| now.since(since) > span);
        let ending = if self.out.is_empty() { config.linger } else { config.write_timeout };
        if longer(self.stuck_since, config.write_timeout) || longer(self.closing_since, ending) {
            return PollOutcome::Close;
        }
        let resumes = self.connection.on_scan();
        if self.closing_since.is_some() {
            return PollOutcome::Keep;
        }
        if !self.has_pending() && now.since(self.last_received) > config.idle_timeout {
            self.end(ErrorCode::Timeout, "nothing has come for too long", context);
        } else if longer(self.partial_since, config.frame_timeout) {
            self.end(ErrorCode::Timeout, "one frame has taken too long", context);
        } else if !resumes {
            return PollOutcome::Keep;
        }
        self.serve(context)
    }

    /// Sends an explicit credit.
    pub(super) fn credit(&mut self, context: &mut ServerContext<'_>) -> PollOutcome {
        if self.connection.send_credit(&mut context.core.context(context.now, &mut self.out)) {
            add(&context.core.counters[0].credits, 1);
        }
        self.flush(context)
    }
}

fn abandon(core: &mut Core, abandoned: usize) {
    core.tally.abandoned += abandoned as u64;
    add(&core.counters[0].abandoned, abandoned as u64);
}
