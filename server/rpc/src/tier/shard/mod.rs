//! Connections to all leaves and the requests that wait for them: what one thread has at a time. Sans threads: a sync thread has one for
//! itself, response threads share them under locks.
//!
//! `reserve`: credits that are set aside, and requests that wait for them. `waiting`: requests, and the ends of their calls. `second`: calls that are made again.
//!
//! Never here: what replies mean, and who looks when.

mod requests;
mod reserve;
mod second_attempt;

use self::requests::WaitingRequests;
use self::reserve::ParkedRequests;
use super::calls::{CallEntry, CallList};
use super::gather::CreditReservation;
use super::gather::Gather;
use super::gather::attempt::Attempt;
use super::leaves::Settings;
use super::link::Link;
use super::server::FanoutCounters;
use super::service::{CALLS_MAX, GatherCondition, LeafId};
use super::slab::Key;
use crate::client::driver::random::Random;
use crate::client::driver::timer::Timer;
use crate::client::{Event, Request};
use leeward_core::budget::Budget;
use leeward_core::hedging::LeafTimeouts;
use leeward_core::units::{Nanos, Priority, Time};
use leeward_runtime::Clock;
use mio::{Events, Poll, Token};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

const TIMER: Token = Token(usize::MAX);
/// Events that one poll takes.
const EVENTS_MAX: usize = 64;
/// A connection that nobody has looked at for so long may be over.
const STALE: Nanos = Nanos::from_millis(100);
/// Time that a request waits for connections that are being made.
const SETTLING: Nanos = Nanos::from_millis(50);
/// Rounds of one turn: what the first makes possible the next does.
const ROUNDS: usize = 4;

/// A call: the request that waits, and which of its legs this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag {
    gather: Key,
    attempt: u32,
}

impl Tag {
    /// A link's own question to its leaf, which no request waits for.
    const VALIDATION: Tag = Tag { gather: Key::NONE, attempt: u32::MAX };
}

/// When a request stops waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeadlineKind {
    /// For everything: what is good enough will do.
    GoodEnough,
    /// For anything.
    Final,
}

/// Which leaves a shard has connections to, with the age at which it has told so. When the shard goes, they go.
struct UpLeaves {
    epochs: Vec<Option<u32>>,
    counts: Arc<FanoutCounters>,
}

impl UpLeaves {
    /// Tells the tier, if it does not know.
    fn update(&mut self, leaf: usize, is_up: bool) {
        let (Some(told), Some(presence)) = (self.epochs.get_mut(leaf), self.counts.credits.connections(leaf)) else {
            return;
        };
        match *told {
            Some(at) if !is_up => {
                presence.invalidate(at);
                *told = None;
            }
            Some(at) if presence.epoch() == at => {}
            None if !is_up => {}
            _ => *told = Some(presence.add()),
        }
    }
}

impl Drop for UpLeaves {
    fn drop(&mut self) {
        for (leaf, told) in self.epochs.iter().enumerate() {
            if let (Some(at), Some(presence)) = (*told, self.counts.credits.connections(leaf)) {
                presence.remove(at);
            }
        }
    }
}

pub(super) struct Shard<S> {
    settings: Arc<Settings>,
    clock: Clock,
    poll: Poll,
    events: Events,
    timer: Timer,
    random: Random,
    links: Vec<Link<Tag>>,
    /// The windows of the links, as the tier knows them.
    windows: Vec<Option<u32>>,
    /// Which of the links are up, as the tier knows it.
    up_leaves: UpLeaves,
    requests: WaitingRequests<S>,
    waits: LeafTimeouts,
    /// When requests stop waiting, the soonest first. Those that have ended are left in it until their time comes.
    deadlines: VecDeque<(Time, Key, DeadlineKind)>,
    /// When calls take so long that they are worth a second leg, the soonest first. Those that have ended are left in it, too.
    hedge_deadlines: VecDeque<(Time, Tag)>,
    parked: ParkedRequests<S>,
    /// Its number among those that async setups share; `None`: a thread has it for itself.
    index: Option<usize>,
    /// Time of the last look.
    polled_at: Time,
}

