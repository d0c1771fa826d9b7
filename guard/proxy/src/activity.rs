//! Whether a client's connection is busy, and whether a stream of HTTP/2 waits for its client. Does
//! not contain the connection.

use bytes::{Buf, Bytes};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Requests of a connection: those in progress, and all so far. A request is in progress until
/// hyper has its whole response.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    in_progress: AtomicU32,
    /// Pieces of responses that h2 holds until the client has room for them.
    unwritten: AtomicU32,
    started: AtomicU32,
}

/// Mark that a connection is busy with a request.
pub(crate) struct Busy {
    activity: Arc<Activity>,
    progress: Option<Arc<StreamProgress>>,
}

/// Bytes of a response, which h2 drops when it has written them.
pub(crate) struct Piece {
    bytes: Bytes,
    activity: Option<Arc<Activity>>,
}

/// How far the answer on a stream of HTTP/2 has come; its body writes it, its task reads it.
#[derive(Debug, Default)]
pub(crate) struct StreamProgress {
    has_answer: AtomicBool,
    /// Pieces of the answer that its body has given.
    pieces: AtomicU32,
    waits_for_client: AtomicBool,
}

impl Busy {
    /// A mark; `progress`: of a stream of HTTP/2.
    pub(crate) fn new(activity: &Arc<Activity>, progress: Option<Arc<StreamProgress>>) -> Self {
        activity.in_progress.fetch_add(1, Ordering::Relaxed);
        activity.started.fetch_add(1, Ordering::Relaxed);
        Busy { activity: Arc::clone(activity), progress }
    }

    /// Whether the request is on a stream of HTTP/2.
    pub(crate) fn is_stream(&self) -> bool {
        self.progress.is_some()
    }

    /// Bytes for hyper; on a stream of HTTP/2 they count as unwritten until h2 drops them.
    pub(crate) fn piece(&self, bytes: Bytes) -> Piece {
        let activity = self.is_stream().then(|| Arc::clone(&self.activity));
        if let Some(activity) = &activity {
            activity.unwritten.fetch_add(1, Ordering::Relaxed);
        }
        Piece { bytes, activity }
    }

    /// Records that the answer is there.
    pub(crate) fn record_answer(&self) {
        if let Some(progress) = &self.progress {
            progress.has_answer.store(true, Ordering::Relaxed);
        }
    }

    /// Records that the body was asked for a piece, and whether it had one. It is asked for the
    /// next one once the client has room for it.
    pub(crate) fn record_piece(&self, is_there: bool) {
        if let Some(progress) = &self.progress {
            progress.pieces.fetch_add(u32::from(is_there), Ordering::Relaxed);
            progress.waits_for_client.store(is_there, Ordering::Relaxed);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.activity.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

impl From<Bytes> for Piece {
    /// Bytes that do not count as unwritten.
    fn from(bytes: Bytes) -> Self {
        Piece { bytes, activity: None }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(activity) = &self.activity {
            activity.unwritten.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Activity {
    /// Whether no request is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_progress.load(Ordering::Relaxed) == 0
    }

    /// Whether h2 has written the responses of all streams.
    pub(crate) fn is_written(&self) -> bool {
        self.unwritten.load(Ordering::Relaxed) == 0
    }

    /// Requests so far.
    pub(crate) fn started(&self) -> u32 {
        self.started.load(Ordering::Relaxed)
    }
}

impl StreamProgress {
    /// Whether the head of the answer is there.
    pub(crate) fn has_answer(&self) -> bool {
        self.has_answer.load(Ordering::Relaxed)
    }

    /// The number of pieces that the client has not had room for before this one; `None`: the
    /// stream waits for the backend.
    pub(crate) fn piece_that_waits(&self) -> Option<u32> {
        self.waits_for_client.load(Ordering::Relaxed).then(|| self.pieces.load(Ordering::Relaxed))
    }
}
