//! How a process is recorded, and what was written of it.
//!
//! Does not convert anything.

use super::keep::KeepSlow;

/// How a process is recorded.
#[derive(Clone, Debug)]
pub struct ConverterConfig {
    /// The process.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// CPU time between two samples, in nanoseconds.
    pub interval: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC`, and since 1970, when the recording began.
    pub began: (u64, u64),
    /// Bytes that the trace may have on disk.
    pub disk: u64,
    /// Labels of requests are recorded.
    pub labels: bool,
    /// Only slow requests, and what surrounds them, are written.
    pub keep: Option<KeepSlow>,
}

/// What a converter has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Samples, and switches with a stack.
    pub stacks: u64,
    /// Requests that took long.
    pub slow: u64,
    /// Other requests.
    pub sampled: u64,
    /// Records that the kernel lost.
    pub lost: u64,
}

impl Written {
    /// Adds what another trace holds.
    #[must_use]
    pub fn plus(self, other: Written) -> Written {
        Written {
            stacks: self.stacks + other.stacks,
            slow: self.slow + other.slow,
            sampled: self.sampled + other.sampled,
            lost: self.lost.saturating_add(other.lost),
        }
    }
}
