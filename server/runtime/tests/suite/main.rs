//! Test program for the public interface of the locks.

mod locks;
mod permits;
