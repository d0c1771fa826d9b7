//! The algorithms as published: Breakwater's update step as a table of facts, and a test with each
//! of Leeward's additions off.

use leeward_controllers::published::{SWITCH, additions};
use leeward_core::client::{Client, ClientSink, Header, LocalOutcome};
use leeward_core::params::RawParam;
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{
    Arrival, CoreId, Feedback, Outcome, Registration, RejectReason, ServerHalves, Session, SessionSlot, Signals,
    Verdict,
};
use leeward_core::units::{Nanos, Priority, Time};

fn find(name: &str) -> Algorithm {
    leeward_controllers::builtin().find(name).unwrap().clone()
}

fn environment(cores: u32) -> Environment {
    Environment::new(cores, Nanos::from_micros(10), Nanos::from_micros(200))
}

/// Builds the server of `name`, as published or not, with further parameters.
fn server(name: &str, is_published: bool, pairs: &[(&str, RawParam)], environment: &Environment) -> ServerHalves {
    let algorithm = find(name);
    let mut all = vec![(SWITCH, RawParam::Switch(is_published))];
    all.extend(pairs.iter().map(|(name, raw)| (*name, raw.clone())));
    algorithm.server(&algorithm.params(&all).unwrap(), environment).unwrap()
}

fn us(micros: u64) -> Nanos {
    Nanos::from_micros(micros)
}

fn tick(server: &mut ServerHalves, now_us: u64, delay_us: u64, arrivals: u64) {
    let now = Time::ZERO + us(now_us);
    server.control.tick(&Signals { run_delay: us(delay_us), arrivals, ..Signals::idle(now) });
}

/// Steps of the credit pool.
struct Case {
    cores: u32,
    sessions: u32,
    pool: i64,
    alpha: f64,
    beta: f64,
    target_us: u64,
    delays_us: &'static [u64],
    pools: &'static [i64],
}

