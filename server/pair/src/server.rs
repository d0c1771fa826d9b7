//! The server's end of one connection of a pair: read, answered, swept and ended as an engine with sockets does it
//! (`leeward-engine`), in virtual time.

use super::config::{PairConfig, Work};
use super::core::{Core, Job};
use super::datagram_path::DatagramPath;
use super::event_queue::EventQueue;
use super::rng::Rng;
use super::stream::Stream;
use leeward_core::units::{Nanos, Time};
use leeward_host::{Answer, add};
use leeward_session::server::{Event, Permit, Reply, ServerConnection};
use leeward_wire::{ErrorCode, FailureCode, RejectCode};

/// The server's end of a connection that is open.
pub(super) struct ServerEnd {
    pub(super) link: usize,
    pub(super) slot: u32,
    pub(super) connection: ServerConnection,
    /// Bytes that wait for the wire.
    pub(super) out: Vec<u8>,
    /// Since when it has taken nothing of that.
    stuck_since: Option<Time>,
    /// Since when it has known that it ends.
    closing_since: Option<Time>,
    /// Its client has ended its half, and is owed answers.
    peer_closed: bool,
    last_received: Time,
    /// Since when a frame is not whole.
    partial_since: Option<Time>,
    /// Calls refused for want of credit.
    pub(super) rejected_uncredited: u64,
    /// Why it was sent away.
    pub(super) close_reason: Option<(ErrorCode, String)>,
}

/// Whether a connection stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum PollOutcome {
    Keep,
    Close,
}

/// Everything around one end while it is looked at.
pub(super) struct ServerContext<'a> {
    pub(super) now: Time,
    pub(super) core: &'a mut Core,
    /// From the client.
    pub(super) up: &'a mut Stream,
    /// To the client.
    pub(super) down: &'a mut Stream,
    /// Both ways, if it is no stream.
    pub(super) datagrams: Option<&'a mut DatagramPath>,
    pub(super) event_queue: &'a mut EventQueue,
    pub(super) rng: &'a mut Rng,
    pub(super) config: &'a PairConfig,
}

impl ServerEnd {
    pub(super) fn new(link: usize, place: u32, connection: ServerConnection, now: Time) -> Self {
        ServerEnd {
            link,
            slot: place,
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

    /// Whether a frame more may come now.
    pub(super) fn can_receive(&self, config: &PairConfig) -> bool {
        self.closing_since.is_none() && self.connection.may_read() && self.out.len() < config.unsent_max
    }

    /// Whether anything is owed to its client.
    pub(super) fn has_pending(&self) -> bool {
        self.connection.unanswered() > 0 || !self.out.is_empty()
    }

    /// Reads, handles and sends what is possible now.
    pub(super) fn serve(&mut self, around: &mut ServerContext<'_>) -> PollOutcome {
        while self.closing_since.is_none() && self.handle(around) && around.up.readable() > 0 {
            // Sometimes less than there is: what comes together need not be read together.
            let most = if around.rng.one_in(4) { 1 + around.rng.below(100) as usize } else { usize::MAX };
            let count = around.up.read(self.connection.spare(), most, around.now, around.event_queue);
            self.connection.filled(count);
            self.last_received = around.now;
        }
        if self.closing_since.is_some() {
            around.up.discard(around.now, around.event_queue);
        }
        self.flush(around)
    }

    /// Handles the frames that are whole. Whether more may be read.
    fn handle(&mut self, around: &mut ServerContext<'_>) -> bool {
        let mut handled = 0;
        while self.connection.may_read() && self.out.len() < around.config.unsent_max {
            handled += 1;
            let ServerContext { now, core, .. } = around;
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
                    let (ticket, payload) = (call.permit, call.payload.to_vec());
                    add(&core.counters[0].received, 1);
                    core.tally.admitted += 1;
                    core.queue(self.link, ticket, payload, now);
                }
                Ok(Event::Rejected(reason)) => {
                    add(&core.counters[0].received, 1);
                    core.counters[0].reject(reason);
                    if reason == RejectCode::NoCredit {
                        add(&core.counters[0].without_credit, 1);
                        self.rejected_uncredited += 1;
                    }
                }
                Ok(Event::Query(question)) => {
                    self.connection.answer_query(question, b"{}", &mut core.context(now, &mut self.out));
                }
                Ok(Event::Cancel(request)) => {
                    // One that is with a worker is answered by that worker.
                    if let Some(job) = core.remove_queued(self.link, request) {
                        core.tally.cancelled += 1;
                        self.settle(job.ticket, Reply::Reject(RejectCode::Cancelled, ""), core, now);
                    }
                }
                Ok(Event::Demand | Event::Other) => {}
                Err(fatal) => {
                    self.end(fatal.code, &fatal.message, around);
                    return false;
                }
            }
        }
        self.partial_since = None;
        false
    }

