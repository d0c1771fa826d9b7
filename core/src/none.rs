//! No admission control: everything is sent, everything is queued. The connection's back-pressure is the only bound.
//! The baseline of every comparison. Its halves are of use to other algorithms that control one side only.

use crate::client::params::{CLIENT_DELAY, CLIENT_QUEUE, MAX_OUTSTANDING, client_config};
use crate::client::{ClientHalf, ClientParts, Gate};
use crate::params::ParamSpec;
use crate::registry::Algorithm;
use crate::server::{Admission, Arrival, ControlLoop, ServerHalves, Session, Signals, Verdict};
use crate::units::{Nanos, Time};

/// The registry's entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "none",
    summary: "no admission control: unbounded queues behind connection back-pressure",
    source: "the baseline of Breakwater §5.2, Fig. 9",
    params: &[CLIENT_QUEUE, ParamSpec { default: "none", ..CLIENT_DELAY }, MAX_OUTSTANDING],
    build_server: |_, environment| Ok(uncontrolled_server(environment.cores)),
    build_client: |params, _| Ok(ClientParts { half: Box::new(SendAll), config: client_config(params, Nanos::MAX) }),
};

/// Admits everything.
#[derive(Clone, Copy, Debug)]
pub struct AdmitAll;

impl Admission for AdmitAll {
    fn request(&mut self, _: &mut Session, _: &Arrival) -> Verdict {
        Verdict::Admit
    }
}

/// Has nothing to adapt.
#[derive(Clone, Copy, Debug)]
pub struct NoLoop;

impl ControlLoop for NoLoop {
    fn period(&self) -> Nanos {
        // Only the plant's own time series depend on being called at all.
        Nanos::from_millis(1)
    }

    fn tick(&mut self, _: &Signals) {}
}

/// A server without any control, for algorithms that live in the client.
pub fn uncontrolled_server(cores: u32) -> ServerHalves {
    ServerHalves {
        cores: (0..cores).map(|_| Box::new(AdmitAll) as Box<dyn Admission>).collect(),
        control: Box::new(NoLoop),
    }
}

/// Sends whatever the connection takes.
#[derive(Clone, Copy, Debug)]
pub struct SendAll;

impl ClientHalf for SendAll {
    fn gate(&mut self, _: Time, _: u32) -> Gate {
        Gate::Open
    }
}
