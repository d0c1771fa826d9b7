//! Algorithms of admission control, one file or folder each, as pure code on the traits of
//! `leeward-core`.
//!
//! For programs that choose a controller by name, and for authors of algorithms. Entry points:
//! [`builtin`], and the constant `ALGORITHM` of a module.
//!
//! [`builtin`] lists them by name. A new algorithm exports an `ALGORITHM` and gets a line there;
//! another crate adds its own to its own registry ([`leeward_core::registry`]).
//!
//! # Example
//! ```
//! use leeward_core::registry::Environment;
//! use leeward_core::units::Nanos;
//!
//! let algorithms = leeward_controllers::builtin();
//! let breakwater = algorithms.find("breakwater")?;
//! // Ten cores, a round trip of 10 µs, an objective of 200 µs.
//! let environment = Environment::new(10, Nanos::from_micros(10), Nanos::from_micros(200));
//! let halves = breakwater.server(&breakwater.params(&[])?, &environment)?;
//! assert_eq!(halves.cores.len(), 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Does not contain I/O, clocks, threads, random number generators or hash maps.

#![forbid(unsafe_code)]

pub mod breakwater;
pub mod codel;
pub mod dagor;
pub mod edge;
pub mod gradient;
pub mod published;
pub mod rajomon;
pub mod seda;
mod threshold;
pub mod throttle;
pub mod topfull;
pub mod window;

use leeward_core::none;
use leeward_core::registry::Registry;

/// Returns a registry of the algorithms that come with Leeward.
pub fn builtin() -> Registry {
    Registry::new(vec![
        none::ALGORITHM,
        breakwater::ALGORITHM,
        dagor::ALGORITHM,
        seda::ALGORITHM,
        codel::ALGORITHM,
        window::ALGORITHM,
        throttle::ALGORITHM,
        gradient::ALGORITHM,
        rajomon::ALGORITHM,
        topfull::ALGORITHM,
        breakwater::EFFICIENCY,
        breakwater::AUTO,
        edge::ALGORITHM,
    ])
}
