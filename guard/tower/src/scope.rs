//! The request that a thread serves: its deadline, importance and queueing budget. The client layer
//! and the locks read it. Does not contain their use of it.

use leeward_core::units::{Nanos, Time};
use leeward_gate::{Class, Permit, RequestInfo};
use leeward_runtime::budget::RequestBudget;
use leeward_runtime::clock;
use pin_project_lite::pin_project;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

thread_local!(static PLACE: Cell<CurrentRequest> = const { Cell::new(CurrentRequest { context: None, downstream_rejected: None }) });

/// A thread's current request, and the downstream result of its clients.
#[derive(Clone, Copy, Debug, Default)]
struct CurrentRequest {
    context: Option<RequestContext>,
    /// Whether a downstream service rejected; `None`: no service was asked.
    downstream_rejected: Option<bool>,
}

/// Data of the served request that is passed on to downstream requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestContext {
    /// When the client gives up, by the process's clock.
    deadline: Option<Time>,
    class: Class,
    attempt: u8,
}

/// The request that this thread serves.
///
/// `None` outside a guarded service, and in a task that a handler spawns without [`carry`].
pub fn current_request() -> Option<RequestContext> {
    // While a thread ends, its thread-local is gone.
    PLACE.try_with(|place| place.get().context).ok().flatten()
}

/// Records that a client asked a downstream service for the current request, and whether it was
/// rejected.
pub(crate) fn report_downstream(rejected: bool) {
    let _ = PLACE.try_with(|cell| {
        let current = cell.get();
        if current.context.is_some() {
            cell.set(CurrentRequest {
                downstream_rejected: Some(rejected || current.downstream_rejected == Some(true)),
                ..current
            });
        }
    });
}

impl RequestContext {
    /// Context of a request that is admitted at `reading` of the process's clock.
    pub(crate) fn new(info: &RequestInfo, reading: Time) -> Self {
        let timeout = info.timeout.map(|timeout| Nanos(timeout.0.saturating_sub(info.age.unwrap_or(Nanos::ZERO).0)));
        let give_up_at = timeout.map(|timeout| Time(reading.0.saturating_add(timeout.0)));
        RequestContext { deadline: give_up_at, class: info.class, attempt: info.attempt }
    }

    /// Time until the client gives up: the received deadline less all elapsed time; `None` without
    /// a deadline.
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining_at(clock::process())
    }

    pub(crate) fn remaining_at(&self, reading: Time) -> Option<Duration> {
        self.deadline.map(|give_up_at| Duration::from_nanos(give_up_at.since(reading).0))
    }

    /// Importance of the request.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Number of earlier attempts of the request.
    pub fn attempt(&self) -> u8 {
        self.attempt
    }
}

/// Scope of a request between two polls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    context: Option<RequestContext>,
    budget: RequestBudget,
    /// As in [`CurrentRequest`].
    downstream_rejected: Option<bool>,
}

impl Scope {
    /// Makes the scope of an admitted request.
    pub(crate) fn new(request: RequestContext, permit: &Permit) -> Self {
        Scope { context: Some(request), budget: RequestBudget::of(permit.budget()), downstream_rejected: None }
    }

    /// Updates the budget when the request begins after its wait.
    pub(crate) fn begin(&mut self, permit: &Permit) {
        self.budget = RequestBudget::of(permit.budget());
    }

    /// Runs `call` as a part of the request.
    pub(crate) fn enter<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let current = CurrentRequest { context: self.context, downstream_rejected: self.downstream_rejected };
        let _restore = RestoreGuard(PLACE.try_with(|cell| cell.replace(current)).unwrap_or_default());
        let result = self.budget.enter(call);
        self.downstream_rejected = PLACE.try_with(|cell| cell.get().downstream_rejected).ok().flatten();
        result
    }

    /// Whether a downstream service rejected; `None` if the request asked none.
    ///
    /// Requests of a carried task are not included.
    pub(crate) fn downstream_rejected(&self) -> Option<bool> {
        self.downstream_rejected
    }

    /// Time that locks have charged to the request.
    pub(crate) fn queue_time(&self) -> Duration {
        Duration::from_nanos(self.budget.waited().0)
    }

    /// Whether a lock or an acquire queue has rejected the request.
    pub(crate) fn is_lock_rejected(&self) -> bool {
        self.budget.refused().is_some()
    }
}

/// Restores the thread's previous request, even after a panic.
struct RestoreGuard(CurrentRequest);

impl Drop for RestoreGuard {
    fn drop(&mut self) {
        let _ = PLACE.try_with(|cell| cell.set(self.0));
    }
}

/// Runs `future` as a part of the served request on any thread, for `tokio::spawn(carry(…))`.
///
/// A spawned task otherwise has no request. Its waits are charged to a copy of the budget.
pub fn carry<F>(future: F) -> CarriedFuture<F> {
    CarriedFuture {
        future,
        scope: Scope { context: current_request(), budget: RequestBudget::running(), downstream_rejected: None },
    }
}

pin_project! {
    /// A part of a request that runs elsewhere.
    #[derive(Debug)]
    pub struct CarriedFuture<F> {
        #[pin]
        future: F,
        scope: Scope,
    }
}

impl<F: Future> Future for CarriedFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let future = this.future;
        this.scope.enter(|| future.poll(context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(left: u64, waited: u64) -> RequestContext {
        let ms = Duration::from_millis;
        RequestContext::new(&RequestInfo::default().with_timeout(ms(left)).with_age(ms(waited)), Time(1_000_000_000))
    }

    #[test]
    fn a_deadline_shrinks_by_all_elapsed_time() {
        let served = serve(50, 20);
        assert_eq!(served.remaining_at(Time(1_000_000_000)), Some(Duration::from_millis(30)));
        assert_eq!(served.remaining_at(Time(1_012_000_000)), Some(Duration::from_millis(18)));
        assert_eq!(served.remaining_at(Time(9_000_000_000)), Some(Duration::ZERO), "never less than nothing");
        assert_eq!(serve(10, 20).remaining_at(Time(1_000_000_000)), Some(Duration::ZERO), "gone when it came");
        assert_eq!(RequestContext::new(&RequestInfo::default(), Time(5)).remaining(), None);
    }

    #[test]
    fn a_scope_ends_with_its_call_even_by_a_panic() {
        let mut scope =
            Scope { context: Some(serve(50, 0)), budget: RequestBudget::running(), downstream_rejected: None };
        assert_eq!(scope.enter(current_request), scope.context);
        let panics = std::panic::catch_unwind(move || scope.enter(|| panic!("as asked")));
        assert!(panics.is_err() && current_request().is_none());
    }

    #[test]
    fn downstream_results_belong_to_the_request_that_called() {
        let of =
            |left| Scope { context: Some(serve(left, 0)), budget: RequestBudget::running(), downstream_rejected: None };
        let (mut first, mut second) = (of(50), of(60));
        report_downstream(true);
        first.enter(|| report_downstream(false));
        assert_eq!(
            (first.downstream_rejected(), second.downstream_rejected()),
            (Some(false), None),
            "outside nobody is served"
        );
        second.enter(|| report_downstream(true));
        second.enter(|| report_downstream(false));
        first.enter(|| ());
        assert_eq!((first.downstream_rejected(), second.downstream_rejected()), (Some(false), Some(true)));
    }
}