    /// Sends its client away.
    pub(super) fn end(&mut self, code: ErrorCode, words: &str, around: &mut ServerContext<'_>) {
        if self.closing_since.is_some() {
            return;
        }
        self.closing_since = Some(around.now);
        self.close_reason = Some((code, words.to_string()));
        let abandoned = self.connection.close(code, words, &mut around.core.context(around.now, &mut self.out));
        abandon(around.core, abandoned);
    }

    /// Gives its session back.
    pub(super) fn abandon(&mut self, now: Time, core: &mut Core) {
        let abandoned = self.connection.abandon(&mut core.context(now, &mut self.out));
        abandon(core, abandoned);
    }

    fn flush(&mut self, around: &mut ServerContext<'_>) -> PollOutcome {
        let ServerContext { now, up, down, datagrams: far, event_queue: agenda, rng: chance, .. } = around;
        let now = *now;
        let taken = match far {
            Some(far) => far.server_send(&self.out, now, agenda, chance),
            None => down.write(&self.out, now, agenda, chance),
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
            // It has said its last words, and listens for a moment.
            if far.is_some() {
                return PollOutcome::Close;
            }
            down.finish(now, agenda);
            return if up.is_eof(now) { PollOutcome::Close } else { PollOutcome::Keep };
        }
        let is_leaving = self.connection.is_closing();
        if up.is_eof(now) && self.connection.may_read() && self.out.len() < around.config.unsent_max {
            self.peer_closed = true;
        }
        let is_done = !self.has_pending();
        if (self.peer_closed && !is_leaving) || (is_leaving && is_done) {
            PollOutcome::Close
        } else {
            PollOutcome::Keep
        }
    }

    /// A call's end.
    pub(super) fn answer(&mut self, ticket: Permit, reply: Reply<'_>, around: &mut ServerContext<'_>) -> PollOutcome {
        self.settle(ticket, reply, around.core, around.now);
        self.serve(around)
    }

    fn settle(&mut self, ticket: Permit, reply: Reply<'_>, core: &mut Core, now: Time) {
        if let Some(answered) = self.connection.answer(ticket, reply, &mut core.context(now, &mut self.out)) {
            core.tally.answered += 1;
            match answered.rejection {
                Some(reason) => core.counters[0].reject(reason),
                None => core.counters[0].complete(Answer::InTime, Nanos::ZERO),
            }
        }
    }

    /// Takes the outcome of a call.
    pub(super) fn complete(&mut self, job: Job, work: &Work, around: &mut ServerContext<'_>) -> PollOutcome {
        let reply = match work {
            Work::Result(_, result) => Reply::Result(result),
            Work::Failure(_, words) => Reply::Failure(FailureCode::Failed, words),
            Work::Congested(_, lock) => Reply::Reject(RejectCode::Lock, lock),
            Work::Hang => return PollOutcome::Keep,
        };
        self.answer(job.ticket, reply, around)
    }

    /// Looks whether it is silent, stuck, or was paused long enough.
    pub(super) fn scan(&mut self, around: &mut ServerContext<'_>) -> PollOutcome {
        let silent = around.now.since(self.last_received);
        if let Some(far) = &mut around.datagrams
            && far.scan(silent, around.now, around.event_queue, around.rng)
        {
            return PollOutcome::Close;
        }
        let (now, config) = (around.now, around.config);
        let longer = |since: Option<Time>, span| since.is_some_and(|since| now.since(since) > span);
        let ending = if self.out.is_empty() { config.linger } else { config.write_timeout };
        if longer(self.stuck_since, config.write_timeout) || longer(self.closing_since, ending) {
            return PollOutcome::Close;
        }
        let may_be_read_again = self.connection.on_scan();
        if self.closing_since.is_some() {
            return PollOutcome::Keep;
        }
        if !self.has_pending() && now.since(self.last_received) > config.idle_timeout {
            self.end(ErrorCode::Timeout, "nothing has come for too long", around);
        } else if longer(self.partial_since, config.frame_timeout) {
            self.end(ErrorCode::Timeout, "one frame has taken too long", around);
        } else if !may_be_read_again {
            return PollOutcome::Keep;
        }
        self.serve(around)
    }

    /// An explicit credit.
    pub(super) fn credit(&mut self, around: &mut ServerContext<'_>) -> PollOutcome {
        if self.connection.send_credit(&mut around.core.context(around.now, &mut self.out)) {
            add(&around.core.counters[0].credits, 1);
        }
        self.flush(around)
    }
}

fn abandon(core: &mut Core, abandoned: usize) {
    core.tally.abandoned += abandoned as u64;
    add(&core.counters[0].abandoned, abandoned as u64);
}
