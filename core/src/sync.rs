//! Atomics that the fast halves share, and the mutex of a recording; both are loom's when the model
//! checker runs (`--cfg loom`). No other part of loom reaches the algorithms.

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

/// A value alone on its cache lines, so that cores that write one counter don't slow down readers
/// of another. 128 bytes: adjacent-line prefetch loads lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T>(pub T);
