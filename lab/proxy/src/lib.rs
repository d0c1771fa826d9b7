//! A deterministic discrete-event simulator of a proxy in front of one backend. Concurrency limits
//! (`leeward-concurrency`) are judged in it against the best static number of each case. Several
//! backends, of which some fail, show the choice among them.
//!
//! For authors of concurrency limits. Entry points: [`case::Case`], [`benchmark::play`] and
//! [`benchmark::best_static`].
//!
//! - [`case`]: a backend, a demand and an objective; random cases.
//! - `backend`: cores, lock, pauses.
//! - [`proxy`]: the queue of the proxy, and the run.
//! - [`benchmark`]: the best static number of a case, and limits relative to it.
//!
//! # Example
//! ```
//! use leeward_proxy_sim::benchmark::{play, policies};
//! use leeward_proxy_sim::case::Case;
//!
//! let case = Case::random(1);
//! let knee = policies().find(|policy| policy.name == "knee").unwrap();
//! let result = play(&case, knee, 1);
//! assert!(result.late_share() < 0.1);
//! ```
//!
//! Does not contain limits.

#![forbid(unsafe_code)]

mod backend;
pub mod benchmark;
pub mod case;
pub mod proxy;
