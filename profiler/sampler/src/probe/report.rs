//! The part that all programs share: a request that ended is counted by its latency, and reported
//! if it was slow or is one of so many.
//!
//! Contains no begin of a request.

use std::io;

use super::bpf::{Assembler, Condition, Helper, Label, Map, MapKind, Operation, Register, Register::*, Ring, Width};

/// Buckets per doubling of a latency.
const PER_OCTAVE: u32 = 16;
/// Buckets for all latencies of 64 bits.
pub(super) const BUCKETS: usize = 60 * PER_OCTAVE as usize + 16;
/// The count behind the buckets: requests that seem to share their connection with others.
pub(super) const MIXED: i32 = BUCKETS as i32;
/// All counts.
const ALL: usize = BUCKETS + 1;

/// Offsets in the tally of a CPU: reports that found no room in the ring, then the buckets.
const LOST: i16 = 0;
const COUNTS: i16 = 8;
/// Offsets in the settings.
const THRESHOLD: i16 = 0;
const MASK: i16 = 8;
const WINDOW: i16 = 16;
const SETTING_BYTES: u32 = 24;
/// Bytes of the ring: about 18,000 reports.
const RING_BYTES: u32 = 1 << 20;

/// Places on a program's stack: a report, and a number that is kept over a call.
const EVENT: i16 = -64;
const EVENT_BYTES: i32 = 48;
const SAVED: i16 = -72;
const ZERO: i16 = -8;

/// Request was reported because it was slow; because it is one of so many.
pub(super) const SLOW: i32 = 1;
pub(super) const SAMPLED: i32 = 2;

/// Kind of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum EventKind {
    Request = 1,
    Resumed = 2,
    Suspended = 3,
    Ended = 4,
}

/// A report as a program writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: EventKind,
    pub(super) flags: i32,
    pub(super) time: u64,
    pub(super) start: u64,
    pub(super) id: u64,
    pub(super) process: u32,
    pub(super) thread: u32,
    /// Thread that began the request.
    pub(super) started_by: u32,
}

impl Event {
    /// Reads a record of the ring.
    pub(super) fn read(record: &[u8]) -> Option<Event> {
        let word = |at: usize| Some(u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?));
        let double = |at: usize| Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?));
        let kind = match word(0)? {
            1 => EventKind::Request,
            2 => EventKind::Resumed,
            3 => EventKind::Suspended,
            4 => EventKind::Ended,
            _ => return None,
        };
        let pair = double(32)?;
        Some(Event {
            kind,
            flags: word(4)? as i32,
            time: double(8)?,
            start: double(16)?,
            id: double(24)?,
            process: (pair >> 32) as u32,
            thread: pair as u32,
            started_by: word(40)?,
        })
    }
}

/// Maps that programs share with us.
#[derive(Debug)]
pub(super) struct Shared {
    ring: Ring,
    settings: Map,
    tally: Map,
    /// Threshold, mask and begin of the window, as programs see them.
    current: [u64; 3],
}

/// What programs have counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    /// Reports that found no room.
    pub(super) lost: u64,
    /// Requests per bucket of latency.
    pub(super) buckets: Vec<u64>,
    /// Requests that seem to share their connection with others.
    pub(super) mixed: u64,
}

impl Shared {
    pub(super) fn create() -> io::Result<Shared> {
        let tally = (COUNTS as usize + ALL * 8) as u32;
        Ok(Shared {
            ring: Ring::create(RING_BYTES)?,
            settings: Map::create(MapKind::Value, "lw_settings", SETTING_BYTES)?,
            tally: Map::create(MapKind::ValuePerCpu, "lw_latencies", tally)?,
            current: [0; 3],
        })
    }

    /// Sets from which latency on all requests are reported, and that of the others one in `one_in`
    /// is, a power of two.
    pub(super) fn set(&mut self, threshold: u64, one_in: u64) -> io::Result<()> {
        self.write([threshold, one_in.next_power_of_two() - 1, self.current[2]])
    }

