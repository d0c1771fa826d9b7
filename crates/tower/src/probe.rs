//! The task that waits in a worker's queue, where requests have no stamps. It runs in one lap of the queue: it says that a worker
//! is overloaded, not which request is late.

use leeward_edge::Gate;
use tokio::runtime::Handle;

/// Tells the gate if the task is dropped before its turn.
struct Waiting {
    gate: Gate,
    done: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.done {
            self.gate.probe_is_lost();
        }
    }
}

/// Sends a task into this worker's queue, if that is due and this is a worker of Tokio's.
pub(crate) fn measure(gate: &Gate) {
    if !gate.wants_probe() {
        return;
    }
    let Ok(runtime) = Handle::try_current() else {
        gate.probe_is_lost();
        return;
    };
    let waiting = Waiting { gate: gate.clone(), done: false };
    runtime.spawn(async move {
        // The whole of it: a task that is dropped before it began must tell, too.
        let mut waiting = waiting;
        // A task that was just spawned has a place of its own ahead of the queue.
        tokio::task::yield_now().await;
        waiting.gate.probe_enters();
        tokio::task::yield_now().await;
        waiting.gate.probe_leaves();
        waiting.done = true;
    });
}
