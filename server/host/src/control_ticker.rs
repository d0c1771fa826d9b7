//! The controller's slow half on a server: ticked once per period by whichever core notices, with what has happened since.

use super::ticker::Ticker;
use leeward_core::server::{ControlLoop, CoreGrant, Downstream, Gauges, Signals};
use leeward_core::units::{Nanos, Time};

/// Requests so far, as the controller is to see them. Cores count while others add up: the parts may be one apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTotals {
    /// That have come.
    pub arrivals: u64,
    /// That were executed.
    pub completions: u64,
    /// That were rejected, for whatever reason.
    pub rejections: u64,
    /// Drops that a lock has caused.
    pub lock_rejections: u64,
}

/// The slow half and when it is due.
pub struct ControlTicker(Ticker<Control>);

struct Control {
    half: Box<dyn ControlLoop>,
    /// At the last tick.
    before: RequestTotals,
}

impl ControlTicker {
    /// Of this controller.
    pub fn new(half: Box<dyn ControlLoop>) -> Self {
        ControlTicker(Ticker::new(half.period(), Control { half, before: RequestTotals::default() }))
    }

    /// Ticks the controller if that is due and no other core is at it; only then are `load` and `delays` (the network's and the
    /// run queues') asked for. Returns the number of ticks so far.
    pub fn tick(
        &self,
        now: Time,
        load: impl FnOnce() -> RequestTotals,
        delays: impl FnOnce() -> (Nanos, Nanos),
    ) -> u64 {
        self.0.run(now, |control, missed| {
            let (load, before) = (load(), control.before);
            let (packet_delay, run_delay) = delays();
            control.half.tick(&Signals {
                now,
                packet_delay,
                run_delay,
                arrivals: load.arrivals.saturating_sub(before.arrivals),
                completions: load.completions.saturating_sub(before.completions),
                rejections: load.rejections.saturating_sub(before.rejections),
                lock_rejections: load.lock_rejections.saturating_sub(before.lock_rejections),
            });
            // Periods that passed while every core slept: nothing waited in them, and a controller that counts its periods
            // (a pool that grows by each) must not fall behind. A delay that is found after a pause is one finding, though,
            // not one for each period of it: a pool that shrank so often would be gone after every hiccup of the machine.
            if packet_delay + run_delay == Nanos::ZERO {
                (0..missed).for_each(|_| control.half.tick(&Signals::idle(now)));
            }
            control.before = load;
        })
    }

    /// When the next tick is due.
    pub fn due(&self) -> Time {
        self.0.due()
    }

    /// The allocator has granted cores, or some have parked.
    pub fn cores_granted(&self, event: &CoreGrant) {
        self.0.change(|control| control.half.on_core_grant(event));
    }

    /// Tells what the servers behind this one let through. The next tick knows it.
    pub fn downstream(&self, event: &Downstream) {
        self.0.change(|control| control.half.set_downstream(event));
    }

    /// The controller's state.
    pub fn gauges(&self) -> Gauges {
        self.0.with(|control| control.half.gauges())
    }
}
