//! Tests of the concurrency limits in virtual time: the rules of `knee` against small backends
//! whose best number is known, and invariants of all limits.

mod backend;
mod invariants;
mod rules;
