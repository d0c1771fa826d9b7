//! Tests of the generator's public interface, in one program.

mod loopback;
mod recording;
mod support;
