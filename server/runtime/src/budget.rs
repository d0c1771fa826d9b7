//! The budget of the request that this thread runs: its remaining time for queues, and the time
//! spent. The budget type is `leeward_core::budget`. The server opens a scope around each request;
//! the locks check and charge it.

use leeward_core::budget::Budget;
use leeward_core::units::Nanos;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;

/// A request's budget account, for code that polls a request's future itself. [`with`] and
/// [`scope`] keep one for other code.
///
/// ```
/// use leeward_core::budget::Budget;
/// use leeward_core::units::Nanos;
/// use leeward_runtime::budget::{self, RequestBudget};
///
/// let mut request = RequestBudget::of(Budget::new(Nanos(100)));
/// request.enter(|| budget::charge(Nanos(70)));
/// assert_eq!(request.budget(), Budget::new(Nanos(30)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RequestBudget {
    budget: Budget,
    /// Sum of the charged waits, beyond the budget, too.
    waited: Nanos,
    /// Part of the budget spent in run queues so far.
    spent_on_cores: Nanos,
    /// The lock that rejected the request last.
    refused: Option<&'static str>,
}

/// No request is running, so nothing is rejected.
const NO_REQUEST: RequestBudget =
    RequestBudget { budget: Budget::UNLIMITED, waited: Nanos::ZERO, spent_on_cores: Nanos::ZERO, refused: None };

impl RequestBudget {
    /// Makes the account of a request that may spend `budget` in queues.
    pub const fn of(budget: Budget) -> Self {
        RequestBudget { budget, ..NO_REQUEST }
    }

    /// Copies the running request's account.
    pub fn running() -> Self {
        running()
    }

    /// Runs `call` as a part of the request.
    #[inline]
    pub fn enter<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let _entered = EnterGuard::new(self);
        call()
    }

    /// The account of a thread that runs no request: no limit.
    pub const fn none() -> Self {
        NO_REQUEST
    }

    /// Remaining budget.
    pub const fn budget(&self) -> Budget {
        self.budget
    }

    /// Time that it has waited in queues ([`charge`]), which may exceed its budget.
    pub const fn waited(&self) -> Nanos {
        self.waited
    }

    /// Name of the lock that rejected the request last.
    pub const fn refused(&self) -> Option<&'static str> {
        self.refused
    }
}

/// Makes `account` the running request's until the next call, and returns the account before it.
///
/// For callers that begin and end a request in separate calls, as a C interface does. Other code
/// uses [`RequestBudget::enter`], which also restores the account after a panic.
pub fn replace_running(account: RequestBudget) -> RequestBudget {
    RUNNING.try_with(|cell| cell.replace(account)).unwrap_or(NO_REQUEST)
}

thread_local! {
    static RUNNING: Cell<RequestBudget> = const { Cell::new(NO_REQUEST) };
    /// Run queue wait of the task that this core polls next.
    static RUN_WAIT: Cell<Nanos> = const { Cell::new(Nanos::ZERO) };
}

/// Runs `call` as a request that may spend `budget` in queues. Also returns the remaining budget.
///
/// ```
/// use leeward_core::budget::Budget;
/// use leeward_core::units::Nanos;
/// use leeward_runtime::budget;
///
/// let (_, left) = budget::with(Budget::new(Nanos(100)), || budget::charge(Nanos(70)));
/// assert_eq!(left, Budget::new(Nanos(30)));
/// assert_eq!(budget::current(), Budget::UNLIMITED);
/// ```
pub fn with<T>(budget: Budget, call: impl FnOnce() -> T) -> (T, Budget) {
    let mut request = RequestBudget::of(budget);
    let result = request.enter(call);
    (result, request.budget)
}

/// Makes `future` a request that may spend `budget` in queues. The waits of its task for a core are
/// charged too.
///
/// The budget applies to code that runs in this future. Tasks that it spawns elsewhere have none,
/// which means no limit.
pub fn scope<F: Future>(budget: Budget, future: F) -> impl Future<Output = F::Output> {
    let mut request = RequestBudget::of(budget);
    async move {
        let mut future = pin!(future);
        poll_fn(|context| {
            let waited = RUN_WAIT.try_with(Cell::take).unwrap_or_default();
            request.budget.charge(waited);
            request.spent_on_cores += waited;
            request.enter(|| future.as_mut().poll(context))
        })
        .await
    }
}

/// Remaining budget of the running request; unlimited outside of any request.
pub fn current() -> Budget {
    running().budget
}

/// Charges the running request for a wait in a queue that this crate does not know.
pub fn charge(waited: Nanos) {
    let mut request = running();
    request.budget.charge(waited);
    request.waited += waited;
    let _ = RUNNING.try_with(|cell| cell.set(request));
}

/// Notes that this lock has rejected the running request, whatever the handler does then.
pub(crate) fn note_refused(lock: &'static str) {
    let request = RequestBudget { refused: Some(lock), ..running() };
    let _ = RUNNING.try_with(|cell| cell.set(request));
}

/// Notes the run queue wait of the task that this core polls next. For a
/// [`Network`](crate::Network) that begins a task. The core itself notes it for tasks that it
/// resumes.
pub fn note_run_wait(waited: Nanos) {
    let _ = RUN_WAIT.try_with(|cell| cell.set(waited));
}

/// Part of the running request's budget spent in run queues so far. A wait that overlaps with these
/// is charged less.
pub(crate) fn spent_on_cores() -> Nanos {
    running().spent_on_cores
}

fn running() -> RequestBudget {
    // While a thread ends there is none.
    RUNNING.try_with(Cell::get).unwrap_or(NO_REQUEST)
}

/// Makes an account the running one. Writes it back when dropped, also after a panic.
struct EnterGuard<'a> {
    account: &'a mut RequestBudget,
    before: RequestBudget,
}

impl<'a> EnterGuard<'a> {
    fn new(account: &'a mut RequestBudget) -> Self {
        let before = RUNNING.try_with(|cell| cell.replace(*account)).unwrap_or(NO_REQUEST);
        EnterGuard { account, before }
    }
}

impl Drop for EnterGuard<'_> {
    fn drop(&mut self) {
        if let Ok(account) = RUNNING.try_with(|cell| cell.replace(self.before)) {
            *self.account = account;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_nested_scope_has_its_own_budget() {
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
    fn an_account_is_replaced_and_returned_with_its_charges() {
        assert_eq!(replace_running(RequestBudget::of(Budget::new(Nanos(9)))).budget(), Budget::UNLIMITED);
        charge(Nanos(4));
        assert_eq!(replace_running(RequestBudget::none()).budget(), Budget::new(Nanos(5)));
        let mut account = RequestBudget::of(Budget::new(Nanos(9)));
        account.enter(|| charge(Nanos(40)));
        assert_eq!((account.budget(), account.waited()), (Budget::new(Nanos::ZERO), Nanos(40)));
        assert_eq!(current(), Budget::UNLIMITED);
    }

    #[test]
    fn the_queueing_time_of_a_task_is_charged_once() {
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
        // Nothing was noted since, so nothing is charged.
        assert_eq!(scoped.as_mut().poll(&mut context), std::task::Poll::Ready((Budget::new(Nanos(70)), Nanos(30))));
    }
}
