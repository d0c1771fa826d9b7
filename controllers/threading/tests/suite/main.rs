//! Threading models: setups as text, their roles, curves, and every policy under hostile signals.

#![cfg(not(loom))]

mod choices;
mod curves;
mod defective;
mod detection;
mod learning;
mod plant;
mod policies;
mod setups;
