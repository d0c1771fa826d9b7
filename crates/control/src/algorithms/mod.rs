//! The algorithms, one file (or folder) each. A new one exports an `ALGORITHM` and gets a line in
//! [`crate::registry::Registry::builtin`]. What several share is in `client_params`, `shared` and `level`.

pub mod breakwater;
mod client_params;
pub mod codel;
pub mod dagor;
pub mod edge;
pub mod gradient;
mod level;
pub mod none;
pub mod published;
pub mod rajomon;
pub mod seda;
mod shared;
pub mod throttle;
pub mod topfull;
pub mod window;
