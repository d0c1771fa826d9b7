//! The index and the service from outside, in one program.

mod brute_force;
mod fuzz;
mod overload;
mod service;
