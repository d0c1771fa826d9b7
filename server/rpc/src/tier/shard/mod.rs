//! Connections to all leaves, with the requests that wait for them; one thread uses a shard at a
//! time.
//!
//! A sync thread owns a shard; response threads share shards under locks.
//!
//! - `reserve`: reserved credits, and requests that wait for them.
//! - `requests`: waiting requests, and the ends of their calls.
//! - `second_attempt`: calls that are sent again.
//! - `optional`: calls to slow leaves that their requests can do without.
//!
//! Does not contain threads, the meaning of replies, or the schedule of polls.

mod optional;
mod requests;
mod reserve;
mod second_attempt;

use self::optional::CallNeed;
use self::requests::WaitingRequests;
use self::reserve::ParkedRequests;
use super::calls::{CallEntry, CallList};
use super::gather::CreditReservation;
use super::gather::Gather;
use super::gather::attempt::Attempt;
use super::leaves::Settings;
use super::link::Link;
use super::server::FanoutCounters;
use super::service::{CALLS_MAX, GatherCondition, LeafError, LeafId};
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
/// Events per poll of the system.
const EVENTS_MAX: usize = 64;
/// Age after which the state of unpolled connections may be outdated.
const STALE: Nanos = Nanos::from_millis(100);
/// Longest wait of a request for connections in progress.
const SETTLING: Nanos = Nanos::from_millis(50);
/// Rounds of one poll: each round does the work that the one before made possible.
const ROUNDS: usize = 4;

/// Identifies a call: the waiting request, and the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag {
    gather: Key,
    attempt: u32,
}

impl Tag {
    /// Tag of a link's validation call; no request waits for it.
    const VALIDATION: Tag = Tag { gather: Key::NONE, attempt: u32::MAX };
}

/// Kind of a request's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeadlineKind {
    /// Ends the wait for all replies; a good-enough number suffices from then on.
    GoodEnough,
    /// Ends the wait for any reply.
    Final,
}

/// A shard's report of an open connection.
#[derive(Clone, Copy, Debug)]
struct UpReport {
    epoch: u32,
    /// Time at which the shard saw that another one had lost the leaf.
    doubted_at: Option<Time>,
}

/// Leaves to which a shard is connected, each with its report.
///
/// Dropping it removes the shard's connections from the tier's counters.
struct UpLeaves {
    reports: Vec<Option<UpReport>>,
    counts: Arc<FanoutCounters>,
}

impl UpLeaves {
    /// Reports a change to the tier, unless the tier knows it.
    fn update(&mut self, leaf: usize, link: &mut Link<Tag>, now: Time) {
        let (Some(reported), Some(connections)) = (self.reports.get_mut(leaf), self.counts.credits.connections(leaf))
        else {
            return;
        };
        let is_up = link.is_up();
        match reported {
            Some(report) if !is_up => {
                connections.invalidate(report.epoch);
                *reported = None;
            }
            None if !is_up => {}
            Some(report) if connections.epoch() == report.epoch => {}
            // Another shard has lost the leaf. A connection without calls notices no silence, so
            // the leaf must answer first.
            Some(report) => {
                if link.has_sent_after(*report.doubted_at.get_or_insert(now), now) {
                    *report = UpReport { epoch: connections.add(), doubted_at: None };
                }
            }
            None => *reported = Some(UpReport { epoch: connections.add(), doubted_at: None }),
        }
    }
}

