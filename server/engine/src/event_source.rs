//! Something else that a server's cores poll beside their own connections: a client's connections, above all, so that a
//! mid-tier's answers come on the core that waits for them and no thread stands between.

use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// Something that a core polls.
pub trait EventSource: Send {
    /// The descriptor that becomes readable when there is something to do. It stays the same.
    fn descriptor(&self) -> RawFd;

    /// Does what there is to do, without waiting.
    fn poll(&mut self) -> PollStatus;
}

/// Outcome of a [`Guest`]'s turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollStatus {
    /// Nothing more is to be done until the descriptor says so.
    Idle,
    /// The guest wants another turn soon.
    Busy,
    /// The guest has ended: it is dropped.
    Done,
}

/// Guests on their way to the cores of a server that is to be. Clones are the same ones: the first server that starts has them.
#[derive(Clone, Default)]
pub struct EventSources(Arc<Mutex<Vec<CoreSource>>>);

/// A core's number, and a guest for it.
type CoreSource = (usize, Box<dyn EventSource>);

impl std::fmt::Debug for EventSources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let guests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_tuple("Guests").field(&guests.len()).finish()
    }
}

impl EventSources {
    /// Adds a guest for `core`, counted from 0 and around.
    pub fn add(&self, core: usize, guest: Box<dyn EventSource>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((core, guest));
    }

    /// Takes the guests of `core`, of so many cores.
    pub(crate) fn take(&self, core: usize, cores: usize) -> Vec<Box<dyn EventSource>> {
        let mut guests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (here, elsewhere) = guests.drain(..).partition(|(at, _)| at % cores == core);
        *guests = elsewhere;
        let here: Vec<CoreSource> = here;
        here.into_iter().map(|(_, guest)| guest).collect()
    }
}

/// Gives each guest a turn; those that are over, or panic, go. Whether any wants another turn soon.
pub(crate) fn poll_all(guests: &mut Vec<Box<dyn EventSource>>) -> bool {
    let mut busy = false;
    guests.retain_mut(|guest| {
        // A panic is the guest's alone.
        let turn = catch_unwind(AssertUnwindSafe(|| guest.poll())).unwrap_or(PollStatus::Done);
        busy |= turn == PollStatus::Busy;
        turn != PollStatus::Done
    });
    busy
}
