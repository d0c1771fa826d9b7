//! Work for a CPU: a number of steps that takes so long on this machine, measured once. A span of time would be shorter whenever
//! the thread is taken off its CPU.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Steps that take some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work(u64);

impl Work {
    /// So much work, by the fastest of some trials.
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

    /// Does it.
    pub(crate) fn run(self) {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        for step in 0..self.0 {
            state = black_box(state ^ step).wrapping_mul(0x2545_F491_4F6C_DD1D).rotate_left(17);
        }
        black_box(state);
    }
}
