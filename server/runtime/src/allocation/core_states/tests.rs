//! Tests of the core states.

use super::stubs::{NO_LOAD, NullMessages, core_states};
use super::*;
use leeward_allocation::registry;
use std::sync::Arc;

#[test]
fn grants_and_revocations_stay_within_the_limits() {
    let states = core_states(CoreChange::Grant(9), 4, 2);
    assert_eq!(states.parked().collect::<Vec<_>>(), [2, 3]);
    assert!(!states.may_park(1) && !states.park(1, Time(5)), "there are as few as may be");
    states.tick(Time(10), || NO_LOAD, |_| ());
    let usage = states.usage(Time(10));
    assert_eq!((usage.cores, usage.grants), (4, 2));
    // Both return at once, as the cores are granted already.
    states.wait_granted(2);
    states.wait_granted(3);
    assert!(states.parked().next().is_none() && states.may_park(3));
    states.tick(Time(19), || unreachable!("it is not time yet"), |_| ());
    states.tick(Time(20), || NO_LOAD, |_| ());
    assert_eq!(states.usage(Time(20)).grants, 2, "there are no more");
    assert!(!states.park(0, Time(30)), "the first stays");
    assert!(states.park(1, Time(30)) && states.park(3, Time(30)) && !states.park(2, Time(30)));
    assert_eq!(states.usage(Time(40)).parked, [0, 10, 10, 20].map(Nanos));
}

/// An allocator that asks for these changes in order, and for the last one for ever.
struct ScriptedAllocator(Vec<CoreChange>);

impl Allocator for ScriptedAllocator {
    fn poll_schedule(&self) -> PollSchedule {
        PollSchedule::Periodic(Nanos(10))
    }

    fn tick(&mut self, _: &CoreSignals) -> CoreChange {
        if self.0.len() > 1 { self.0.remove(0) } else { self.0[0] }
    }
}

#[test]
fn an_idle_core_is_revoked_before_a_busy_one() {
    let allocator = Box::new(ScriptedAllocator(vec![
        CoreChange::Grant(3),
        CoreChange::Revoke(1),
        CoreChange::Revoke(1),
        CoreChange::Grant(1),
    ]));
    let allocation = Allocation { allocator, limits: CoreLimits::new(1, 4), admission: Box::new(NullMessages) };
    let states = CoreStates::new(allocation, 4, Time::ZERO);
    let mut woken = Vec::new();
    states.tick(Time(10), || NO_LOAD, |_| ());
    (1..4).for_each(|core| states.wait_granted(core));
    states.set_idle(1, true);
    states.tick(Time(20), || NO_LOAD, |core| woken.push(core));
    states.tick(Time(30), || NO_LOAD, |core| woken.push(core));
    assert_eq!(woken, [1, 3]);
    assert!(states.is_revoked(1) && states.is_revoked(3) && !states.is_revoked(2));
    // A grant keeps a core that has not parked yet.
    states.tick(Time(40), || NO_LOAD, |_| ());
    assert!(!states.is_revoked(1) && states.is_revoked(3));
    assert!(states.park(3, Time(50)) && states.is_parked(3));
}

#[test]
fn an_allocator_gets_the_signals_since_its_last_decision() {
    struct RecordingAllocator(Arc<Mutex<Vec<CoreSignals>>>);
    impl Allocator for RecordingAllocator {
        fn poll_schedule(&self) -> PollSchedule {
            PollSchedule::EveryEvent { instant: false }
        }
        fn tick(&mut self, signals: &CoreSignals) -> CoreChange {
            lock(&self.0).push(*signals);
            CoreChange::Keep
        }
    }
    struct RejectingMessages(AtomicU64);
    impl AllocationMessages for RejectingMessages {
        fn rejected(&self) -> u64 {
            self.0.fetch_add(3, Ordering::Relaxed) + 3
        }
        fn cores_changed(&self, _: &CoreGrant) {}
    }
    let signals = Arc::new(Mutex::new(Vec::new()));
    let allocation = Allocation {
        allocator: Box::new(RecordingAllocator(Arc::clone(&signals))),
        limits: CoreLimits::new(2, 4),
        admission: Box::new(RejectingMessages(AtomicU64::new(0))),
    };
    let states = CoreStates::new(allocation, 4, Time::ZERO);
    states.set_idle(1, true);
    let load = |idle| AllocatorLoad { waiting: 7, oldest: Nanos(90), ages: Nanos(100), idle: Nanos(idle) };
    states.tick(Time(1_000), || load(500), |_| ());
    states.tick(Time(3_000), || load(1_500), |_| ());
    let signals = lock(&signals);
    assert_eq!((signals[0].active, signals[0].idle, signals[0].waiting, signals[0].granting), (2, 1, 7, 0));
    assert_eq!((signals[0].oldest, signals[0].mean_delay), (Nanos(90), Nanos(50)));
    assert_eq!((signals[0].available, signals[0].busy), (Nanos(2_000), Nanos(1_500)));
    assert_eq!((signals[1].available, signals[1].busy, signals[1].rejected), (Nanos(4_000), Nanos(3_000), 3));
}

#[test]
fn core_counts_balance_under_every_policy() {
    for policy in registry::POLICIES {
        let params = policy.params(&[]).unwrap();
        let limits = CoreLimits::new(1, 5);
        let allocator = policy.build(&params, limits).unwrap();
        let states =
            CoreStates::new(Allocation { allocator, limits, admission: Box::new(NullMessages) }, 5, Time::ZERO);
        let mut random = 1u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        let mut idle = 0;
        for step in 1..2_000u64 {
            let now = Time(step * 7_000);
            idle += draw(7_000);
            let age = Nanos(draw(20_000));
            let load = AllocatorLoad { waiting: draw(4) as u32, oldest: age, ages: age, idle: Nanos(idle) };
            states.tick(now, || load, |_| ());
            let usage = states.usage(now);
            assert!((1..=5).contains(&usage.cores), "{}: {usage:?}", policy.name);
            // Granted cores wake, and idle ones park.
            for core in 1..5 {
                let state = lock(&states.state).states[core];
                match state {
                    CoreState::Granted => states.wait_granted(core),
                    CoreState::Revoked => assert!(states.park(core, now), "{}", policy.name),
                    CoreState::Active if states.search_time().is_some() && draw(3) == 0 => _ = states.park(core, now),
                    _ => states.set_idle(core, draw(2) == 0),
                }
            }
            let (parked, cores) = (states.parked().count() as u32, states.usage(now).cores);
            assert_eq!(parked + cores, 5, "{} at {step}", policy.name);
        }
    }
}

#[test]
fn parked_cores_wake_at_shutdown() {
    let states = Arc::new(core_states(CoreChange::Keep, 3, 1));
    let resting: Vec<_> = (1..3)
        .map(|core| {
            let states = Arc::clone(&states);
            std::thread::spawn(move || states.wait_granted(core))
        })
        .collect();
    states.close(Time(10));
    resting.into_iter().for_each(|core| core.join().unwrap());
    assert!(states.parked().next().is_none() && !states.park(1, Time(20)));
    states.tick(Time(30), || unreachable!("there is nothing to decide any more"), |_| ());
}
