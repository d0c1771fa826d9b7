//! A plant without threads for the tests of policies. It keeps the ring, calls the policy at its
//! schedule and time-outs, executes every switch at once, and checks each answer. It produces no
//! latencies: tests set the waiting and rejected requests.

use std::sync::Arc;

use leeward_core::units::{Nanos, Rate, Time};
use leeward_threading::curves::{Curve, CurvePoint, Curves};
use leeward_threading::registry::{POLICIES, PolicyChoice};
use leeward_threading::{
    ArrivalRing, PolicySpec, PollSchedule, ThreadEnvironment, ThreadSignals, ThreadingPolicy, ThreadingSetup,
};

pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000 * MS;

/// A broken guarantee.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Violation {
    /// A setup that is not among the policy's choices.
    Outside(ThreadingSetup),
    /// The current setup.
    Same(ThreadingSetup),
    /// An estimate that is no rate.
    Rate(f64),
    /// A time-out in the past.
    Timeout(Time),
    /// A switch while the clock stood still.
    Frozen(ThreadingSetup),
    /// A step down while requests are rejected or wait.
    StepDown(ThreadingSetup),
    /// Endless calls without any event.
    EndlessPolls(u64),
}

pub(super) struct Plant {
    pub(super) policy: Box<dyn ThreadingPolicy>,
    curves: Arc<Curves>,
    ring: ArrivalRing,
    pub(super) signals: ThreadSignals,
    target: Nanos,
    choices: Vec<ThreadingSetup>,
    last_poll: Option<Time>,
    next_period: Time,
    pub(super) switches: Vec<(Time, ThreadingSetup)>,
    pub(super) violations: Vec<Violation>,
}

/// A curve whose tail is level up to half of the maximum load and then rises to three times that
/// value.
pub(super) fn curve(setup: &str, us: f64, cpu: f64, limit: f64) -> Curve {
    let point = |load: f64, us: f64| CurvePoint {
        load,
        p50_us: us / 2.0,
        p99_us: us,
        p999_us: us * 1.5,
        cpu,
        samples: 2_000,
        spread: 0.02,
    };
    let curve_points = vec![point(20.0, us), point(limit / 2.0, us), point(limit, us * 3.0)];
    Curve { setup: setup.parse().unwrap(), points: curve_points, max_load: limit }
}

/// Curves in the shape of the paper's figure 14: in-line polling is best at low load and ends
/// early, blocking pools sustain more.
pub(super) fn curves() -> Arc<Curves> {
    let all = vec![
        curve("SIP1", 560.0, 1.0, 1_800.0),
        curve("SDP1-20", 640.0, 1.3, 9_000.0),
        curve("SDB1-8", 800.0, 0.4, 6_000.0),
        curve("SDB1-50", 850.0, 0.6, 16_000.0),
        curve("AIP1-0-1", 540.0, 2.0, 4_500.0),
        curve("ADP1-4-1", 600.0, 2.2, 10_000.0),
        curve("ADB1-4-4", 700.0, 0.8, 18_000.0),
    ];
    Arc::new(Curves::new(all).unwrap())
}

pub(super) fn environment() -> ThreadEnvironment {
    ThreadEnvironment::new(Some(curves()), "SDB1-50".parse().unwrap(), 4).with_slo(Nanos::from_millis(5))
}

/// Every policy with its defaults, and the variants that differ most.
pub(super) fn every_policy() -> Vec<(String, Box<dyn ThreadingPolicy>)> {
    use leeward_core::params::RawParam;
    let build = |spec: &PolicySpec, pairs: &[(&str, RawParam)]| {
        spec.build(&spec.params(pairs).unwrap(), &environment()).unwrap()
    };
    let mut all: Vec<_> = POLICIES.iter().map(|spec| (spec.name.to_string(), build(spec, &[]))).collect();
    let text = |word: &str| RawParam::Text(word.into());
    for (name, key, value) in [
        ("leeward", "objective", text("cpu")),
        ("leeward", "fanout", text("sync")),
        ("leeward", "tail", text("p999")),
        ("leeward", "learn", text("on")),
        ("leeward", "learn", text("shadow")),
        ("utune", "window", RawParam::Integer(50)),
        ("utune", "fanout", text("async")),
        ("fm", "fanout", text("async")),
        ("ipi", "handling", text("dispatched")),
    ] {
        let spec = name.parse::<PolicyChoice>().unwrap().policy;
        all.push((format!("{name} {key}={value}"), build(spec, &[(key, value)])));
    }
    all
}

