//! The loop of a crew's thread: it takes a slot of the plan, does that duty until the plan changes, and rests while there is no slot.
//! The plan is read once per turn, between requests: there is no switch to be in the middle of.

use super::claims::Post;
use super::control::{Control, STOPPING_SLEEP};
use super::plan::Epoch;
use super::sleepers::Where;
use crate::clock::Clock;
use leeward_threading::{Roles, Wait};
use std::sync::Arc;
use std::time::Duration;

/// Work of a crew: what its threads do for each role. One value, shared by all threads.
pub trait Duties: Send + Sync + 'static {
    /// Things of one thread, made by it and used by it alone.
    type Hand;

    /// Makes the things of a thread.
    fn hand(&self, thread: usize) -> Self::Hand;

    /// [`Roles::RUN`]: takes one request from the queue and executes it. Whether there was one.
    fn run(&self, hand: &mut Self::Hand, post: &Post) -> bool;

    /// [`Roles::FRONT`]: looks at the clients once, and queues what has come. Whether there was anything.
    fn receive(&self, hand: &mut Self::Hand, post: &Post) -> bool;

    /// [`Roles::LEAVES`]: looks at the leaves once, and continues requests whose replies have come. Whether there was anything.
    fn gather(&self, hand: &mut Self::Hand, post: &Post) -> bool;

    /// Whether something is left to do for these roles that no socket will tell of. Asked before a thread sleeps, after it has said so.
    fn has_work(&self, post: &Post) -> bool;

    /// Waits at the sockets of these roles until something comes, until [`Control`]'s `wake` or for so long.
    fn sleep(&self, hand: &mut Self::Hand, post: &Post, longest: Duration);

    /// A thread with a duty is about to wait, or waits no more: for whoever counts them.
    fn pauses(&self, _: &mut Self::Hand, _is_pausing: bool) {}

    /// Whether those who wait for leaves wait for the same sockets: then one of them at a time does.
    fn shares_leaves(&self) -> bool;

    /// Whether nothing is owed any more. Asked when the crew stops.
    fn is_over(&self) -> bool;
}

/// A thread that sleeps is woken for work; this bounds what a defect there would cost.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// A thread of the crew.
pub(super) struct Worker<D> {
    pub(super) thread: usize,
    pub(super) control: Arc<Control>,
    pub(super) duties: Arc<D>,
    pub(super) clock: Clock,
}

impl<D: Duties> Worker<D> {
    /// Works until the crew has stopped.
    pub(super) fn work(self) {
        let mut hand = self.duties.hand(self.thread);
        loop {
            match self.control.claim(self.thread) {
                (epoch, Some(post)) => {
                    self.serve(&mut hand, epoch, &post);
                    self.leave(&post);
                    if self.control.is_stopping() && self.duties.is_over() {
                        // Nobody shall sleep on for the others' sake.
                        return self.control.wake_all();
                    }
                }
                // Until nothing is owed it may be needed yet.
                (_, None) if self.control.is_stopping() && self.duties.is_over() => return,
                (epoch, None) => self.control.rest(self.thread, epoch),
            }
        }
    }

    /// Does a duty for as long as the plan holds.
    fn serve(&self, hand: &mut D::Hand, epoch: Epoch, post: &Post) {
        let mut idle_since = None;
        while self.control.plan.epoch() == epoch {
            if self.control.is_stopping() && self.duties.is_over() {
                return;
            }
            if self.turn(hand, post) {
                idle_since = None;
                continue;
            }
            let spins = match post.duty.wait {
                Wait::Poll => true,
                Wait::Block => false,
                Wait::PollFor(span) => {
                    let now = self.clock.now();
                    now.since(*idle_since.get_or_insert(now)) < span
                }
            };
            if spins {
                std::hint::spin_loop();
            } else {
                self.sleep(hand, epoch, post);
                idle_since = None;
            }
        }
    }

    /// Takes a turn. Requests that were queued go before the network: the order of `cores`.
    fn turn(&self, hand: &mut D::Hand, post: &Post) -> bool {
        let roles = post.duty.roles;
        if roles.contain(Roles::RUN) && self.duties.run(hand, post) {
            return true;
        }
        let received = roles.contain(Roles::FRONT) && self.duties.receive(hand, post);
        received | (roles.contain(Roles::LEAVES) && self.duties.gather(hand, post))
    }

    fn sleep(&self, hand: &mut D::Hand, epoch: Epoch, post: &Post) {
        let Worker { thread, control, duties, .. } = self;
        let roles = post.duty.roles;
        let watch = if roles.contain(Roles::FRONT) {
            Some((&control.front, Roles::FRONT))
        } else {
            Some((&control.leaves, Roles::LEAVES)).filter(|_| roles.contain(Roles::LEAVES) && duties.shares_leaves())
        };
        let place = match watch {
            Some((watch, _)) if !watch.keep(*thread) => Where::Bell,
            None if roles == Roles::RUN => Where::Bell,
            _ => Where::Network,
        };
        control.sleepers.going_to_sleep(*thread, roles, place);
        duties.pauses(hand, true);
        let is_follower = place == Where::Bell;
        let shall_watch = is_follower && watch.is_some_and(|(watch, _)| watch.is_free());
        let may_end = control.is_stopping() && duties.is_over();
        if control.plan.epoch() == epoch && !duties.has_work(post) && !shall_watch && !may_end {
            let longest = if control.is_stopping() { STOPPING_SLEEP } else { LONGEST_SLEEP };
            match place {
                Where::Bell => control.sleep(*thread, longest),
                Where::Network => duties.sleep(hand, post, longest),
            }
        }
        control.sleepers.awake(*thread);
        duties.pauses(hand, false);
        // It names its follower before it executes anything, but after it has read what came: nobody is woken for nothing.
        let Some((watch, role)) = watch.filter(|_| !is_follower) else { return };
        if role == Roles::LEAVES {
            control.resign(watch, role, *thread);
        } else if roles.contain(Roles::RUN) {
            duties.receive(hand, post);
            control.resign(watch, role, *thread);
        }
    }

    /// Leaves a post. Another looks after what is left there that no socket tells of.
    fn leave(&self, post: &Post) {
        let Worker { thread, control, duties, .. } = self;
        control.resign(&control.front, Roles::FRONT, *thread);
        control.resign(&control.leaves, Roles::LEAVES, *thread);
        if duties.has_work(post) {
            for role in [Roles::FRONT, Roles::RUN, Roles::LEAVES] {
                if post.duty.roles.contain(role) {
                    control.call(role);
                }
            }
        }
    }
}
