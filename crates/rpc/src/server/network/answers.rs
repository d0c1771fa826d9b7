//! What a core says: answers, drops, and settling their accounts with the controller.

use super::{CoreNetwork, add};
use crate::server::execute::Execute;
use crate::server::handler::Failed;
use crate::server::shared::{Executed, Message, Ticket};
use crate::statistics::{self, Statistics};
use crate::wire::{Answer, Call, DropReason, Dropped, Failure, FailureCode, Frame, Message as Text, Nanos32, Response};
use leeward_control::server::{Departure, Feedback, Outcome};
use leeward_control::units::{Nanos, Time};

/// When an answer goes out of which no other of its connection can share the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    AtOnce,
    /// With other connections' in one call, if the kernel can.
    Together,
}

impl<H: Execute> CoreNetwork<H> {
    /// Drops a call that was sent without credit. The controller hears nothing of it: neither the session's account nor
    /// the signals change.
    pub(super) fn refuse(&mut self, slot: u32, call: &Call<'_>, now: Time, waited: Nanos) {
        let Some(connection) = &mut self.connections[slot as usize] else { return };
        let Some(session) = &connection.session else { return };
        let feedback = Feedback { window: session.window, ..Feedback::NONE };
        connection.enforcement.answered(feedback.window);
        let counters = &self.common.counters[self.index];
        add(&counters.received, 1);
        counters.drop_for(DropReason::NoCredit);
        add(&counters.without_credit, 1);
        let answer =
            Answer { request: call.request, timestamp: call.timestamp, feedback, sojourn: Nanos32::saturating(waited) };
        self.say(slot, &dropped(answer, DropReason::NoCredit, ""), now);
    }

    pub(super) fn say(&mut self, slot: u32, frame: &Frame<'_>, now: Time) {
        if let Some(connection) = &mut self.connections[slot as usize] {
            // What the server says by itself always fits.
            let _ = connection.append(frame);
            self.mark_dirty(slot, now);
        }
    }

    /// Settles a call's account with the controller; `None` if its connection is gone.
    fn settle(&mut self, ticket: &Ticket, ended: Ended, now: Time) -> Option<Answer> {
        let outcome = match ended {
            Ended::Completed => Outcome::Completed,
            Ended::Dropped(_) => Outcome::Dropped,
        };
        let slot = ticket.connection.slot;
        let connection = self.connections[slot as usize].as_mut()?;
        if connection.tenant != ticket.connection.tenant {
            return None;
        }
        let place = connection.unanswered.iter().position(|(request, _)| *request == ticket.request)?;
        let (_, owed) = connection.unanswered.swap_remove(place);
        self.handler.settled(slot, ticket.request);
        let sojourn = now.since(ticket.arrived);
        let feedback = match &mut connection.session {
            Some(session) => {
                let departure = Departure { now, outcome, sojourn, credit: ticket.credit };
                session.reply(self.admission.as_mut(), owed, &departure)
            }
            None => Feedback::NONE,
        };
        connection.enforcement.answered(feedback.window);
        let counters = &self.common.counters[self.index];
        match ended {
            Ended::Completed => {
                add(&counters.completed, 1);
                if sojourn <= self.limits.slo {
                    add(&counters.in_time, 1);
                }
            }
            Ended::Dropped(reason) => counters.drop_for(reason),
        }
        Some(Answer {
            request: ticket.request,
            timestamp: ticket.timestamp,
            feedback,
            sojourn: Nanos32::saturating(sojourn),
        })
    }

    /// `words` say what exactly, if the reason does not.
    pub(super) fn drop_call(&mut self, ticket: &Ticket, reason: DropReason, words: &str, now: Time) {
        if let Some(answer) = self.settle(ticket, Ended::Dropped(reason), now) {
            self.say(ticket.connection.slot, &dropped(answer, reason, words), now);
        }
    }

    /// Answers a call for the server's statistics.
    pub(super) fn tell(&mut self, ticket: &Ticket, now: Time) {
        // Put together seldom, however often it is asked for.
        if self.told.as_ref().is_none_or(|(then, _)| now.since(*then) >= TOLD_AGAIN) {
            self.told = Some((now, self.statistics(now).to_json()));
        }
        let Some(answer) = self.settle(ticket, Ended::Completed, now) else { return };
        let connection = &mut self.connections[ticket.connection.slot as usize];
        if let (Some(connection), Some((_, told))) = (connection, &self.told) {
            if connection.append(&Frame::Response(Response { answer, payload: told.as_bytes() })).is_err() {
                let _ = connection.append(&failure(answer, FailureCode::ResponseTooLarge, TOO_LONG));
            }
            self.mark_dirty(ticket.connection.slot, now);
        }
    }

