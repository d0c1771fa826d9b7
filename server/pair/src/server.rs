//! The server's end of one connection of a pair: read, answered, swept and ended as an engine with sockets does it
//! (`leeward-engine`), in virtual time.

use super::agenda::Agenda;
use super::chance::Chance;
use super::config::{PairConfig, Work};
use super::core::{Core, Job};
use super::far::Far;
use super::stream::Stream;
use leeward_core::units::{Nanos, Time};
use leeward_host::{Answer, add};
use leeward_session::server::{Event, Reply, ServerConnection, Ticket};
use leeward_wire::{DropReason, ErrorCode, FailureCode};

/// The server's end of a connection that is open.
pub(super) struct ServerEnd {
    pub(super) link: usize,
    pub(super) place: u32,
    pub(super) connection: ServerConnection,
    /// Bytes that wait for the wire.
    pub(super) out: Vec<u8>,
    /// Since when it has taken nothing of that.
    stuck_since: Option<Time>,
    /// Since when it has known that it ends.
    ending_since: Option<Time>,
    /// Its client has ended its half, and is owed answers.
    has_ended: bool,
    heard: Time,
    /// Since when a frame is not whole.
    part_since: Option<Time>,
    /// Calls refused for want of credit.
    pub(super) refused: u64,
    /// Why it was sent away.
    pub(super) reproach: Option<(ErrorCode, String)>,
}

/// Whether a connection stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Fate {
    Stays,
    Goes,
}

/// Everything around one end while it is looked at.
pub(super) struct Around<'a> {
    pub(super) now: Time,
    pub(super) core: &'a mut Core,
    /// From the client.
    pub(super) up: &'a mut Stream,
    /// To the client.
    pub(super) down: &'a mut Stream,
    /// Both ways, if it is no stream.
    pub(super) far: Option<&'a mut Far>,
    pub(super) agenda: &'a mut Agenda,
    pub(super) chance: &'a mut Chance,
    pub(super) config: &'a PairConfig,
}

impl ServerEnd {
    pub(super) fn new(link: usize, place: u32, connection: ServerConnection, now: Time) -> Self {
        ServerEnd {
            link,
            place,
            connection,
            out: Vec::new(),
            stuck_since: None,
            ending_since: None,
            has_ended: false,
            heard: now,
            part_since: None,
            refused: 0,
            reproach: None,
        }
    }

    /// Whether a frame more may come now.
    pub(super) fn may_take(&self, config: &PairConfig) -> bool {
        self.ending_since.is_none() && self.connection.may_read() && self.out.len() < config.unsent_max
    }

    /// Whether anything is owed to its client.
    pub(super) fn owes(&self) -> bool {
        self.connection.unanswered() > 0 || !self.out.is_empty()
    }

    /// Reads, handles and sends what is possible now.
    pub(super) fn serve(&mut self, around: &mut Around<'_>) -> Fate {
        while self.ending_since.is_none() && self.handle(around) && around.up.readable() > 0 {
            // Sometimes less than there is: what comes together need not be read together.
            let most = if around.chance.one_in(4) { 1 + around.chance.below(100) as usize } else { usize::MAX };
            let count = around.up.read(self.connection.spare(), most, around.now, around.agenda);
            self.connection.filled(count);
            self.heard = around.now;
        }
        if self.ending_since.is_some() {
            around.up.discard(around.now, around.agenda);
        }
        self.flush(around)
    }

    /// Handles the frames that are whole. Whether more may be read.
    fn handle(&mut self, around: &mut Around<'_>) -> bool {
        let mut handled = 0;
        while self.connection.may_read() && self.out.len() < around.config.unsent_max {
            handled += 1;
            let Around { now, core, .. } = around;
            let now = *now;
            match self.connection.next(Nanos::ZERO, &mut core.visit(now, &mut self.out)) {
                Ok(Event::Nothing) => {
                    self.part_since = match self.connection.buffered() {
                        0 => None,
                        _ if handled > 1 => Some(now),
                        _ => self.part_since.or(Some(now)),
                    };
                    return true;
                }
                Ok(Event::Call(call)) => {
                    let (ticket, payload) = (call.ticket, call.payload.to_vec());
                    add(&core.counters[0].received, 1);
                    core.tally.admitted += 1;
                    core.queue(self.link, ticket, payload, now);
                }
                Ok(Event::Dropped(reason)) => {
                    add(&core.counters[0].received, 1);
                    core.counters[0].drop_for(reason);
                    if reason == DropReason::NoCredit {
                        add(&core.counters[0].without_credit, 1);
                        self.refused += 1;
                    }
                }
                Ok(Event::Question(question)) => {
                    self.connection.tell(question, b"{}", &mut core.visit(now, &mut self.out));
                }
                Ok(Event::Cancel(request)) => {
                    // One that is with a worker is answered by that worker.
                    if let Some(job) = core.unqueue(self.link, request) {
                        core.tally.cancelled += 1;
                        self.settle(job.ticket, Reply::Drop(DropReason::Cancelled, ""), core, now);
                    }
                }
                Ok(Event::Demand | Event::Other) => {}
                Err(fatal) => {
                    self.end(fatal.code, &fatal.words, around);
                    return false;
                }
            }
        }
        self.part_since = None;
        false
    }

