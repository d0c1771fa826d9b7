//! Halves that more than one algorithm uses: the server that admits everything, the loop that does nothing, the client
//! that holds nothing back.

use crate::client::{ClientHalf, Gate};
use crate::server::{Admission, Arrival, ControlLoop, ServerHalves, Session, Signals, Verdict};
use crate::units::{Nanos, Time};

/// Admits everything.
pub(super) struct AdmitAll;

impl Admission for AdmitAll {
    fn request(&mut self, _: &mut Session, _: &Arrival) -> Verdict {
        Verdict::Admit
    }
}

/// Has nothing to adapt.
pub(super) struct NoLoop;

impl ControlLoop for NoLoop {
    fn period(&self) -> Nanos {
        // Only the plant's own time series depend on being called at all.
        Nanos::from_millis(1)
    }

    fn tick(&mut self, _: &Signals) {}
}

/// A server without any control, for algorithms that live in the client.
pub(super) fn uncontrolled_server(cores: u32) -> ServerHalves {
    ServerHalves {
        cores: (0..cores).map(|_| Box::new(AdmitAll) as Box<dyn Admission>).collect(),
        control: Box::new(NoLoop),
    }
}

/// Sends whatever the connection takes.
pub(super) struct SendAll;

impl ClientHalf for SendAll {
    fn gate(&mut self, _: Time, _: u32) -> Gate {
        Gate::Open
    }
}
