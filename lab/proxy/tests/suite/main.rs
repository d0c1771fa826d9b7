//! Tests of the simulated proxy against queueing theory, the bar of `knee` over drawn cases, its
//! recovery, and random histories.

mod bar;
mod recovery;
mod support;
mod swarm;
mod theory;