/// Facts about the published server's update step (Breakwater's C code, the control loop of its
/// server): whole microseconds of delay in, whole credits out, as the compiled code gives them.
const STEPS: &[Case] = &[
    Case {
        cores: 10,
        sessions: 1000,
        pool: 100,
        alpha: 0.001,
        beta: 0.02,
        target_us: 80,
        delays_us: &[0, 10, 79, 80, 81, 100, 160, 240, 79, 0],
        pools: &[101, 102, 103, 103, 102, 101, 98, 94, 95, 96],
    },
    // The fraction is carried, and lost with a period over the target.
    Case {
        cores: 10,
        sessions: 300,
        pool: 100,
        alpha: 0.001,
        beta: 0.02,
        target_us: 80,
        delays_us: &[0, 0, 0, 0, 0, 80, 0, 0, 0, 0],
        pools: &[100, 100, 100, 101, 101, 101, 101, 101, 101, 102],
    },
    // The pool stays at the sum of all windows.
    Case {
        cores: 10,
        sessions: 1000,
        pool: 64000,
        alpha: 0.001,
        beta: 0.02,
        target_us: 80,
        delays_us: &[0, 0, 81, 0],
        pools: &[64000, 64000, 63984, 63985],
    },
    // The pool stays at the number of cores or above; a step takes half at most.
    Case {
        cores: 10,
        sessions: 1000,
        pool: 12,
        alpha: 0.001,
        beta: 0.02,
        target_us: 80,
        delays_us: &[2000, 2000, 2000],
        pools: &[10, 10, 10],
    },
    Case {
        cores: 10,
        sessions: 1000,
        pool: 1000,
        alpha: 0.001,
        beta: 0.08,
        target_us: 80,
        delays_us: &[400, 1000, 2000, 8000, 0, 0],
        pools: &[680, 340, 170, 85, 86, 87],
    },
    Case {
        cores: 4,
        sessions: 5,
        pool: 206,
        alpha: 0.0005,
        beta: 0.01,
        target_us: 10,
        delays_us: &[46, 7, 0, 11, 0, 0, 11, 7],
        pools: &[198, 198, 198, 197, 197, 197, 196, 196],
    },
    Case {
        cores: 1,
        sessions: 5,
        pool: 299,
        alpha: 0.0005,
        beta: 0.08,
        target_us: 10,
        delays_us: &[0, 9, 11, 18, 15, 39, 0, 74],
        pools: &[299, 299, 296, 277, 265, 203, 203, 101],
    },
    Case {
        cores: 32,
        sessions: 5,
        pool: 222,
        alpha: 0.0005,
        beta: 0.01,
        target_us: 10,
        delays_us: &[9, 63, 10, 59, 10, 9, 9, 10],
        pools: &[222, 210, 210, 199, 199, 199, 199, 199],
    },
    Case {
        cores: 4,
        sessions: 1000,
        pool: 16227,
        alpha: 0.002,
        beta: 0.08,
        target_us: 80,
        delays_us: &[0, 120, 79, 79, 81, 0, 571, 80],
        pools: &[16229, 15579, 15581, 15583, 15567, 15569, 7924, 7924],
    },
    Case {
        cores: 32,
        sessions: 64,
        pool: 2466,
        alpha: 0.01,
        beta: 0.08,
        target_us: 10,
        delays_us: &[10, 0, 10, 11, 11, 0, 10, 21],
        pools: &[2466, 2466, 2466, 2446, 2426, 2426, 2426, 2212],
    },
    Case {
        cores: 1,
        sessions: 300,
        pool: 1932,
        alpha: 0.001,
        beta: 0.04,
        target_us: 45,
        delays_us: &[46, 46, 44, 46, 45, 46, 45, 45],
        pools: &[1930, 1928, 1928, 1926, 1926, 1924, 1924, 1924],
    },
    Case {
        cores: 32,
        sessions: 300,
        pool: 7593,
        alpha: 0.001,
        beta: 0.01,
        target_us: 45,
        delays_us: &[44, 44, 46, 44, 45, 44, 214, 189],
        pools: &[7593, 7593, 7591, 7591, 7591, 7591, 7305, 7071],
    },
    Case {
        cores: 4,
        sessions: 2000,
        pool: 500,
        alpha: 0.001,
        beta: 0.02,
        target_us: 45,
        delays_us: &[44, 45, 46, 90, 135],
        pools: &[502, 502, 501, 490, 470],
    },
    Case {
        cores: 32,
        sessions: 300,
        pool: 1000,
        alpha: 0.00667,
        beta: 0.08,
        target_us: 10,
        delays_us: &[9, 10, 11, 20, 40, 0, 0, 0],
        pools: &[1002, 1002, 993, 913, 693, 695, 697, 699],
    },
    Case {
        cores: 8,
        sessions: 1,
        pool: 8,
        alpha: 0.001,
        beta: 0.02,
        target_us: 80,
        delays_us: &[0, 0, 100, 0],
        pools: &[8, 8, 8, 8],
    },
];

#[test]
fn the_pool_update_is_the_published_one() {
    for case in STEPS {
        for is_published in [false, true] {
            let pairs = [
                ("initial_pool", RawParam::Integer(case.pool)),
                ("alpha", RawParam::Number(case.alpha)),
                ("beta", RawParam::Number(case.beta)),
                ("target", RawParam::Text(format!("{}us", case.target_us))),
            ];
            let mut server = server("breakwater", is_published, &pairs, &environment(case.cores));
            for slot in 0..case.sessions {
                let mut session = Session::new(SessionSlot(slot), CoreId(0));
                server.cores[0].open(&mut session, &Registration { now: Time::ZERO, demand: 0 });
            }
            // At the target the pool stays constant. Without 3 ms of overload first, the extended
            // version would not shrink it.
            let before = if is_published { 0 } else { 400 };
            (1..=before).for_each(|step| tick(&mut server, step * 10, case.target_us, 0));
            let pools: Vec<i64> = (before + 1..)
                .zip(case.delays_us)
                .map(|(step, delay_us)| {
                    tick(&mut server, step * 10, *delay_us, 0);
                    server.control.gauges().credit_pool.unwrap()
                })
                .collect();
            // The published code shrinks in single precision, the extended version in double: they
            // may differ by a credit.
            let slack = if is_published { 0 } else { 1 };
            let differs = pools.iter().zip(case.pools).any(|(ours, theirs)| ours.abs_diff(*theirs) > slack);
            assert!(!differs, "{} sessions on {} cores: {pools:?}, {:?}", case.sessions, case.cores, case.pools);
        }
    }
}

