//! Tests of the lab's public interface: scenarios, runs and claims, in one program.

mod bad_graphs;
mod bad_scenarios;
mod bad_tiers;
mod builtin;
mod claims;
mod curves;
mod fuzz;
mod golden;
mod kinds;
mod runs;
mod searches;
mod settling;
mod sweeps;
mod training;
mod verdicts;