    /// Begins a window at this time: requests that began before are left out.
    pub(super) fn begin_window(&mut self, time: u64) -> io::Result<()> {
        self.write([self.current[0], self.current[1], time])
    }

    fn write(&mut self, values: [u64; 3]) -> io::Result<()> {
        let mut bytes = [0; SETTING_BYTES as usize];
        for (part, value) in bytes.chunks_exact_mut(8).zip(values) {
            part.copy_from_slice(&value.to_ne_bytes());
        }
        self.current = values;
        self.settings.set(&[0; 4], &bytes)
    }

    /// Returns the counts of all CPUs.
    pub(super) fn tally(&self) -> io::Result<Tally> {
        let mut sums = vec![0_u64; 1 + ALL];
        for copy in self.tally.numbers()?.chunks_exact(1 + ALL) {
            // A request that grew leaves its bucket, perhaps on another CPU: that one is below 0.
            sums.iter_mut().zip(copy).for_each(|(sum, count)| *sum = sum.wrapping_add(*count));
        }
        // Programs count while we read: one that has left a bucket may not yet be in the next.
        let count = |sum: u64| if sum > u64::MAX / 2 { 0 } else { sum };
        let buckets = sums[1..=BUCKETS].iter().map(|sum| count(*sum)).collect();
        Ok(Tally { lost: sums[0], buckets, mixed: sums[ALL] })
    }

    /// Passes the reports since the last call to `each`.
    pub(super) fn read(&mut self, mut each: impl FnMut(Event)) {
        self.ring.read(|record| {
            if let Some(event) = Event::read(record) {
                each(event);
            }
        });
    }

    /// Emits: `R1` = bucket of the latency in `R9`. Destroys `R2` and `R3`.
    pub(super) fn emit_bucket(a: &mut Assembler) {
        a.set(R1, R9);
        a.apply(Operation::Or, R1, PER_OCTAVE as i32);
        a.set(R2, 0);
        for bits in [32, 16, 8, 4, 2, 1] {
            let small = a.label();
            a.set(R3, R1);
            a.apply(Operation::ShiftRight, R3, bits);
            a.jump_if(R3, Condition::Equal, 0, small);
            a.set(R1, R3);
            a.apply(Operation::Add, R2, bits);
            a.place(small);
        }
        let shift = PER_OCTAVE.ilog2() as i32;
        a.apply(Operation::Subtract, R2, shift);
        a.set(R1, R9);
        a.apply(Operation::ShiftRight, R1, R2);
        a.apply(Operation::ShiftLeft, R2, shift);
        a.apply(Operation::Add, R1, R2);
    }

    /// Emits: adds to the count of the bucket in `R1`, or to [`MIXED`]. Destroys `R0` to `R5`.
    pub(super) fn emit_count(&self, a: &mut Assembler, amount: i32, out: Label) {
        a.store(Width::Double, R10, SAVED, R1);
        self.emit_tally(a, out);
        a.load(Width::Double, R1, R10, SAVED);
        a.jump_if(R1, Condition::Above, MIXED, out);
        a.apply(Operation::ShiftLeft, R1, 3);
        a.apply(Operation::Add, R0, R1);
        a.set(R2, amount);
        a.add_atomically(R0, COUNTS, R2);
    }

    /// Emits: `R0` = the tally of this CPU. Destroys `R1` to `R5`.
    fn emit_tally(&self, a: &mut Assembler, out: Label) {
        a.store(Width::Word, R10, ZERO, 0);
        a.look_up(self.tally.number(), ZERO, out);
    }