#[test]
fn exactly_the_controllers_with_listed_additions_have_the_switch() {
    for algorithm in leeward_controllers::builtin().algorithms() {
        let has_switch = algorithm.params.iter().any(|spec| spec.name == SWITCH);
        let listed = additions(algorithm.name);
        assert_eq!(has_switch, listed.is_some(), "{}", algorithm.name);
        assert!(listed.is_none_or(|listed| !listed.is_empty()), "{}", algorithm.name);
    }
}

#[test]
fn a_stale_request_is_executed_as_published() {
    for (is_published, expected) in [(false, Verdict::Reject(RejectReason::Delay)), (true, Verdict::Admit)] {
        let mut server = server("breakwater", is_published, &[], &environment(2));
        assert_eq!(server.cores[0].on_dequeue(us(100_000)), expected);
    }
}

#[test]
fn as_published_an_idle_session_gets_no_credit() {
    for (is_published, is_woken) in [(false, true), (true, false)] {
        let mut server = server("breakwater", is_published, &[], &environment(2));
        let mut session = Session::new(SessionSlot(0), CoreId(0));
        server.cores[0].open(&mut session, &Registration { now: Time::ZERO, demand: 0 });
        assert_eq!(server.cores[0].next_to_wake(0).is_some(), is_woken);
    }
}

#[derive(Default)]
struct Wire(Vec<String>);

impl ClientSink<u32> for Wire {
    fn send(&mut self, request: u32, _: Header) {
        self.0.push(format!("send {request}"));
    }
    fn end(&mut self, request: u32, end: LocalOutcome) {
        self.0.push(format!("end {request} {:?}", end.reason));
    }
    fn send_demand(&mut self, demand: u32) {
        self.0.push(format!("demand {demand}"));
    }
}

/// The client's first message is its demand; requests carry later demand.
#[test]
fn a_client_registers_with_its_demand_as_published() {
    let algorithm = find("breakwater");
    let params = algorithm.params(&[(SWITCH, RawParam::Switch(true))]).unwrap();
    let mut client: Client<u32> = algorithm.client(&params, &environment(2)).unwrap();
    let mut wire = Wire::default();
    client.submit(Time::ZERO, 1, Priority::HIGHEST, 0, &mut wire);
    let credit = Feedback { window: leeward_core::units::Credits(1), ..Feedback::NONE };
    client.on_credit(Time::ZERO + us(5), &credit, &mut wire);
    client.submit(Time::ZERO + us(6), 2, Priority::HIGHEST, 0, &mut wire);
    client.on_timer(Time::ZERO + us(20), &mut wire);
    assert_eq!(wire.0, ["demand 1", "send 1", "end 2 Expired"]);
}

#[test]
fn untried_sessions_are_trusted_under_overload_as_published() {
    for (is_published, expected) in [(false, false), (true, true)] {
        let mut server = server("breakwater", is_published, &[("aqm", RawParam::Switch(false))], &environment(1));
        let mut sessions: Vec<Session> = (0..2_000).map(|slot| Session::new(SessionSlot(slot), CoreId(0))).collect();
        for session in &mut sessions {
            server.cores[0].open(session, &Registration { now: Time::ZERO, demand: 0 });
        }
        tick(&mut server, 10, 10_000, 0);
        let mut admitted = 0;
        for session in &mut sessions {
            let (verdict, _) = session.request(server.cores[0].as_mut(), &Arrival::new(Time::ZERO));
            admitted += usize::from(verdict == Verdict::Admit);
        }
        assert_eq!(admitted == sessions.len(), expected, "{admitted}");
    }
}