impl Drop for UpLeaves {
    fn drop(&mut self) {
        for (leaf, reported) in self.reports.iter().enumerate() {
            if let (Some(report), Some(connections)) = (reported, self.counts.credits.connections(leaf)) {
                connections.remove(report.epoch);
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
    /// Windows of the links, as last reported to the tier.
    windows: Vec<Option<u32>>,
    /// Links that are up, as last reported to the tier.
    up_leaves: UpLeaves,
    requests: WaitingRequests<S>,
    waits: LeafTimeouts,
    /// Deadlines of requests, the soonest first. Entries of ended requests stay until their time.
    deadlines: VecDeque<(Time, Key, DeadlineKind)>,
    /// Times at which calls are slow enough for a second attempt, the soonest first.
    ///
    /// Entries of ended calls stay until they reach the front.
    hedge_deadlines: VecDeque<(Time, Tag)>,
    parked: ParkedRequests<S>,
    /// Index among the shards of async setups; `None`: one thread owns the shard.
    index: Option<usize>,
    /// Time of the last poll.
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
            up_leaves: UpLeaves { reports: vec![None; settings.leaves.len()], counts: Arc::clone(counts) },
            requests: WaitingRequests::new(settings.leaves.len(), counts),
            waits: settings.waits(),
            deadlines: VecDeque::new(),
            hedge_deadlines: VecDeque::new(),
            parked: ParkedRequests::new(settings.parts_of_data()),
            index: None,
            polled_at: Time::ZERO,
        };
        // Begin to connect.
        shard.poll(Some(Duration::ZERO))?;
        Ok(shard)
    }

    /// Sets the index among the shards of async setups.
    #[must_use]
    pub(super) fn with_index(mut self, index: usize) -> Self {
        self.index = Some(index);
        self
    }

    /// Descriptor that is readable while input is unread or a timer is due.
    pub(super) fn descriptor(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// Number of leaves that are up.
    pub(super) fn up_count(&self) -> usize {
        self.links.iter().filter(|link| link.is_up()).count()
    }

    /// Number of waiting requests.
    pub(super) fn waiting(&self) -> usize {
        self.requests.gathers.len()
    }

    /// Whether no request waits here.
    pub(super) fn is_unused(&self) -> bool {
        self.waiting() == 0 && self.has_no_parked() && self.requests.ready.is_empty()
    }

    /// Makes the calls of a request, which waits for them from now on. The request may be ready at
    /// once.
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
            // A thread that owns the shard polls it only while it waits, so newer input is still
            // unread.
            self.poll(Some(Duration::ZERO))?;
            if self.index.is_none() {
                self.await_connections(gather.budget())?;
            }
        }
        let spare = self.spare_calls(calls, enough);
        let now = self.clock.now();
        self.requests.now = now;
        let spent = gather.spent(now);
        let timeout = self.waits.timeout(spent);
        gather.start_calls(now, calls.len(), enough);
        if spare > 0 {
            gather.set_good_enough(calls.len() - spare);
        }
        let key = self.requests.gathers.insert(gather);
        let mut left = spare;
        for index in 0..calls.len() {
            if let Some(call) = calls.get(index) {
                let need = if enough.spare(calls.len()) == 0 {
                    CallNeed::Needed
                } else if left > 0 && self.is_slow(call.leaf) {
                    left -= 1;
                    CallNeed::Spare
                } else {
                    CallNeed::Wanted
                };
                self.first_attempt(key, index, (&call, need), now);
            }
        }
        // The service may have named leaves that it did not call.
        if let Some(mut reserved) =
            self.requests.gathers.get_mut(key).map(|gather| std::mem::take(&mut gather.reserved))
        {
            for CreditReservation { leaf, generation: reserved_in } in reserved.drain(..) {
                let Shard { links, requests: waiting, .. } = self;
                links[usize::from(leaf.0)].release(now, reserved_in, &mut |event| waiting.take(&event));
            }
            if let Some(gather) = self.requests.gathers.get_mut(key) {
                gather.reserved = reserved;
            }
        }
        self.exchange_links(now);
        self.requests.finish_if_enough(key);
        if self.requests.gathers.get_mut(key).is_some() {
            let within = match enough {
                GatherCondition::GoodEnough { within, .. } => Some(within),
                _ => (spare > 0).then(|| self.waits.optional_timeout(spent)),
            };
            if let Some(within) = within {
                self.add_deadline(now + within.min(timeout), key, DeadlineKind::GoodEnough);
            }
            self.add_deadline(now + enough.timeout(timeout), key, DeadlineKind::Final);
        }
        self.arm(now)
    }

