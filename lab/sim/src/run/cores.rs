//! Core allocation in a run: placing messages, searching for work, granting and parking cores.
//!
//! Only servers with an allocator use this module.

use super::Run;
use crate::event::{Event, Packet};
use crate::scheduling::scheduler::Scheduler;
use crate::scheduling::{DispatchPolicy, StealAmount, StealPolicy};
use crate::server::Activity;
use leeward_allocation::CoreChange;
use leeward_core::server::CoreGrant;
use leeward_core::units::{Nanos, Time};
use leeward_outcome::CoreUsage;

impl Run<'_> {
    /// The scheduler of a server with an allocator.
    fn scheduler(&mut self) -> &mut Scheduler {
        match &mut self.scheduler {
            Some(scheduler) => scheduler,
            None => unreachable!("only called where cores come and go"),
        }
    }

    /// Begins the search of the first cores, and schedules the allocator.
    pub(super) fn start_cores(&mut self) {
        let Some(scheduler) = &self.scheduler else { return };
        let period = scheduler.period();
        self.event_queue.schedule(self.now + period, Event::Allocate);
        for core in scheduler.active().iter() {
            self.on_idle(core);
        }
    }

    /// Queues a message that has reached the server.
    pub(super) fn place(&mut self, packet: Packet) {
        let now = self.now;
        if self.scheduler().follows_events() {
            self.allocate(1);
        }
        let queue = self.queue_for();
        self.server.queues.push_packet(queue, now, packet);
        if self.scheduler().searching().has(queue) {
            self.start_found_work(queue, Nanos::ZERO);
        } else {
            self.notify_searchers(queue);
        }
    }

    /// Queue for a message: an active core's, or the shared one.
    fn queue_for(&mut self) -> usize {
        let queues = self.server.cores.len();
        let scheduler = self.scheduler();
        // With instant grants, the core granted for this message takes it.
        if scheduler.is_instant()
            && let Some(core) = scheduler.searching().first()
        {
            return core;
        }
        match scheduler.balancing.dispatch {
            DispatchPolicy::Random => scheduler.random_assignable(),
            DispatchPolicy::ShortestOf(sample) => {
                let drawn: Vec<usize> = (0..sample).map(|_| self.scheduler().random_assignable()).collect();
                drawn.into_iter().min_by_key(|core| self.server.load(*core)).unwrap_or(0)
            }
            DispatchPolicy::Bounded(bound) => {
                let takers = scheduler.assignable();
                let shortest = takers.iter().min_by_key(|core| self.server.load(*core));
                shortest.filter(|core| self.server.load(*core) < bound as usize).unwrap_or(queues)
            }
        }
    }

    /// Continues with the next step of `core`, or parks it if it is revoked.
    pub(super) fn continue_core(&mut self, core: usize, debt: Nanos) {
        if debt == Nanos::ZERO && self.scheduler().is_leaving(core) {
            self.park(core);
            return;
        }
        self.fill(core);
        self.begin(core, debt);
        // Searching cores may steal queued work that `core` can't execute yet.
        if self.server.queues.head(core).is_some() {
            self.notify_searchers(core);
        }
    }

    /// Moves entries from the shared queue to `core` up to its bound.
    fn fill(&mut self, core: usize) {
        let Some(DispatchPolicy::Bounded(bound)) =
            self.scheduler.as_ref().map(|scheduler| scheduler.balancing.dispatch)
        else {
            return;
        };
        let all = self.server.cores.len();
        while self.server.load(core) < bound as usize && self.server.queues.transfer(all, core) {}
    }

    /// Begins a search on `core`, which has nothing left to do. Does nothing on a server without an
    /// allocator.
    pub(super) fn on_idle(&mut self, core: usize) {
        let Some(scheduler) = &mut self.scheduler else { return };
        scheduler.begin_search(self.now, core);
        if scheduler.is_instant()
            && let Some(queue) = self.oldest_queue()
        {
            self.steal_from(core, queue);
            return;
        }
        self.schedule_search(core);
    }

    /// Schedules the next event of a searching core.
    fn schedule_search(&mut self, core: usize) {
        let now = self.now;
        let queues = 0..self.server.cores.len();
        let Some(scheduler) = &mut self.scheduler else { return };
        let mut next = Time::NEVER;
        if self.server.queues.waiting() > 0 {
            for queue in queues {
                if let Some(head) = self.server.queues.head(queue) {
                    next = next.min(scheduler.discovery_time(core, queue, head, now));
                }
            }
        }
        let search = &mut scheduler.searches[core];
        let gives_up = search.until.max(now);
        // A core that may not park schedules no event at the end of its search: an arrival notifies
        // it.
        if next <= gives_up || scheduler.may_park(core) {
            next = next.min(gives_up);
        }
        let search = &mut scheduler.searches[core];
        search.next = next;
        search.generation = search.generation.wrapping_add(1);
        self.event_queue.schedule(next, Event::SearchStep(core as u32, search.generation));
    }

    /// Notifies the searching core that finds `queue` first, unless it has an earlier event.
    fn notify_searchers(&mut self, queue: usize) {
        let now = self.now;
        let Some(scheduler) = &mut self.scheduler else { return };
        let searching = scheduler.searching();
        if searching.len() == 0 || queue >= self.server.cores.len() {
            return;
        }
        let Some(head) = self.server.queues.head(queue) else { return };
        let sees = |core: usize| (scheduler.discovery_time(core, queue, head, now), core);
        let free = |(at, core): &(Time, usize)| {
            let search = &scheduler.searches[*core];
            // A core that searches past its limit, because it may not park, has no other event to
            // wait for.
            *at < search.next && (*at <= search.until || search.next == Time::NEVER)
        };
        let Some((at, core)) = searching.iter().map(sees).filter(free).min() else { return };
        let search = &mut scheduler.searches[core];
        search.next = at;
        search.generation = search.generation.wrapping_add(1);
        self.event_queue.schedule(at, Event::SearchStep(core as u32, search.generation));
    }

    /// Handles a searching core's event: it steals work, parks, or continues its search.
    pub(super) fn on_search_step(&mut self, core: usize, generation: u32) {
        let now = self.now;
        let Some(scheduler) = &mut self.scheduler else { return };
        let search = scheduler.searches[core];
        if !scheduler.searching().has(core) || search.generation != generation {
            return;
        }
        if self.server.queues.head(core).is_some() {
            self.start_found_work(core, Nanos::ZERO);
            return;
        }
        if self.server.queues.waiting() > 0 {
            let queue = match self.scheduler().balancing.stealing {
                StealPolicy::Oracle => self.oldest_queue(),
                _ => {
                    let scheduler = self.scheduler.as_ref();
                    let here = |queue: &usize| {
                        let head = self.server.queues.head(*queue);
                        head.zip(scheduler)
                            .is_some_and(|(head, known)| known.discovery_time(core, *queue, head, now) == now)
                    };
                    // Among several flagged queues, take the one with the oldest head.
                    (0..self.server.cores.len()).filter(here).min_by_key(|queue| self.server.queues.head(*queue))
                }
            };
            if let Some(queue) = queue {
                self.steal_from(core, queue);
                return;
            }
        }
        if now >= search.until && self.scheduler().may_park(core) {
            self.park(core);
            return;
        }
        self.schedule_search(core);
    }

    fn oldest_queue(&self) -> Option<usize> {
        let heads = (0..self.server.cores.len()).filter_map(|queue| Some((self.server.queues.head(queue)?, queue)));
        heads.min().map(|(_, queue)| queue)
    }

    /// Lets the searching `core` take the oldest entry of another core's queue, or the queue's
    /// older half.
    fn steal_from(&mut self, core: usize, queue: usize) {
        let entries = match self.scheduler().steal {
            StealAmount::One => 1,
            StealAmount::Half => self.server.queues.length(queue).div_ceil(2),
        };
        (0..entries).for_each(|_| _ = self.server.queues.transfer(queue, core));
        let steal = self.config.server.costs.steal;
        self.start_found_work(core, if queue == core { Nanos::ZERO } else { steal });
        self.notify_searchers(queue);
    }

    /// Ends the search of `core`, which has work in its own queue.
    fn start_found_work(&mut self, core: usize, debt: Nanos) {
        let now = self.now;
        self.scheduler().end_search(now, core);
        self.begin(core, debt);
    }

    /// Returns the core that sends for `home`: `home` itself, or another core if `home` is parked.
    pub(super) fn sender(&self, home: usize) -> usize {
        self.scheduler.as_ref().map_or(home, |scheduler| scheduler.substitute(home))
    }

    /// Lets `core` send its outgoing messages if it is idle.
    pub(super) fn send_if_idle(&mut self, core: usize) {
        let has_some = !self.server.cores[core].outgoing.is_empty();
        if has_some && matches!(self.server.cores[core].activity, Activity::Idle) && self.scheduler().active().has(core)
        {
            self.start_found_work(core, Nanos::ZERO);
        }
    }

    /// Runs the allocator and schedules its next run.
    pub(super) fn allocator_tick(&mut self) {
        self.allocate(0);
        let period = self.scheduler().period();
        self.event_queue.schedule(self.now + period, Event::Allocate);
    }

    /// Asks the allocator for a change and applies it. `arriving` messages are about to be queued.
    fn allocate(&mut self, arriving: u32) {
        let now = self.now;
        let Some(scheduler) = &mut self.scheduler else { return };
        match scheduler.decide(now, &self.server.queues, arriving) {
            CoreChange::Keep => {}
            CoreChange::Grant(more) => self.grant(more),
            CoreChange::Revoke(fewer) => {
                for _ in 0..fewer {
                    let Some(core) = self.scheduler().revocation_candidate() else { return };
                    self.scheduler().mark_leaving(core);
                    self.report_fewer_cores();
                    if self.scheduler().searching().has(core) {
                        self.park(core);
                    }
                }
            }
        }
    }

    fn grant(&mut self, cores: u32) {
        let now = self.now;
        let mut granted = 0;
        for _ in 0..cores {
            if !self.scheduler().cancel_revocation() {
                let Some(core) = self.scheduler().grant(now) else { break };
                if self.scheduler().is_instant() {
                    self.on_granted(core);
                } else {
                    let at = now + self.scheduler().allocation_delay;
                    self.event_queue.schedule(at, Event::Granted(core as u32));
                }
            }
            granted += 1;
        }
        if granted > 0 {
            let total = self.scheduler().allocated();
            self.scheduler().usage.record_grants(granted);
            self.halves.control.on_core_grant(&CoreGrant { now, granted, total });
            self.wake_sessions();
        }
    }

    /// Begins work or a search on a granted core that has become usable.
    pub(super) fn on_granted(&mut self, core: usize) {
        let now = self.now;
        self.scheduler().ready(now, core);
        self.fill(core);
        self.begin(core, Nanos::ZERO);
    }

    /// Reports the loss of a core to the controller.
    fn report_fewer_cores(&mut self) {
        let (now, total) = (self.now, self.scheduler().allocated());
        self.halves.control.on_core_grant(&CoreGrant { now, granted: 0, total });
    }

    fn park(&mut self, core: usize) {
        let now = self.now;
        let was_revoked = self.scheduler().is_leaving(core);
        self.scheduler().park(now, core);
        if !was_revoked {
            self.report_fewer_cores();
        }
        let left_behind = self.server.queues.head(core).is_some() || !self.server.cores[core].outgoing.is_empty();
        if left_behind {
            let heir = self.scheduler().random_assignable();
            self.server.hand_over(core, heir);
            if self.scheduler().searching().has(heir) {
                self.start_found_work(heir, Nanos::ZERO);
            } else {
                self.notify_searchers(heir);
            }
        }
        if self.scheduler().follows_events() && self.server.queues.waiting() > 0 {
            self.allocate(0);
        }
    }

    /// Counts a rejection.
    pub(super) fn record_rejection(&mut self) {
        self.stats.record_reject();
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.rejected += 1;
        }
    }

    /// Whether a parked core still has work or outgoing messages.
    pub(super) fn has_parked_work(&self) -> bool {
        let Some(scheduler) = &self.scheduler else { return false };
        let active = scheduler.active();
        let core =
            |core: usize| self.server.queues.head(core).is_some() || !self.server.cores[core].outgoing.is_empty();
        (0..self.server.cores.len()).any(|index| !active.has(index) && core(index))
    }

    pub(super) fn core_usage(&mut self, end: Time) -> Option<CoreUsage> {
        let measured = end.since(self.stats.interval().from);
        self.scheduler.as_mut().map(|scheduler| scheduler.report(end, measured))
    }
}
