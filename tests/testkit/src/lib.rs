//! Parts that tests of several crates share. A dev-dependency only, and without dependencies of its own: any crate's tests
//! may use it. Never here: anything that knows a crate of this workspace.
//!
//! - [`require`]: programs and kernel features that a test needs, and what becomes of it where they are missing
//! - [`alone`]: tests that need the machine's clock to themselves
//! - [`allocator`]: counted allocations
//! - [`random`] and [`fuzz`]: mutants of kept bytes, the same in every run
//! - [`greetings`]: first bytes of many protocols
//! - [`net`] and [`wait`]: ports and patience

pub mod allocator;
pub mod fuzz;
pub mod greetings;
pub mod net;
pub mod random;
pub mod require;
pub mod serial;
pub mod wait;
