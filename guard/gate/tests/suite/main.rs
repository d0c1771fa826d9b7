//! Tests of the gate in virtual time, and over threads.

mod awaiting;
mod downstream;
mod gate;
mod queue;
mod queue_order;
mod random;
mod shadow;
