//! Threading models: setups as text, their duties, and every policy under hostile signals.

mod setups;
