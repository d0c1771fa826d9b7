//! Training of threading curves (µTune §4.2): which setups are measured at which loads, how often, and when a setup is out of the race.
//! How one measurement is made is a [`Bench`]'s; what follows from curves is [`advice`]'s.

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

/// A server that is measured.
#[derive(Clone, Copy, Debug)]
pub enum Candidate<'a> {
    /// With this setup.
    Setup(ThreadingSetup),
    /// With setups that the policy `leeward` chooses by these curves.
    Policy(&'a Arc<Curves>),
}

impl Candidate<'_> {
    /// The setup that it begins with.
    fn initial_setup(&self) -> ThreadingSetup {
        match self {
            Candidate::Setup(setup) => *setup,
            Candidate::Policy(curves) => curves.strongest().setup,
        }
    }

    /// The policy of a tier that changes its setup.
    fn policy(&self) -> Option<PolicyModel> {
        let Candidate::Policy(curves) = self else { return None };
        Some(PolicyModel { name: LEEWARD_POLICY.into(), params: Params::default(), curves: Some(Arc::clone(curves)) })
    }
}

/// A measurement: the clients offer `load` until about so many requests have ended.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'a> {
    /// The server.
    pub candidate: Candidate<'a>,
    /// Requests per second.
    pub load: Rate,
    /// Requests to wait for.
    pub requests: u64,
    /// Number among trials of the same, for their seeds.
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

/// A place in which servers are measured: a simulated tier, or a real one.
pub trait Bench: Sync {
    /// Makes a measurement.
    ///
    /// # Errors
    /// The measurement failed, or `stop` was set.
    fn measure(&self, trial: &Trial<'_>, stop: &AtomicBool) -> Result<Measurement, RunError>;

    /// Whether measurements at the same time leave each other alone: simulated ones do.
    fn is_parallel(&self) -> bool {
        false
    }

    /// Whether a measurement takes as long as its requests do: then those at low loads are made last.
    fn is_real_time(&self) -> bool {
        false
    }
}

/// Distance of training's seeds from those of runs, so that no policy is judged by what it was trained on.
const SEED_OFFSET: u64 = 0x7472_6169_6e00_0000;

/// The policy that serves by curves.
const LEEWARD_POLICY: &str = "leeward";

/// Setups that are trained where nobody names any: every model, with the pools that the paper found good (§7).
pub const SETUPS: [&str; 14] = [
    "SIP1", "SIP2", "SIP4", "SIB1", "SDP1-4", "SDP1-20", "SDB1-4", "SDB1-16", "SDB1-50", "AIP1-0-1", "AIB1-0-1",
    "ADP1-4-1", "ADB1-1-1", "ADB1-4-4",
];
