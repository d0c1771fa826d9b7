//! Tests of shadow mode in virtual time: a server of a few cores that reads requests when one of
//! them is free. They compare the rejections predicted in a server that serves all requests with
//! the enforced ones for the same requests.

use super::*;
use leeward_core::params::Params;
use leeward_core::registry::Environment;
use leeward_core::server::{Outcome, SessionSlot};
use leeward_core::units::{CreditId, Method, Tenant};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const CORES: usize = 2;
const MEAN_NS: f64 = 100_000.0;
/// Core time of each request for reading, deciding and answering, rejected or not.
const BESIDE_NS: u64 = 5_000;
const SLO: Nanos = Nanos::from_millis(2);
const SESSIONS: u32 = 50;
const SECOND: u64 = 1_000_000_000;

struct TestRng(u64);

impl TestRng {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        let uniform = (self.bits() >> 11) as f64 / (1_u64 << 53) as f64;
        -mean * (1.0 - uniform).ln()
    }
}

/// A request as its client sends it.
struct Request {
    arrival: u64,
    service: u64,
    session: u32,
    method: u32,
    tenant: u32,
}

/// Method, tenant, and the factor of the service time.
type RequestShape = fn(u64) -> (u32, u32, f64);

const PLAIN: RequestShape = |_| (1, 0, 1.0);

/// Makes requests for two seconds. `demand` is the factor of the capacity, by time.
fn requests(demand: fn(u64) -> f64, shape: RequestShape, mean_factor: f64) -> Vec<Request> {
    let (mut rng, mut now, mut all) = (TestRng(7), 0.0, Vec::new());
    let occupied = MEAN_NS * mean_factor + BESIDE_NS as f64;
    while now < 2e9 {
        now += rng.exponential(occupied / CORES as f64 / demand(now as u64));
        let (method, tenant, factor) = shape(rng.bits() >> 32);
        let service = rng.exponential(MEAN_NS * factor) as u64 + 1;
        let session = (rng.bits() >> 32) as u32 % SESSIONS;
        all.push(Request { arrival: now as u64, service, session, method, tenant });
    }
    all
}

/// Outcomes of the requests that arrived in the second second.
#[derive(Debug, Default)]
struct Outcomes {
    arrivals: u64,
    refused: u64,
    shadow_rejected: u64,
}

impl Outcomes {
    fn share(&self, of: u64) -> f64 {
        of as f64 / self.arrivals as f64
    }
}

/// Simulates a controller that enforces all rejections (`None`), or one in shadow mode that
/// enforces this percentage.
fn simulate(name: &str, requests: &[Request], percent: Option<u8>) -> Outcomes {
    let registry = leeward_controllers::builtin();
    let algorithm = registry.find(name).unwrap();
    let environment = Environment::new(CORES as u32, Nanos::from_micros(10), SLO);
    let watch = Arc::new(Watch::new(CORES, 64));
    let halves = algorithm.server(&Params::default(), &environment).unwrap();
    let mut halves = crate::with_watch(halves, &watch, crate::ControllerBounds::default());
    let idle = Arc::new(AtomicU64::new(0));
    let mut shadow = None;
    if let Some(percent) = percent {
        let (shadow_halves, of) = ShadowMode::of(halves, percent, Some(Arc::clone(&watch)));
        let idle_ns = Arc::clone(&idle);
        of.set_idle_source(move || Nanos(idle_ns.load(Ordering::Relaxed)));
        (halves, shadow) = (shadow_halves, Some(of));
    }
    let shadow_rejections = || shadow.as_ref().map_or(0, ShadowMode::shadow_rejections);
    let mut sessions: Vec<_> = (0..SESSIONS)
        .map(|number| {
            let core = CoreId(number % CORES as u32);
            let mut session = Session::new(SessionSlot(number / CORES as u32), core);
            halves.cores[core.0 as usize].open(&mut session, &Registration { now: Time::ZERO, demand: 0 });
            session
        })
        .collect();
    let mut free: BinaryHeap<Reverse<u64>> = (0..CORES).map(|_| Reverse(0)).collect();
    let mut out = Vec::new();
    let (mut rng, mut outcomes, mut signals, mut next_tick) =
        (TestRng(11), Outcomes::default(), Signals::idle(Time::ZERO), 0);
    let mut before = None;
    for request in requests {
        let Reverse(worker) = free.pop().unwrap();
        let now = worker.max(request.arrival);
        idle.fetch_add(now - worker, Ordering::Relaxed);
        out.sort_by_key(|(ends, ..): &(u64, usize, _, u64)| Reverse(*ends));
        while out.last().is_some_and(|(ends, ..)| *ends <= now) {
            let (ends, of, permit, arrived) = out.pop().unwrap();
            signals.completions += 1;
            let sojourn = Nanos(ends - arrived);
            let departure = Departure { now: Time(ends), outcome: Outcome::Completed, sojourn, credit: CreditId::NONE };
            let session: &mut Session = &mut sessions[of];
            let _ = session.reply(halves.cores[session.core.0 as usize].as_mut(), permit, &departure);
        }
        let age = Nanos(now - request.arrival);
        signals.arrivals += 1;
        if now >= next_tick {
            halves.control.tick(&Signals { now: Time(now), packet_delay: age, ..signals });
            (signals, next_tick) = (Signals::idle(Time::ZERO), now + halves.control.period().0);
            for (core, half) in halves.cores.iter_mut().enumerate() {
                for _ in 0..64 {
                    let Some(slot) = half.next_to_wake(rng.bits()) else { break };
                    let session =
                        sessions.iter_mut().find(|session| session.slot == slot && session.core.0 as usize == core);
                    let Some(session) = session else { break };
                    let _ = half.wake(session, Time(now));
                }
            }
        }
        let counts = request.arrival > SECOND;
        if counts && before.is_none() {
            before = Some(shadow_rejections());
        }
        let of = request.session as usize;
        let core = sessions[of].core.0 as usize;
        let arrival = Arrival::new(Time(now))
            .with_delay(age)
            .with_age(age)
            .with_random(rng.bits())
            .with_method(Method(request.method))
            .with_tenant(Tenant(request.tenant));
        let (mut verdict, permit) = sessions[of].request(halves.cores[core].as_mut(), &arrival);
        if verdict == Verdict::Admit {
            verdict = halves.cores[core].on_dequeue(age);
        }
        outcomes.arrivals += u64::from(counts);
        if verdict == Verdict::Admit {
            watch.record_answer(core, Method(request.method), leeward_observe::Answer::InTime);
            watch.record_cost(core, Method(request.method), Nanos(request.service));
            let ends = now + BESIDE_NS + request.service;
            free.push(Reverse(ends));
            out.push((ends, of, permit, request.arrival));
        } else {
            outcomes.refused += u64::from(counts);
            signals.rejections += 1;
            let departure =
                Departure { now: Time(now), outcome: Outcome::Rejected, sojourn: age, credit: CreditId::NONE };
            let _ = sessions[of].reply(halves.cores[core].as_mut(), permit, &departure);
            free.push(Reverse(now + BESIDE_NS));
        }
    }
    outcomes.shadow_rejected = shadow_rejections() - before.unwrap_or(0);
    outcomes
}

