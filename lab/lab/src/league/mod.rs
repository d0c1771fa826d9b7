//! The league: every controller in every scene, with its defaults, beside those that were tuned for the scene and the oracle.
//!
//! - [`scenes`]: the repository's scenarios as scenes: one workload, one machine, one way to take locks.
//! - [`random`]: scenes drawn from a seed.
//! - [`play`]: a scene's runs, and what each controller reached in it.
//! - [`standings`]: what they reached over all scenes.
//! - [`markdown`]: the table.

mod markdown;
mod play;
mod random;
mod scenes;
mod standing;

pub use markdown::markdown;
pub use play::{Entry, Match, play};
pub use random::{drawn, random};
pub use scenes::{Scene, scenes};
pub use standing::{Standing, standings};
