//! A setup that never changes.

use super::policy::{PolicySpec, PollSchedule, ThreadGauges, ThreadSignals, ThreadingPolicy};
use super::setup::ThreadingSetup;

/// The registry's entry.
pub const POLICY: PolicySpec = PolicySpec {
    name: "static",
    summary: "one setup for ever: `static:SDB1-50`, or `SDB1-50` alone",
    source: "",
    params: &[],
    build: |_, environment| Ok(Box::new(Fixed { setup: environment.initial })),
};

/// Policy with one setup; see the module.
#[derive(Clone, Debug)]
pub struct Fixed {
    setup: ThreadingSetup,
}

impl ThreadingPolicy for Fixed {
    fn initial(&self) -> ThreadingSetup {
        self.setup
    }

    fn choices(&self) -> Vec<ThreadingSetup> {
        vec![self.setup]
    }

    fn poll_schedule(&self) -> PollSchedule {
        PollSchedule::Never
    }

    fn decide(&mut self, signals: &ThreadSignals) -> Option<ThreadingSetup> {
        (signals.current != self.setup).then_some(self.setup)
    }

    fn gauges(&self) -> ThreadGauges {
        ThreadGauges::new(self.setup)
    }
}
