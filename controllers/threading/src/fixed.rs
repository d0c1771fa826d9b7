//! A setup that never changes.

use super::policy::{Pace, PolicySpec, ThreadGauges, ThreadSignals, ThreadingPolicy};
use super::setup::Threading;

/// The registry's entry.
pub const POLICY: PolicySpec = PolicySpec {
    name: "static",
    summary: "one setup for ever: `static:SDB1-50`, or `SDB1-50` alone",
    source: "",
    params: &[],
    build: |_, environment| Ok(Box::new(Fixed { setup: environment.first })),
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Fixed {
    setup: Threading,
}

impl ThreadingPolicy for Fixed {
    fn initial(&self) -> Threading {
        self.setup
    }

    fn choices(&self) -> Vec<Threading> {
        vec![self.setup]
    }

    fn pace(&self) -> Pace {
        Pace::Never
    }

    fn decide(&mut self, signals: &ThreadSignals) -> Option<Threading> {
        (signals.current != self.setup).then_some(self.setup)
    }

    fn gauges(&self) -> ThreadGauges {
        ThreadGauges::new(self.setup)
    }
}
