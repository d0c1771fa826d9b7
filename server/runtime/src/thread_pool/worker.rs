//! The loop of a crew's thread: it takes a slot of the plan, does that duty until the plan changes, and rests while there is no slot.
//! The plan is read once per turn, between requests: there is no switch to be in the middle of.

use super::assignments::Assignment;
use super::control::{PoolControl, STOPPING_SLEEP};
use super::plan::Epoch;
use super::sleepers::SleepKind;
use crate::clock::Clock;
use leeward_threading::{Tasks, Wait};
use std::sync::Arc;
use std::time::Duration;

/// Work of a crew: what its threads do for each role. One value, shared by all threads.
pub trait RoleHandler: Send + Sync + 'static {
    /// Things of one thread, made by it and used by it alone.
    type ThreadState;

    /// Makes the things of a thread.
    fn thread_state(&self, thread: usize) -> Self::ThreadState;

    /// [`Roles::RUN`]: takes one request from the queue and executes it. Whether there was one.
    fn run(&self, hand: &mut Self::ThreadState, post: &Assignment) -> bool;

    /// [`Roles::FRONT`]: looks at the clients once, and queues what has come. Whether there was anything.
    fn receive(&self, hand: &mut Self::ThreadState, post: &Assignment) -> bool;

    /// [`Roles::LEAVES`]: looks at the leaves once, and continues requests whose replies have come. Whether there was anything.
    fn gather(&self, hand: &mut Self::ThreadState, post: &Assignment) -> bool;

    /// Whether something is left to do for these roles that no socket will tell of. Asked before a thread sleeps, after it has said so.
    fn has_work(&self, post: &Assignment) -> bool;

    /// Waits at the sockets of these roles until something comes, until [`Control`]'s `wake` or for so long.
    fn sleep(&self, hand: &mut Self::ThreadState, post: &Assignment, longest: Duration);

    /// A thread with a duty is about to wait, or waits no more: for whoever counts them.
    fn set_waiting(&self, _: &mut Self::ThreadState, _is_pausing: bool) {}

    /// Whether those who wait for leaves wait for the same sockets: then one of them at a time does.
    fn shares_leaf_sockets(&self) -> bool;

    /// Whether nothing is owed any more. Asked when the crew stops.
    fn is_drained(&self) -> bool;
}

/// A thread that sleeps is woken for work; this bounds what a defect there would cost.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// A thread of the crew.
pub(super) struct Worker<D> {
    pub(super) thread: usize,
    pub(super) control: Arc<PoolControl>,
    pub(super) handler: Arc<D>,
    pub(super) clock: Clock,
}

impl<D: RoleHandler> Worker<D> {
    /// Works until the crew has stopped.
    pub(super) fn work(self) {
        let mut hand = self.handler.thread_state(self.thread);
        loop {
            match self.control.claim(self.thread) {
                (epoch, Some(post)) => {
                    self.run_role(&mut hand, epoch, &post);
                    self.leave(&post);
                    if self.control.is_stopping() && self.handler.is_drained() {
                        // Nobody shall sleep on for the others' sake.
                        return self.control.wake_all();
                    }
                }
                // Until nothing is owed it may be needed yet.
                (_, None) if self.control.is_stopping() && self.handler.is_drained() => return,
                (epoch, None) => self.control.park(self.thread, epoch),
            }
        }
    }

    /// Does a duty for as long as the plan holds.
    fn run_role(&self, hand: &mut D::ThreadState, epoch: Epoch, post: &Assignment) {
        let mut idle_since = None;
        while self.control.plan.epoch() == epoch {
            if self.control.is_stopping() && self.handler.is_drained() {
                return;
            }
            if self.poll_once(hand, post) {
                idle_since = None;
                continue;
            }
            let spins = match post.role.wait {
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
    fn poll_once(&self, hand: &mut D::ThreadState, post: &Assignment) -> bool {
        let roles = post.role.tasks;
        if roles.contains(Tasks::EXECUTE) && self.handler.run(hand, post) {
            return true;
        }
        let received = roles.contains(Tasks::RECEIVE) && self.handler.receive(hand, post);
        received | (roles.contains(Tasks::AWAIT_LEAVES) && self.handler.gather(hand, post))
    }

    fn sleep(&self, hand: &mut D::ThreadState, epoch: Epoch, post: &Assignment) {
        let Worker { thread, control, handler: duties, .. } = self;
        let roles = post.role.tasks;
        let watch = if roles.contains(Tasks::RECEIVE) {
            Some((&control.client_leader, Tasks::RECEIVE))
        } else {
            Some((&control.leaf_leader, Tasks::AWAIT_LEAVES))
                .filter(|_| roles.contains(Tasks::AWAIT_LEAVES) && duties.shares_leaf_sockets())
        };
        let place = match watch {
            Some((watch, _)) if !watch.try_lead(*thread) => SleepKind::Parked,
            None if roles == Tasks::EXECUTE => SleepKind::Parked,
            _ => SleepKind::Network,
        };
        control.sleepers.prepare_sleep(*thread, roles, place);
        duties.set_waiting(hand, true);
        let is_follower = place == SleepKind::Parked;
        let shall_watch = is_follower && watch.is_some_and(|(watch, _)| watch.is_free());
        let may_end = control.is_stopping() && duties.is_drained();
        if control.plan.epoch() == epoch && !duties.has_work(post) && !shall_watch && !may_end {
            let longest = if control.is_stopping() { STOPPING_SLEEP } else { LONGEST_SLEEP };
            match place {
                SleepKind::Parked => control.sleep(*thread, longest),
                SleepKind::Network => duties.sleep(hand, post, longest),
            }
        }
        control.sleepers.set_awake(*thread);
        duties.set_waiting(hand, false);
        // It names its follower before it executes anything, but after it has read what came: nobody is woken for nothing.
        let Some((watch, role)) = watch.filter(|_| !is_follower) else { return };
        if role == Tasks::AWAIT_LEAVES {
            control.release_leader(watch, role, *thread);
        } else if roles.contains(Tasks::EXECUTE) {
            duties.receive(hand, post);
            control.release_leader(watch, role, *thread);
        }
    }

    /// Leaves a post. Another looks after what is left there that no socket tells of.
    fn leave(&self, post: &Assignment) {
        let Worker { thread, control, handler: duties, .. } = self;
        control.release_leader(&control.client_leader, Tasks::RECEIVE, *thread);
        control.release_leader(&control.leaf_leader, Tasks::AWAIT_LEAVES, *thread);
        if duties.has_work(post) {
            for role in [Tasks::RECEIVE, Tasks::EXECUTE, Tasks::AWAIT_LEAVES] {
                if post.role.tasks.contains(role) {
                    control.notify(role);
                }
            }
        }
    }
}
