//! Streams of a connection to a backend, and hyper's tasks for them: the body of a request and the
//! bytes of a tunnel go out in tasks of their own. Does not contain connections.
//!
//! Such a task waits for the backend's window, and sees nothing else meanwhile: neither that the
//! client has left nor that nobody awaits the answer. So it is ended here with its stream, which
//! resets the stream at the backend. A stream counts as open until its last task has ended. A body
//! that the backend leaves unread takes the window that others need: its connection gets no more
//! requests.

use super::CLOSE_TIME;
use hyper::rt::Executor;
use leeward_host::sync::{Mutex, lock};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep};

/// Time for which a backend may leave a body unread before its connection gets no more requests.
const UNREAD: Duration = Duration::from_millis(50);

/// The streams of a connection; it starts hyper's tasks. Clones are the same.
#[derive(Clone)]
pub(super) struct Http2Streams(Arc<Shared>);

struct Shared {
    open: AtomicUsize,
    /// Time at which the last one ended.
    used: Mutex<Instant>,
    /// Whether the connection gets no more requests.
    is_leaving: AtomicBool,
    /// The stream of the request whose tasks hyper starts next.
    next: Mutex<Weak<Http2Stream>>,
    /// The stream of the task that runs.
    running: Mutex<Option<Arc<Http2Stream>>>,
}

/// A stream: it is open until its request, its answer and its tasks have let go of it.
pub(crate) struct Http2Stream {
    shared: Arc<Shared>,
    tasks: Mutex<Vec<AbortHandle>>,
    /// How often its tasks have run: each time, there was a byte or room for one.
    runs: AtomicU32,
    /// Pieces of the body that its task has taken.
    pieces: AtomicU32,
    /// Whether that task has no piece, and waits for the client or has ended.
    waits_for_client: AtomicBool,
    is_tunnel: AtomicBool,
    is_over: AtomicBool,
}

impl Http2Streams {
    pub(super) fn new() -> Self {
        let (open, is_leaving) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (used, next, running) = (Mutex::new(Instant::now()), Mutex::default(), Mutex::default());
        Http2Streams(Arc::new(Shared { open, used, is_leaving, next, running }))
    }

    /// Whether the connection gets no more requests.
    pub(super) fn are_leaving(&self) -> bool {
        self.0.is_leaving.load(Ordering::Relaxed)
    }

    /// Has the connection get no more requests.
    pub(super) fn retire(&self) {
        self.0.is_leaving.store(true, Ordering::Relaxed);
    }

    /// Number of streams that are open.
    pub(super) fn open(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }

    /// Time at which the last stream ended.
    pub(super) fn used(&self) -> Instant {
        *lock(&self.0.used)
    }

    /// Opens a stream.
    pub(super) fn begin(&self) -> Arc<Http2Stream> {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        Arc::new(Http2Stream {
            shared: Arc::clone(&self.0),
            tasks: Mutex::default(),
            runs: AtomicU32::new(0),
            pieces: AtomicU32::new(0),
            waits_for_client: AtomicBool::new(true),
            is_tunnel: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        })
    }
}

impl Http2Stream {
    /// Records that the request asks for a tunnel, which has a task without having a body.
    pub(super) fn record_tunnel(&self) {
        self.is_tunnel.store(true, Ordering::Relaxed);
    }

    /// Records that hyper asks whether the request has a body: it does so just before it starts the
    /// tasks of the request, and in the task that sends the body.
    pub(crate) fn note_look(self: &Arc<Self>, has_body: bool) {
        if lock(&self.shared.running).is_none() {
            let has_task = has_body || self.is_tunnel.load(Ordering::Relaxed);
            *lock(&self.shared.next) = if has_task { Arc::downgrade(self) } else { Weak::new() };
        }
    }

    /// Records that the body was asked for a piece, and whether it had one. It is asked for the
    /// next one once the backend has room for it, and dropped once it is sent.
    pub(crate) fn record_piece(&self, is_there: bool) {
        self.pieces.fetch_add(u32::from(is_there), Ordering::Relaxed);
        self.waits_for_client.store(!is_there, Ordering::Relaxed);
    }

    /// The number of pieces that were taken, of which the backend has no room for the last one.
    fn unread_piece(&self) -> Option<u32> {
        let is_unread = !self.waits_for_client.load(Ordering::Relaxed);
        is_unread.then(|| self.pieces.load(Ordering::Relaxed))
    }

    /// Ends its tasks: what is left of the request is not sent.
    pub(super) fn cancel(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        lock(&self.tasks).drain(..).for_each(|task| task.abort());
    }

    /// Ends its tasks after a complete answer: a backend may still take the rest of the request,
    /// but not leave it unread.
    pub(super) fn finish(self: &Arc<Self>) {
        if lock(&self.tasks).iter().all(AbortHandle::is_finished) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return self.cancel() };
        let stream = Arc::downgrade(self);
        runtime.spawn(async move {
            let mut known = None;
            while let Some(stream) = stream.upgrade() {
                let runs = Some(stream.runs.load(Ordering::Relaxed));
                // A client that sends nothing has a time-out of its own.
                let waits =
                    stream.waits_for_client.load(Ordering::Relaxed) && !stream.is_tunnel.load(Ordering::Relaxed);
                if std::mem::replace(&mut known, runs) == runs && !waits {
                    return stream.cancel();
                }
                drop(stream);
                sleep(CLOSE_TIME).await;
            }
        });
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        *lock(&self.shared.used) = Instant::now();
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Http2Streams {
    fn execute(&self, future: F) {
        // A tunnel's task starts in the task that has read the answer.
        let running = lock(&self.0.running).clone();
        let Some(stream) = running.or_else(|| std::mem::take(&mut *lock(&self.0.next)).upgrade()) else {
            tokio::spawn(future);
            return;
        };
        if !stream.is_over.load(Ordering::Relaxed) {
            let (piece, timer) = (None, None);
            let task = tokio::spawn(StreamTask { future, stream: Arc::clone(&stream), piece, timer });
            lock(&stream.tasks).push(task.abort_handle());
        }
    }
}

pin_project! {
    /// A task of hyper's for a stream.
    struct StreamTask<F> {
        #[pin]
        future: F,
        stream: Arc<Http2Stream>,
        // The piece that the backend has no room for.
        piece: Option<u32>,
        timer: Option<Pin<Box<Sleep>>>,
    }
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        this.stream.runs.fetch_add(1, Ordering::Relaxed);
        let running = &this.stream.shared.running;
        *lock(running) = Some(Arc::clone(this.stream));
        let polled = this.future.poll(context);
        *lock(running) = None;
        if polled.is_ready() {
            return polled;
        }
        let unread = this.stream.unread_piece();
        if std::mem::replace(this.piece, unread) != unread {
            *this.timer = unread.map(|_| Box::pin(sleep(UNREAD)));
        }
        if this.timer.as_mut().is_some_and(|timer| timer.as_mut().poll(context).is_ready()) {
            *this.timer = None;
            this.stream.shared.is_leaving.store(true, Ordering::Relaxed);
        }
        Poll::Pending
    }
}
