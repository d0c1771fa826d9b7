//! Cases and runs that several tests need. Does not contain tests.

use leeward_concurrency::fixed::Static;
use leeward_concurrency::knee::Knee;
use leeward_concurrency::{ConcurrencyLimit, LimitEnvironment, Response, Tick, UNLIMITED};
use leeward_core::units::{Nanos, Time};
use leeward_proxy_sim::case::{Case, Demand, Discipline};
use leeward_proxy_sim::proxy::{SLOT, Slot, timeline};
use leeward_workload::ServiceTime;

/// A backend without features at twice its capacity, with an objective of 50 ms.
pub(crate) fn case(cores: u32, service: ServiceTime) -> Case {
    let (discipline, demand) = (Discipline::Fifo, Demand::Steady);
    Case {
        id: 0,
        cores,
        discipline,
        service,
        features: Vec::new(),
        objective: Nanos::from_millis(50),
        load: 2.0,
        demand,
    }
}

/// `knee`, whose limit is checked after each call.
struct Checked(Knee);

impl Checked {
    fn check(&self) {
        assert!((1..=UNLIMITED).contains(&self.0.limit()), "{}", self.0.limit());
    }
}

impl ConcurrencyLimit for Checked {
    fn on_dispatch(&mut self, now: Time, in_flight: u32) {
        self.0.on_dispatch(now, in_flight);
        self.check();
    }

    fn on_response(&mut self, response: &Response) {
        self.0.on_response(response);
        self.check();
    }

    fn on_tick(&mut self, tick: &Tick) {
        self.0.on_tick(tick);
        self.check();
    }

    fn limit(&self) -> u32 {
        self.0.limit()
    }
}

/// Plays a case with `knee`.
pub(crate) fn knee(case: &Case, seed: u64) -> Vec<Slot> {
    let environment = LimitEnvironment { objective: case.objective, seed };
    timeline(case, Box::new(Checked(Knee::new(&environment))), seed).1
}

/// Plays a case with a static number.
pub(crate) fn numbered(case: &Case, number: u32, seed: u64) -> Vec<Slot> {
    timeline(case, Box::new(Static(number)), seed).1
}

/// Plays a case with static numbers of 1, 2 and 4 per core: the reference that meets the same
/// requests.
pub(crate) fn fixed(case: &Case, seed: u64) -> [Vec<Slot>; 3] {
    [1, 2, 4].map(|share| numbered(case, case.cores * share, seed))
}

/// The slots between two times of a run.
pub(crate) fn slots(all: &[Slot], from: Nanos, to: Nanos) -> &[Slot] {
    &all[(from.0 / SLOT.0) as usize..(to.0 / SLOT.0) as usize]
}
