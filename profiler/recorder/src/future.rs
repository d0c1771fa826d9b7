//! Futures that are requests, and names for what they await.
//!
//! Does not contain how polls are reported.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::await_point;
use crate::polls::RequestPolls;
use crate::runtime;

/// Makes a future request `id`: from its first poll until it is ready or dropped.
///
/// Its polls are the work on the request, on whatever thread. Between two polls the request waits:
/// first for what it awaits, then, once it is woken, for a thread that polls it.
///
/// ```
/// use leeward_trace::{instrument, wait};
///
/// async fn handle(id: u64) -> u64 {
///     wait("price", std::future::ready(id)).await
/// }
///
/// async fn serve(id: u64) -> u64 {
///     instrument(id, handle(id)).await
/// }
/// ```
pub fn instrument<F: Future>(id: u64, future: F) -> InstrumentedFuture<F> {
    InstrumentedFuture { inner: Some(future), polls: RequestPolls::with_id(id) }
}

/// Names what a future awaits, for `leeward profile tail`: a downstream service, a pool.
///
/// Without a name the profiler shows the functions that await, where it knows them.
pub fn wait<F: Future>(name: &'static str, future: F) -> NamedWait<F> {
    NamedWait { inner: future, name }
}

/// [`instrument`] and [`wait`] as methods of all futures.
pub trait TraceFuture: Future + Sized {
    /// Makes this future request `id`.
    fn instrument(self, id: u64) -> InstrumentedFuture<Self> {
        instrument(id, self)
    }

    /// Names what this future awaits.
    fn named_wait(self, name: &'static str) -> NamedWait<Self> {
        wait(name, self)
    }
}

impl<F: Future> TraceFuture for F {}

pin_project! {
    /// A future that is a request.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct InstrumentedFuture<F> {
        // Declared first, so that it is dropped first: its destructors are part of the request.
        #[pin]
        inner: Option<F>,
        polls: RequestPolls,
    }
}

impl<F> InstrumentedFuture<F> {
    /// Sets the kind of the request, such as its route, once the request has started.
    pub fn label(self: Pin<&mut Self>, label: &str) {
        self.project().polls.label(label);
    }
}

impl<F: Future> Future for InstrumentedFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let Some(inner) = this.inner.as_mut().as_pin_mut() else { panic!("polled after it was ready") };
        let result = this.polls.poll(context, |context| inner.poll(context));
        if result.is_ready() {
            this.inner.set(None);
            *this.polls = RequestPolls::new();
        }
        result
    }
}

pin_project! {
    /// A future with a name for what it awaits.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct NamedWait<F> {
        #[pin]
        inner: F,
        name: &'static str,
    }
}

impl<F: Future> Future for NamedWait<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let result = this.inner.poll(context);
        if result.is_pending() && runtime::is_recorded() {
            await_point::note_name(this.name);
        }
        result
    }
}
