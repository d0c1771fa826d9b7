//! Model checking of the credit pool with loom: all interleavings of two or three threads under the
//! memory model. Run with `RUSTFLAGS="--cfg loom" cargo test -p leeward-controllers --lib
//! --release`.

use loom::thread;

use super::config::{Config, PoolSignal};
use super::law::DelayLaw;
use super::params;
use super::pool::Pool;
use super::samples::{Sampler, Samples};
use super::server::Core;
use leeward_core::params::Params;
use leeward_core::registry::Environment;
use leeward_core::server::{Admission, Arrival, CoreId, Departure, Outcome, Registration, Session, SessionSlot};
use leeward_core::sync::{Arc, AtomicI64, Ordering};
use leeward_core::units::{CreditId, Method, Nanos, Time};

fn environment() -> Environment {
    Environment::new(2, Nanos::from_micros(10), Nanos::from_micros(200))
}

fn config() -> Config {
    Config::read(PoolSignal::Delay, &Params::read(params::DELAY, &[]).unwrap(), &environment()).unwrap()
}

#[test]
fn two_cores_never_take_the_same_last_credit() {
    loom::model(|| {
        let pool = Arc::new(Pool::new(1));
        let other = Arc::clone(&pool);
        let taken = thread::spawn(move || other.try_take());
        let here = pool.try_take();
        let there = taken.join().unwrap();
        assert!(here ^ there, "one of the two gets it");
        assert_eq!(pool.issued(), 1);
    });
}

/// Takes the last credit by a check and an addition instead of one compare-and-swap. If the model
/// accepted this, it would check nothing.
#[test]
#[should_panic(expected = "only one of the two")]
fn canary_a_check_and_add_race_is_found() {
    loom::model(|| {
        let pool = Arc::new(Pool::new(1));
        let other = Arc::clone(&pool);
        let take = |pool: &Pool| {
            let open = pool.available_credits() > 0;
            pool.issue(i64::from(open));
            open
        };
        let taken = thread::spawn(move || take(&other));
        let here = take(&pool);
        assert!(here ^ taken.join().unwrap(), "only one of the two may get it");
    });
}

#[test]
fn a_credit_returned_concurrently_is_never_counted_twice() {
    loom::model(|| {
        let pool = Arc::new(Pool::new(2));
        assert!(pool.try_take());
        let (first, second) = (Arc::clone(&pool), Arc::clone(&pool));
        let taken = thread::spawn(move || u8::from(first.try_take()) + u8::from(first.try_take()));
        let returned = thread::spawn(move || second.issue(-1));
        let taken = taken.join().unwrap();
        returned.join().unwrap();
        assert_eq!(pool.issued(), i64::from(taken));
        assert!(pool.issued() <= pool.total());
    });
}

/// Runs one session on its own core, from registration to the loss of its connection with a request
/// pending.
fn run_session(pool: Arc<Pool>, index: u32) {
    let mut core = Core::new(&config(), &environment(), pool, None);
    let mut session = Session::new(SessionSlot(0), CoreId(index));
    core.open(&mut session, &Registration { now: Time::ZERO, demand: 1 });
    if core.next_to_wake(0).is_some() {
        let _ = core.wake(&mut session, Time::ZERO);
    }
    let arrival = Arrival::new(Time::ZERO).with_demand(1);
    let (_, permit) = session.request(&mut core, &arrival);
    let departure =
        Departure { now: Time::ZERO, outcome: Outcome::Completed, sojourn: Nanos::ZERO, credit: CreditId::NONE };
    let feedback = session.reply(&mut core, permit, &departure);
    assert!(feedback.window.0 < 64);
    let _ = session.request(&mut core, &arrival);
    core.close(&mut session, Time::ZERO);
}

fn check_sessions(preemptions: usize, with_tick: bool) {
    let mut model = loom::model::Builder::new();
    // Most errors need two preemptions; an unbounded search takes hours.
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let pool = Arc::new(Pool::new(2));
        let (here, there) = (Arc::clone(&pool), Arc::clone(&pool));
        let other = thread::spawn(move || run_session(there, 1));
        if with_tick {
            let mut law = DelayLaw::new(&config());
            law.step(&pool, Nanos::from_micros(300));
            law.step(&pool, Nanos::ZERO);
            assert!((2..=2 * 64).contains(&pool.total()));
        } else {
            run_session(here, 0);
        }
        other.join().unwrap();
        assert_eq!((pool.issued(), pool.sessions()), (0, 0), "nothing is left when the last session has gone");
    });
}

