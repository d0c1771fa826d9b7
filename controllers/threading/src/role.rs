//! Roles: the tasks of each thread of a setup. A setup is a list of roles, and threads take them.
//! Does not contain the assignment to threads.

use std::iter::{once, repeat_n};
use std::ops::BitOr;

use super::setup::{Fanout, Handling, Setup, Wait};

/// Subset of the three tasks of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tasks(u8);

impl Tasks {
    /// Receives requests from clients.
    pub const RECEIVE: Tasks = Tasks(1);
    /// Executes requests; with [`Tasks::RECEIVE`] those that the thread received.
    pub const EXECUTE: Tasks = Tasks(2);
    /// Receives from leaves, and continues the requests whose last reply arrived.
    pub const AWAIT_LEAVES: Tasks = Tasks(4);

    /// Whether all of `roles` are among these.
    pub fn contains(self, tasks: Tasks) -> bool {
        self.0 & tasks.0 == tasks.0
    }
}

impl BitOr for Tasks {
    type Output = Tasks;
    fn bitor(self, other: Tasks) -> Tasks {
        Tasks(self.0 | other.0)
    }
}

/// Role of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Role {
    /// Tasks of the thread.
    pub tasks: Tasks,
    /// How the thread waits for more of them.
    pub wait: Wait,
}

/// Work that an older setup has left for the newer one to finish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftoverWork {
    /// Calls to leaves whose replies a response thread must receive.
    pub async_calls: u32,
}

/// Returns the roles of a setup, in the order in which threads take them. First come one that
/// receives, one that waits for leaves if there are or were async calls, and one that executes;
/// then all others. Never empty, and allocates nothing.
///
/// A sync setup has one blocking response thread while calls of an older async setup are
/// outstanding. Queued requests need no such thread: each role with [`Tasks::EXECUTE`] takes from
/// the one dispatch queue, and every setup has such a role.
///
/// ```
/// use leeward_threading::{LeftoverWork, Tasks, roles};
///
/// let setup = "ADB1-2-1".parse().unwrap();
/// let tasks: Vec<Tasks> = roles(&setup, LeftoverWork::default()).map(|role| role.tasks).collect();
/// assert_eq!(tasks, [Tasks::RECEIVE, Tasks::AWAIT_LEAVES, Tasks::EXECUTE, Tasks::EXECUTE]);
/// ```
pub fn roles(setup: &Setup, leftover: LeftoverWork) -> impl Iterator<Item = Role> + use<> {
    let &Setup { fanout, handling, wait, .. } = setup;
    let receiver = match handling {
        Handling::InLine => Role { tasks: Tasks::RECEIVE | Tasks::EXECUTE, wait },
        Handling::Dispatched => Role { tasks: Tasks::RECEIVE, wait },
    };
    // Workers block in every model (µTune §3).
    let executor = Role { tasks: Tasks::EXECUTE, wait: Wait::Block };
    let (leaves, leaves_wait) = match fanout {
        Fanout::Async => (setup.response.max(1), wait),
        Fanout::Sync => (u16::from(leftover.async_calls > 0), Wait::Block),
    };
    let leaf = Role { tasks: Tasks::AWAIT_LEAVES, wait: leaves_wait };
    // At least one of each, also for a setup that was not validated: a server without threads would
    // be silent for ever.
    let receivers = setup.network.max(1);
    let executors = if handling == Handling::Dispatched { setup.worker.max(1) } else { 0 };
    let some = |role: Role, count: u16| repeat_n(role, usize::from(count.min(1)));
    let rest = |role: Role, count: u16| repeat_n(role, usize::from(count.saturating_sub(1)));
    once(receiver)
        .chain(some(leaf, leaves))
        .chain(some(executor, executors))
        .chain(rest(receiver, receivers))
        .chain(rest(leaf, leaves))
        .chain(rest(executor, executors))
}
