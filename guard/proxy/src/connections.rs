//! The open client connections of all worker threads, and the notice that the proxy drains or
//! stops. Does not contain sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, watch};

/// State of the proxy; it only moves on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    #[default]
    Serving,
    /// Another process accepts connections instead. Those that there are end with their next
    /// answers; an idle one stays until its client closes it or its time-out: a request may be on
    /// its way.
    HandedOver,
    /// The same, but nobody accepts connections.
    Draining,
    /// It accepts no connections, and closes idle ones.
    Stopping,
}

impl Phase {
    /// Waits until the proxy is in this phase or a later one.
    pub(crate) async fn reached(self, phase: &mut watch::Receiver<Phase>) {
        // An error means that the proxy has gone, which stops it, too.
        let _ = phase.wait_for(|phase| *phase >= self).await;
    }
}

/// Open client connections, by worker thread.
pub(crate) struct Connections {
    by_thread: Vec<AtomicUsize>,
    most: AtomicUsize,
    /// Wakes the connection that has slept for longest, when there are too many.
    crowded: Notify,
    /// Wakes the thread that accepts connections when one has ended.
    ended: Notify,
}

impl Connections {
    pub(crate) fn new(threads: usize, most: usize) -> Self {
        let by_thread = (0..threads).map(|_| AtomicUsize::new(0)).collect();
        Connections { by_thread, most: AtomicUsize::new(most), crowded: Notify::new(), ended: Notify::new() }
    }

    /// Waits until this connection, which sleeps, must make room for another one.
    pub(crate) async fn must_end(&self) {
        loop {
            self.crowded.notified().await;
            // The notice may be an old one.
            if self.is_full() {
                return;
            }
        }
    }

    /// Waits until a connection ends, or there may be another number of them.
    pub(crate) async fn changed(&self) {
        self.ended.notified().await;
    }

    /// Whether there are as many as there may be.
    pub(crate) fn is_full(&self) -> bool {
        self.total() >= self.most()
    }

    /// How many there may be.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Changes how many there may be.
    pub(crate) fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
        self.ended.notify_one();
    }

    /// Connections of one thread.
    pub(crate) fn of_thread(&self, index: usize) -> usize {
        self.by_thread[index].load(Ordering::Relaxed)
    }

    /// Makes the connection that has slept for longest end, if there is one.
    pub(crate) fn make_room(&self) {
        self.crowded.notify_one();
    }

    /// Connections of all threads.
    pub(crate) fn total(&self) -> usize {
        self.by_thread.iter().map(|open| open.load(Ordering::Relaxed)).sum()
    }

    /// The thread with the fewest connections.
    pub(crate) fn least_loaded(&self) -> usize {
        let by_load = |(_, open): &(usize, &AtomicUsize)| open.load(Ordering::Relaxed);
        self.by_thread.iter().enumerate().min_by_key(by_load).map_or(0, |(index, _)| index)
    }
}

/// A client connection that is counted.
pub(crate) struct Counted {
    connections: Arc<Connections>,
    index: usize,
}

impl Counted {
    pub(crate) fn new(connections: &Arc<Connections>, index: usize) -> Self {
        connections.by_thread[index].fetch_add(1, Ordering::Relaxed);
        Counted { connections: Arc::clone(connections), index }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.connections.by_thread[self.index].fetch_sub(1, Ordering::Relaxed);
        self.connections.ended.notify_one();
    }
}
