//! The services with leaves, as the catalogue starts them, over real sockets.
//!
//! Under several threading models their answers equal a plain computation, and a missing leaf makes
//! answers partial. Tests whose tiers poll take turns: two such tiers would take the CPUs from each
//! other's leaves.

mod hdsearch;
mod leaf_only;
mod recommend;
mod requirements;
mod router;
mod sets;
mod stores;
mod support;
