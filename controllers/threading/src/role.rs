//! Duties: what each thread of a setup does. A setup is a list of slots, and threads take them. Never here: which thread takes which.

use std::iter::{once, repeat_n};
use std::ops::BitOr;

use super::setup::{Fanout, Handling, Setup, Wait};

/// Subset of the three things that a thread can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tasks(u8);

impl Tasks {
    /// Receives from clients.
    pub const RECEIVE: Tasks = Tasks(1);
    /// Executes requests; with [`Roles::FRONT`] those that it received.
    pub const EXECUTE: Tasks = Tasks(2);
    /// Receives from leaves, and continues the requests whose last reply came.
    pub const AWAIT_LEAVES: Tasks = Tasks(4);

    /// Whether all of `roles` are among these.
    pub fn contains(self, roles: Tasks) -> bool {
        self.0 & roles.0 == roles.0
    }
}

impl BitOr for Tasks {
    type Output = Tasks;
    fn bitor(self, other: Tasks) -> Tasks {
        Tasks(self.0 | other.0)
    }
}

/// Task of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Role {
    /// Roles that it has.
    pub tasks: Tasks,
    /// How it waits for more of it.
    pub wait: Wait,
}

/// Work that an older setup has left, which the newer must still end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftoverWork {
    /// Calls to leaves whose replies a response thread must receive.
    pub async_calls: u32,
}

/// The duties of a setup, in the order in which threads take them: one that receives, one that waits for leaves where there are or were
/// async calls, one that executes, then all others. Never empty, and allocates nothing.
///
/// A sync setup has one response thread, which blocks, for as long as calls of an older async setup are out. Queued requests need no
/// such help: any duty with [`Roles::RUN`] takes from the one dispatch queue, and every setup has one.
///
/// ```
/// use leeward_threading::{Owed, Roles, slots};
///
/// let setup = "ADB1-2-1".parse().unwrap();
/// let roles: Vec<Roles> = slots(&setup, Owed::default()).map(|duty| duty.roles).collect();
/// assert_eq!(roles, [Roles::FRONT, Roles::LEAVES, Roles::RUN, Roles::RUN]);
/// ```
pub fn roles(setup: &Setup, owed: LeftoverWork) -> impl Iterator<Item = Role> + use<> {
    let &Setup { fanout, handling, wait, .. } = setup;
    let front = match handling {
        Handling::InLine => Role { tasks: Tasks::RECEIVE | Tasks::EXECUTE, wait },
        Handling::Dispatched => Role { tasks: Tasks::RECEIVE, wait },
    };
    // Workers block in every model (µTune §3).
    let run = Role { tasks: Tasks::EXECUTE, wait: Wait::Block };
    let (leaves, leaves_wait) = match fanout {
        Fanout::Async => (setup.response.max(1), wait),
        Fanout::Sync => (u16::from(owed.async_calls > 0), Wait::Block),
    };
    let leaf = Role { tasks: Tasks::AWAIT_LEAVES, wait: leaves_wait };
    // At least one of each, also of a setup that nobody checked: a server without threads would be silent for ever.
    let fronts = setup.network.max(1);
    let runs = if handling == Handling::Dispatched { setup.worker.max(1) } else { 0 };
    let some = |duty: Role, count: u16| repeat_n(duty, usize::from(count.min(1)));
    let rest = |duty: Role, count: u16| repeat_n(duty, usize::from(count.saturating_sub(1)));
    once(front)
        .chain(some(leaf, leaves))
        .chain(some(run, runs))
        .chain(rest(front, fronts))
        .chain(rest(leaf, leaves))
        .chain(rest(run, runs))
}
