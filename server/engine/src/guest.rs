//! Something else that a server's cores poll beside their own connections: a client's connections, above all, so that a
//! mid-tier's answers come on the core that waits for them and no thread stands between.

use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// Something that a core polls.
pub trait Guest: Send {
    /// The descriptor that becomes readable when there is something to do. It stays the same.
    fn descriptor(&self) -> RawFd;

    /// Does what there is to do, without waiting.
    fn turn(&mut self) -> Turn;
}

/// Outcome of a [`Guest`]'s turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing more is to be done until the descriptor says so.
    Idle,
    /// The guest wants another turn soon.
    Busy,
    /// The guest has ended: it is dropped.
    Over,
}

/// Guests on their way to the cores of a server that is to be. Clones are the same ones: the first server that starts has them.
#[derive(Clone, Default)]
pub struct Guests(Arc<Mutex<Vec<ForCore>>>);

/// A core's number, and a guest for it.
type ForCore = (usize, Box<dyn Guest>);

impl std::fmt::Debug for Guests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let guests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_tuple("Guests").field(&guests.len()).finish()
    }
}

impl Guests {
    /// Adds a guest for `core`, counted from 0 and around.
    pub fn add(&self, core: usize, guest: Box<dyn Guest>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((core, guest));
    }

    /// Takes the guests of `core`, of so many cores.
    pub(crate) fn take(&self, core: usize, cores: usize) -> Vec<Box<dyn Guest>> {
        let mut guests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (here, elsewhere) = guests.drain(..).partition(|(at, _)| at % cores == core);
        *guests = elsewhere;
        let here: Vec<ForCore> = here;
        here.into_iter().map(|(_, guest)| guest).collect()
    }
}

/// Gives each guest a turn; those that are over, or panic, go. Whether any wants another turn soon.
pub(crate) fn turn_all(guests: &mut Vec<Box<dyn Guest>>) -> bool {
    let mut busy = false;
    guests.retain_mut(|guest| {
        // A panic is the guest's alone.
        let turn = catch_unwind(AssertUnwindSafe(|| guest.turn())).unwrap_or(Turn::Over);
        busy |= turn == Turn::Busy;
        turn != Turn::Over
    });
    busy
}
