//! The atomics the fast halves share, swapped for loom's when the model checker runs (`--cfg loom`). Nothing else of
//! loom leaks into the algorithms.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

/// A value alone on its cache lines, so that cores writing one counter don't slow down readers of another.
/// 128 bytes: adjacent-line prefetch pulls lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

/// An `f64` that one thread writes and others read, stored as its bits.
#[derive(Debug)]
pub(crate) struct AtomicF64(AtomicU64);

impl AtomicF64 {
    pub(crate) fn new(value: f64) -> Self {
        Self(AtomicU64::new(value.to_bits()))
    }

    pub(crate) fn load(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn store(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }
}
