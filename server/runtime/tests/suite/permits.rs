//! Property tests of a semaphore and of budgets. Random steps acquire, release, cancel and poll.
//! The tests check that waiters are served in order of arrival, that no waiter is forgotten, that
//! no budget goes below zero, and that the statistics add up.

use leeward_core::budget::Budget;
use leeward_core::units::Nanos;
use leeward_runtime::budget;
use leeward_runtime::locks::{Congested, Permit, Semaphore};
use proptest::prelude::*;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Waker that records whether it was called.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Waiter<'a> {
    number: u64,
    count: u32,
    future: Pin<Box<dyn Future<Output = Result<Permit<'a>, Congested>> + 'a>>,
    woken: Arc<Flag>,
}

impl<'a> Waiter<'a> {
    fn poll(&mut self) -> Poll<Result<Permit<'a>, Congested>> {
        self.woken.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.woken));
        budget::with(Budget::new(BUDGET), || self.future.as_mut().poll(&mut Context::from_waker(&waker))).0
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A new waiter acquires this many permits.
    Ask(u32),
    /// A new waiter acquires one permit, unless the wait exceeds [`BUDGET`].
    AskHurriedly,
    /// A holder returns its permits.
    Return(usize),
    /// A waiter drops its future.
    GiveUp(usize),
    /// A waiter is polled, woken or not.
    Poll(usize),
    /// All woken waiters are polled, until none is woken.
    PollWoken,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..=PERMITS).prop_map(Step::Ask),
        2 => Just(Step::AskHurriedly),
        3 => any::<usize>().prop_map(Step::Return),
        1 => any::<usize>().prop_map(Step::GiveUp),
        2 => any::<usize>().prop_map(Step::Poll),
        1 => Just(Step::PollWoken),
    ];
    prop::collection::vec(step, 0..120)
}

const PERMITS: u32 = 3;

/// Budget of each poll. A few steps take about as long, so some waiters are late and some are not.
const BUDGET: Nanos = Nanos(2_000);

proptest! {
    #[test]
    fn semaphore_waiters_are_served_in_order_and_none_is_left(steps in steps()) {
        let semaphore = Semaphore::new("under test", PERMITS);
        let mut waiting: Vec<Waiter<'_>> = Vec::new();
        let mut held: Vec<(u32, Permit<'_>)> = Vec::new();
        let (mut asked, mut given_up, mut served_waiting, mut rejected) = (0u64, 0u64, 0u64, 0u64);
        for step in steps {
            match step {
                Step::Ask(_) | Step::AskHurriedly => {
                    asked += 1;
                    let count = if let Step::Ask(count) = step { count } else { 1 };
                    let shared = &semaphore;
                    let future = Box::pin(async move {
                        match step {
                            Step::Ask(count) => Ok(shared.acquire_many(count).await),
                            _ => shared.acquire_unless_congested().await,
                        }
                    });
                    let mut waiter = Waiter { number: asked, count, future, woken: Arc::default() };
                    match waiter.poll() {
                        Poll::Ready(Ok(permit)) => held.push((count, permit)),
                        Poll::Ready(Err(_)) => rejected += 1,
                        Poll::Pending => waiting.push(waiter),
                    }
                }
                Step::Return(which) if !held.is_empty() => drop(held.swap_remove(which % held.len())),
                Step::GiveUp(which) if !waiting.is_empty() => {
                    drop(waiting.remove(which % waiting.len()));
                    given_up += 1;
                }
                Step::Poll(which) if !waiting.is_empty() => {
                    let index = which % waiting.len();
                    if let Poll::Ready(outcome) = waiting[index].poll() {
                        let count = waiting.remove(index).count;
                        match outcome {
                            Ok(permit) => {
                                served_waiting += 1;
                                held.push((count, permit));
                            }
                            Err(_) => rejected += 1,
                        }
                    }
                }
                Step::PollWoken => {
                    let mut last = 0;
                    while let Some(index) = waiting.iter().position(|waiter| waiter.woken.0.load(Ordering::SeqCst)) {
                        let number = waiting[index].number;
                        if let Poll::Ready(outcome) = waiting[index].poll() {
                            prop_assert!(number > last, "{number} is served after {last}");
                            last = number;
                            let count = waiting.remove(index).count;
                            match outcome {
                                Ok(permit) => {
                                    served_waiting += 1;
                                    held.push((count, permit));
                                }
                                Err(_) => rejected += 1,
                            }
                        }
                    }
                    // No waiter that could be served still waits: the first needs more permits than
                    // are free.
                    if let Some(first) = waiting.first() {
                        prop_assert!(u64::from(first.count) > semaphore.free(), "{} of {}", first.count, semaphore.free());
                    }
                }
                _ => {}
            }
            let taken: u32 = held.iter().map(|(count, _)| count).sum();
            prop_assert!(taken <= PERMITS);
            prop_assert_eq!(semaphore.delay() == Nanos::ZERO || !waiting.is_empty(), true);
        }
        // After all waiters and holders are dropped, all permits are free.
        given_up += waiting.len() as u64;
        drop(waiting);
        drop(held);
        prop_assert_eq!(semaphore.free(), u64::from(PERMITS));
        prop_assert_eq!(semaphore.delay(), Nanos::ZERO);
        let stats = semaphore.stats();
        prop_assert_eq!((stats.contended, stats.cancelled, stats.refused), (served_waiting, given_up, rejected));
        prop_assert_eq!(stats.waits.iter().sum::<u64>(), stats.contended);
        let ended = stats.acquired + stats.cancelled + stats.refused;
        prop_assert!(ended <= asked && ended + 63 >= asked);
    }

    /// Charges reduce a budget, down to zero at the least.
    #[test]
    fn a_budget_only_shrinks_and_not_below_zero(whole in 0u64..1_000, charges in prop::collection::vec(0u64..500, 0..20)) {
        let (seen, left) = budget::with(Budget::new(Nanos(whole)), || {
            charges.iter().map(|charge| {
                budget::charge(Nanos(*charge));
                budget::current().remaining().unwrap().0
            }).collect::<Vec<_>>()
        });
        let mut expected = whole;
        for (charge, seen) in charges.iter().zip(seen) {
            expected = expected.saturating_sub(*charge);
            prop_assert_eq!(seen, expected);
        }
        prop_assert_eq!(left, Budget::new(Nanos(expected)));
    }
}
