//! Tests of the simulated proxy against queueing theory, and the bar of `knee` over 40 cases.

mod bar;
mod theory;
