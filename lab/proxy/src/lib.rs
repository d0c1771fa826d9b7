//! A deterministic discrete-event simulator of a proxy in front of one backend. Concurrency limits
//! (`leeward-concurrency`) are judged in it against the best static number of each case.
//!
//! - [`case`]: a backend, a demand and an objective; random cases.
//! - `backend`: cores, lock, pauses.
//! - [`proxy`]: the queue of the proxy, and the run.
//! - [`benchmark`]: the best static number of a case, and limits relative to it.
//!
//! Does not contain limits.

#![forbid(unsafe_code)]

mod backend;
pub mod benchmark;
pub mod case;
pub mod proxy;
