//! Training of threading curves (µTune §4.2): which setups are measured at which loads, how often, and when a setup is out of the race.
//! How one measurement is made is a [`Bench`]'s; what follows from curves is [`advice`]'s.

pub mod advice;
mod eliminate;
mod fresh;
mod measured;
mod sample;
mod served;
mod simulated;

pub use eliminate::{Plan, Progress, Trained, train};
pub use fresh::{Fresh, check};
pub use leeward_sim::config::Arrivals;
pub use measured::MeasuredTier;
pub use sample::Sample;
pub use served::{ServedTier, Wanted};
pub use simulated::SimulatedTier;

use crate::error::RunError;
use leeward_core::units::Rate;
use leeward_threading::Threading;
use leeward_threading::curves::Curves;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A place in which setups are measured: a simulated tier, or a real one.
pub trait Bench: Sync {
    /// Offers `load` to a server of `setup` until about so many requests have ended. `round` tells measurements of the same apart, for
    /// their seeds.
    ///
    /// # Errors
    /// The measurement failed, or `stop` was set.
    fn measure(
        &self,
        setup: Threading,
        load: Rate,
        requests: u64,
        round: u32,
        stop: &AtomicBool,
    ) -> Result<Sample, RunError>;

    /// The same of a server whose setups the policy `leeward` chooses by `curves`.
    ///
    /// # Errors
    /// The measurement failed, or `stop` was set.
    fn measure_policy(
        &self,
        curves: &Arc<Curves>,
        load: Rate,
        requests: u64,
        round: u32,
        stop: &AtomicBool,
    ) -> Result<Sample, RunError>;

    /// Whether measurements at the same time leave each other alone: simulated ones do.
    fn is_parallel(&self) -> bool {
        false
    }

    /// Whether a measurement takes as long as its requests do: then those at low loads are made last.
    fn takes_real_time(&self) -> bool {
        false
    }
}

/// Distance of training's seeds from those of runs, so that no policy is judged by what it was trained on.
const APART: u64 = 0x7472_6169_6e00_0000;

/// The policy that serves by curves.
const AUTO: &str = "leeward";

/// Setups that are trained where nobody names any: every model, with the pools that the paper found good (§7).
pub const SETUPS: [&str; 14] = [
    "SIP1", "SIP2", "SIP4", "SIB1", "SDP1-4", "SDP1-20", "SDB1-4", "SDB1-16", "SDB1-50", "AIP1-0-1", "AIB1-0-1",
    "ADP1-4-1", "ADB1-1-1", "ADB1-4-4",
];
