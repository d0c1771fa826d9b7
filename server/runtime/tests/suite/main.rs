//! The locks from outside, in one program.

mod locks;
mod permits;