    /// Emits: `R0` = [`SAMPLED`] for one request of so many, else 0, by the last digits of the time
    /// in `R8`: a call of the kernel's random numbers would cost more. Destroys `R1`.
    pub(super) fn emit_choice(&self, a: &mut Assembler) {
        /// Spreads the digits (the golden ratio's).
        const SPREAD: i32 = 0x9e37_79b1_u32 as i32;
        let (other, done) = (a.label(), a.label());
        a.set(R0, R8);
        a.apply(Operation::Multiply, R0, SPREAD);
        a.apply(Operation::ShiftRight, R0, 20);
        a.set_map_value(R1, self.settings.number());
        a.load(Width::Double, R1, R1, MASK);
        a.apply(Operation::And, R0, R1);
        a.jump_if(R0, Condition::NotEqual, 0, other);
        a.set(R0, SAMPLED);
        a.jump(done);
        a.place(other);
        a.set(R0, 0);
        a.place(done);
    }

    /// Emits: adds [`SLOW`] to `R0` if the latency in `R9` is. Destroys `R1`.
    pub(super) fn emit_slow(&self, a: &mut Assembler) {
        let fast = a.label();
        a.set_map_value(R1, self.settings.number());
        a.load(Width::Double, R1, R1, THRESHOLD);
        a.jump_if(R9, Condition::Below, R1, fast);
        a.apply(Operation::Or, R0, SLOW);
        a.place(fast);
    }

    /// Emits: jumps if the time in a register lies before the window. Destroys `R2`.
    pub(super) fn emit_if_earlier(&self, a: &mut Assembler, time: Register, to: Label) {
        a.set_map_value(R2, self.settings.number());
        a.load(Width::Double, R2, R2, WINDOW);
        a.jump_if(time, Condition::Below, R2, to);
    }

    /// Emits: writes a report to the ring. `R0` has its flags, `R1` the start, `R2` the id, `R3`
    /// the thread that began it, `R7` process and thread, `R8` the time. Destroys `R0` to `R5`.
    pub(super) fn emit_report(&self, a: &mut Assembler, kind: EventKind, out: Label) {
        let written = a.label();
        a.store(Width::Word, R10, EVENT, kind as i32);
        a.store(Width::Word, R10, EVENT + 4, R0);
        a.store(Width::Double, R10, EVENT + 8, R8);
        a.store(Width::Double, R10, EVENT + 16, R1);
        a.store(Width::Double, R10, EVENT + 24, R2);
        a.store(Width::Double, R10, EVENT + 32, R7);
        a.store(Width::Word, R10, EVENT + 40, R3);
        a.store(Width::Word, R10, EVENT + 44, 0);
        a.set_map(R1, self.ring.number());
        a.set(R2, R10);
        a.apply(Operation::Add, R2, i32::from(EVENT));
        a.set(R3, EVENT_BYTES);
        // We read without being woken (`BPF_RB_NO_WAKEUP`).
        a.set(R4, 1);
        a.call(Helper::RingbufOutput);
        a.jump_if(R0, Condition::Equal, 0, written);
        self.emit_tally(a, out);
        a.set(R1, 1);
        a.add_atomically(R0, LOST, R1);
        a.place(written);
    }
}

/// Returns the least latency of a bucket.
pub(super) fn lowest(bucket: usize) -> u64 {
    let octave = PER_OCTAVE as usize;
    let shift = (bucket / octave).saturating_sub(1);
    ((bucket - shift * octave) as u64) << shift.min(63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_begin_one_behind_the_other() {
        assert_eq!([0, 15, 16, 31, 32, 33].map(lowest), [0, 15, 16, 31, 32, 34]);
        assert!((1..BUCKETS).all(|bucket| lowest(bucket) > lowest(bucket - 1)));
        assert_eq!(lowest(BUCKETS - 1), 31 << 59);
    }

    proptest! {
        #[test]
        fn any_record_is_read_or_refused(record in prop::collection::vec(any::<u8>(), 0..64)) {
            let is_whole = record.len() >= 44 && (1..=4).contains(&record[0]) && record[1..4] == [0; 3];
            prop_assert_eq!(Event::read(&record).is_some(), is_whole);
        }
    }
}