#[test]
fn two_sessions_open_and_close_concurrently() {
    check_sessions(3, false);
}

#[test]
fn a_session_opens_and_closes_while_the_pool_changes() {
    check_sessions(3, true);
}

#[test]
fn totals_are_summed_while_a_core_records() {
    loom::model(|| {
        let samples = Arc::new(Samples::new(2));
        let mut sampler = Sampler::new(Arc::clone(&samples), 1, Nanos::from_micros(190), Nanos::from_micros(140));
        let core = thread::spawn(move || {
            sampler.record_arrival(Method::DEFAULT);
            let credit = sampler.stamp(Time(1));
            let sojourn = Nanos(40);
            sampler.record_departure(
                Method::DEFAULT,
                &Departure { now: Time(100), outcome: Outcome::Completed, sojourn, credit },
            );
        });
        let seen = samples.totals();
        assert!(seen.in_server() <= 1 && seen.grants <= 1);
        // Half of a sample may be missing, but nothing is divided by zero.
        let _ = seen.round_trip(Nanos(10), 1, Nanos(100));
        core.join().unwrap();
        assert_eq!(samples.totals().round_trip(Nanos(10), 1, Nanos(100)), Some(Nanos(99)));
        assert_eq!(samples.totals().in_server(), 0);
    });
}

#[test]
fn two_cores_never_take_the_same_last_slot() {
    loom::model(|| {
        let pool = Arc::new(Pool::new(1));
        assert_eq!(pool.set_slots(0, Some(1)), 0);
        let other = Arc::clone(&pool);
        let taken = thread::spawn(move || other.try_enter(0));
        let here = pool.try_enter(0);
        assert!(here ^ taken.join().unwrap(), "one of the two gets it");
        assert_eq!(pool.set_slots(0, None), 1, "the other one is counted");
    });
}

/// Takes the last slot by a check before a subtraction.
#[test]
#[should_panic(expected = "only one of the two")]
fn canary_a_check_and_subtract_race_is_found() {
    loom::model(|| {
        let slots = Arc::new(AtomicI64::new(1));
        let other = Arc::clone(&slots);
        let take = |slots: &AtomicI64| {
            let is_free = slots.load(Ordering::Relaxed) > 0;
            slots.fetch_sub(1, Ordering::Relaxed);
            is_free
        };
        let taken = thread::spawn(move || take(&other));
        let here = take(&slots);
        assert!(here ^ taken.join().unwrap(), "only one of the two may get it");
    });
}

#[test]
fn a_bound_lifted_concurrently_stays_lifted() {
    loom::model(|| {
        let pool = Arc::new(Pool::new(1));
        assert_eq!(pool.set_slots(0, Some(0)), 0);
        let other = Arc::clone(&pool);
        let taken = thread::spawn(move || other.try_enter(0));
        let rejected = pool.set_slots(0, None);
        let is_in = taken.join().unwrap();
        assert!(pool.try_enter(0));
        assert_eq!(u64::from(!is_in), rejected + pool.set_slots(0, None), "it is in, or counted as refused");
        assert_eq!(pool.set_slots(0, None), 0);
        assert!(pool.try_enter(0));
    });
}

#[test]
fn a_slot_that_is_given_back_is_taken_once() {
    loom::model(|| {
        let pool = Arc::new(Pool::new(1));
        assert_eq!(pool.set_slots(0, Some(0)), 0);
        let other = Arc::clone(&pool);
        let taken = thread::spawn(move || other.try_enter(0));
        pool.leave(0);
        let entered = u64::from(pool.try_enter(0)) + u64::from(taken.join().unwrap());
        assert!(entered <= 1, "never both");
        assert_eq!(pool.set_slots(0, None), 2 - entered);
    });
}

#[test]
fn a_slot_that_is_given_back_bounds_nothing_that_was_lifted() {
    loom::model(|| {
        let pool = Arc::new(Pool::new(1));
        assert_eq!(pool.set_slots(0, Some(1)), 0);
        let other = Arc::clone(&pool);
        let leaving = thread::spawn(move || other.leave(0));
        assert_eq!(pool.set_slots(0, None), 0);
        leaving.join().unwrap();
        assert!((0..3).all(|_| pool.try_enter(0)));
    });
}
