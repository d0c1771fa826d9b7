//! A fixed number, as HAProxy's `maxconn` of a server and nginx's `max_conns`. HAProxy has no
//! default: without `maxconn` a server takes all.

use crate::policy::LimitPolicy;
use crate::{ConcurrencyLimit, Response, Tick, UNLIMITED};
use leeward_core::params::{ParamKind, ParamSpec};

/// Entry of the registry.
pub const POLICY: LimitPolicy = LimitPolicy {
    name: "static",
    summary: "a number that somebody has chosen",
    source: "HAProxy's maxconn, nginx's max_conns",
    params: &[ParamSpec::new(
        "limit",
        ParamKind::Count { min: 1, max: UNLIMITED as u64 },
        "64",
        "requests at the backend",
    )],
    build: |params, _| Box::new(Static(params.count("limit", 64) as u32)),
};

/// A limit that never changes.
#[derive(Clone, Copy, Debug)]
pub struct Static(pub u32);

impl ConcurrencyLimit for Static {
    fn on_response(&mut self, _: &Response) {}

    fn on_tick(&mut self, _: &Tick) {}

    fn limit(&self) -> u32 {
        self.0.clamp(1, UNLIMITED)
    }
}
