//! The demo of `leeward proxy`.
//!
//! - `service`: the service in another language, a process of its own.
//! - `results`: results as lines, a table and JSON.
//!
//! Does not contain the runs (`commands::demo_proxy`).

pub(crate) mod results;
pub(crate) mod service;
