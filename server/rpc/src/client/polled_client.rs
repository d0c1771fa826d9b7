//! A client without a dedicated thread: a server's core polls it.

use std::os::fd::RawFd;
use std::sync::Arc;

use leeward_engine::{EventSource, PollStatus};

use super::driver::{CloseGuard, Driver, WaitMode};
use super::shared::SharedState;

/// Rounds of one poll: each round does the work (a response, a waiting call) that the one before
/// made possible.
const ROUNDS: usize = 4;

/// Connections of a client that a server's core polls: see [`super::Builder::build_polled`].
///
/// Dropping it ends every call and sends farewells to the replicas.
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
                Ok(status) => return status,
                // A failed poll ends the client.
                Err(_) => return PollStatus::Done,
            }
        }
        PollStatus::Busy
    }
}

impl Drop for PolledClient {
    fn drop(&mut self) {
        // In any case, no call may wait for a client that has ended.
        let _gone = self.close_guard.take();
        self.driver.end();
    }
}

impl std::fmt::Debug for PolledClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PolledClient").finish_non_exhaustive()
    }
}
