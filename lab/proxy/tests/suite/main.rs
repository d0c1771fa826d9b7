//! Tests of the simulated proxy against queueing theory, the bar of `knee` over drawn cases, its
//! recovery, faults of some of several backends, and random histories.

mod bar;
mod faults;
mod long;
mod recovery;
mod support;
mod swarm;
mod theory;