impl<S> Shard<S> {
    pub(super) fn new(
        settings: &Arc<Settings>,
        clock: &Clock,
        seed: u64,
        counts: &Arc<FanoutCounters>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let timer = Timer::new(poll.registry(), TIMER)?;
        let mut shard = Shard {
            settings: Arc::clone(settings),
            clock: clock.clone(),
            events: Events::with_capacity(EVENTS_MAX),
            timer,
            poll,
            random: Random::new(seed),
            links: (0..settings.leaves.len()).map(|leaf| Link::new(leaf, settings, Tag::VALIDATION)).collect(),
            windows: vec![None; settings.leaves.len()],
            up_leaves: UpLeaves { epochs: vec![None; settings.leaves.len()], counts: Arc::clone(counts) },
            requests: WaitingRequests::new(settings.leaves.len(), counts),
            waits: settings.waits(),
            deadlines: VecDeque::new(),
            hedge_deadlines: VecDeque::new(),
            parked: ParkedRequests::default(),
            index: None,
            polled_at: Time::ZERO,
        };
        // Begins to connect.
        shard.poll(Some(Duration::ZERO))?;
        Ok(shard)
    }

    /// The same, with its number among those that async setups share.
    #[must_use]
    pub(super) fn with_index(mut self, index: usize) -> Self {
        self.index = Some(index);
        self
    }

