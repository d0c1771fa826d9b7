//! The controller's slow half on a server. The core that notices first ticks it once per period,
//! with the counts since the last tick.

use super::ticker::Ticker;
use leeward_core::server::{ControlLoop, CoreGrant, Downstream, Gauges, Signals};
use leeward_core::units::{Nanos, Time};

/// Request totals for the controller. Cores count while another core adds up, so the parts may
/// differ by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTotals {
    /// Requests received.
    pub arrivals: u64,
    /// Requests executed.
    pub completions: u64,
    /// Requests rejected, for any reason.
    pub rejections: u64,
    /// Rejections caused by a lock.
    pub lock_rejections: u64,
}

/// The slow half and its next due time.
pub struct ControlTicker(Ticker<Control>);

struct Control {
    half: Box<dyn ControlLoop>,
    /// Totals at the last tick.
    before: RequestTotals,
}

impl ControlTicker {
    /// Makes a ticker for this controller.
    pub fn new(half: Box<dyn ControlLoop>) -> Self {
        ControlTicker(Ticker::new(half.period(), Control { half, before: RequestTotals::default() }))
    }

    /// Ticks the controller if a tick is due and no other core does so. Only then calls `load` and
    /// `delays` (of the network and of the run queues). Returns the number of ticks so far.
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
            // Makes up for periods in which every core slept and nothing waited. A controller that
            // counts its periods, such as a pool that grows in each, must not fall behind. A delay
            // found after a pause is one finding, not one per period. A pool that shrank so often
            // would be empty after every stall of the machine.
            if packet_delay + run_delay == Nanos::ZERO {
                (0..missed).for_each(|_| control.half.tick(&Signals::idle(now)));
            }
            control.before = load;
        })
    }

    /// Time at which the next tick is due.
    pub fn due(&self) -> Time {
        self.0.due()
    }

    /// Reports that the allocator has granted cores, or that cores have parked.
    pub fn cores_granted(&self, event: &CoreGrant) {
        self.0.change(|control| control.half.on_core_grant(event));
    }

    /// Reports the downstream servers' acceptance. The next tick uses it.
    pub fn downstream(&self, event: &Downstream) {
        self.0.change(|control| control.half.set_downstream(event));
    }

    /// The controller's state.
    pub fn gauges(&self) -> Gauges {
        self.0.with(|control| control.half.gauges())
    }
}
