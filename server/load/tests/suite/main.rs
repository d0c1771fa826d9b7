//! The generator from outside, in one program.

mod loopback;
mod recording;
mod support;
