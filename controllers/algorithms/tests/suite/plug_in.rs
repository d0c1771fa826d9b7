//! An algorithm from another crate: written against the public interface only, added to a registry,
//! and run end to end through the same plant and the same checker as the crate's own.
//!
//! The algorithm divides a fixed number of credits evenly among the open sessions, and reports each
//! share to the client in [`Feedback::custom`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::cases::Case;
use crate::support::plant::{Plant, PlantDefect};
use crate::support::run::{run, seed, sequences};
use crate::support::step::Step;
use leeward_core::client::{ClientConfig, ClientHalf, ClientParts, Gate, Reply};
use leeward_core::params::{ParamKind, ParamSpec, Params, RawParam};
use leeward_core::registry::{Algorithm, Environment, Registry, RegistryError};
use leeward_core::server::{
    Admission, Arrival, ControlLoop, Departure, Feedback, Gauges, Registration, RejectReason, ServerHalves, Session,
    Signals, Verdict,
};
use leeward_core::units::{Nanos, Time};

const EVEN_SHARES: Algorithm = Algorithm {
    name: "even-shares",
    summary: "a fixed number of places, divided evenly among sessions",
    source: "this test",
    params: &[ParamSpec {
        name: "places",
        kind: ParamKind::Count { min: 1, max: 1_000 },
        default: "8",
        doc: "requests that all sessions together may have out",
        tuning_values: &["4", "8", "16"],
    }],
    build_server: |params, environment| Ok(server(params, environment)),
    build_client: |_, _| {
        let config = ClientConfig { queue: 4, max_delay: Nanos::from_micros(500), max_outstanding: 12 };
        Ok(ClientParts { half: Box::new(ShareOf(1)), config })
    },
};

fn server(params: &Params, environment: &Environment) -> ServerHalves {
    let sessions = Arc::new(AtomicU64::new(0));
    let places = params.count("places", 8);
    let core = || Core { places, sessions: Arc::clone(&sessions) };
    ServerHalves {
        cores: (0..environment.cores).map(|_| Box::new(core()) as Box<dyn Admission>).collect(),
        control: Box::new(Watch(sessions)),
    }
}

struct Core {
    places: u64,
    sessions: Arc<AtomicU64>,
}

impl Core {
    fn share(&self) -> u64 {
        (self.places / self.sessions.load(Ordering::Relaxed).max(1)).max(1)
    }
}

impl Admission for Core {
    fn open(&mut self, _: &mut Session, _: &Registration) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    fn request(&mut self, session: &mut Session, _: &Arrival) -> Verdict {
        // Allows for a client that has not received its smaller share yet.
        if u64::from(session.pending()) > 2 * self.share() {
            Verdict::Reject(RejectReason::Concurrency)
        } else {
            Verdict::Admit
        }
    }

    fn reply(&mut self, _: &mut Session, _: &Departure) -> Feedback {
        Feedback { custom: self.share(), ..Feedback::NONE }
    }

    fn close(&mut self, _: &mut Session, _: Time) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Watch(Arc<AtomicU64>);

impl ControlLoop for Watch {
    fn period(&self) -> Nanos {
        Nanos::from_millis(1)
    }

    fn tick(&mut self, _: &Signals) {}

    fn gauges(&self) -> Gauges {
        Gauges { sessions: Some(self.0.load(Ordering::Relaxed) as i64), ..Gauges::default() }
    }
}

struct ShareOf(u64);

impl ClientHalf for ShareOf {
    fn gate(&mut self, _: Time, outstanding: u32) -> Gate {
        if u64::from(outstanding) < self.0 { Gate::Open } else { Gate::Closed }
    }

    fn reply(&mut self, event: &Reply) {
        self.0 = event.feedback.custom;
    }
}

fn registry() -> Registry {
    let mut registry = leeward_controllers::builtin();
    registry.add(EVEN_SHARES).expect("the name is free");
    registry
}

#[test]
fn a_plugged_in_algorithm_is_registered_under_its_name() {
    let mut registry = registry();
    assert_eq!(registry.find("even-shares").expect("just added").summary, EVEN_SHARES.summary);
    assert_eq!(registry.add(EVEN_SHARES), Err(RegistryError::NameInUse("even-shares")));
    assert!(registry.find("odd-shares").unwrap_err().to_string().contains("even-shares"));
    let error = EVEN_SHARES.params(&[("places", RawParam::Integer(0))]).unwrap_err();
    assert!(error.to_string().contains("a whole number from 1 to 1000"), "{error}");
}

#[test]
fn a_plugged_in_algorithm_keeps_the_invariants() {
    let registry = registry();
    let case = Case::new(registry.find("even-shares").expect("just added"), &[("places", "6")], None);
    if let Err((_, report)) = run(&case, PlantDefect::None, seed(), sequences()) {
        panic!("{report}");
    }
}

#[test]
fn clients_of_a_plugged_in_algorithm_follow_their_share() {
    let case = Case::new(&EVEN_SHARES, &[("places", "6")], None);
    let mut plant = Plant::new(&case.algorithm, &case.params, &case.environment, PlantDefect::None);
    let mut sent = |step: Step| {
        plant.step(&step).iter().filter(|event| matches!(event, crate::support::checker::Event::Sent { .. })).count()
    };
    sent(Step::Open { place: 0, waiting: 0 });
    let submitted: usize = (0..4).map(|_| sent(Step::Submit { place: 0, level: 1, random: 0 })).sum();
    assert_eq!(submitted, 1, "one until it has heard of more");
    sent(Step::ToServer { place: 0, random: 0, at_once: true });
    sent(Step::Finish { place: 0, pick: 0, executed: true });
    assert_eq!(sent(Step::ToClient { place: 0 }), 3, "all that waits: the share of a single session is six");
}
