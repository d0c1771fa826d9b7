//! Recording in a Rust program for Leeward's profiler, on stable Rust: calls of functions ([`trace`]), and which
//! request a thread works on ([`request()`]). The run-time records (`libleeward_rt.so`, which `leeward profile record`
//! preloads). Without the run-time a traced call costs four loads and a comparison, and nothing is written anywhere.
//!
//! ```
//! struct Store(Vec<u64>);
//!
//! #[leeward_trace::trace] // all functions of the block
//! impl Store {
//!     fn sum(&self) -> u64 {
//!         self.0.iter().sum()
//!     }
//!
//!     #[leeward_trace::trace(skip)]
//!     fn len(&self) -> usize {
//!         self.0.len()
//!     }
//! }
//!
//! let store = Store(vec![1, 2]);
//! for id in 1..=3 {
//!     let _request = leeward_trace::request(id); // until the end of the scope
//!     assert_eq!(store.sum() + store.len() as u64, 5);
//! }
//! ```
//!
//! Traced functions are never inlined: each has a symbol by which the profiler names it. A call is recorded if it takes longer
//! than the threshold of recording, also when it ends by a panic. Who called it is not recorded, but which traced calls it is
//! within shows by their times. `async` and `const` functions can't be traced. Locks of the standard library are not seen as
//! locks, since they don't go through pthread: a thread that waits for one is off the CPU, blocked in the traced function.
//!
//! Only on 64-bit Linux with glibc (x86-64 and ARM64) is anything recorded; elsewhere all of this does nothing.

mod call;
mod request;
#[cfg_attr(
    not(all(
        target_os = "linux",
        target_env = "gnu",
        target_pointer_width = "64",
        any(target_arch = "x86_64", target_arch = "aarch64")
    )),
    path = "runtime_none.rs"
)]
mod runtime;

pub use call::Call;
/// Shows the calls of a function, or of all functions of an `impl` block or trait, to the profiler; `#[trace(skip)]` leaves one
/// of a block out.
///
/// `async` and `const` functions are refused, and left out of blocks.
pub use leeward_trace_attribute::trace;
pub use request::{Queued, Request, request};

/// Whether the profiler's run-time is in this process, so that calls and requests can be recorded.
pub fn is_recordable() -> bool {
    runtime::is_loaded()
}
