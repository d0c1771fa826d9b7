//! Connections to all leaves and the requests that wait for them: what one thread has at a time. Sans threads: a sync thread has one for
//! itself, response threads share them under locks. Never here: what replies mean, and who looks when.

use super::calls::CallList;
use super::gather::Gather;
use super::leaves::Settings;
use super::link::Link;
use super::replies::Came;
use super::service::{CALLS_MAX, Enough, LeafError, LeafId};
use super::slab::{Key, Slab};
use crate::client::driver::random::Random;
use crate::client::driver::timer::Timer;
use crate::client::{Event, Request};
use leeward_control::units::{Priority, Time};
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
/// Rounds of one turn: what the first makes possible the next does.
const ROUNDS: usize = 4;

/// A call: the request that waits, and the call's place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag {
    gather: Key,
    place: u32,
}

pub(super) struct Shard<S> {
    settings: Arc<Settings>,
    clock: Clock,
    poll: Poll,
    events: Events,
    timer: Timer,
    random: Random,
    links: Vec<Link<Tag>>,
    waiting: Waiting<S>,
    /// When requests stop waiting, the soonest first. Those that have ended are left in it until their time comes.
    deadlines: VecDeque<(Time, Key)>,
}

/// Requests that wait, and those that wait no more.
struct Waiting<S> {
    gathers: Slab<Box<Gather<S>>>,
    ready: Vec<Box<Gather<S>>>,
    /// Replies that found no request.
    late: u64,
}

impl<S> Waiting<S> {
    fn take(&mut self, event: &Event<'_, Tag>) {
        let Tag { gather: key, place } = *event.token();
        let Some(gather) = self.gathers.get_mut(key) else {
            self.late += 1;
            return;
        };
        let news = gather.replies.end(place as usize, event);
        gather.ended(news);
        self.settle(key);
    }

    fn settle(&mut self, key: Key) {
        if self.gathers.get_mut(key).is_some_and(|gather| gather.is_enough()) {
            self.ready.extend(self.gathers.remove(key));
        }
    }
}

impl<S> Shard<S> {
    pub(super) fn new(settings: &Arc<Settings>, clock: &Clock, seed: u64) -> io::Result<Self> {
        let poll = Poll::new()?;
        let timer = Timer::new(poll.registry(), TIMER)?;
        let mut shard = Shard {
            settings: Arc::clone(settings),
            clock: clock.clone(),
            events: Events::with_capacity(EVENTS_MAX),
            timer,
            poll,
            random: Random::new(seed),
            links: (0..settings.leaves.len()).map(|leaf| Link::new(leaf, settings)).collect(),
            waiting: Waiting { gathers: Slab::new(), ready: Vec::new(), late: 0 },
            deadlines: VecDeque::new(),
        };
        // Begins to connect.
        shard.turn(Some(Duration::ZERO))?;
        Ok(shard)
    }

    /// Descriptor that is readable while something has come that nobody has looked at, or a time has come.
    pub(super) fn descriptor(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// Leaves that are there.
    pub(super) fn up(&self) -> usize {
        self.links.iter().filter(|link| link.is_up()).count()
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.gathers.len()
    }

    /// Replies that came when their request was not waiting any more.
    pub(super) fn late(&self) -> u64 {
        self.waiting.late
    }

    /// Makes the calls of a request, which waits for them from now on. It may be ready at once.
    ///
    /// # Errors
    /// The timer can't be set; the calls have left all the same.
    pub(super) fn start(&mut self, mut gather: Box<Gather<S>>, calls: &CallList, enough: Enough) -> io::Result<()> {
        let now = self.clock.now();
        gather.begin(calls.len(), enough);
        let budget = gather.budget();
        let patience = match enough {
            Enough::Within(span) => span.min(self.settings.timeout),
            Enough::All | Enough::Quorum(_) => self.settings.timeout,
        };
        let key = self.waiting.gathers.insert(gather);
        let Shard { links, waiting, random, clock, .. } = self;
        for place in 0..calls.len() {
            let Some((LeafId(leaf), method, payload)) = calls.get(place) else { continue };
            let tag = Tag { gather: key, place: place as u32 };
            let Some(link) = links.get_mut(usize::from(leaf)).filter(|_| place < CALLS_MAX) else {
                if let Some(gather) = waiting.gathers.get_mut(key) {
                    gather.refuse(place, Came::Failed(LeafError::Refused));
                }
                continue;
            };
            let request = Request { method, payload, priority: Priority::HIGHEST, random: random.draw() };
            // Ends of others' calls may come of it, too: a queue that is full lets its oldest go.
            link.submit(now, tag, &request, budget, &mut |event| waiting.take(&event));
        }
        for link in links.iter_mut() {
            link.exchange(clock, random, &mut |event| waiting.take(&event));
        }
        waiting.settle(key);
        if waiting.gathers.get_mut(key).is_some() {
            let live = self.waiting.gathers.len();
            if self.deadlines.len() == self.deadlines.capacity() && live < self.deadlines.len() / 2 {
                // Most of them have ended long before their time: their places are enough.
                self.deadlines.retain(|(_, key)| self.waiting.gathers.get_mut(*key).is_some());
            }
            let deadline = now + patience;
            let place = self.deadlines.partition_point(|(time, _)| *time <= deadline);
            self.deadlines.insert(place, (deadline, key));
        }
        self.arm(now)
    }

    /// Looks at the connections and the clock, after waiting for something to come for so long (`None`: until it does). Requests that
    /// can go on are [`Shard::ready`] then. Whether anything had come.
    pub(super) fn turn(&mut self, wait: Option<Duration>) -> io::Result<bool> {
        let mut anything = false;
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
                    TIMER => self.timer.has_fired(),
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
        Ok(anything)
    }

    fn exchange(&mut self) {
        let now = self.clock.now();
        let Shard { links, waiting, random, clock, poll, .. } = self;
        for link in links.iter_mut() {
            link.on_timer(now, poll.registry(), random, &mut |event| waiting.take(&event));
            link.exchange(clock, random, &mut |event| waiting.take(&event));
        }
        while let Some((deadline, key)) = self.deadlines.front().copied() {
            if deadline > now && self.waiting.gathers.get_mut(key).is_some() {
                break;
            }
            self.deadlines.pop_front();
            // What has not come is missing; its calls find nobody when they end.
            self.waiting.ready.extend(self.waiting.gathers.remove(key));
        }
        // Without its timer a shard looks as often as its owner does.
        let _ = self.arm(now);
    }

    fn arm(&mut self, now: Time) -> io::Result<()> {
        let deadline = self.deadlines.front().map_or(Time::NEVER, |(deadline, _)| *deadline);
        let links = self.links.iter_mut().map(|link| link.next_timeout(now)).min().unwrap_or(Time::NEVER);
        self.timer.arm(now, deadline.min(links))
    }

    /// Whether a turn has something to do that no descriptor will tell of.
    pub(super) fn has_work(&self) -> bool {
        !self.waiting.ready.is_empty() || self.links.iter().any(Link::is_busy)
    }

    /// Requests that can go on.
    pub(super) fn ready(&mut self) -> &mut Vec<Box<Gather<S>>> {
        &mut self.waiting.ready
    }

    /// The tier ends: the leaves are told, and what still waited is ready.
    pub(super) fn leave(&mut self) {
        let now = self.clock.now();
        let Shard { links, waiting, .. } = self;
        for link in links {
            link.leave(now, &mut |event| waiting.take(&event));
        }
    }
}
