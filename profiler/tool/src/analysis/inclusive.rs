//! Time in functions over a group of requests. Does not contain the choice of a culprit.

use super::sums::Sums;
use crate::hash::Map;

/// Limit of distinguished functions.
const FUNCTIONS: usize = 1 << 16;

/// Time in functions, their calls included, over the requests of a group.
#[derive(Debug, Default)]
pub(super) struct Inclusive(pub(super) Map<u64, FunctionTime>);

/// Time in a function, its calls included. In nanoseconds.
#[derive(Debug, Default)]
pub(super) struct FunctionTime {
    /// On a CPU.
    pub(super) on_cpu: u64,
    /// Off the CPU.
    pub(super) waiting: u64,
    /// Requests in which it was seen.
    pub(super) requests: u64,
    /// When the last of them ended.
    pub(super) latest: u64,
}

impl Inclusive {
    /// Adds a request that ended at `time` and stands for `weight` requests: its time on a CPU and
    /// off it, by function.
    pub(super) fn add(&mut self, [on_cpu, waiting]: &[Sums<u64>; 2], weight: u64, time: u64) {
        for (function, nanos) in on_cpu.iter() {
            if let Some(sum) = self.of(function) {
                sum.on_cpu = sum.on_cpu.saturating_add(nanos.saturating_mul(weight));
                (sum.requests, sum.latest) = (sum.requests + weight, time);
            }
        }
        for (function, nanos) in waiting.iter() {
            let is_new = on_cpu.iter().all(|(other, _)| other != function);
            if let Some(sum) = self.of(function) {
                sum.waiting = sum.waiting.saturating_add(nanos.saturating_mul(weight));
                (sum.requests, sum.latest) = (sum.requests + if is_new { weight } else { 0 }, time);
            }
        }
    }

    fn of(&mut self, function: u64) -> Option<&mut FunctionTime> {
        let has_place = self.0.len() < FUNCTIONS || self.0.contains_key(&function);
        has_place.then(|| self.0.entry(function).or_default())
    }
}