    /// Descriptor that is readable while something has come that nobody has looked at, or a time has come.
    pub(super) fn descriptor(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// Leaves that are there.
    pub(super) fn up_count(&self) -> usize {
        self.links.iter().filter(|link| link.is_up()).count()
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.requests.gathers.len()
    }

    /// Makes the calls of a request, which waits for them from now on. It may be ready at once.
    ///
    /// # Errors
    /// The timer can't be set; the calls have left all the same.
    pub(super) fn start(
        &mut self,
        mut gather: Box<Gather<S>>,
        calls: &CallList,
        enough: GatherCondition,
    ) -> io::Result<()> {
        if self.may_have_changed() {
            // A thread that has this for itself looks at it while it waits only: what a leaf has said since is not known.
            self.poll(Some(Duration::ZERO))?;
            if self.index.is_none() {
                self.await_connections(gather.budget())?;
            }
        }
        let now = self.clock.now();
        self.requests.now = now;
        let most = self.waits.timeout(gather.spent(now));
        gather.start_calls(now, calls.len(), enough);
        let key = self.requests.gathers.insert(gather);
        for place in 0..calls.len() {
            if let Some(listed) = calls.get(place) {
                self.first_attempt(key, place, &listed, now);
            }
        }
        // The service may have named leaves that it did not call then.
        if let Some(mut reserved) =
            self.requests.gathers.get_mut(key).map(|gather| std::mem::take(&mut gather.reserved))
        {
            for CreditReservation { leaf, generation: life } in reserved.drain(..) {
                let Shard { links, requests: waiting, .. } = self;
                links[usize::from(leaf.0)].release(now, life, &mut |event| waiting.take(&event));
            }
            if let Some(gather) = self.requests.gathers.get_mut(key) {
                gather.reserved = reserved;
            }
        }
        self.exchange_links(now);
        self.requests.finish_if_enough(key);
        if self.requests.gathers.get_mut(key).is_some() {
            if let GatherCondition::GoodEnough { within, .. } = enough {
                self.add_deadline(now + within.min(most), key, DeadlineKind::GoodEnough);
            }
            self.add_deadline(now + enough.timeout(most), key, DeadlineKind::Final);
        }
        self.arm(now)
    }

    /// Waits for connections that are being made. A thread that has this for itself has not looked at them since its last request: without the wait
    /// that request would miss leaves that are there, and the more rarely the thread has one the later.
    fn await_connections(&mut self, budget: Budget) -> io::Result<()> {
        let now = self.clock.now();
        let Shard { links, up_leaves: ups, .. } = self;
        for (leaf, link) in links.iter_mut().enumerate() {
            if ups.counts.credits.connections(leaf).is_some_and(|presence| presence.connections() > 0) {
                link.expedite(now);
            }
        }
        self.exchange();
        let most = SETTLING.min(self.waits.timeout(Nanos::ZERO) / 2);
        let until = now + budget.remaining().map_or(most, |left| most.min(left / 2));
        loop {
            let now = self.clock.now();
            if now >= until || !self.links.iter().any(|link| link.may_connect(until)) {
                break;
            }
            self.poll(Some(Duration::from_nanos(until.since(now).0)))?;
        }
        self.links.iter_mut().for_each(Link::mark_awaited);
        Ok(())
    }

    fn add_deadline(&mut self, deadline: Time, key: Key, what: DeadlineKind) {
        let live = self.requests.gathers.len();
        if self.deadlines.len() == self.deadlines.capacity() && live < self.deadlines.len() / 2 {
            // Most of them have ended long before their time: their places are enough.
            self.deadlines.retain(|(_, key, _)| self.requests.gathers.get_mut(*key).is_some());
        }
        let place = self.deadlines.partition_point(|(time, ..)| *time <= deadline);
        self.deadlines.insert(place, (deadline, key, what));
    }

    /// Makes a call of a request.
    fn first_attempt(&mut self, key: Key, place: usize, listed: &CallEntry<'_>, now: Time) {
        let reserved = self.reserved_for(key, listed.leaf);
        let (leaf, other) = match reserved {
            Some(CreditReservation { leaf, .. }) => (leaf, self.alternate_to(leaf, listed)),
            None => self.choose_leaves(listed),
        };
        let Shard { links, requests: waiting, random, hedge_deadlines: patience, .. } = self;
        let Some(gather) = waiting.gathers.get_mut(key) else { return };
        let Some(link) = links.get_mut(usize::from(leaf.0)).filter(|_| place < CALLS_MAX) else {
            return gather.fail_call(place);
        };
        let copy = other.map(|other| {
            let copies = &mut gather.attempts.saved_calls;
            copies.push(other, listed.method, |bytes| bytes.extend_from_slice(listed.payload));
            copies.len() as u32 - 1
        });
        // There are fewer calls than 2³².
        let is_repeatable = listed.is_repeatable;
        let leg = Attempt { place: place as u32, leaf, request: None, is_repeatable, saved_call: copy, is_done: false };
        let number = gather.attempts.push(leg);
        let (tag, budget) = (Tag { gather: key, attempt: number }, gather.budget());
        waiting.hedges.record_call();
        waiting.counts.credits.call(usize::from(leaf.0));
        let CallEntry { method, payload, .. } = *listed;
        let request = Request { method, payload, priority: Priority::HIGHEST, random: random.draw() };
        // Ends of others' calls may come of it, too: a queue that is full lets its oldest go.
        let take = &mut |event: Event<'_, Tag>| waiting.take(&event);
        let name = match reserved {
            Some(CreditReservation { generation: life, .. }) => {
                link.submit_reserved(now, tag, (&request, life), budget, take)
            }
            None => link.submit(now, tag, &request, budget, take),
        };
        let Some(leg) = waiting.gathers.get_mut(key).and_then(|gather| gather.attempts.get_mut(number)) else { return };
        leg.request = name;
        if copy.is_some()
            && let Some(span) = waiting.hedges.hedge_delay(usize::from(leaf.0))
        {
            let place = patience.partition_point(|(time, _)| *time <= now + span);
            patience.insert(place, (now + span, tag));
        }
    }

    /// Takes the reservation of a request for a leaf with this part of the data, if it has one.
    fn reserved_for(&mut self, key: Key, part: LeafId) -> Option<CreditReservation> {
        let parts = self.settings.parts_of_data();
        let gather = self.requests.gathers.get_mut(key)?;
        let is_of_part = |reserved: &CreditReservation| usize::from(reserved.leaf.0) % parts == usize::from(part.0);
        let place = gather.reserved.iter().position(is_of_part)?;
        Some(gather.reserved.swap_remove(place))
    }

    /// Another leaf that has the same, for a call that goes to `leaf`.
    fn alternate_to(&mut self, leaf: LeafId, listed: &CallEntry<'_>) -> Option<LeafId> {
        let (copies, count) = (self.settings.copies, self.links.len());
        if copies < 2 || !listed.is_repeatable {
            return listed.alternate.filter(|other| usize::from(other.0) < count && *other != leaf);
        }
        let step = self.settings.parts_of_data() * (1 + self.random.below(copies as u64 - 1) as usize);
        Some(LeafId(((usize::from(leaf.0) + step) % count) as u16))
    }

    /// The leaf that a call goes to, and another that has the same. A service names the first copy of each part of its data; of two
    /// copies the one with fewer calls unanswered is asked first.
    fn choose_leaves(&mut self, listed: &CallEntry<'_>) -> (LeafId, Option<LeafId>) {
        let (copies, parts) = (self.settings.copies as u64, self.settings.parts_of_data() as u64);
        let count = self.links.len();
        let is_there = |leaf: &LeafId| usize::from(leaf.0) < count;
        if copies < 2 || !listed.is_repeatable || !is_there(&listed.leaf) {
            let other = listed.alternate.filter(|other| is_there(other) && *other != listed.leaf);
            return (listed.leaf, other);
        }
        let first = self.random.below(copies);
        let second = (first + 1 + self.random.below(copies - 1)) % copies;
        // Below the number of leaves.
        let leaf_of = |copy: u64| LeafId((u64::from(listed.leaf.0) + copy * parts) as u16);
        let (mut one, mut two) = (leaf_of(first), leaf_of(second));
        let mut load = |leaf: LeafId| self.links[usize::from(leaf.0)].in_flight();
        if load(two) < load(one) {
            std::mem::swap(&mut one, &mut two);
        }
        (one, Some(two))
    }

    /// Looks at the connections and the clock, after waiting for something to come for so long (`None`: until it does). Requests that
    /// can go on are [`Shard::ready`] then. Whether anything had come.
    pub(super) fn poll(&mut self, wait: Option<Duration>) -> io::Result<bool> {
        let mut anything = false;
        self.polled_at = self.clock.now();
        for round in 0..ROUNDS {
            let may_wait = round == 0 && !self.has_work();
            let wait = if may_wait { wait } else { Some(Duration::ZERO) };
            match self.poll.poll(&mut self.events, wait) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            anything |= !self.events.is_empty();
            for event in &self.events {
                match event.token() {
                    TIMER => self.timer.on_fired(),
                    Token(leaf) => {
                        if let Some(link) = self.links.get_mut(leaf) {
                            link.on_readiness(event);
                        }
                    }
                }
            }
            self.exchange();
            if !self.links.iter().any(Link::is_busy) {
                break;
            }
        }
        self.check_silence();
        Ok(anything)
    }

    /// Notes which leaves are silent, unless more has come than was read.
    fn check_silence(&mut self) {
        if self.events.iter().count() < EVENTS_MAX {
            let (now, silence) = (self.clock.now(), self.waits.failure_timeout());
            let mut is_news = false;
            for (leaf, link) in self.links.iter_mut().enumerate() {
                is_news |= link.check_silence(now, silence);
                if !link.is_up() {
                    self.waits.forget(leaf);
                }
            }
            if is_news {
                self.exchange_links(now);
                self.serve_parked(now);
            }
        }
    }

    fn exchange(&mut self) {
        let now = self.clock.now();
        self.requests.now = now;
        let Shard { links, requests: waiting, random, poll, .. } = self;
        for link in links.iter_mut() {
            link.on_timer(now, poll.registry(), random, &mut |event| waiting.take(&event));
        }
        self.exchange_links(now);
        while let Some((deadline, key, what)) = self.deadlines.front().copied() {
            if deadline > now && self.requests.gathers.get_mut(key).is_some() {
                break;
            }
            self.deadlines.pop_front();
            match (what, self.requests.gathers.get_mut(key)) {
                (DeadlineKind::GoodEnough, Some(gather)) => {
                    gather.accept_good_enough();
                    self.requests.finish_if_enough(key);
                }
                // What has not come is missing; its calls find nobody when they end.
                (DeadlineKind::Final, Some(gather)) => {
                    let waited = now.since(gather.started_at);
                    gather
                        .attempts
                        .awaited_leaves()
                        .for_each(|LeafId(leaf)| self.waits.record_timeout(usize::from(leaf), waited));
                    self.requests.finish(key);
                }
                (_, None) => {}
            }
        }
        if !self.requests.unwanted.is_empty() {
            self.exchange_links(now);
        }
        self.serve_parked(now);
        // Without its timer a shard looks as often as its owner does.
        let _ = self.arm(now);
    }

    /// Moves the links' bytes, does what follows from them, and moves what that says.
    fn exchange_links(&mut self, now: Time) {
        self.move_bytes();
        self.follow_up(now);
        self.move_bytes();
        self.report_windows();
    }

    /// Tells the tier which credits this has at the leaves.
    fn report_windows(&mut self) {
        let purses = &self.requests.counts.credits;
        for (leaf, (link, told)) in self.links.iter_mut().zip(&mut self.windows).enumerate() {
            self.up_leaves.update(leaf, link.is_up());
            let window = link.window();
            if window != *told {
                purses.change(leaf, *told, window);
                *told = window;
            }
        }
    }

    fn move_bytes(&mut self) {
        let Shard { links, requests: waiting, waits, random, clock, .. } = self;
        for (leaf, link) in links.iter_mut().enumerate() {
            link.exchange(clock, random, &mut |event| {
                // Late ones, too, as far as their calls were not given up.
                if let Event::Completed { round_trip, .. } = event {
                    waits.record_response(leaf, round_trip);
                }
                waiting.take(&event);
            });
        }
    }

    fn arm(&mut self, now: Time) -> io::Result<()> {
        // Most calls have ended long before they are worth a second leg.
        while let Some((_, tag)) = self.hedge_deadlines.front() {
            let gather = self.requests.gathers.get_mut(tag.gather);
            if gather.and_then(|gather| gather.attempts.get_mut(tag.attempt)).is_some_and(|leg| !leg.is_done) {
                break;
            }
            self.hedge_deadlines.pop_front();
        }
        let deadline = self.deadlines.front().map_or(Time::NEVER, |(deadline, ..)| *deadline);
        let patience = self.hedge_deadlines.front().map_or(Time::NEVER, |(at, _)| *at);
        let links = self.links.iter_mut().map(|link| link.next_timeout(now)).min().unwrap_or(Time::NEVER);
        self.timer.arm(now, deadline.min(patience).min(links).min(self.parked.next_deadline()))
    }

    /// Whether a leaf may have come or gone since the last look.
    fn may_have_changed(&self) -> bool {
        self.clock.now().since(self.polled_at) > STALE || self.links.iter().any(|link| !link.is_up())
    }

    /// Whether a turn has something to do that no descriptor will tell of.
    pub(super) fn has_work(&self) -> bool {
        !self.requests.ready.is_empty() || self.links.iter().any(Link::is_busy)
    }

    /// Requests that can go on.
    pub(super) fn ready(&mut self) -> &mut Vec<Box<Gather<S>>> {
        &mut self.requests.ready
    }

    /// The tier ends: the leaves are told, and what still waited is ready.
    pub(super) fn leave(&mut self) {
        let now = self.clock.now();
        let Shard { links, requests: waiting, .. } = self;
        for link in links {
            link.leave(now, &mut |event| waiting.take(&event));
        }
        self.report_windows();
    }
}
