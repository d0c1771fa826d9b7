//! Writes a synthetic trace of a key-value store under load, for measurements of the reader.

use std::io;
use std::path::Path;

use leeward_profile::format::event::{Extent, OffCpu};
use leeward_profile::format::write::{TraceConfig, TraceWriter};
use leeward_profile::format::{EventKind, ObjectKind};

/// Number of functions of the store.
const FUNCTIONS: u64 = 300;
const DEPTH: u64 = 3;
const WORKERS: u32 = 4;

/// Random number generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % below
    }
}

/// Writes a trace of at least `events` events.
///
/// Returns the number of events and the time of the last one, in nanoseconds.
pub(crate) fn write(folder: &Path, events: u64) -> io::Result<(u64, u64)> {
    let mut writer = TraceWriter::create(folder, &TraceConfig::default())?;
    let mut random = Random(1);
    let mut now = [1_000_000_u64; WORKERS as usize];
    let (mut written, mut id) = (0, 0);
    while written < events {
        for worker in 0..WORKERS {
            let time = &mut now[worker as usize];
            id += 1;
            writer.event(worker, *time, EventKind::RequestStart { id, queue: None })?;
            let start = *time;
            let function = 0x5555_5555_0000 + random.below(FUNCTIONS) * 0x240;
            for depth in 0..DEPTH {
                // Ticks of 1 µs, as in the runtime.
                *time += 1_000 + random.below(2) * 1_000;
                let duration = *time - start;
                let (function, caller) = (function + depth * 0x100, function + (depth + 1) * 0x100 + 0x23);
                writer.event(worker, *time, EventKind::Call { function, caller, duration, extent: Extent::Whole })?;
            }
            written += DEPTH + 2;
            if random.below(10) == 0 {
                let (lock, wait) = (0x7f00_0000_0000 + random.below(1000) * 64, random.below(5_000));
                let site = 0x5555_5555_1000 + random.below(20) * 0x40;
                *time += wait;
                writer.event(
                    worker,
                    *time,
                    EventKind::Held { object: ObjectKind::Mutex, lock, site, wait, hold: 1_000 },
                )?;
                written += 1;
            }
            if random.below(100) == 0 {
                writer.event(
                    worker,
                    *time,
                    EventKind::SwitchedOut { cpu: worker, next: 0, reason: OffCpu::Runnable },
                )?;
                *time += random.below(2_000_000);
                writer.event(worker, *time, EventKind::SwitchedIn { cpu: worker })?;
                written += 2;
            }
            *time += 200;
            writer.event(worker, *time, EventKind::RequestEnd { id })?;
        }
        // No worker is more than 3 ms behind the latest, as with threads.
        let latest = now.iter().copied().max().unwrap_or(0);
        now.iter_mut().for_each(|time| *time = (*time).max(latest.saturating_sub(3_000_000)));
    }
    let end = now.iter().copied().max().unwrap_or(0);
    writer.finish(end)?;
    Ok((written, end))
}