    fn statistics(&self, now: Time) -> Statistics {
        let (counts, gauges) = (self.common.counts(), self.common.pulse.gauges());
        Statistics {
            uptime_ns: now.0,
            cores: self.common.mail.cores() as u64,
            idle_ns: self.shared.idle().0,
            received: counts.received,
            completed: counts.completed,
            in_time: self.common.in_time(),
            slo_ns: self.limits.slo.0,
            drops: self.common.drops(),
            abandoned: counts.abandoned,
            connections: counts.connections,
            packet_delay_ns: self.shared.packets.delay(now).0,
            run_delay_ns: self.shared.queues.delay(now).0,
            credit_pool: gauges.credit_pool,
            credits_issued: gauges.credits_issued,
            concurrency_limit: gauges.concurrency_limit,
            priority_threshold: gauges.priority_threshold,
            locks: statistics::locks(),
        }
    }

    pub(super) fn answer(&mut self, executed: Executed, now: Time, flush: Flush) {
        let Executed { ticket, dropped, outcome, reply, spare } = executed;
        if let Some(reason) = dropped {
            self.drop_call(&ticket, reason, "", now);
        } else if let Err(Failed::Congested(congested)) = &outcome {
            self.drop_call(&ticket, DropReason::Lock, congested.lock, now);
        } else if let Some(answer) = self.settle(&ticket, Ended::Completed, now) {
            let slot = ticket.connection.slot;
            let response = match &outcome {
                Ok(()) => Frame::Response(Response { answer, payload: &reply }),
                Err(Failed::UnknownMethod) => failure(answer, FailureCode::UnknownMethod, "no such method"),
                Err(Failed::Because(words)) => failure(answer, FailureCode::Failed, words),
                // Dropped above.
                Err(Failed::Congested(congested)) => failure(answer, FailureCode::Failed, congested.lock),
            };
            if let Some(connection) = &mut self.connections[slot as usize] {
                if connection.append(&response).is_err() {
                    let _ = connection.append(&failure(answer, FailureCode::ResponseTooLarge, TOO_LONG));
                }
                // Nothing of this client's is left that could share the write: waiting would win nothing.
                let last = connection.unanswered.is_empty();
                if last && (flush == Flush::AtOnce || self.receiver.batch.is_none()) {
                    self.flush(slot, now);
                } else {
                    self.mark_dirty(slot, now);
                }
            }
        }
        self.keep(reply);
        self.keep(spare);
    }

    /// Brings what has become of a job to the core that answers it.
    pub(super) fn deliver(&mut self, home: usize, executed: Executed, now: Time, flush: Flush) {
        if home == self.index {
            self.answer(executed, now, flush);
        } else {
            self.common.mail.leave(home, Message::Executed(executed));
            // Asked afterwards: who comes back to its connections meanwhile looks at its messages first.
            if !self.shared.looks_after(self.index, home) {
                self.common.mail.wake(home);
            }
        }
    }

    /// Keeps a buffer for the next request, if it is one and no giant.
    pub(super) fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.spares.len() < 1024 && (1..=4096).contains(&buffer.capacity()) {
            buffer.clear();
            self.spares.push(buffer);
        }
    }
}

/// How old statistics may be: putting them together takes as long as many requests.
const TOLD_AGAIN: Nanos = Nanos::from_millis(10);

const TOO_LONG: &str = "the result is longer than this client accepts";

/// What became of a call that has an answer.
#[derive(Clone, Copy)]
enum Ended {
    Completed,
    Dropped(DropReason),
}

fn dropped(answer: Answer, reason: DropReason, words: &str) -> Frame<'_> {
    Frame::Drop(Dropped { answer, reason, message: Text::new(words), retry_after: Nanos32::default() })
}

fn failure<'a>(answer: Answer, code: FailureCode, words: &'a str) -> Frame<'a> {
    Frame::Failure(Failure { answer, code, message: Text::new(words) })
}