    /// Sends its client away.
    pub(super) fn end(&mut self, code: ErrorCode, words: &str, around: &mut Around<'_>) {
        if self.ending_since.is_some() {
            return;
        }
        self.ending_since = Some(around.now);
        self.reproach = Some((code, words.to_string()));
        let abandoned = self.connection.end(code, words, &mut around.core.visit(around.now, &mut self.out));
        abandon(around.core, abandoned);
    }

    /// Gives its session back.
    pub(super) fn abandon(&mut self, now: Time, core: &mut Core) {
        let abandoned = self.connection.abandon(&mut core.visit(now, &mut self.out));
        abandon(core, abandoned);
    }

    fn flush(&mut self, around: &mut Around<'_>) -> Fate {
        let Around { now, up, down, far, agenda, chance, .. } = around;
        let now = *now;
        let taken = match far {
            Some(far) => far.server_says(&self.out, now, agenda, chance),
            None => down.write(&self.out, now, agenda, chance),
        };
        self.out.drain(..taken);
        if taken > 0 || self.out.is_empty() {
            self.stuck_since = None;
        }
        if !self.out.is_empty() {
            self.stuck_since = self.stuck_since.or(Some(now));
        }
        if self.ending_since.is_some() {
            if !self.out.is_empty() {
                return Fate::Stays;
            }
            // It has said its last words, and listens for a moment.
            if far.is_some() {
                return Fate::Goes;
            }
            down.finish(now, agenda);
            return if up.is_over(now) { Fate::Goes } else { Fate::Stays };
        }
        let is_leaving = self.connection.is_leaving();
        if up.is_over(now) && self.connection.may_read() && self.out.len() < around.config.unsent_max {
            self.has_ended = true;
        }
        let is_done = !self.owes();
        if (self.has_ended && !is_leaving) || (is_leaving && is_done) { Fate::Goes } else { Fate::Stays }
    }

    /// A call's end.
    pub(super) fn answer(&mut self, ticket: Ticket, reply: Reply<'_>, around: &mut Around<'_>) -> Fate {
        self.settle(ticket, reply, around.core, around.now);
        self.serve(around)
    }

    fn settle(&mut self, ticket: Ticket, reply: Reply<'_>, core: &mut Core, now: Time) {
        if let Some(answered) = self.connection.answer(ticket, reply, &mut core.visit(now, &mut self.out)) {
            core.tally.answered += 1;
            match answered.dropped {
                Some(reason) => core.counters[0].drop_for(reason),
                None => core.counters[0].complete(Answer::InTime, Nanos::ZERO),
            }
        }
    }

    /// Takes the outcome of a call.
    pub(super) fn done(&mut self, job: Job, work: &Work, around: &mut Around<'_>) -> Fate {
        let reply = match work {
            Work::Result(_, result) => Reply::Result(result),
            Work::Failure(_, words) => Reply::Failure(FailureCode::Failed, words),
            Work::Congested(_, lock) => Reply::Drop(DropReason::Lock, lock),
            Work::Never => return Fate::Stays,
        };
        self.answer(job.ticket, reply, around)
    }

    /// Looks whether it is silent, stuck, or was paused long enough.
    pub(super) fn sweep(&mut self, around: &mut Around<'_>) -> Fate {
        let silent = around.now.since(self.heard);
        if let Some(far) = &mut around.far
            && far.sweep(silent, around.now, around.agenda, around.chance)
        {
            return Fate::Goes;
        }
        let (now, config) = (around.now, around.config);
        let longer = |since: Option<Time>, span| since.is_some_and(|since| now.since(since) > span);
        let ending = if self.out.is_empty() { config.linger } else { config.stuck };
        if longer(self.stuck_since, config.stuck) || longer(self.ending_since, ending) {
            return Fate::Goes;
        }
        let may_be_read_again = self.connection.on_sweep();
        if self.ending_since.is_some() {
            return Fate::Stays;
        }
        if !self.owes() && now.since(self.heard) > config.silence {
            self.end(ErrorCode::Timeout, "nothing has come for too long", around);
        } else if longer(self.part_since, config.part) {
            self.end(ErrorCode::Timeout, "one frame has taken too long", around);
        } else if !may_be_read_again {
            return Fate::Stays;
        }
        self.serve(around)
    }

    /// An explicit credit.
    pub(super) fn credit(&mut self, around: &mut Around<'_>) -> Fate {
        if self.connection.credit(&mut around.core.visit(around.now, &mut self.out)) {
            add(&around.core.counters[0].credits, 1);
        }
        self.flush(around)
    }
}

fn abandon(core: &mut Core, abandoned: usize) {
    core.tally.abandoned += abandoned as u64;
    add(&core.counters[0].abandoned, abandoned as u64);
}
