//! Hundreds of random scenarios, each drawn from one number, with all invariants checked after
//! every control period. A canary, a controller with a planted leak, must be caught by the same
//! checker.

use crate::common::{checker, scenario};
use leeward_core::registry::Algorithm;
use leeward_core::server::{
    Admission, Arrival, Departure, Feedback, Registration, ServerHalves, Session, SessionSlot, Verdict,
};
use leeward_core::units::{Credits, Time};

const SCENARIOS: u64 = 400;

#[test]
fn random_scenarios_pass_the_conservation_check() {
    let registry = leeward_controllers::builtin();
    for seed in seeds() {
        let scenario = scenario::draw(seed, &registry);
        if let Err(violation) = checker::check(&scenario) {
            panic!(
                "{violation}\nscenario: {}\nreplay: LEEWARD_SWARM_SEED={seed} cargo test -p leeward-sim --test suite swarm \
                 random_scenarios_pass_the_conservation_check",
                scenario.description
            );
        }
    }
}

/// All seeds, or the one to reproduce.
#[allow(clippy::disallowed_methods)] // a test's own switch, not configuration of the simulator
fn seeds() -> Vec<u64> {
    match std::env::var("LEEWARD_SWARM_SEED") {
        Ok(seed) => vec![seed.parse().expect("LEEWARD_SWARM_SEED is a number")],
        Err(_) => (1..=SCENARIOS).collect(),
    }
}

/// Breakwater with a planted leak, like a lost update: every thousandth response takes a credit
/// that is not accounted for.
struct LeakyAdmission {
    inner: Box<dyn Admission>,
    replies: u64,
}

impl Admission for LeakyAdmission {
    fn open(&mut self, session: &mut Session, event: &Registration) {
        self.inner.open(session, event);
    }
    fn request(&mut self, session: &mut Session, event: &Arrival) -> Verdict {
        self.inner.request(session, event)
    }
    fn reply(&mut self, session: &mut Session, event: &Departure) -> Feedback {
        let feedback = self.inner.reply(session, event);
        self.replies += 1;
        if self.replies.is_multiple_of(1_000) {
            session.window = Credits(session.window.0 + 1);
        }
        feedback
    }
    fn next_to_wake(&mut self, random: u64) -> Option<SessionSlot> {
        self.inner.next_to_wake(random)
    }
    fn wake(&mut self, session: &mut Session, now: Time) -> Feedback {
        self.inner.wake(session, now)
    }
}

#[test]
fn canary_a_leaking_controller_is_caught() {
    let mut registry = leeward_controllers::builtin();
    let breakwater = registry.find("breakwater").unwrap().clone();
    let leaky = Algorithm {
        name: "leaky",
        build_server: |params, environment| {
            let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
            let halves = breakwater.server(params, environment)?;
            let leaky = |inner| Box::new(LeakyAdmission { inner, replies: 0 }) as Box<dyn Admission>;
            Ok(ServerHalves { cores: halves.cores.into_iter().map(leaky).collect(), control: halves.control })
        },
        ..breakwater
    };
    registry.add(leaky.clone()).unwrap();
    let caught = (1..=20).any(|seed| {
        let mut scenario = scenario::draw(seed, &registry);
        scenario.params = leaky.params(&[]).unwrap();
        scenario.algorithm = leaky.clone();
        checker::check(&scenario).is_err_and(|violation| violation.contains("credits issued, but sessions hold"))
    });
    assert!(caught, "a checker that can't see a leaked credit sees nothing");
}
