//! The budget of the request that this thread is running: what it may still spend on queues, and what it has spent. The
//! budget itself is `leeward_core::budget`. The server opens a scope around each request; the locks ask and charge.

use leeward_core::budget::Budget;
use leeward_core::units::Nanos;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;

/// A request's account, for those who poll a request's future themselves; [`with`] and [`scope`] keep one for others.
///
/// ```
/// use leeward_core::budget::Budget;
/// use leeward_core::units::Nanos;
/// use leeward_runtime::budget::{self, Account};
///
/// let mut account = Account::of(Budget::of(Nanos(100)));
/// account.enter(|| budget::charge(Nanos(70)));
/// assert_eq!(account.budget(), Budget::of(Nanos(30)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RequestBudget {
    budget: Budget,
    /// Part of the budget that went to the run queues so far.
    spent_on_cores: Nanos,
    /// The lock that refused it last.
    refused: Option<&'static str>,
}

/// No request: nothing is refused.
const NO_REQUEST: RequestBudget =
    RequestBudget { budget: Budget::UNLIMITED, spent_on_cores: Nanos::ZERO, refused: None };

impl RequestBudget {
    /// Of a request that may spend `budget` on queues.
    pub const fn of(budget: Budget) -> Self {
        RequestBudget { budget, ..NO_REQUEST }
    }

    /// A copy of the running request's.
    pub fn running() -> Self {
        running()
    }

    /// Runs `call` as a part of the request.
    #[inline]
    pub fn enter<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let _entered = EnterGuard::new(self);
        call()
    }

    /// Budget that is left.
    pub const fn budget(&self) -> Budget {
        self.budget
    }

    /// Name of the lock that refused the request last.
    pub const fn refused(&self) -> Option<&'static str> {
        self.refused
    }
}

thread_local! {
    static RUNNING: Cell<RequestBudget> = const { Cell::new(NO_REQUEST) };
    /// How long the task that this core polls next has waited for that.
    static RUN_WAIT: Cell<Nanos> = const { Cell::new(Nanos::ZERO) };
}

/// Runs `call` as a request that may spend `budget` on queues, and returns what is left of it too.
///
/// ```
/// use leeward_core::budget::Budget;
/// use leeward_core::units::Nanos;
/// use leeward_runtime::budget;
///
/// let (_, left) = budget::with(Budget::of(Nanos(100)), || budget::charge(Nanos(70)));
/// assert_eq!(left, Budget::of(Nanos(30)));
/// assert_eq!(budget::current(), Budget::UNLIMITED);
/// ```
pub fn with<T>(budget: Budget, call: impl FnOnce() -> T) -> (T, Budget) {
    let mut account = RequestBudget::of(budget);
    let result = account.enter(call);
    (result, account.budget)
}

/// `future` as a request that may spend `budget` on queues. What its task waits for cores is charged too.
///
/// The budget is the request's as long as it runs in here: what it spawns elsewhere has none, which is no limit.
pub fn scope<F: Future>(budget: Budget, future: F) -> impl Future<Output = F::Output> {
    let mut account = RequestBudget::of(budget);
    async move {
        let mut future = pin!(future);
        poll_fn(|context| {
            let waited = RUN_WAIT.try_with(Cell::take).unwrap_or_default();
            account.budget.charge(waited);
            account.spent_on_cores += waited;
            account.enter(|| future.as_mut().poll(context))
        })
        .await
    }
}

/// Budget that the running request may still spend; unlimited outside of any.
pub fn current() -> Budget {
    running().budget
}

/// Charges the running request for having waited in a queue that this crate knows nothing of.
pub fn charge(waited: Nanos) {
    let mut account = running();
    account.budget.charge(waited);
    let _ = RUNNING.try_with(|place| place.set(account));
}

/// Notes that this lock has refused the running request, whatever becomes of that.
pub(crate) fn note_refused(lock: &'static str) {
    let account = RequestBudget { refused: Some(lock), ..running() };
    let _ = RUNNING.try_with(|place| place.set(account));
}

/// Notes that the task which this core polls next has waited so long for its turn. For a [`Network`](crate::Network) that
/// begins a task; the core itself notes it of those it goes on with.
pub fn note_run_wait(waited: Nanos) {
    let _ = RUN_WAIT.try_with(|turn| turn.set(waited));
}

/// Part of the running request's budget that went to the run queues so far. A wait that overlaps with them is charged
/// less.
pub(crate) fn spent_on_cores() -> Nanos {
    running().spent_on_cores
}

fn running() -> RequestBudget {
    // During a thread's end there is none.
    RUNNING.try_with(Cell::get).unwrap_or(NO_REQUEST)
}

/// Makes an account the running one, and writes it back in the end, however that comes.
struct EnterGuard<'a> {
    account: &'a mut RequestBudget,
    before: RequestBudget,
}

impl<'a> EnterGuard<'a> {
    fn new(account: &'a mut RequestBudget) -> Self {
        let before = RUNNING.try_with(|place| place.replace(*account)).unwrap_or(NO_REQUEST);
        EnterGuard { account, before }
    }
}

impl Drop for EnterGuard<'_> {
    fn drop(&mut self) {
        if let Ok(account) = RUNNING.try_with(|place| place.replace(self.before)) {
            *self.account = account;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_scope_in_a_scope_has_a_budget_of_its_own() {
        let (inner, outer) = with(Budget::new(Nanos(10)), || {
            let ((), inner) = with(Budget::new(Nanos(5)), || charge(Nanos(2)));
            charge(Nanos(1));
            inner
        });
        assert_eq!((inner, outer), (Budget::new(Nanos(3)), Budget::new(Nanos(9))));
    }

    #[test]
    fn a_panic_leaves_no_budget_behind() {
        let panics = || with(Budget::new(Nanos(5)), || panic!("as asked"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(current(), Budget::UNLIMITED);
    }

    #[test]
    fn what_a_task_waits_for_its_turn_is_charged_once() {
        let mut scoped = pin!(scope(Budget::new(Nanos(100)), async {
            for _ in 0..3 {
                crate::tasks::yield_now().await;
            }
            (current(), spent_on_cores())
        }));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for waited in [10, 20, 0] {
            note_run_wait(Nanos(waited));
            assert!(scoped.as_mut().poll(&mut context).is_pending());
            assert_eq!(current(), Budget::UNLIMITED);
        }
        // Nothing noted since: nothing charged.
        assert_eq!(scoped.as_mut().poll(&mut context), std::task::Poll::Ready((Budget::new(Nanos(70)), Nanos(30))));
    }
}
