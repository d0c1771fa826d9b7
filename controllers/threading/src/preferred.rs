//! State that the policies share: the preferred setup and its reason, the check of the clock, and
//! the pressure that delays a step down. Does not contain policies.

use super::curves::{Curves, TailPercentile};
use super::policy::{SwitchReason, ThreadGauges, ThreadSignals};
use super::setup::ThreadingSetup;
use leeward_core::params::{ParamError, ParamKind, ParamSpec, Params};
use leeward_core::units::{Nanos, Rate, Time};

/// The setup that a policy prefers, with the reason for it.
#[derive(Clone, Debug)]
pub(super) struct PreferredSetup {
    gauges: ThreadGauges,
    last_poll: Option<Time>,
    /// Time until which requests count as rejected or waiting.
    overloaded_until: Time,
}

/// Time for which a rejection or a long wait counts, since decisions may be closer to each other
/// than rejections.
const PRESSURE_HOLD: Nanos = Nanos::from_millis(100);

impl PreferredSetup {
    pub(super) fn new(first: ThreadingSetup) -> Self {
        PreferredSetup { gauges: ThreadGauges::new(first), last_poll: None, overloaded_until: Time::ZERO }
    }

    /// Whether time has passed since the last call. A clock that stands still says nothing about a
    /// rate, so the policy decides nothing.
    pub(super) fn advances(&mut self, now: Time) -> bool {
        let advances = self.last_poll.is_none_or(|last| now > last);
        if advances {
            self.last_poll = Some(now);
        }
        advances
    }

    /// Whether requests are rejected or wait for too long, now or recently. The measured load may
    /// then be below the demand, because admission rejects the rest.
    pub(super) fn is_under_pressure(&mut self, signals: &ThreadSignals, target: Nanos) -> bool {
        if signals.rejected > 0 || signals.oldest_wait > target {
            self.overloaded_until = signals.now + PRESSURE_HOLD;
        }
        signals.now < self.overloaded_until
    }

    /// Records an estimate of the load.
    pub(super) fn record_rate(&mut self, rate: Rate) {
        self.gauges.rate = Some(rate);
    }

    /// Prefers `setup`, for `reason`; returns the answer for the plant.
    pub(super) fn prefer(
        &mut self,
        signals: &ThreadSignals,
        setup: ThreadingSetup,
        reason: SwitchReason,
    ) -> Option<ThreadingSetup> {
        if setup != self.gauges.current {
            (self.gauges.current, self.gauges.reason) = (setup, reason);
            self.gauges.switches += 1;
        }
        (setup != signals.current).then_some(setup)
    }

    /// Returns the gauges with the predictions of these curves. People read them more rarely than
    /// plants call the policy, so the prediction is computed here.
    pub(super) fn gauges(&self, curves: &Curves, tail: TailPercentile) -> ThreadGauges {
        let curve = curves.get(self.gauges.current);
        let predicted = curve.zip(self.gauges.rate).and_then(|(curve, rate)| curve.latency(tail, rate));
        ThreadGauges { predicted, ..self.gauges }
    }

    /// Returns the gauges of a policy without predictions.
    pub(super) fn gauges_without_curves(&self) -> ThreadGauges {
        self.gauges
    }
}

/// Whether `to` sustains less than `from`. A setup without a curve counts as sustaining nothing.
pub(super) fn is_step_down(curves: &Curves, from: ThreadingSetup, to: ThreadingSetup) -> bool {
    let sustains = |setup| curves.get(setup).map_or(0.0, |curve| curve.max_load);
    sustains(to) < sustains(from)
}

/// Error of a policy without the curves that it needs.
pub(super) fn no_curves(policy: &str, which: &str) -> ParamError {
    ParamError::Conflict(format!("`{policy}` needs {which}; `leeward train` makes them"))
}

/// Parameter that limits the setups to choose from.
pub(super) const FANOUT: ParamSpec = ParamSpec {
    name: "fanout",
    kind: ParamKind::Choice(&["any", "sync", "async"]),
    default: "any",
    doc: "choose from the sync setups, from the async ones, or from all (the paper never changes between these)",
    tuning_values: &[],
};

/// Returns the curves of the setups that [`FANOUT`] permits.
pub(super) fn with_fanout(policy: &str, params: &Params, curves: Option<&Curves>) -> Result<Curves, ParamError> {
    use super::setup::Fanout;
    let curves = curves.ok_or_else(|| no_curves(policy, "curves"))?;
    match params.choice(FANOUT.name, "any") {
        "sync" => curves.with_fanout(Fanout::Sync).ok_or_else(|| no_curves(policy, "curves of sync setups")),
        "async" => curves.with_fanout(Fanout::Async).ok_or_else(|| no_curves(policy, "curves of async setups")),
        _ => Ok(curves.clone()),
    }
}

/// Parameter that delays a step down while requests are rejected or wait for long.
pub(super) const HOLD: ParamSpec = ParamSpec {
    name: "hold",
    kind: ParamKind::SWITCH,
    default: "on",
    doc: "no step down while requests are dropped or wait for longer than the target (not in the paper, which has no admission)",
    tuning_values: &[],
};
