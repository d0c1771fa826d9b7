//! The algorithms, one file (or folder) each. A new one exports an `ALGORITHM` and gets a line in
//! [`crate::registry::Registry::builtin`].

pub mod breakwater;
mod client_params;
pub mod codel;
pub mod dagor;
pub mod gradient;
pub mod none;
pub mod seda;
mod shared;
pub mod throttle;
pub mod window;
