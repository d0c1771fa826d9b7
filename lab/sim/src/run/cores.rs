//! The work of cores that come and go: placing, searching, granting, parking. Only for servers with an allocator; all
//! others never get here.

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
    /// The scheduler of a server that has one.
    fn scheduler(&mut self) -> &mut Scheduler {
        match &mut self.scheduler {
            Some(scheduler) => scheduler,
            None => unreachable!("only called where cores come and go"),
        }
    }

    /// The run begins: the first cores look for work, and the allocator's clock starts.
    pub(super) fn start_cores(&mut self) {
        let Some(scheduler) = &self.scheduler else { return };
        let period = scheduler.period();
        self.event_queue.schedule(self.now + period, Event::Allocate);
        for core in scheduler.active().iter() {
            self.on_idle(core);
        }
    }

    /// A message has reached the server.
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

    /// The queue for a message: of one of the cores that are there, or the one for all.
    fn queue_for(&mut self) -> usize {
        let queues = self.server.cores.len();
        let scheduler = self.scheduler();
        // Where cores come at once, the one that came for this message takes it.
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

    /// `core` is done with something: it goes on, or leaves.
    pub(super) fn continue_core(&mut self, core: usize, owed: Nanos) {
        if owed == Nanos::ZERO && self.scheduler().is_leaving(core) {
            self.park(core);
            return;
        }
        self.fill(core);
        self.begin(core, owed);
        // What it has queued and can't do itself yet is for those that look for work.
        if self.server.queues.head(core).is_some() {
            self.notify_searchers(core);
        }
    }

    /// Takes from the queue for all what `core` has room for.
    fn fill(&mut self, core: usize) {
        let Some(DispatchPolicy::Bounded(bound)) =
            self.scheduler.as_ref().map(|scheduler| scheduler.balancing.dispatch)
        else {
            return;
        };
        let all = self.server.cores.len();
        while self.server.load(core) < bound as usize && self.server.queues.transfer(all, core) {}
    }

    /// `core` has nothing left to do: it begins to look for work. A no-op on a server whose cores are always there.
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

    /// Sets the next moment at which something is to be done for a core that looks for work.
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
        // A core that may not park looks on in vain: it is told when something comes.
        if next <= gives_up || scheduler.may_park(core) {
            next = next.min(gives_up);
        }
        let search = &mut scheduler.searches[core];
        search.next = next;
        search.generation = search.generation.wrapping_add(1);
        self.event_queue.schedule(next, Event::SearchStep(core as u32, search.generation));
    }

    /// Something lies in `queue`: the core that sees it first goes there, unless it is on its way elsewhere by then.
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
            // One that looks on beyond its time, because it may not park, has nothing else to wait for.
            *at < search.next && (*at <= search.until || search.next == Time::NEVER)
        };
        let Some((at, core)) = searching.iter().map(sees).filter(free).min() else { return };
        let search = &mut scheduler.searches[core];
        search.next = at;
        search.generation = search.generation.wrapping_add(1);
        self.event_queue.schedule(at, Event::SearchStep(core as u32, search.generation));
    }

    /// A core that looks for work gets to a queue that had some, or gives up.
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
                    // Of several that have raised a flag, the one that has waited longest.
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

    /// `core`, which looks for work, takes the oldest of another's queue, or its older half.
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

    /// `core`, which looked for work, has some in its own queue.
    fn start_found_work(&mut self, core: usize, owed: Nanos) {
        let now = self.now;
        self.scheduler().end_search(now, core);
        self.begin(core, owed);
    }

    /// Something is to be sent from `home`, or from another core if that is parked. Returns the core that will.
    pub(super) fn sender(&self, home: usize) -> usize {
        self.scheduler.as_ref().map_or(home, |scheduler| scheduler.substitute(home))
    }

    /// `core` sends what is outgoing if it has nothing else to do.
    pub(super) fn send_if_idle(&mut self, core: usize) {
        let has_some = !self.server.cores[core].outgoing.is_empty();
        if has_some && matches!(self.server.cores[core].activity, Activity::Idle) && self.scheduler().active().has(core)
        {
            self.start_found_work(core, Nanos::ZERO);
        }
    }

    /// The allocator's clock.
    pub(super) fn allocator_tick(&mut self) {
        self.allocate(0);
        let period = self.scheduler().period();
        self.event_queue.schedule(self.now + period, Event::Allocate);
    }

    /// Asks the allocator, while `arriving` messages are about to be queued, and does what it says.
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

    /// A granted core can be used: it looks for work.
    pub(super) fn on_granted(&mut self, core: usize) {
        let now = self.now;
        self.scheduler().ready(now, core);
        self.fill(core);
        self.begin(core, Nanos::ZERO);
    }

    /// Admission control hears of a core that is not the server's any more.
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

    /// A request has been rejected.
    pub(super) fn record_rejection(&mut self) {
        self.stats.record_reject();
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.rejected += 1;
        }
    }

    /// Looks for a parked core that still has something to do.
    pub(super) fn has_parked_work(&self) -> bool {
        let Some(scheduler) = &self.scheduler else { return false };
        let active = scheduler.active();
        let core =
            |core: usize| self.server.queues.head(core).is_some() || !self.server.cores[core].outgoing.is_empty();
        (0..self.server.cores.len()).any(|index| !active.has(index) && core(index))
    }

    pub(super) fn core_usage(&mut self, end: Time) -> Option<CoreUsage> {
        let measured = end.since(Time::ZERO + self.config.warmup);
        self.scheduler.as_mut().map(|scheduler| scheduler.report(end, measured))
    }
}
