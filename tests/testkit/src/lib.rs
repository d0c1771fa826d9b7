//! Code that tests of several crates share.
//!
//! For the tests of this workspace. Entry points: [`require`](mod@require), [`wait::until`] and
//! [`random::Random`].
//!
//! It is only a dev-dependency and has no dependencies, so any crate's tests may use it. Does not
//! contain anything that depends on a crate of this workspace.
//!
//! # Example
//! ```
//! use leeward_testkit::random::Random;
//! use leeward_testkit::wait;
//!
//! let mut random = Random::new(7);
//! assert!((0..100).all(|_| random.below(10) < 10));
//! let started = std::thread::spawn(|| ());
//! wait::until("the thread has ended", || started.is_finished());
//! ```
//!
//! - [`require`]: programs and kernel features that a test needs, and the handling of missing ones
//! - [`serial`]: tests that need the machine's clock to themselves
//! - [`allocator`]: counted allocations
//! - [`random`] and [`fuzz`]: mutants of stored bytes, the same in every run
//! - [`greetings`]: first bytes of many protocols
//! - [`net`] and [`wait`]: ports, and waiting with a timeout

pub mod allocator;
pub mod fuzz;
pub mod greetings;
pub mod net;
pub mod random;
pub mod require;
pub mod serial;
pub mod wait;
