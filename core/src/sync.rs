//! The atomics that the fast halves share, and the mutex of a recording, swapped for loom's when the model checker runs
//! (`--cfg loom`). Nothing else of loom leaks into the algorithms.

#[cfg(loom)]
pub use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicI64, AtomicU64, Ordering},
};
#[cfg(not(loom))]
pub use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

/// A value alone on its cache lines, so that cores writing one counter don't slow down readers of another.
/// 128 bytes: adjacent-line prefetch pulls lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T>(pub T);
