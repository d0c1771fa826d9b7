//! Tests of the roster.

use super::scripted::{Deaf, NOTHING, roster};
use super::*;
use leeward_allocation::registry;
use std::sync::Arc;

#[test]
fn grants_and_revocations_stay_within_the_limits() {
    let roster = roster(Change::Grant(9), 4, 2);
    assert_eq!(roster.parked().collect::<Vec<_>>(), [2, 3]);
    assert!(!roster.could_park(1) && !roster.park(1, Time(5)), "there are as few as may be");
    roster.tick(Time(10), || NOTHING, |_| ());
    let usage = roster.usage(Time(10));
    assert_eq!((usage.cores, usage.grants), (4, 2));
    // Both come at once: what they wait for has happened.
    roster.rest(2);
    roster.rest(3);
    assert!(roster.parked().next().is_none() && roster.could_park(3));
    roster.tick(Time(19), || unreachable!("it is not time yet"), |_| ());
    roster.tick(Time(20), || NOTHING, |_| ());
    assert_eq!(roster.usage(Time(20)).grants, 2, "there are no more");
    assert!(!roster.park(0, Time(30)), "the first stays");
    assert!(roster.park(1, Time(30)) && roster.park(3, Time(30)) && !roster.park(2, Time(30)));
    assert_eq!(roster.usage(Time(40)).parked, [0, 10, 10, 20].map(Nanos));
}

/// Says these one after the other, the last for ever.
struct OnceThen(Vec<Change>);

impl Allocator for OnceThen {
    fn pace(&self) -> Pace {
        Pace::Periodic(Nanos(10))
    }

    fn tick(&mut self, _: &CoreSignals) -> Change {
        if self.0.len() > 1 { self.0.remove(0) } else { self.0[0] }
    }
}

#[test]
fn an_idle_core_leaves_before_one_at_work() {
    let allocator = Box::new(OnceThen(vec![Change::Grant(3), Change::Revoke(1), Change::Revoke(1), Change::Grant(1)]));
    let allocation = Allocation { allocator, limits: CoreLimits::new(1, 4), admission: Box::new(Deaf) };
    let roster = Roster::new(allocation, 4, Time::ZERO);
    let mut woken = Vec::new();
    roster.tick(Time(10), || NOTHING, |_| ());
    (1..4).for_each(|core| roster.rest(core));
    roster.set_idle(1, true);
    roster.tick(Time(20), || NOTHING, |core| woken.push(core));
    roster.tick(Time(30), || NOTHING, |core| woken.push(core));
    assert_eq!(woken, [1, 3]);
    assert!(roster.shall_leave(1) && roster.shall_leave(3) && !roster.shall_leave(2));
    // A grant keeps one that has not left yet.
    roster.tick(Time(40), || NOTHING, |_| ());
    assert!(!roster.shall_leave(1) && roster.shall_leave(3));
    assert!(roster.park(3, Time(50)) && roster.is_parked(3));
}

#[test]
fn an_allocator_is_told_what_happened_since_it_was_asked_last() {
    struct Tells(Arc<Mutex<Vec<CoreSignals>>>);
    impl Allocator for Tells {
        fn pace(&self) -> Pace {
            Pace::EveryEvent { instant: false }
        }
        fn tick(&mut self, signals: &CoreSignals) -> Change {
            lock(&self.0).push(*signals);
            Change::Keep
        }
    }
    struct Rejects(AtomicU64);
    impl Bystander for Rejects {
        fn rejected(&self) -> u64 {
            self.0.fetch_add(3, Ordering::Relaxed) + 3
        }
        fn changed(&self, _: &CoresGranted) {}
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    let allocation = Allocation {
        allocator: Box::new(Tells(Arc::clone(&told))),
        limits: CoreLimits::new(2, 4),
        admission: Box::new(Rejects(AtomicU64::new(0))),
    };
    let roster = Roster::new(allocation, 4, Time::ZERO);
    roster.set_idle(1, true);
    let load = |idle| Load { waiting: 7, oldest: Nanos(90), ages: Nanos(100), idle: Nanos(idle) };
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
        let roster = Roster::new(Allocation { allocator, limits, admission: Box::new(Deaf) }, 5, Time::ZERO);
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
            let load = Load { waiting: draw(4) as u32, oldest: age, ages: age, idle: Nanos(idle) };
            roster.tick(now, || load, |_| ());
            let usage = roster.usage(now);
            assert!((1..=5).contains(&usage.cores), "{}: {usage:?}", policy.name);
            // Whoever is on the way comes, and the idle go.
            for core in 1..5 {
                let place = lock(&roster.state).places[core];
                match place {
                    Place::Coming => roster.rest(core),
                    Place::Leaving => assert!(roster.park(core, now), "{}", policy.name),
                    Place::Here if roster.search().is_some() && draw(3) == 0 => _ = roster.park(core, now),
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
    let roster = Arc::new(roster(Change::Keep, 3, 1));
    let resting: Vec<_> = (1..3)
        .map(|core| {
            let roster = Arc::clone(&roster);
            std::thread::spawn(move || roster.rest(core))
        })
        .collect();
    roster.close(Time(10));
    resting.into_iter().for_each(|core| core.join().unwrap());
    assert!(roster.parked().next().is_none() && !roster.park(1, Time(20)));
    roster.tick(Time(30), || unreachable!("there is nothing to decide any more"), |_| ());
}
