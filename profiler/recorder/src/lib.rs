//! Records calls of functions ([`trace`]), requests of threads ([`request()`]) and requests that
//! are futures ([`instrument`]) in a Rust program, for Leeward's profiler.
//!
//! For Rust programs whose tail latency is studied. Entry points: [`trace`] and [`request()`].
//!
//! Works on stable Rust. The run-time records (`libleeward_rt.so`, which `leeward profile record`
//! preloads). Without the run-time a traced call costs four loads and a comparison, and nothing is
//! written anywhere.
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
//! Traced functions are never inlined: the profiler names each by its symbol. A call is recorded if
//! it lasts longer than the recording threshold, also when it ends with a panic. The caller is not
//! recorded, but the times show the surrounding traced calls.
//!
//! `async` and `const` functions can't be traced. Of a lock of the standard library only waits are
//! recorded: its holder is the thread that wakes the waiting one.
//!
//! Without the run-time `leeward profile record --pid` sees requests, too: it watches functions
//! that each report calls (`marks`), and which do nothing themselves.
//!
//! Recording works only on 64-bit Linux with glibc (x86-64 and ARM64); elsewhere all of this does
//! nothing.

mod await_point;
mod call;
mod context;
mod future;
mod polls;
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
mod waker;

pub use call::Call;
pub use context::{RemoteCall, TraceContext, TraceParent};
pub use future::{InstrumentedFuture, NamedWait, TraceFuture, instrument, wait};
/// Records the calls of a function, or of all functions of an `impl` block or trait, for the
/// profiler.
///
/// `#[trace(skip)]` excludes a function of a block. `async` and `const` functions are rejected, and
/// skipped in blocks.
pub use leeward_trace_attribute::trace;
pub use polls::RequestPolls;
pub use request::{Queued, Request, request};

/// Returns whether the profiler's run-time is in this process, so that calls and requests can be
/// recorded.
pub fn is_recordable() -> bool {
    runtime::is_loaded()
}
