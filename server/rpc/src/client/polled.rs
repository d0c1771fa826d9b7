//! A client without a thread of its own: a server's core polls it.

use std::os::fd::RawFd;
use std::sync::Arc;

use leeward_engine::{Guest, Turn};

use super::driver::{Driver, Gone, Sleep};
use super::shared::Shared;

/// Rounds of one turn: what the first makes possible (an answer, a call that waited) the next does.
const ROUNDS: usize = 4;

/// The connections of a client that a server's core is to poll: see [`super::Builder::build_polled`]. Dropped, every call
/// ends and the replicas are told.
pub struct Polled {
    driver: Driver,
    gone: Option<Gone>,
}

impl Polled {
    pub(super) fn new(driver: Driver, shared: &Arc<Shared>) -> Self {
        Polled { driver, gone: Some(Gone(Arc::clone(shared))) }
    }
}

impl Guest for Polled {
    fn descriptor(&self) -> RawFd {
        self.driver.descriptor()
    }

    fn turn(&mut self) -> Turn {
        for _ in 0..ROUNDS {
            match self.driver.turn(Sleep::Never) {
                Ok(Turn::Busy) => {}
                Ok(turn) => return turn,
                // A poll that fails is as good as the client's end.
                Err(_) => return Turn::Over,
            }
        }
        Turn::Busy
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        // Whatever has happened, nobody shall wait for it.
        let _gone = self.gone.take();
        self.driver.end();
    }
}

impl std::fmt::Debug for Polled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Polled").finish_non_exhaustive()
    }
}
