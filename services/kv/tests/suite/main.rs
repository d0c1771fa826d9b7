//! Tests of the store and of its ports.

mod clients;
mod differential;
mod fuzz;
mod generated;
mod memory;
mod model;
mod port;
mod refusals;
mod rpc;
mod support;