const STEADY: fn(u64) -> f64 = |_| 1.5;
/// Three times the capacity for 20 ms in each 100 ms, and 0.7 of it between.
const BURSTS: fn(u64) -> f64 = |now| if now % 100_000_000 < 20_000_000 { 3.0 } else { 0.7 };

#[test]
fn shadow_mode_foresees_what_enforcement_rejects() {
    // One request of ten takes twenty times as long, and has a method of its own.
    const MIXED: RequestShape = |bits| if bits.is_multiple_of(10) { (2, 0, 10.0) } else { (1, 0, 0.5) };
    // Half of the requests are one tenant's.
    const TENANTS: RequestShape = |bits| if bits % 2 == 0 { (1, 1, 1.0) } else { (1, 2 + (bits >> 8) as u32 % 9, 1.0) };
    let scenes = [
        ("steady", STEADY, PLAIN, 1.0),
        ("bursts", BURSTS, PLAIN, 1.0),
        ("mixed", STEADY, MIXED, 1.45),
        ("tenants", STEADY, TENANTS, 1.0),
    ];
    for name in ["edge", "auto"] {
        for (scene, demand, shape, factor) in scenes {
            let requests = requests(demand, shape, factor);
            let (enforced, shadowed) = (simulate(name, &requests, None), simulate(name, &requests, Some(0)));
            let (rejected, predicted) = (enforced.share(enforced.refused), shadowed.share(shadowed.shadow_rejected));
            println!("{name} {scene}: {:.1} % refused, {:.1} % foreseen", rejected * 100.0, predicted * 100.0);
            assert!(rejected > 0.05 && shadowed.refused == 0, "{name} {scene}: {enforced:?} {shadowed:?}");
            assert!((0.8..=1.2).contains(&(predicted / rejected)), "{name} {scene}: {enforced:?} {shadowed:?}");
        }
    }
}

#[test]
fn rejections_are_enforced_for_a_fixed_share_of_sessions() {
    let requests = requests(STEADY, PLAIN, 1.0);
    let part = simulate("edge", &requests, Some(30));
    let share = part.refused as f64 / (part.refused + part.shadow_rejected) as f64;
    assert!((0.2..0.4).contains(&share), "{part:?}");
    let all = simulate("edge", &requests, Some(100));
    assert!(all.shadow_rejected == 0 && all.refused > 0, "{all:?}");
}

#[test]
fn no_rejections_are_foreseen_without_overload() {
    let requests = requests(|_| 0.5, PLAIN, 1.0);
    for name in ["edge", "auto"] {
        let ends = simulate(name, &requests, Some(0));
        assert!(ends.arrivals > 1_000 && ends.shadow_rejected * 1_000 < ends.arrivals, "{name}: {ends:?}");
    }
}

#[test]
fn a_closed_session_does_not_affect_the_next_one_in_its_slot() {
    let registry = leeward_controllers::builtin();
    let environment = Environment::new(1, Nanos::from_micros(10), SLO);
    let halves = registry.find("auto").unwrap().server(&Params::default(), &environment).unwrap();
    let (mut halves, shadow) = ShadowMode::of(halves, 0, None);
    let half = &mut halves.cores[0];
    for number in 0..1_000_u64 {
        let now = Time(number * 3_000);
        let mut session = Session::new(SessionSlot(0), CoreId(0));
        half.open(&mut session, &Registration { now, demand: 0 });
        // In a debug build a permit knows its session.
        let (verdict, permit) = session.request(half.as_mut(), &Arrival::new(now));
        assert_eq!(verdict, Verdict::Admit);
        if number % 3 > 0 {
            let departure = Departure { now, outcome: Outcome::Completed, sojourn: Nanos(1), credit: CreditId::NONE };
            assert_eq!(session.reply(half.as_mut(), permit, &departure), Feedback::NONE);
        }
        half.close(&mut session, now);
    }
    assert_eq!((halves.control.gauges().credit_pool, shadow.name()), (None, "shadow"));
}
