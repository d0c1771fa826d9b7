//! Tests of the concurrency limits in virtual time: the rules of `knee` against small backends
//! whose best number is known, and invariants of all limits and of the dispatcher.

mod backend;
mod dispatch;
mod hang;
mod invariants;
mod reconfigure;
mod rules;
mod shadow;