impl Plant {
    pub(super) fn new(policy: Box<dyn ThreadingPolicy>) -> Self {
        let mut signals = ThreadSignals::idle(Time::ZERO, policy.initial());
        signals.cpus = 4;
        Plant {
            choices: policy.choices(),
            policy,
            curves: curves(),
            ring: ArrivalRing::new(),
            signals,
            target: environment().target,
            last_poll: None,
            next_period: Time::ZERO,
            switches: Vec::new(),
            violations: Vec::new(),
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.signals.now.0
    }

    /// Records an arrival after `gap`, with the policy's calls in between.
    pub(super) fn arrive(&mut self, gap: u64) {
        self.wait(gap);
        let ordinal = self.ring.record(self.signals.now);
        if let PollSchedule::Arrivals(every) = self.policy.poll_schedule()
            && ordinal.is_multiple_of(u64::from(every))
        {
            self.poll();
        }
        if self.policy.poll_schedule() == PollSchedule::Blocking {
            self.signals.runnable = (ordinal % 9) as u16;
            self.poll();
        }
    }

    /// Records this number of arrivals at a rate, with equal gaps.
    pub(super) fn steady(&mut self, rate: f64, arrivals: u64) {
        self.signals.offered = Rate(rate);
        self.signals.demand = Some(Rate(rate));
        (0..arrivals).for_each(|_| self.arrive((SECOND as f64 / rate) as u64));
    }

    /// Lets this time pass with the policy's own calls only.
    pub(super) fn wait(&mut self, span: u64) {
        let until = self.now() + span;
        let mut polls = 0u64;
        loop {
            let periodic = matches!(self.policy.poll_schedule(), PollSchedule::Periodic(_)).then_some(self.next_period);
            let next = self.policy.next_timeout().min(periodic.unwrap_or(Time::NEVER));
            // An hour has many periods: a state that is constant for a few hundred stays constant.
            if next.0 > until || (periodic.is_some() && polls > 400) {
                break;
            }
            polls += 1;
            if periodic.is_none() && polls > 500 + span / (10 * MS) {
                self.violations.push(Violation::EndlessPolls(polls));
                break;
            }
            self.signals.now = next.max(self.signals.now);
            self.poll();
        }
        self.signals.now = Time(until);
        self.next_period = self.next_period.max(self.signals.now);
    }

    /// Advances the clock without a call.
    pub(super) fn jump(&mut self, span: u64) {
        self.signals.now += Nanos(span);
    }

    /// Calls the policy as a plant does, and checks the answer.
    pub(super) fn poll(&mut self) {
        let now = self.signals.now;
        self.signals.arrivals = self.ring.window(self.policy.window());
        let answer = self.policy.decide(&self.signals);
        let is_frozen = self.last_poll.is_some_and(|last| last >= now);
        self.last_poll = Some(now);
        if let PollSchedule::Periodic(period) = self.policy.poll_schedule() {
            self.next_period = now + period;
        }
        if let Some(setup) = answer {
            self.check(setup, is_frozen);
            (self.signals.current, self.signals.current_since) = (setup, now);
            self.switches.push((now, setup));
        }
        let gauges = self.policy.gauges();
        if let Some(rate) = gauges.rate
            && !(rate.0.is_finite() && rate.0 >= 0.0)
        {
            self.violations.push(Violation::Rate(rate.0));
        }
        let timeout = self.policy.next_timeout();
        if timeout <= now && !is_frozen {
            self.violations.push(Violation::Timeout(timeout));
        }
        self.signals.rejected = 0;
    }

    fn check(&mut self, setup: ThreadingSetup, is_frozen: bool) {
        if !self.choices.contains(&setup) {
            self.violations.push(Violation::Outside(setup));
        }
        if setup == self.signals.current {
            self.violations.push(Violation::Same(setup));
        }
        if is_frozen {
            self.violations.push(Violation::Frozen(setup));
        }
        let is_pressed = self.signals.rejected > 0 || self.signals.oldest_wait > self.target;
        if let (Some(to), Some(from)) = (self.curves.get(setup), self.curves.get(self.signals.current))
            && is_pressed
            && to.max_load < from.max_load
        {
            self.violations.push(Violation::StepDown(setup));
        }
    }
}
