//! Scenarios, runs and claims from outside, in one program.

mod bad_scenarios;
mod builtin;
mod claims;
mod curves;
mod fuzz;
mod golden;
mod runs;
mod searches;
