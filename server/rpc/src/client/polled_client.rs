//! A client without a thread of its own: a server's core polls it.

use std::os::fd::RawFd;
use std::sync::Arc;

use leeward_engine::{EventSource, PollStatus};

use super::driver::{CloseGuard, Driver, WaitMode};
use super::shared::SharedState;

/// Rounds of one turn: what the first makes possible (an answer, a call that waited) the next does.
const ROUNDS: usize = 4;

/// The connections of a client that a server's core is to poll: see [`super::Builder::build_polled`]. Dropped, every call
/// ends and the replicas are told.
pub struct PolledClient {
    driver: Driver,
    close_guard: Option<CloseGuard>,
}

impl PolledClient {
    pub(super) fn new(driver: Driver, shared: &Arc<SharedState>) -> Self {
        PolledClient { driver, close_guard: Some(CloseGuard(Arc::clone(shared))) }
    }
}

impl EventSource for PolledClient {
    fn descriptor(&self) -> RawFd {
        self.driver.descriptor()
    }

    fn poll(&mut self) -> PollStatus {
        for _ in 0..ROUNDS {
            match self.driver.poll(WaitMode::Never) {
                Ok(PollStatus::Busy) => {}
                Ok(turn) => return turn,
                // A poll that fails is as good as the client's end.
                Err(_) => return PollStatus::Done,
            }
        }
        PollStatus::Busy
    }
}

impl Drop for PolledClient {
    fn drop(&mut self) {
        // Whatever has happened, nobody shall wait for it.
        let _gone = self.close_guard.take();
        self.driver.end();
    }
}

impl std::fmt::Debug for PolledClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Polled").finish_non_exhaustive()
    }
}
