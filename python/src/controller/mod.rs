//! Controllers that are written in Python, as algorithms of a registry.
//!
//! - `class`: a Python class with its parameters, and the registry's entry for it.
//! - `halves`: the server's halves that call an object of the class.
//! - `dials`: the settings of a slow half, and the fast half that applies them.
//! - `seen`: views for the object: signals, arrivals, the pool, the environment.
//! - `ask`: one call into Python, its exceptions, and a check of its duration.

pub(crate) mod ask;
mod class;
mod dials;
mod halves;
mod seen;

pub(crate) use ask::{Overdue, interrupt, overdue};
pub(crate) use class::PyAlgorithm;
pub(crate) use seen::{Arrival, Environment, Pool, Signals};
