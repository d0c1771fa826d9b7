//! Handshakes in progress, which are bounded: where there are too many, the oldest one ends, so
//! that clients that begin one and send no more keep nobody out. Does not contain TLS.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Handshakes in progress.
#[derive(Debug)]
pub(crate) struct Handshakes {
    count: AtomicUsize,
    most: usize,
    /// Wakes the handshake that has waited for longest.
    crowded: Notify,
}

/// A handshake that is counted.
pub(crate) struct Handshake(Arc<Handshakes>);

impl Handshakes {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Handshakes { count: AtomicUsize::new(0), most, crowded: Notify::new() })
    }

    /// Counts a handshake; if there are too many, the oldest one ends.
    pub(crate) fn begin(self: &Arc<Self>) -> Handshake {
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.crowded.notify_one();
        }
        Handshake(Arc::clone(self))
    }

    /// Handshakes in progress.
    pub(crate) fn in_progress(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Handshake {
    /// Waits until this handshake must make room for another one.
    pub(crate) async fn must_end(&self) {
        loop {
            self.0.crowded.notified().await;
            // The notice may be an old one.
            if self.0.in_progress() > self.0.most {
                return;
            }
        }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[test]
    fn the_oldest_handshake_makes_room() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let handshakes = Handshakes::new(2);
            let waits = |handshake: &Arc<Handshake>| {
                let handshake = Arc::clone(handshake);
                tokio::spawn(async move { handshake.must_end().await })
            };
            let of: Vec<_> = (0..3).map(|_| Arc::new(handshakes.begin())).collect();
            // Nobody waited when the third one came, and the notice waits for the first one.
            let first = waits(&of[0]);
            timeout(Duration::from_secs(60), first).await.expect("it ends").unwrap();
            drop(of);
            assert_eq!(handshakes.in_progress(), 0);
            // With two of them, an old notice ends none.
            let of: Vec<_> = (0..2).map(|_| Arc::new(handshakes.begin())).collect();
            handshakes.crowded.notify_one();
            let (first, second) = (waits(&of[0]), waits(&of[1]));
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            assert!(!first.is_finished() && !second.is_finished());
            let third = handshakes.begin();
            timeout(Duration::from_secs(60), async {
                while !first.is_finished() && !second.is_finished() {
                    tokio::task::yield_now().await
                }
            })
            .await
            .expect("one ends");
            drop(third);
        });
    }
}
