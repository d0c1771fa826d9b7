//! The loop of a pool's thread. It takes a slot of the plan, performs that role until the plan
//! changes, and parks without a slot. The thread reads the plan once per round, between requests,
//! so no request sees a switch.

use super::assignments::Assignment;
use super::control::{PoolControl, STOPPING_SLEEP};
use super::plan::Epoch;
use super::sleepers::SleepKind;
use crate::clock::Clock;
use leeward_threading::{Tasks, Wait};
use std::sync::Arc;
use std::time::Duration;

/// Work of a pool's threads for each role. All threads share one value.
pub trait RoleHandler: Send + Sync + 'static {
    /// State of one thread, made and used by that thread alone.
    type ThreadState;

    /// Makes the state of a thread.
    fn thread_state(&self, thread: usize) -> Self::ThreadState;

    /// [`Tasks::EXECUTE`]: takes one request from the queue and executes it. Returns whether there
    /// was one.
    fn run(&self, state: &mut Self::ThreadState, assignment: &Assignment) -> bool;

    /// [`Tasks::RECEIVE`]: polls the clients once, and queues received requests. Returns whether
    /// there was anything.
    fn receive(&self, state: &mut Self::ThreadState, assignment: &Assignment) -> bool;

    /// [`Tasks::AWAIT_LEAVES`]: polls the leaves once, and continues requests whose replies have
    /// arrived. Returns whether there was anything.
    fn gather(&self, state: &mut Self::ThreadState, assignment: &Assignment) -> bool;

    /// Returns whether these roles have work that no socket reports. Called before a thread sleeps,
    /// after it has announced that.
    fn has_work(&self, assignment: &Assignment) -> bool;

    /// Waits at the sockets of these roles until an event, until [`PoolControl`]'s `wake`, or up to
    /// `longest`.
    fn sleep(&self, state: &mut Self::ThreadState, assignment: &Assignment, longest: Duration);

    /// Notes that a thread with a role is about to wait, or has stopped waiting. For statistics.
    fn set_waiting(&self, _: &mut Self::ThreadState, _is_pausing: bool) {}

    /// Returns whether threads that wait for leaves share the same sockets. Then only one of them
    /// at a time waits there.
    fn shares_leaf_sockets(&self) -> bool;

    /// Returns whether no work is pending. Called while the pool stops.
    fn is_drained(&self) -> bool;
}

/// Maximum sleep. A sleeping thread is woken for work; this bounds the cost of a defect there.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// A thread of the pool.
pub(super) struct Worker<D> {
    pub(super) thread: usize,
    pub(super) control: Arc<PoolControl>,
    pub(super) handler: Arc<D>,
    pub(super) clock: Clock,
}

impl<D: RoleHandler> Worker<D> {
    /// Works until the pool has stopped.
    pub(super) fn work(self) {
        let mut state = self.handler.thread_state(self.thread);
        loop {
            match self.control.claim(self.thread) {
                (epoch, Some(assignment)) => {
                    self.run_role(&mut state, epoch, &assignment);
                    self.leave(&assignment);
                    if self.control.is_stopping() && self.handler.is_drained() {
                        // Other threads must not sleep on while they could end.
                        return self.control.wake_all();
                    }
                }
                // Until no work is pending, the thread may still be needed.
                (_, None) if self.control.is_stopping() && self.handler.is_drained() => return,
                (epoch, None) => self.control.park(self.thread, epoch),
            }
        }
    }

    /// Performs a role for as long as the plan holds.
    fn run_role(&self, state: &mut D::ThreadState, epoch: Epoch, assignment: &Assignment) {
        let mut idle_since = None;
        while self.control.plan.epoch() == epoch {
            if self.control.is_stopping() && self.handler.is_drained() {
                return;
            }
            if self.poll_once(state, assignment) {
                idle_since = None;
                continue;
            }
            let spins = match assignment.role.wait {
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
                self.sleep(state, epoch, assignment);
                idle_since = None;
            }
        }
    }

    /// One round. Queued requests go before the network: the order of `cores`.
    fn poll_once(&self, state: &mut D::ThreadState, assignment: &Assignment) -> bool {
        let roles = assignment.role.tasks;
        if roles.contains(Tasks::EXECUTE) && self.handler.run(state, assignment) {
            return true;
        }
        let received = roles.contains(Tasks::RECEIVE) && self.handler.receive(state, assignment);
        received | (roles.contains(Tasks::AWAIT_LEAVES) && self.handler.gather(state, assignment))
    }

    fn sleep(&self, state: &mut D::ThreadState, epoch: Epoch, assignment: &Assignment) {
        let Worker { thread, control, handler: role_handler, .. } = self;
        let roles = assignment.role.tasks;
        let leader = if roles.contains(Tasks::RECEIVE) {
            Some((&control.client_leader, Tasks::RECEIVE))
        } else {
            Some((&control.leaf_leader, Tasks::AWAIT_LEAVES))
                .filter(|_| roles.contains(Tasks::AWAIT_LEAVES) && role_handler.shares_leaf_sockets())
        };
        let kind = match leader {
            Some((leader, _)) if !leader.try_lead(*thread) => SleepKind::Parked,
            None if roles == Tasks::EXECUTE => SleepKind::Parked,
            _ => SleepKind::Network,
        };
        control.sleepers.prepare_sleep(*thread, roles, kind);
        role_handler.set_waiting(state, true);
        let is_follower = kind == SleepKind::Parked;
        let must_lead = is_follower && leader.is_some_and(|(leader, _)| leader.is_free());
        let may_end = control.is_stopping() && role_handler.is_drained();
        if control.plan.epoch() == epoch && !role_handler.has_work(assignment) && !must_lead && !may_end {
            let longest = if control.is_stopping() { STOPPING_SLEEP } else { LONGEST_SLEEP };
            match kind {
                SleepKind::Parked => control.sleep(*thread, longest),
                SleepKind::Network => role_handler.sleep(state, assignment, longest),
            }
        }
        control.sleepers.set_awake(*thread);
        role_handler.set_waiting(state, false);
        // The thread wakes its follower before it executes requests, but after it has read the
        // events. So no follower is woken for nothing.
        let Some((leader, role)) = leader.filter(|_| !is_follower) else { return };
        if role == Tasks::AWAIT_LEAVES {
            control.release_leader(leader, role, *thread);
        } else if roles.contains(Tasks::EXECUTE) {
            role_handler.receive(state, assignment);
            control.release_leader(leader, role, *thread);
        }
    }

    /// Leaves a role. Another thread takes over its remaining work that no socket reports.
    fn leave(&self, assignment: &Assignment) {
        let Worker { thread, control, handler: role_handler, .. } = self;
        control.release_leader(&control.client_leader, Tasks::RECEIVE, *thread);
        control.release_leader(&control.leaf_leader, Tasks::AWAIT_LEAVES, *thread);
        if role_handler.has_work(assignment) {
            for role in [Tasks::RECEIVE, Tasks::EXECUTE, Tasks::AWAIT_LEAVES] {
                if assignment.role.tasks.contains(role) {
                    control.notify(role);
                }
            }
        }
    }
}
