//! No admission control: the client sends all requests and the server queues them. Only the
//! connection's back-pressure bounds them. This is the baseline of every comparison. Other
//! algorithms that control one side only reuse the halves.

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

/// Fast half that admits all requests.
#[derive(Clone, Copy, Debug)]
pub struct AdmitAll;

impl Admission for AdmitAll {
    fn request(&mut self, _: &mut Session, _: &Arrival) -> Verdict {
        Verdict::Admit
    }
}

/// Slow half that adapts nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoLoop;

impl ControlLoop for NoLoop {
    fn period(&self) -> Nanos {
        // Only the plant's own time series need the tick.
        Nanos::from_millis(1)
    }

    fn tick(&mut self, _: &Signals) {}
}

/// Builds a server without control, for algorithms that act in the client.
pub fn uncontrolled_server(cores: u32) -> ServerHalves {
    ServerHalves {
        cores: (0..cores).map(|_| Box::new(AdmitAll) as Box<dyn Admission>).collect(),
        control: Box::new(NoLoop),
    }
}

/// Client half that sends as much as the connection takes.
#[derive(Clone, Copy, Debug)]
pub struct SendAll;

impl ClientHalf for SendAll {
    fn gate(&mut self, _: Time, _: u32) -> Gate {
        Gate::Open
    }
}
