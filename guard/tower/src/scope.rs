//! The request that a thread is serving: how long its client still waits, how important it is, and what it may spend in
//! queues. The client layer and the locks ask. Never here: what they do with the answer.

use leeward_core::budget::Budget;
use leeward_core::units::{Nanos, Time};
use leeward_gate::{Arriving, Class, Ticket};
use leeward_runtime::budget::Account;
use leeward_runtime::clock;
use pin_project_lite::pin_project;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

thread_local!(static PLACE: Cell<Place> = const { Cell::new(Place { serving: None, refused: None }) });

/// A thread's request, and what its clients were told for it.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    serving: Option<Serving>,
    /// Whether a service behind has refused; `None`: none was asked.
    refused: Option<bool>,
}

/// Knowledge about the request being served that goes on to those that it asks others for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serving {
    /// When its client gives up, by the process's clock.
    until: Option<Time>,
    class: Class,
    attempt: u8,
}

/// The request that this thread is serving; `None` outside of a guarded service, and in what a handler spawns without
/// [`carry`].
pub fn serving() -> Option<Serving> {
    // During a thread's end there is none.
    PLACE.try_with(|place| place.get().serving).ok().flatten()
}

/// A client has asked another service for the request that this thread is serving; whether that one has refused.
pub(crate) fn tell(refused: bool) {
    let _ = PLACE.try_with(|cell| {
        let place = cell.get();
        if place.serving.is_some() {
            cell.set(Place { refused: Some(refused || place.refused == Some(true)), ..place });
        }
    });
}

impl Serving {
    /// Of a request that is let in at `reading` of the process's clock.
    pub(crate) fn new(arriving: &Arriving, reading: Time) -> Self {
        let left = arriving.left.map(|left| Nanos(left.0.saturating_sub(arriving.waited.unwrap_or(Nanos::ZERO).0)));
        let until = left.map(|left| Time(reading.0.saturating_add(left.0)));
        Serving { until, class: arriving.class, attempt: arriving.attempt }
    }

    /// Time until its client gives up: the deadline that came with it, less all that has passed since; `None` where
    /// none came.
    pub fn left(&self) -> Option<Duration> {
        self.left_at(clock::process())
    }

    pub(crate) fn left_at(&self, reading: Time) -> Option<Duration> {
        self.until.map(|until| Duration::from_nanos(until.since(reading).0))
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
    serving: Option<Serving>,
    account: Account,
    /// As in [`Place`].
    refused: Option<bool>,
}

impl Scope {
    /// Of an admitted request.
    pub(crate) fn new(serving: Serving, ticket: &Ticket) -> Self {
        Scope { serving: Some(serving), account: Account::of(ticket.budget()), refused: None }
    }

    /// The request begins after it has waited: its budget is less.
    pub(crate) fn begin(&mut self, ticket: &Ticket) {
        self.account = Account::of(ticket.budget());
    }

    /// Runs `call` as a part of the request.
    pub(crate) fn enter<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let place = Place { serving: self.serving, refused: self.refused };
        let _restores = Restores(PLACE.try_with(|cell| cell.replace(place)).unwrap_or_default());
        let result = self.account.enter(call);
        self.refused = PLACE.try_with(|cell| cell.get().refused).ok().flatten();
        result
    }

    /// Whether a service behind has refused; `None` if the request has asked none. What a carried task asks is not known here.
    pub(crate) fn behind(&self) -> Option<bool> {
        self.refused
    }

    /// Time that locks have charged to the request.
    pub(crate) fn queued(&self, ticket: &Ticket) -> Duration {
        let of = |budget: Budget| budget.remaining().unwrap_or(Nanos::ZERO);
        Duration::from_nanos(of(ticket.budget()).saturating_sub(of(self.account.budget())).0)
    }

    /// Whether a lock, or a line, has refused the request.
    pub(crate) fn was_refused(&self) -> bool {
        self.account.refused().is_some()
    }
}

/// Puts back what was there before, however the call ends.
struct Restores(Place);

impl Drop for Restores {
    fn drop(&mut self) {
        let _ = PLACE.try_with(|cell| cell.set(self.0));
    }
}

/// `future` as a part of the request being served, wherever it runs: for `tokio::spawn(carry(…))`, which begins without
/// one. Its waits are charged to a copy of the budget.
pub fn carry<F>(future: F) -> Carried<F> {
    Carried { future, scope: Scope { serving: serving(), account: Account::running(), refused: None } }
}

pin_project! {
    /// A part of a request that runs elsewhere.
    #[derive(Debug)]
    pub struct Carried<F> {
        #[pin]
        future: F,
        scope: Scope,
    }
}

impl<F: Future> Future for Carried<F> {
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

    fn serve(left: u64, waited: u64) -> Serving {
        let ms = Duration::from_millis;
        Serving::new(&Arriving::default().with_left(ms(left)).with_waited(ms(waited)), Time(1_000_000_000))
    }

    #[test]
    fn a_deadline_shrinks_by_all_that_has_passed() {
        let served = serve(50, 20);
        assert_eq!(served.left_at(Time(1_000_000_000)), Some(Duration::from_millis(30)));
        assert_eq!(served.left_at(Time(1_012_000_000)), Some(Duration::from_millis(18)));
        assert_eq!(served.left_at(Time(9_000_000_000)), Some(Duration::ZERO), "never less than nothing");
        assert_eq!(serve(10, 20).left_at(Time(1_000_000_000)), Some(Duration::ZERO), "gone when it came");
        assert_eq!(Serving::new(&Arriving::default(), Time(5)).left(), None);
    }

    #[test]
    fn a_scope_ends_with_its_call_even_by_a_panic() {
        let mut scope = Scope { serving: Some(serve(50, 0)), account: Account::running(), refused: None };
        assert_eq!(scope.enter(serving), scope.serving);
        let panics = std::panic::catch_unwind(move || scope.enter(|| panic!("as asked")));
        assert!(panics.is_err() && serving().is_none());
    }

    #[test]
    fn what_clients_are_told_is_the_requests_for_which_they_asked() {
        let of = |left| Scope { serving: Some(serve(left, 0)), account: Account::running(), refused: None };
        let (mut first, mut second) = (of(50), of(60));
        tell(true);
        first.enter(|| tell(false));
        assert_eq!((first.behind(), second.behind()), (Some(false), None), "outside nobody is served");
        second.enter(|| tell(true));
        second.enter(|| tell(false));
        first.enter(|| ());
        assert_eq!((first.behind(), second.behind()), (Some(false), Some(true)));
    }
}
