//! Threading models: setups as text, their duties, curves, and every policy under hostile signals.

#![cfg(not(loom))]

mod choices;
mod curves;
mod defective;
mod detection;
mod learning;
mod plant;
mod policies;
mod setups;
