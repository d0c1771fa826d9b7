//! Pool of request records: a request reuses the buffers of an earlier one.

use super::gather::Gather;
use std::sync::{Mutex, PoisonError};

/// Records that the pool keeps; more are freed.
const POOL_MAX: usize = 4_096;

/// Spare records of a tier. Threads take one to begin a request, and return it when the request
/// ends.
pub(super) struct Pool<S>(Mutex<Vec<Box<Gather<S>>>>);

impl<S: Default> Pool<S> {
    pub(super) fn new() -> Self {
        Pool(Mutex::new(Vec::new()))
    }

    pub(super) fn take(&self) -> Box<Gather<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    pub(super) fn keep(&self, gather: Box<Gather<S>>) {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < POOL_MAX {
            spare.push(gather);
        }
    }
}
