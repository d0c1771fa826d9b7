//! The tasks of a connection's streams: each ends if its client makes no room for the answer, and
//! the connection ends if most of its requests are cancelled. Does not contain requests.

use crate::activity::StreamProgress;
use hyper::rt::Executor;
use leeward_host::sync::{Mutex, lock};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until};

/// Requests that a client may cancel before they are answered, besides as many as were answered.
/// Each may cost the backend a connection: CVE-2023-44487.
const CANCELLED_MAX: u32 = 1_000;

/// The streams of a connection.
#[derive(Default)]
pub(super) struct Streams {
    /// Progress of the request whose task starts next: hyper calls the service, and then starts
    /// the task of what that returned.
    next: Mutex<Option<Arc<StreamProgress>>>,
    answered: AtomicU32,
    cancelled: AtomicU32,
    too_many: Notify,
}

impl Streams {
    /// Begins a request; its task starts next.
    pub(super) fn begin(&self, progress: &Arc<StreamProgress>) {
        *lock(&self.next) = Some(Arc::clone(progress));
    }

    /// Waits until the client has cancelled so many requests that the connection must end.
    pub(super) async fn are_too_many_cancelled(&self) {
        self.too_many.notified().await;
    }

    fn end(&self, progress: &StreamProgress) {
        if progress.has_answer() {
            self.answered.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let cancelled = self.cancelled.fetch_add(1, Ordering::Relaxed);
        if cancelled >= CANCELLED_MAX.saturating_add(self.answered.load(Ordering::Relaxed)) {
            self.too_many.notify_one();
        }
    }
}

/// Starts the tasks of a connection.
#[derive(Clone)]
pub(super) struct StreamExecutor {
    streams: Arc<Streams>,
    /// Longest time that a client may make no room for an answer.
    idle: Duration,
}

impl StreamExecutor {
    pub(super) fn new(streams: &Arc<Streams>, idle: Duration) -> Self {
        StreamExecutor { streams: Arc::clone(streams), idle }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, future: F) {
        match lock(&self.streams.next).take() {
            Some(progress) => {
                let (streams, idle) = (Arc::clone(&self.streams), self.idle);
                let (piece, since) = (0, Instant::now());
                tokio::spawn(StreamTask { future, streams, progress, idle, piece, since, timer: None });
            }
            // The writer of a tunnel, which may be silent for as long as it likes.
            None => {
                tokio::spawn(future);
            }
        }
    }
}

pin_project! {
    /// A request and its answer. If it ends before the answer does, the client gets RST_STREAM.
    struct StreamTask<F> {
        #[pin]
        future: F,
        streams: Arc<Streams>,
        progress: Arc<StreamProgress>,
        idle: Duration,
        // The piece that waits for the client, and since when it does.
        piece: u32,
        since: Instant,
        timer: Option<Pin<Box<Sleep>>>,
    }
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.future.poll(context).is_ready() {
            this.streams.end(this.progress);
            return Poll::Ready(());
        }
        loop {
            let Some(piece) = this.progress.piece_that_waits() else {
                *this.timer = None;
                return Poll::Pending;
            };
            if std::mem::replace(this.piece, piece) != piece {
                *this.since = Instant::now();
            }
            let end = *this.since + *this.idle;
            let timer = this.timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
            ready!(timer.as_mut().poll(context));
            if Instant::now() >= end {
                this.streams.end(this.progress);
                return Poll::Ready(());
            }
            // It was set for an earlier piece.
            *this.timer = None;
        }
    }
}
