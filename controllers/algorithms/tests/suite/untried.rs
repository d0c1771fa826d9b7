//! Requests without credit: the first of a session that never had one.

use leeward_core::params::RawParam;
use leeward_core::registry::Environment;
use leeward_core::server::{
    Admission, Arrival, CoreId, Departure, Outcome, PendingRequest, Registration, RejectReason, ServerHalves, Session,
    SessionSlot, Signals, Verdict,
};
use leeward_core::units::{CreditId, Nanos, Time};

const POOL: u32 = 4;
/// More than the target of 80 us.
const OVERLOAD: Nanos = Nanos(100_000);

/// A core of a server with an objective of 200 us and a queue of this delay.
fn core(delay: Nanos) -> Box<dyn Admission> {
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let params = breakwater
        .params(&[("initial_pool", RawParam::Integer(POOL.into())), ("min_pool", RawParam::Integer(POOL.into()))])
        .unwrap();
    let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
    let mut halves = breakwater.server(&params, &environment).unwrap();
    halves.control.tick(&Signals { packet_delay: delay, ..Signals::idle(Time::ZERO + Nanos::from_millis(1)) });
    halves.cores.remove(0)
}

fn open(core: &mut dyn Admission, slot: u32) -> Session {
    let mut session = Session::new(SessionSlot(slot), CoreId(0));
    core.open(&mut session, &Registration { now: Time::ZERO, demand: 10 });
    session
}

fn ask(core: &mut dyn Admission, session: &mut Session) -> (Verdict, PendingRequest) {
    session.request(core, &Arrival::new(Time::ZERO).with_demand(10))
}

fn answer(core: &mut dyn Admission, session: &mut Session, verdict: Verdict, pending: PendingRequest) {
    let outcome = if verdict == Verdict::Admit { Outcome::Completed } else { Outcome::Rejected };
    let departure = Departure { now: Time::ZERO, outcome, sojourn: Nanos(1_000), credit: CreditId::NONE };
    let _ = session.reply(core, pending, &departure);
}

#[test]
fn untried_sessions_have_at_most_the_pool_admitted_under_overload() {
    let mut core = core(OVERLOAD);
    let core = core.as_mut();
    let mut sessions: Vec<Session> = (0..100).map(|slot| open(core, slot)).collect();
    let asked: Vec<(Verdict, PendingRequest)> = sessions.iter_mut().map(|session| ask(core, session)).collect();
    let admitted = asked.iter().filter(|(verdict, _)| *verdict == Verdict::Admit).count();
    assert_eq!(admitted, POOL as usize);
    let others = asked.iter().filter(|(verdict, _)| *verdict == Verdict::Reject(RejectReason::Concurrency)).count();
    assert_eq!(others, 100 - POOL as usize);
    for (session, (verdict, pending)) in sessions.iter_mut().zip(asked) {
        answer(core, session, verdict, pending);
    }
    // After the crowd has closed, its credits are available again.
    sessions.iter_mut().for_each(|session| core.close(session, Time::ZERO));
    let mut fresh: Vec<Session> = (0..4).map(|slot| open(core, slot)).collect();
    let asked: Vec<(Verdict, PendingRequest)> = fresh.iter_mut().map(|session| ask(core, session)).collect();
    for (session, (verdict, pending)) in fresh.iter_mut().zip(asked) {
        assert_eq!(verdict, Verdict::Admit);
        answer(core, session, verdict, pending);
    }
}

#[test]
fn untried_sessions_are_all_admitted_without_overload() {
    let mut core = core(Nanos(1_000));
    let core = core.as_mut();
    let mut sessions: Vec<Session> = (0..100).map(|slot| open(core, slot)).collect();
    let asked: Vec<(Verdict, PendingRequest)> = sessions.iter_mut().map(|session| ask(core, session)).collect();
    for (session, (verdict, pending)) in sessions.iter_mut().zip(asked) {
        assert_eq!(verdict, Verdict::Admit);
        answer(core, session, verdict, pending);
    }
}

#[test]
fn untried_sessions_are_admitted_again_after_an_overload() {
    let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
    let environment = Environment::new(1, Nanos::from_micros(10), Nanos::from_micros(200));
    let mut halves = breakwater.server(&breakwater.params(&[]).unwrap(), &environment).unwrap();
    let tick = |halves: &mut ServerHalves, millis: u64, packet_delay: Nanos| {
        halves.control.tick(&Signals { packet_delay, ..Signals::idle(Time::ZERO + Nanos::from_millis(millis)) });
        let core = halves.cores[0].as_mut();
        let mut sessions: Vec<Session> = (0..10).map(|slot| open(core, slot)).collect();
        let asked: Vec<(Verdict, PendingRequest)> = sessions.iter_mut().map(|session| ask(core, session)).collect();
        let admitted = asked.iter().filter(|(verdict, _)| *verdict == Verdict::Admit).count();
        for (session, (verdict, pending)) in sessions.iter_mut().zip(asked) {
            answer(core, session, verdict, pending);
            core.close(session, Time::ZERO);
        }
        admitted
    };
    assert_eq!(tick(&mut halves, 1, Nanos::ZERO), 10);
    assert_eq!(tick(&mut halves, 2, OVERLOAD), 1, "the least pool");
    assert!(tick(&mut halves, 60, Nanos::ZERO) < 10, "for a while");
    assert_eq!(tick(&mut halves, 103, Nanos::ZERO), 10);
}

#[test]
fn a_request_is_covered_by_a_credit_revoked_while_in_flight() {
    let mut core = core(OVERLOAD);
    let core = core.as_mut();
    let mut sessions: Vec<Session> = (0..2).map(|slot| open(core, slot)).collect();
    let (verdict, pending) = ask(core, &mut sessions[0]);
    answer(core, &mut sessions[0], verdict, pending);
    assert!(sessions[0].window.0 > 0);
    // The client reports no demand, so its window is taken back while a call is on its way.
    sessions[0].demand = 0;
    let _ = core.demand(&mut sessions[0], Time::ZERO);
    assert_eq!(sessions[0].window.0, 0);
    let (mut others, mut replies_due) = (Vec::new(), Vec::new());
    for slot in 2..20 {
        let mut other = open(core, slot);
        replies_due.push(ask(core, &mut other));
        others.push(other);
    }
    let (verdict, pending) = ask(core, &mut sessions[0]);
    assert_eq!(verdict, Verdict::Admit);
    answer(core, &mut sessions[0], verdict, pending);
    for (session, (verdict, pending)) in others.iter_mut().zip(replies_due) {
        answer(core, session, verdict, pending);
    }
}

#[test]
fn one_untried_session_per_core_is_admitted_beyond_the_pool() {
    let mut core = core(OVERLOAD);
    let core = core.as_mut();
    let mut session = open(core, 0);
    let replies_due: Vec<_> = (0..2 * POOL).map(|_| ask(core, &mut session)).collect();
    for (verdict, pending) in replies_due {
        assert_eq!(verdict, Verdict::Admit);
        answer(core, &mut session, verdict, pending);
    }
}
