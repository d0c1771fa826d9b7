//! The decision on a request that has come. Never here: its end.

use super::{Gate, Refusal, Rehearsed, Turn};
use crate::arriving::Arriving;
use crate::build::Mode;
use crate::shard::Shard;
use crate::stretch::Stretch;
use crate::ticket::Ticket;
use leeward_controllers::edge::deadline;
use leeward_core::server::{self, Arrival};
use leeward_core::units::{Nanos, Time};
use leeward_host::sync::lock;
use leeward_observe::{Decision, Reason, SAMPLED};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Below this share of the target nobody waits: such a request needs no room. The controller refuses nothing there, either.
const CALM: f64 = 0.125;

/// Of so many requests one is judged without what is known of time inside.
const PLAIN: u64 = 16;

impl Gate {
    /// Decides on a request that has come.
    ///
    /// # Errors
    /// The request is refused: answer so, at once.
    pub fn arrive(&self, arriving: &Arriving) -> Result<Ticket, Refusal> {
        self.arrive_at(self.now(), arriving)
    }

    /// The same at a time of the caller's, since the gate was made. Times never go back.
    ///
    /// # Errors
    /// As [`Gate::arrive`].
    pub fn arrive_at(&self, now: Time, arriving: &Arriving) -> Result<Ticket, Refusal> {
        let inner = &*self.0;
        let service = inner.routes[usize::from(arriving.route)].time().unwrap_or(Nanos::ZERO);
        // In a rehearsal it is the time of another queue.
        let (now, waited, delay) = match inner.mode {
            Mode::Enforce => {
                let (waited, delay) = inner.delays(now, arriving);
                (now, waited, delay)
            }
            Mode::Shadow | Mode::Share(_) => inner.rehearsed(now, arriving),
        };
        let stretch = inner.stretch(arriving.route, service);
        inner.tick(now, stretch.of(delay));
        let index = shard_of_thread() % inner.shards.len();
        let mut shard = lock(&inner.shards[index]);
        let random = shard.choices.draw();
        let left = arriving.left.unwrap_or(Nanos::MAX);
        // One in some is judged by its wait alone: of a route that is refused nobody would learn that it is quick again.
        let felt = if (random >> 32).is_multiple_of(PLAIN) { Stretch::NONE } else { stretch };
        let arrival = Arrival::new(now)
            .with_delay(felt.of(delay))
            .with_priority(arriving.priority(now.0 / 3_600_000_000_000, random.rotate_left(32)))
            .with_tenant(arriving.tenant)
            .with_cost(inner.cost(arriving.route))
            .with_budget(deadline::budget(left.min(inner.slo), waited, service))
            .with_random(random);
        let class = (arrival.priority.level() - 1) / 16;
        let asks = arriving.asks.unwrap_or(arriving.route);
        let verdict = if shard.pending() >= inner.room {
            Err(Reason::Concurrency)
        } else if inner.mode == Mode::Enforce && !inner.behind.admits(now, (asks, class), random) {
            // The controller is not asked: what is not executed here is no demand on this service.
            Err(Reason::Behind)
        } else {
            shard.ask(&arrival, felt.of(waited))
        };
        let verdict = verdict.map_err(|reason| inner.named(reason, left, waited, service));
        shard.counts.arrived += 1;
        shard.by_class.count(class, verdict.as_ref().err().copied());
        inner.tenants.charge(index, arriving.tenant, inner.about(arriving.route), verdict.is_ok());
        if arriving.waited.is_some() {
            shard.waits.note(waited);
        }
        let is_meant = || inner.mode.enforces(arriving.account(random));
        if inner.mode != Mode::Enforce && (verdict.is_ok() || !is_meant()) {
            return Ok(self.rehearse(&mut shard, index, (arriving.route, class), verdict));
        }
        let record = |refused: Option<Reason>| {
            let mut decision = Decision::admitted(now);
            (decision.refused, decision.waited, decision.delay) = (refused, waited, delay);
            (decision.left, decision.service) = (left, inner.takes(arriving.route, service));
            (decision.priority, decision.tenant) = (arrival.priority, arrival.tenant);
            decision.route = arriving.route;
            decision.bound = inner.bound(refused, decision.moment, stretch);
            decision
        };
        match verdict {
            Ok(ticket) => {
                shard.counts.admitted += 1;
                let sampled = shard.counts.admitted.is_multiple_of(SAMPLED);
                drop(shard);
                if sampled {
                    inner.ring.write(&record(None));
                }
                let ticket = Ticket::new(self.clone(), index, (arriving.route, class), (now, waited), Some(ticket));
                let ticket = ticket.with_budget(inner.for_queues(left, arriving.route, waited)).asking(asks);
                if inner.waiting.is_none() {
                    return Ok(ticket);
                }
                let lateness = stretch.back(inner.bounds.lateness.unwrap_or(inner.slo));
                let last = left.min(inner.slo).saturating_sub(service).min(lateness).saturating_sub(waited);
                Ok(ticket.with_turn(Turn {
                    until: now + last,
                    is_calm: stretch.of(waited.max(delay)) < inner.target().scale(CALM),
                    left,
                    priority: arrival.priority,
                    tenant: arrival.tenant,
                }))
            }
            Err(reason) => {
                shard.counts.refused[reason as usize] += 1;
                drop(shard);
                let decision = inner.ring.write(&record(Some(reason)));
                Err(inner.refusal(reason, decision, random))
            }
        }
    }

    /// Admits whatever the verdict, and keeps the queue that would be.
    fn rehearse(
        &self,
        shard: &mut Shard,
        index: usize,
        (route, class): (u8, u8),
        verdict: Result<server::Ticket, Reason>,
    ) -> Ticket {
        match verdict {
            Ok(ticket) => {
                let inner = &self.0;
                let rehearsed = Rehearsed { shard: index, route, class, ticket };
                lock(&inner.twin).admit(inner.about(route), inner.shards.len(), rehearsed);
                shard.counts.admitted += 1;
            }
            Err(_) => shard.counts.shadowed += 1,
        }
        Ticket::rehearsed(self.clone(), index, route)
    }
}

/// Each thread has a shard of its own as long as there are as many shards as threads.
fn shard_of_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static SHARD: usize = THREADS.fetch_add(1, Ordering::Relaxed));
    SHARD.try_with(|shard| *shard).unwrap_or(0)
}
