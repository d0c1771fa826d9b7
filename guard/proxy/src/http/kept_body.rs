//! A body that may be sent again: what was read of it is kept until the answer is there. Does not
//! contain the decision to send it again.

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use leeward_host::sync::{Mutex, lock};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Most bytes and pieces that are kept. A longer body is sent once.
const BYTES_MAX: u64 = 64 << 10;
const PIECES_MAX: usize = 64;

/// What a body gives.
type PolledFrame<E> = Poll<Option<Result<Frame<Bytes>, E>>>;

/// A body that is kept.
pub(super) struct KeptBody<B>(Arc<Mutex<State<B>>>);

struct State<B> {
    body: B,
    pieces: Vec<Bytes>,
    bytes: u64,
    trailers: Option<HeaderMap>,
    /// Whether the whole body was read.
    has_ended: bool,
    /// Whether all that was read is kept.
    is_kept: bool,
    /// Exact length of the whole body, if the client has stated it.
    length: Option<u64>,
    /// Number of the present reader.
    reader: u32,
}

/// A reader of the body from its beginning. A later one replaces it.
pub(super) struct KeptReader<B> {
    state: Arc<Mutex<State<B>>>,
    number: u32,
    next: usize,
    bytes: u64,
    has_trailers: bool,
}

impl<B: Body<Data = Bytes> + Unpin> KeptBody<B> {
    pub(super) fn new(body: B) -> Self {
        let length = body.size_hint().exact();
        let (pieces, trailers) = (Vec::new(), None);
        let state = State { body, pieces, bytes: 0, trailers, has_ended: false, is_kept: true, length, reader: 0 };
        KeptBody(Arc::new(Mutex::new(state)))
    }

    /// Whether all that was read is still there.
    pub(super) fn is_whole(&self) -> bool {
        lock(&self.0).is_kept
    }

    /// Keeps nothing from now on.
    pub(super) fn forget(&self) {
        let mut state = lock(&self.0);
        state.is_kept = false;
        (state.pieces, state.trailers) = (Vec::new(), None);
    }

    /// A new reader.
    pub(super) fn reader(&self) -> KeptReader<B> {
        let mut state = lock(&self.0);
        state.reader += 1;
        let number = state.reader;
        KeptReader { state: Arc::clone(&self.0), number, next: 0, bytes: 0, has_trailers: false }
    }
}

impl<B: Body<Data = Bytes> + Unpin> KeptReader<B> {
    /// The body that it reads.
    pub(super) fn body(&self) -> KeptBody<B> {
        KeptBody(Arc::clone(&self.state))
    }

    /// The next frame; `None`: there is a later reader.
    pub(super) fn poll_frame(&mut self, context: &mut Context<'_>) -> Option<PolledFrame<B::Error>> {
        let shared = Arc::clone(&self.state);
        let mut state = lock(&shared);
        if state.reader != self.number {
            return None;
        }
        if let Some(piece) = state.pieces.get(self.next) {
            self.next += 1;
            self.bytes += piece.len() as u64;
            return Some(Poll::Ready(Some(Ok(Frame::data(piece.clone())))));
        }
        if state.has_ended {
            let trailers = state.trailers.as_ref().filter(|_| !self.has_trailers).cloned();
            self.has_trailers = true;
            return Some(Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))));
        }
        let polled = Pin::new(&mut state.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => self.record(&mut state, frame),
            Poll::Ready(None) => state.has_ended = true,
            // What was read is no beginning of a whole body.
            Poll::Ready(Some(Err(_))) => state.is_kept = false,
            Poll::Pending => {}
        }
        Some(polled)
    }

    fn record(&mut self, state: &mut State<B>, frame: &Frame<Bytes>) {
        if let Some(piece) = frame.data_ref() {
            state.bytes += piece.len() as u64;
            self.bytes = state.bytes;
            if state.is_kept && state.bytes <= BYTES_MAX && state.pieces.len() < PIECES_MAX {
                state.pieces.push(piece.clone());
                self.next = state.pieces.len();
            } else {
                (state.is_kept, state.pieces) = (false, Vec::new());
            }
            state.has_ended |= state.body.is_end_stream();
        } else if let Some(trailers) = frame.trailers_ref() {
            state.trailers = state.is_kept.then(|| trailers.clone());
            (state.has_ended, self.has_trailers) = (true, true);
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let state = lock(&self.state);
        let has_all = state.has_ended && self.next >= state.pieces.len();
        has_all && (state.trailers.is_none() || self.has_trailers)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let state = lock(&self.state);
        state.length.map_or_else(SizeHint::default, |length| SizeHint::with_exact(length.saturating_sub(self.bytes)))
    }
}