#[test]
fn as_published_the_pool_ignores_an_allocator() {
    let poster = Environment::new(32, us(30), us(310)).with_allocator();
    for (is_published, expected) in [(true, 150), (false, 992)] {
        let server = server("breakwater", is_published, &[], &poster);
        assert_eq!(server.control.gauges().credit_pool, Some(expected));
    }
    let algorithm = find("breakwater");
    let both = algorithm
        .params(&[(SWITCH, RawParam::Switch(true)), ("allocator_aware", RawParam::Text("on".into()))])
        .unwrap();
    let message = algorithm.server(&both, &poster).map(drop).unwrap_err().to_string();
    assert!(message.contains("as_published"), "{message}");
}

fn threshold(server: &ServerHalves) -> f64 {
    server.control.gauges().priority_threshold.unwrap()
}

/// DAGOR's published threshold goes from 1 to 127 over priorities from 0 to 127: idle it rejects
/// nothing, and at its minimum it admits two of 128.
#[test]
fn dagor_as_published_drops_nothing_when_idle() {
    let mut server = server("dagor", true, &[], &environment(1));
    let mut session = Session::new(SessionSlot(0), CoreId(0));
    let mut verdict = |server: &mut ServerHalves, level: u8| {
        let arrival = Arrival::new(Time::ZERO).with_priority(Priority::new(level));
        session.request(server.cores[0].as_mut(), &arrival).0
    };
    (1..=20_000).for_each(|step| tick(&mut server, step * 10, 0, 1));
    assert_eq!(threshold(&server), 128.0);
    assert_eq!(verdict(&mut server, 128), Verdict::Admit);
    (20_001..=40_000).for_each(|step| tick(&mut server, step * 10, 1_000, 1));
    assert_eq!(threshold(&server), 2.0);
    assert_eq!(
        (verdict(&mut server, 2), verdict(&mut server, 3)),
        (Verdict::Admit, Verdict::Reject(RejectReason::Priority))
    );
    (40_001..=60_000).for_each(|step| tick(&mut server, step * 10, 0, 0));
    assert_eq!(threshold(&server), 2.0, "nothing is learnt from silence");
}

#[test]
fn dagor_as_published_clients_neither_probe_nor_start_open() {
    let algorithm = find("dagor");
    let params = algorithm.params(&[(SWITCH, RawParam::Switch(true))]).unwrap();
    let mut client: Client<u32> = algorithm.client(&params, &environment(1)).unwrap();
    let mut wire = Wire::default();
    // The first draw is 0 of 128: only the most important request may leave until a reply arrives.
    client.submit(Time::ZERO, 1, Priority::new(2), 0, &mut wire);
    client.submit(Time::ZERO + Nanos::from_secs(9), 2, Priority::new(2), u64::MAX, &mut wire);
    client.submit(Time::ZERO + Nanos::from_secs(9), 3, Priority::HIGHEST, 0, &mut wire);
    assert_eq!(wire.0, ["end 1 Throttled", "end 2 Throttled", "send 3"]);
}

/// A published client of SEDA adjusts its rate at a response, and starts without tokens.
#[test]
fn seda_as_published_waits_for_its_first_token() {
    let algorithm = find("seda");
    let params =
        algorithm.params(&[(SWITCH, RawParam::Switch(true)), ("client_delay", RawParam::Text("1s".into()))]).unwrap();
    let mut client: Client<u32> = algorithm.client(&params, &environment(1)).unwrap();
    let mut wire = Wire::default();
    client.submit(Time::ZERO, 1, Priority::HIGHEST, 0, &mut wire);
    assert!(wire.0.is_empty(), "{:?}", wire.0);
    client.on_timer(Time::ZERO + Nanos::from_millis(251), &mut wire);
    assert_eq!(wire.0, ["send 1"], "4 per second");
    let late = Time::ZERO + Nanos::from_millis(252);
    client.on_reply(late, Outcome::Completed, us(20), &Feedback::NONE, &mut wire);
    client.submit(late, 2, Priority::HIGHEST, 0, &mut wire);
    assert_eq!(
        client.next_timeout(late).map(|at| at.since(late) > Nanos::from_millis(20)),
        Some(true),
        "37 per second"
    );
}
