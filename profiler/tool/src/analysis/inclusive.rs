//! Time in functions over a group of requests. Does not contain the choice of a culprit.

use super::sums::Sums;
use crate::hash::Map;

/// Limit of distinguished functions.
const FUNCTIONS: usize = 1 << 16;

/// Time in functions, their calls included, over the requests of a group.
#[derive(Debug, Default)]
pub(super) struct Inclusive(pub(super) Map<u64, (u64, u64, u64)>);

impl Inclusive {
    /// Adds a request that ended at `time` and stands for `weight` requests.
    pub(super) fn add(&mut self, sums: &Sums<u64>, weight: u64, time: u64) {
        for (function, nanos) in sums.iter() {
            if self.0.len() >= FUNCTIONS && !self.0.contains_key(&function) {
                continue;
            }
            let (sum, requests, latest) = self.0.entry(function).or_default();
            (*sum, *requests, *latest) = (sum.saturating_add(nanos.saturating_mul(weight)), *requests + weight, time);
        }
    }
}
