//! Controllers that are written in Python, as algorithms of a registry.
//!
//! - `class`: a Python class with its parameters: what the registry's entry is made of.
//! - `halves`: the server's halves that ask an object of it.
//! - `dials`: what a slow half may set, and the fast half that goes by it.
//! - `seen`: what the object is shown: signals, arrivals, the pool, the environment.
//! - `ask`: one call into Python, with its exceptions on their way out and an eye on its length.

mod ask;
mod class;
mod dials;
mod halves;
mod seen;

pub(crate) use ask::{Overdue, overdue};
pub(crate) use class::Written;
pub(crate) use seen::{Arrival, Environment, Pool, Signals};
