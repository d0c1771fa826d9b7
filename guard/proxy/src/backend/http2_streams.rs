//! Streams of a connection to a backend, and hyper's tasks for them: the body of a request and the
//! bytes of a tunnel go out in tasks of their own. Does not contain connections.
//!
//! Such a task waits for the backend's window, and sees nothing else meanwhile: neither that the
//! client has left nor that nobody awaits the answer. So it is ended here with its stream, which
//! resets the stream at the backend. A stream counts as open until its last task has ended.

use super::CLOSE_TIME;
use hyper::rt::Executor;
use leeward_host::sync::{Mutex, lock};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

/// The streams of a connection; it starts hyper's tasks. Clones are the same.
#[derive(Clone)]
pub(super) struct Http2Streams(Arc<Shared>);

struct Shared {
    open: AtomicUsize,
    /// Time at which the last one ended.
    used: Mutex<Instant>,
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
    is_tunnel: AtomicBool,
    is_over: AtomicBool,
}

impl Http2Streams {
    pub(super) fn new() -> Self {
        let (open, used) = (AtomicUsize::new(0), Mutex::new(Instant::now()));
        Http2Streams(Arc::new(Shared { open, used, next: Mutex::default(), running: Mutex::default() }))
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
                if std::mem::replace(&mut known, runs) == runs {
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
            let task = tokio::spawn(StreamTask { future, stream: Arc::clone(&stream) });
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
        polled
    }
}
