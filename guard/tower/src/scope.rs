//! The request that a thread is serving: how long its client still waits, how important it is, and what it may spend in
//! queues. The client layer and the locks ask. Never here: what they do with the answer.

use leeward_core::budget::Budget;
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

/// A thread's request, and what its clients were told for it.
#[derive(Clone, Copy, Debug, Default)]
struct CurrentRequest {
    context: Option<RequestContext>,
    /// Whether a service behind has refused; `None`: none was asked.
    downstream_rejected: Option<bool>,
}

/// Knowledge about the request being served that goes on to those that it asks others for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestContext {
    /// When its client gives up, by the process's clock.
    deadline: Option<Time>,
    class: Class,
    attempt: u8,
}

/// The request that this thread is serving; `None` outside of a guarded service, and in what a handler spawns without
/// [`carry`].
pub fn current_request() -> Option<RequestContext> {
    // During a thread's end there is none.
    PLACE.try_with(|place| place.get().context).ok().flatten()
}

/// A client has asked another service for the request that this thread is serving; whether that one has refused.
pub(crate) fn report_downstream(refused: bool) {
    let _ = PLACE.try_with(|cell| {
        let place = cell.get();
        if place.context.is_some() {
            cell.set(CurrentRequest {
                downstream_rejected: Some(refused || place.downstream_rejected == Some(true)),
                ..place
            });
        }
    });
}

impl RequestContext {
    /// Of a request that is let in at `reading` of the process's clock.
    pub(crate) fn new(arriving: &RequestInfo, reading: Time) -> Self {
        let left = arriving.timeout.map(|left| Nanos(left.0.saturating_sub(arriving.age.unwrap_or(Nanos::ZERO).0)));
        let until = left.map(|left| Time(reading.0.saturating_add(left.0)));
        RequestContext { deadline: until, class: arriving.class, attempt: arriving.attempt }
    }

    /// Time until its client gives up: the deadline that came with it, less all that has passed since; `None` where
    /// none came.
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining_at(clock::process())
    }

    pub(crate) fn remaining_at(&self, reading: Time) -> Option<Duration> {
        self.deadline.map(|until| Duration::from_nanos(until.since(reading).0))
    }

    /// Its importance.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Times that it was sent before.
    pub fn attempt(&self) -> u8 {
        self.attempt
    }
}

/// A request's scope between two polls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    context: Option<RequestContext>,
    budget: RequestBudget,
    /// As in [`Place`].
    downstream_rejected: Option<bool>,
}

impl Scope {
    /// Of an admitted request.
    pub(crate) fn new(serving: RequestContext, ticket: &Permit) -> Self {
        Scope { context: Some(serving), budget: RequestBudget::of(ticket.budget()), downstream_rejected: None }
    }

    /// The request begins after it has waited: its budget is less.
    pub(crate) fn begin(&mut self, ticket: &Permit) {
        self.budget = RequestBudget::of(ticket.budget());
    }

    /// Runs `call` as a part of the request.
    pub(crate) fn enter<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let place = CurrentRequest { context: self.context, downstream_rejected: self.downstream_rejected };
        let _restores = RestoreGuard(PLACE.try_with(|cell| cell.replace(place)).unwrap_or_default());
        let result = self.budget.enter(call);
        self.downstream_rejected = PLACE.try_with(|cell| cell.get().downstream_rejected).ok().flatten();
        result
    }

    /// Whether a service behind has refused; `None` if the request has asked none. What a carried task asks is not known here.
    pub(crate) fn downstream_rejected(&self) -> Option<bool> {
        self.downstream_rejected
    }

    /// Time that locks have charged to the request.
    pub(crate) fn queue_time(&self, ticket: &Permit) -> Duration {
        let of = |budget: Budget| budget.remaining().unwrap_or(Nanos::ZERO);
        Duration::from_nanos(of(ticket.budget()).saturating_sub(of(self.budget.budget())).0)
    }

    /// Whether a lock, or a line, has refused the request.
    pub(crate) fn is_lock_rejected(&self) -> bool {
        self.budget.refused().is_some()
    }
}

/// Puts back what was there before, however the call ends.
struct RestoreGuard(CurrentRequest);

impl Drop for RestoreGuard {
    fn drop(&mut self) {
        let _ = PLACE.try_with(|cell| cell.set(self.0));
    }
}

/// `future` as a part of the request being served, wherever it runs: for `tokio::spawn(carry(…))`, which begins without
/// one. Its waits are charged to a copy of the budget.
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
    fn a_deadline_shrinks_by_all_that_has_passed() {
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
    fn what_clients_are_told_is_the_requests_for_which_they_asked() {
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
