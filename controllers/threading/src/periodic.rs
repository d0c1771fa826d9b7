//! Policies that count arrivals in time windows of 5 ms: `tbd`, which is `utune` with that
//! detector, and `fm`, which changes only pool sizes. µTune §7 compares with both.

use super::curves::{Curves, Envelope, Objective, TailPercentile};
use super::policy::{
    PolicySpec, PollSchedule, SwitchReason, ThreadEnvironment, ThreadGauges, ThreadSignals, ThreadingPolicy,
};
use super::preferred::{FANOUT, HOLD, PreferredSetup, is_step_down, no_curves, with_fanout};
use super::setup::{Fanout, Handling, ThreadingSetup, Wait};
use leeward_core::params::{ParamError, ParamKind, ParamSpec, Params};
use leeward_core::units::{Nanos, Rate, Time};

const PERIOD: ParamSpec = ParamSpec {
    name: "period",
    kind: ParamKind::Duration { min: Nanos::from_micros(10), max: Nanos::from_secs(60) },
    default: "5ms",
    doc: "how long arrivals are counted",
    tuning_values: &[],
};

/// `tbd`: time-window based detection.
pub const TBD: PolicySpec = PolicySpec {
    name: "tbd",
    summary: "the setup of least predicted p99 for the arrivals of the last 5 ms",
    source: "Abdelzaher et al., TPDS'02, as in µTune, OSDI'18 §7",
    params: &[PERIOD, FANOUT, HOLD],
    build: |params, environment| {
        let curves = with_fanout("tbd", params, environment.curves.as_deref())?;
        Ok(Box::new(Periodic::new(curves, params, environment)))
    },
};

/// `fm`: few-to-many parallelism.
pub const FM: PolicySpec = PolicySpec {
    name: "fm",
    summary: "SDB or ADB with the pool sizes of least predicted p99 for the arrivals of the last 5 ms",
    source: "Few-to-Many, ASPLOS'15, as in µTune, OSDI'18 §7",
    params: &[
        PERIOD,
        ParamSpec {
            name: "fanout",
            kind: ParamKind::Choice(&["sync", "async"]),
            default: "sync",
            doc: "change the pools of SDB or of ADB, the models that sustain most",
            tuning_values: &[],
        },
        HOLD,
    ],
    build: |params, environment| {
        let fanout = if params.choice("fanout", "sync") == "sync" { Fanout::Sync } else { Fanout::Async };
        let curves = dispatched_block(environment.curves.as_deref(), fanout)?;
        Ok(Box::new(Periodic::new(curves, params, environment)))
    },
};

fn dispatched_block(curves: Option<&Curves>, fanout: Fanout) -> Result<Curves, ParamError> {
    let model = if fanout == Fanout::Sync { "curves of SDB setups" } else { "curves of ADB setups" };
    let is_of_model = |setup: &ThreadingSetup| {
        let model = setup.setup().map(|setup| (setup.fanout, setup.handling, setup.wait));
        model == Some((fanout, Handling::Dispatched, Wait::Block))
    };
    curves.and_then(|curves| curves.filter(is_of_model)).ok_or_else(|| no_curves("fm", model))
}

/// Policy that counts arrivals per window; see the module.
#[derive(Clone, Debug)]
pub struct Periodic {
    envelope: Envelope,
    period: Nanos,
    hold: bool,
    target: Nanos,
    /// Time and total arrivals at the start of the window.
    window_start: Option<(Time, u64)>,
    preferred: PreferredSetup,
}

impl Periodic {
    fn new(curves: Curves, params: &Params, environment: &ThreadEnvironment) -> Self {
        let envelope = Envelope::new(curves, Objective::Latency(TailPercentile::P99), 1.0);
        let initial = PreferredSetup::new(envelope.best(Rate(0.0)).setup);
        Periodic {
            envelope,
            period: params.duration(PERIOD.name, Nanos::from_millis(5)),
            hold: params.choice(HOLD.name, "on") == "on",
            target: environment.target,
            window_start: None,
            preferred: initial,
        }
    }
}

impl ThreadingPolicy for Periodic {
    fn initial(&self) -> ThreadingSetup {
        self.envelope.best(Rate(0.0)).setup
    }

    fn choices(&self) -> Vec<ThreadingSetup> {
        self.envelope.intervals().map(|(_, curve)| curve.setup).collect()
    }

    fn poll_schedule(&self) -> PollSchedule {
        PollSchedule::Periodic(self.period)
    }

    fn decide(&mut self, signals: &ThreadSignals) -> Option<ThreadingSetup> {
        if !self.preferred.advances(signals.now) {
            return None;
        }
        let pressed = self.preferred.is_under_pressure(signals, self.target);
        let total = signals.arrivals.total();
        let (begun, before) = *self.window_start.get_or_insert((signals.now, total));
        let counted = signals.now.since(begun);
        // A spurious call in the middle of a window: continue counting.
        if counted.0 < self.period.0 / 2 {
            return None;
        }
        self.window_start = Some((signals.now, total));
        // Below one arrival per window, the rate is zero or a multiple of the true rate. So it is
        // in the paper's comparison.
        let rate = Rate(total.saturating_sub(before) as f64 / counted.as_secs_f64());
        let setup = self.envelope.best(rate).setup;
        self.preferred.record_rate(rate);
        let is_down = is_step_down(self.envelope.curves(), signals.current, setup);
        if self.hold && is_down && pressed {
            return None;
        }
        self.preferred.prefer(signals, setup, SwitchReason::Estimate)
    }

    fn gauges(&self) -> ThreadGauges {
        self.preferred.gauges(self.envelope.curves(), TailPercentile::P99)
    }
}
