//! Tests of the roster.

use super::stubs::{NO_LOAD, NullMessages, core_states};
use super::*;
use leeward_allocation::registry;
use std::sync::Arc;

#[test]
fn grants_and_revocations_stay_within_the_limits() {
    let roster = core_states(CoreChange::Grant(9), 4, 2);
    assert_eq!(roster.parked().collect::<Vec<_>>(), [2, 3]);
    assert!(!roster.may_park(1) && !roster.park(1, Time(5)), "there are as few as may be");
    roster.tick(Time(10), || NO_LOAD, |_| ());
    let usage = roster.usage(Time(10));
    assert_eq!((usage.cores, usage.grants), (4, 2));
    // Both come at once: what they wait for has happened.
    roster.wait_granted(2);
    roster.wait_granted(3);
    assert!(roster.parked().next().is_none() && roster.may_park(3));
    roster.tick(Time(19), || unreachable!("it is not time yet"), |_| ());
    roster.tick(Time(20), || NO_LOAD, |_| ());
    assert_eq!(roster.usage(Time(20)).grants, 2, "there are no more");
    assert!(!roster.park(0, Time(30)), "the first stays");
    assert!(roster.park(1, Time(30)) && roster.park(3, Time(30)) && !roster.park(2, Time(30)));
    assert_eq!(roster.usage(Time(40)).parked, [0, 10, 10, 20].map(Nanos));
}

/// Says these one after the other, the last for ever.
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
fn an_idle_core_leaves_before_one_at_work() {
    let allocator = Box::new(ScriptedAllocator(vec![
        CoreChange::Grant(3),
        CoreChange::Revoke(1),
        CoreChange::Revoke(1),
        CoreChange::Grant(1),
    ]));
    let allocation = Allocation { allocator, limits: CoreLimits::new(1, 4), admission: Box::new(NullMessages) };
    let roster = CoreStates::new(allocation, 4, Time::ZERO);
    let mut woken = Vec::new();
    roster.tick(Time(10), || NO_LOAD, |_| ());
    (1..4).for_each(|core| roster.wait_granted(core));
    roster.set_idle(1, true);
    roster.tick(Time(20), || NO_LOAD, |core| woken.push(core));
    roster.tick(Time(30), || NO_LOAD, |core| woken.push(core));
    assert_eq!(woken, [1, 3]);
    assert!(roster.is_revoked(1) && roster.is_revoked(3) && !roster.is_revoked(2));
    // A grant keeps one that has not left yet.
    roster.tick(Time(40), || NO_LOAD, |_| ());
    assert!(!roster.is_revoked(1) && roster.is_revoked(3));
    assert!(roster.park(3, Time(50)) && roster.is_parked(3));
}

#[test]
fn an_allocator_is_told_what_happened_since_it_was_asked_last() {
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
    let told = Arc::new(Mutex::new(Vec::new()));
    let allocation = Allocation {
        allocator: Box::new(RecordingAllocator(Arc::clone(&told))),
        limits: CoreLimits::new(2, 4),
        admission: Box::new(RejectingMessages(AtomicU64::new(0))),
    };
    let roster = CoreStates::new(allocation, 4, Time::ZERO);
    roster.set_idle(1, true);
    let load = |idle| AllocatorLoad { waiting: 7, oldest: Nanos(90), ages: Nanos(100), idle: Nanos(idle) };
    roster.tick(Time(1_000), || load(500), |_| ());
    roster.tick(Time(3_000), || load(1_500), |_| ());
    let told = lock(&told);
    assert_eq!((told[0].active, told[0].idle, told[0].waiting, told[0].granting), (2, 1, 7, 0));
    assert_eq!((told[0].oldest, told[0].mean_delay), (Nanos(90), Nanos(50)));
    assert_eq!((told[0].available, told[0].busy), (Nanos(2_000), Nanos(1_500)));
    assert_eq!((told[1].available, told[1].busy, told[1].rejected), (Nanos(4_000), Nanos(3_000), 3));
}

#[test]
fn every_policy_that_is_asked_for_ever_keeps_the_books() {
    for policy in registry::POLICIES {
        let params = policy.params(&[]).unwrap();
        let limits = CoreLimits::new(1, 5);
        let allocator = policy.build(&params, limits).unwrap();
        let roster =
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
            roster.tick(now, || load, |_| ());
            let usage = roster.usage(now);
            assert!((1..=5).contains(&usage.cores), "{}: {usage:?}", policy.name);
            // Whoever is on the way comes, and the idle go.
            for core in 1..5 {
                let place = lock(&roster.state).states[core];
                match place {
                    CoreState::Granted => roster.wait_granted(core),
                    CoreState::Revoked => assert!(roster.park(core, now), "{}", policy.name),
                    CoreState::Active if roster.search().is_some() && draw(3) == 0 => _ = roster.park(core, now),
                    _ => roster.set_idle(core, draw(2) == 0),
                }
            }
            let (parked, cores) = (roster.parked().count() as u32, roster.usage(now).cores);
            assert_eq!(parked + cores, 5, "{} at {step}", policy.name);
        }
    }
}

#[test]
fn those_that_rest_come_when_all_end() {
    let roster = Arc::new(core_states(CoreChange::Keep, 3, 1));
    let resting: Vec<_> = (1..3)
        .map(|core| {
            let roster = Arc::clone(&roster);
            std::thread::spawn(move || roster.wait_granted(core))
        })
        .collect();
    roster.close(Time(10));
    resting.into_iter().for_each(|core| core.join().unwrap());
    assert!(roster.parked().next().is_none() && !roster.park(1, Time(20)));
    roster.tick(Time(30), || unreachable!("there is nothing to decide any more"), |_| ());
}
