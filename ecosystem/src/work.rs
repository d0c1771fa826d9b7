//! Work for a CPU: a number of steps with a known duration on this machine, measured once.
//!
//! Work defined by a span of time would shrink whenever the thread loses its CPU.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// A number of steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work(u64);

impl Work {
    /// Steps that take `span`, calibrated by the fastest of 25 trials.
    pub(crate) fn of(span: Duration) -> Self {
        let trial = 200_000u64;
        let fastest = (0..25)
            .map(|_| {
                let began = Instant::now();
                Work(trial).run();
                began.elapsed()
            })
            .min()
            .unwrap_or(Duration::from_millis(1));
        Work((trial as f64 * span.as_secs_f64() / fastest.as_secs_f64().max(1e-9)) as u64)
    }

    /// Executes the steps.
    pub(crate) fn run(self) {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        for step in 0..self.0 {
            state = black_box(state ^ step).wrapping_mul(0x2545_F491_4F6C_DD1D).rotate_left(17);
        }
        black_box(state);
    }
}