    /// Waits for connections in progress.
    ///
    /// A thread that owns the shard has not polled since its last request. Without the wait, the
    /// request would miss reachable leaves, most of all on threads with few requests.
    fn await_connections(&mut self, budget: Budget) -> io::Result<()> {
        let now = self.clock.now();
        let Shard { links, up_leaves: up, .. } = self;
        for (leaf, link) in links.iter_mut().enumerate() {
            if up.counts.credits.connections(leaf).is_some_and(|connections| connections.connections() > 0) {
                link.expedite(now);
            }
        }
        self.exchange();
        let longest = SETTLING.min(self.waits.timeout(Nanos::ZERO) / 2);
        let until = now + budget.remaining().map_or(longest, |left| longest.min(left / 2));
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

    fn add_deadline(&mut self, deadline: Time, key: Key, kind: DeadlineKind) {
        let live = self.requests.gathers.len();
        if self.deadlines.len() == self.deadlines.capacity() && live < self.deadlines.len() / 2 {
            // Most requests end long before their deadline; remove their entries before the
            // list grows.
            self.deadlines.retain(|(_, key, _)| self.requests.gathers.get_mut(*key).is_some());
        }
        let index = self.deadlines.partition_point(|(time, ..)| *time <= deadline);
        self.deadlines.insert(index, (deadline, key, kind));
    }

    /// Makes the first attempt of a call.
    fn first_attempt(&mut self, key: Key, index: usize, (call, need): (&CallEntry<'_>, CallNeed), now: Time) {
        let reserved = self.reserved_for(key, call.leaf);
        let (leaf, alternate) = match reserved {
            Some(CreditReservation { leaf, .. }) => (leaf, self.alternate_to(leaf, call)),
            None => self.choose_leaves(call),
        };
        let is_skipped = need == CallNeed::Spare && reserved.is_none() && !self.may_call_slow(leaf, now);
        let Shard { links, requests: waiting, random, hedge_deadlines: hedges, .. } = self;
        let Some(gather) = waiting.gathers.get_mut(key) else { return };
        let Some(link) = links.get_mut(usize::from(leaf.0)).filter(|_| index < CALLS_MAX) else {
            return gather.fail_call(index, LeafError::Invalid);
        };
        if is_skipped {
            return gather.fail_call(index, LeafError::NotSent);
        }
        let saved = alternate.map(|alternate| {
            let saved_calls = &mut gather.attempts.saved_calls;
            saved_calls.push(alternate, call.method, |bytes| bytes.extend_from_slice(call.payload));
            saved_calls.len() as u32 - 1
        });
        // There are fewer calls than 2³².
        let is_repeatable = call.is_repeatable;
        let attempt =
            Attempt { place: index as u32, leaf, request: None, is_repeatable, saved_call: saved, is_done: false };
        let number = gather.attempts.push(attempt);
        let (tag, budget) = (Tag { gather: key, attempt: number }, gather.budget());
        waiting.hedges.record_call();
        waiting.counts.credits.call(usize::from(leaf.0), need == CallNeed::Needed);
        let CallEntry { method, payload, .. } = *call;
        let request = Request { method, payload, priority: Priority::HIGHEST, random: random.draw() };
        // Calls of other requests may end, too: a full queue ends its oldest call.
        let take = &mut |event: Event<'_, Tag>| waiting.take(&event);
        let request_id = match reserved {
            Some(CreditReservation { generation: reserved_in, .. }) => {
                link.submit_reserved(now, tag, (&request, reserved_in), budget, take)
            }
            None => link.submit(now, tag, &request, budget, take),
        };
        let Some(attempt) = waiting.gathers.get_mut(key).and_then(|gather| gather.attempts.get_mut(number)) else {
            return;
        };
        attempt.request = request_id;
        if saved.is_some()
            && let Some(span) = waiting.hedges.hedge_delay(usize::from(leaf.0))
        {
            let position = hedges.partition_point(|(time, _)| *time <= now + span);
            hedges.insert(position, (now + span, tag));
        }
    }

    /// Takes the request's reservation at a leaf with this part of the data, if it has one.
    fn reserved_for(&mut self, key: Key, part: LeafId) -> Option<CreditReservation> {
        let parts = self.settings.parts_of_data();
        let gather = self.requests.gathers.get_mut(key)?;
        let is_of_part = |reserved: &CreditReservation| usize::from(reserved.leaf.0) % parts == usize::from(part.0);
        let position = gather.reserved.iter().position(is_of_part)?;
        Some(gather.reserved.swap_remove(position))
    }

    /// Another leaf with the same data, for a call to `leaf`.
    fn alternate_to(&mut self, leaf: LeafId, call: &CallEntry<'_>) -> Option<LeafId> {
        let (copies, count) = (self.settings.copies, self.links.len());
        if copies < 2 || !call.is_repeatable {
            return call.alternate.filter(|other| usize::from(other.0) < count && *other != leaf);
        }
        let step = self.settings.parts_of_data() * (1 + self.random.below(copies as u64 - 1) as usize);
        Some(LeafId(((usize::from(leaf.0) + step) % count) as u16))
    }

    /// Chooses the leaf for a call, and another with the same data.
    ///
    /// A service names the first copy of each part. Of two random copies, the one with fewer
    /// unanswered calls gets the call.
    fn choose_leaves(&mut self, call: &CallEntry<'_>) -> (LeafId, Option<LeafId>) {
        let (copies, parts) = (self.settings.copies as u64, self.settings.parts_of_data() as u64);
        let count = self.links.len();
        let is_there = |leaf: &LeafId| usize::from(leaf.0) < count;
        if copies < 2 || !call.is_repeatable || !is_there(&call.leaf) {
            let other = call.alternate.filter(|other| is_there(other) && *other != call.leaf);
            return (call.leaf, other);
        }
        let first = self.random.below(copies);
        let second = (first + 1 + self.random.below(copies - 1)) % copies;
        // Below the number of leaves.
        let leaf_of = |copy: u64| LeafId((u64::from(call.leaf.0) + copy * parts) as u16);
        let (mut one, mut two) = (leaf_of(first), leaf_of(second));
        let mut load = |leaf: LeafId| self.links[usize::from(leaf.0)].in_flight();
        if load(two) < load(one) {
            std::mem::swap(&mut one, &mut two);
        }
        (one, Some(two))
    }

    /// Polls the connections and the clock, after a wait for input of at most `wait` (`None`:
    /// without limit).
    ///
    /// [`Shard::ready`] has the requests that can continue. Returns whether there was input.
    pub(super) fn poll(&mut self, wait: Option<Duration>) -> io::Result<bool> {
        let mut has_input = false;
        self.polled_at = self.clock.now();
        for round in 0..ROUNDS {
            let may_wait = round == 0 && !self.has_work();
            let wait = if may_wait { wait } else { Some(Duration::ZERO) };
            match self.poll.poll(&mut self.events, wait) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            has_input |= !self.events.is_empty();
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
        Ok(has_input)
    }

    /// Updates which leaves are silent, unless more input has arrived than was read.
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
        while let Some((deadline, key, kind)) = self.deadlines.front().copied() {
            if deadline > now && self.requests.gathers.get_mut(key).is_some() {
                break;
            }
            self.deadlines.pop_front();
            match (kind, self.requests.gathers.get_mut(key)) {
                (DeadlineKind::GoodEnough, Some(gather)) => {
                    gather.accept_good_enough();
                    self.requests.finish_if_enough(key);
                }
                // Outstanding replies count as missing; later ends of these calls find no request.
                (DeadlineKind::Final, Some(gather)) => {
                    let started_at = gather.started_at;
                    let waited = now.since(started_at);
                    // A request may wait briefly by the service's choice: the leaf is not at fault.
                    let is_long = waited >= self.waits.optional_timeout(Nanos::ZERO);
                    for leaf in gather.attempts.awaited_leaves().map(|LeafId(leaf)| usize::from(leaf)) {
                        self.waits.record_timeout(leaf, waited);
                        if is_long {
                            self.requests.counts.credits.record_stall(leaf, started_at, now);
                        }
                    }
                    self.requests.finish(key);
                }
                (_, None) => {}
            }
        }
        if !self.requests.unwanted.is_empty() {
            self.exchange_links(now);
        }
        self.serve_parked(now);
        // Without its timer, a shard is polled as often as its owner polls.
        let _ = self.arm(now);
    }

    /// Moves the links' bytes, does the resulting work, and moves the bytes of that.
    fn exchange_links(&mut self, now: Time) {
        self.move_bytes();
        self.follow_up(now);
        self.move_bytes();
        self.report_windows(now);
    }

    /// Reports this shard's windows to the tier.
    fn report_windows(&mut self, now: Time) {
        let credits = &self.requests.counts.credits;
        for (leaf, (link, reported)) in self.links.iter_mut().zip(&mut self.windows).enumerate() {
            self.up_leaves.update(leaf, link, now);
            let window = link.window();
            if window != *reported {
                credits.change(leaf, *reported, window);
                *reported = window;
            }
        }
    }

    fn move_bytes(&mut self) {
        let Shard { links, requests: waiting, waits, random, clock, .. } = self;
        for (leaf, link) in links.iter_mut().enumerate() {
            link.exchange(clock, random, &mut |event| {
                // Late replies count, too, unless their calls were cancelled.
                if let Event::Completed { round_trip, .. } = event {
                    waits.record_response(leaf, round_trip);
                    if round_trip > waits.stall_timeout() {
                        let now = clock.now();
                        waiting.counts.credits.record_stall(leaf, Time(now.0.saturating_sub(round_trip.0)), now);
                    }
                }
                waiting.take(&event);
            });
        }
    }

    fn arm(&mut self, now: Time) -> io::Result<()> {
        // Most calls have ended long before a second attempt is due.
        while let Some((_, tag)) = self.hedge_deadlines.front() {
            let gather = self.requests.gathers.get_mut(tag.gather);
            if gather.and_then(|gather| gather.attempts.get_mut(tag.attempt)).is_some_and(|attempt| !attempt.is_done) {
                break;
            }
            self.hedge_deadlines.pop_front();
        }
        let deadline = self.deadlines.front().map_or(Time::NEVER, |(deadline, ..)| *deadline);
        let hedge = self.hedge_deadlines.front().map_or(Time::NEVER, |(at, _)| *at);
        let links = self.links.iter_mut().map(|link| link.next_timeout(now)).min().unwrap_or(Time::NEVER);
        self.timer.arm(now, deadline.min(hedge).min(links).min(self.parked.next_deadline()))
    }

    /// Whether a leaf may have come or gone since the last poll.
    fn may_have_changed(&self) -> bool {
        self.clock.now().since(self.polled_at) > STALE || self.links.iter().any(|link| !link.is_up())
    }

    /// Whether a poll has work that no descriptor announces.
    pub(super) fn has_work(&self) -> bool {
        !self.requests.ready.is_empty() || self.links.iter().any(Link::is_busy)
    }

    /// Requests that can continue.
    pub(super) fn ready(&mut self) -> &mut Vec<Box<Gather<S>>> {
        &mut self.requests.ready
    }

    /// Ends the shard with the tier: sends farewells to the leaves; waiting requests become ready.
    pub(super) fn leave(&mut self) {
        let now = self.clock.now();
        let Shard { links, requests: waiting, .. } = self;
        for link in links {
            link.leave(now, &mut |event| waiting.take(&event));
        }
        self.report_windows(now);
    }
}
