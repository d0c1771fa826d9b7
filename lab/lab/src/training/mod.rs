//! Training of threading curves (µTune §4.2): choice of measurements, and elimination of setups.
//! Does not contain a single measurement ([`Bench`]), or the use of curves ([`advice`]).

pub mod advice;
mod elimination;
mod measured;
mod measurement;
mod retest;
mod service_tier;
mod simulated;

pub use elimination::{TrainingOutcome, TrainingPlan, TrainingProgress, train};
pub use leeward_sim::config::Arrivals;
pub use measured::MeasuredTier;
pub use measurement::Measurement;
pub use retest::{RetestResult, retest};
pub use service_tier::{ServiceTier, ServiceTierSpec};
pub use simulated::SimulatedTier;

use crate::error::RunError;
use leeward_core::params::Params;
use leeward_core::units::Rate;
use leeward_sim::threads::model::PolicyModel;
use leeward_threading::ThreadingSetup;
use leeward_threading::curves::Curves;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Threading of a measured server.
#[derive(Clone, Copy, Debug)]
pub enum Candidate<'a> {
    /// A fixed setup.
    Setup(ThreadingSetup),
    /// Setups that the policy `leeward` chooses by these curves.
    Policy(&'a Arc<Curves>),
}

impl Candidate<'_> {
    /// Initial setup.
    fn initial_setup(&self) -> ThreadingSetup {
        match self {
            Candidate::Setup(setup) => *setup,
            Candidate::Policy(curves) => curves.strongest().setup,
        }
    }

    /// The policy that changes the setup, if any.
    fn policy(&self) -> Option<PolicyModel> {
        let Candidate::Policy(curves) = self else { return None };
        Some(PolicyModel { name: LEEWARD_POLICY.into(), params: Params::default(), curves: Some(Arc::clone(curves)) })
    }
}

/// A measurement to make: the clients offer `load` until about `requests` requests have ended.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'a> {
    /// The server.
    pub candidate: Candidate<'a>,
    /// Load, requests per second.
    pub load: Rate,
    /// Number of requests.
    pub requests: u64,
    /// Number of the trial among equal ones, which determines its seed.
    pub round: u32,
}

impl fmt::Display for Trial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.candidate {
            Candidate::Setup(setup) => write!(f, "{setup} at {:.0}/s", self.load.0),
            Candidate::Policy(_) => write!(f, "{LEEWARD_POLICY} at {:.0}/s", self.load.0),
        }
    }
}

/// A test bench for servers: a simulated tier, or a real one.
pub trait Bench: Sync {
    /// Makes a measurement.
    ///
    /// # Errors
    /// The measurement failed, or `stop` was set.
    fn measure(&self, trial: &Trial<'_>, stop: &AtomicBool) -> Result<Measurement, RunError>;

    /// Whether parallel measurements are independent, as simulated ones are.
    fn is_parallel(&self) -> bool {
        false
    }

    /// Whether a measurement takes as long as its requests; low loads are then measured last.
    fn is_real_time(&self) -> bool {
        false
    }
}

/// Offset of training seeds from those of runs, so that no policy is judged on its training data.
const SEED_OFFSET: u64 = 0x7472_6169_6e00_0000;

/// Policy that chooses by curves.
const LEEWARD_POLICY: &str = "leeward";

/// Default setups of a training: every model, with the pool sizes that the paper found good (§7).
pub const SETUPS: [&str; 14] = [
    "SIP1", "SIP2", "SIP4", "SIB1", "SDP1-4", "SDP1-20", "SDB1-4", "SDB1-16", "SDB1-50", "AIP1-0-1", "AIB1-0-1",
    "ADP1-4-1", "ADB1-1-1", "ADB1-4-4",
];
