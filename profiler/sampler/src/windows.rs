//! Bounds what recording costs: where recording all the time would cost more than a limit, sources
//! record in windows of time, and between them nothing of theirs runs in the process.
//!
//! The cost is what the sources impose on the process, and the recorder's own CPU time. A process
//! that uses a whole CPU may have a thread that has no time to lose: there it costs throughput.
//! What it leaves of a CPU costs less ([`CostLimit`]).
//!
//! Contains no clock, and does not say what is recorded within a window (`perf::budget`).

use crate::probe::bpf::{ProgramMeter, RunningProgram};
use crate::record::{RecordSource, SourceError};

/// What recording may cost, in shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostLimit {
    /// Of the CPU time that the process uses.
    pub of_used: f64,
    /// Of what the process leaves of one CPU.
    pub of_unused: f64,
}

impl CostLimit {
    /// The limit of a recording for which nothing else is asked. With 3 % alone, half of the slow
    /// requests of quiet services fell between windows; a saturated one loses what 10 % take.
    pub const DEFAULT: CostLimit = CostLimit { of_used: 0.03, of_unused: 0.15 };

    /// A share of one CPU, or of what the process uses if that is more.
    pub fn share(share: f64) -> CostLimit {
        CostLimit { of_used: share, of_unused: share }
    }

    /// Returns the CPUs that recording may take from a process that uses so many.
    fn allowed(&self, cpus: f64) -> f64 {
        self.of_used * cpus + self.of_unused * (1.0 - cpus).max(0.0)
    }
}

/// Part of the limit that is aimed at: estimates of costs err.
const AIM: f64 = 0.85;
/// Shortest and longest window, in nanoseconds. Lengths vary, so that windows meet each phase of
/// what repeats itself. A request that takes longer than a window is not seen.
const SHORTEST: f64 = 50e6;
const LONGEST: f64 = 400e6;
/// Cost that may be saved up, and that must be made up for, as time in which it is allowed.
const CREDIT: f64 = 0.25e9;
const DEBT: f64 = 10e9;
/// Nanoseconds in which the recorder reads the symbols of the program: that costs what it costs.
const START: u64 = 3_000_000_000;
/// Nanoseconds between two looks at the CPU time of the process, which the kernel tells in ticks.
const USE: u64 = 200_000_000;
/// Time over which that is averaged: a single slow request is no saturation.
const AVERAGED: f64 = 500e6;
/// Change of the CPUs that the process uses after which programs are measured anew.
const CHANGED: f64 = 0.2;

/// Decides when sources record.
#[derive(Debug)]
pub struct Windows {
    /// `None`: recording may cost what it costs.
    limit: Option<CostLimit>,
    ledger: Ledger,
    meter: ProgramMeter,
    is_on: bool,
    /// When the current window, or the pause, began and will end.
    began: u64,
    end: u64,
    /// Nanoseconds of the pauses that have ended.
    paused: u64,
    /// Cost of programs in the windows that have ended.
    programs: u64,
    /// The kernel tells what programs cost.
    is_metered: bool,
    /// CPUs that the process used when that was last measured because of a change.
    measured: f64,
    /// State of the random lengths: the time of the begin is random enough for them.
    random: u64,
}

/// Costs and what is allowed.
#[derive(Clone, Copy, Debug, Default)]
struct Ledger {
    /// What was spent beyond what is allowed, in nanoseconds; below 0 what is left.
    debt: f64,
    begin: u64,
    time: u64,
    imposed: u64,
    own: u64,
    /// CPUs that the process uses.
    cpus: f64,
    /// CPUs that recording may take.
    allowed: f64,
    used: (u64, u64),
}

/// What was spent since the recording began, in nanoseconds of CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spending {
    /// By the recorder itself.
    pub own: u64,
    /// By the recorded processes.
    pub used: u64,
}

/// What a step has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowChange {
    /// Sources record again.
    Began,
    /// Sources have stopped to record, until the next window.
    Ended,
}

impl Windows {
    /// Begins at a time with sources that record; without a limit they always do.
    pub fn new(limit: Option<CostLimit>, now: u64, spending: Spending, sources: &[&mut dyn RecordSource]) -> Windows {
        let ledger =
            Ledger { begin: now, time: now, own: spending.own, used: (now, spending.used), ..Ledger::default() };
        let mut meter = ProgramMeter::default();
        if limit.is_some() {
            meter.begin(&programs(sources), true);
        }
        let mut windows = Windows {
            limit,
            ledger,
            meter,
            is_on: true,
            began: now,
            end: now,
            paused: 0,
            programs: 0,
            is_metered: true,
            measured: 0.0,
            random: now.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        windows.end = if limit.is_some() { now + windows.length() } else { u64::MAX };
        windows
    }

    /// Returns when [`Windows::step`] has something to decide; never without a limit.
    pub fn next(&self) -> u64 {
        self.end
    }

    /// Returns for how many nanoseconds nothing was recorded.
    pub fn paused(&self, now: u64) -> u64 {
        self.paused + if self.is_on { 0 } else { now.saturating_sub(self.began) }
    }

    /// Ends a window or a pause whose time has come: switches the sources.
    ///
    /// # Errors
    /// A source can't be switched.
    pub fn step(
        &mut self,
        now: u64,
        spending: Spending,
        sources: &mut [&mut dyn RecordSource],
    ) -> Result<Option<WindowChange>, SourceError> {
        let Some(limit) = self.limit.filter(|_| now >= self.end) else { return Ok(None) };
        let was_on = self.is_on;
        if was_on {
            let cost = self.meter.end(&programs(sources), now.saturating_sub(self.began));
            self.is_metered = cost.is_some();
            self.programs += cost.unwrap_or(0);
        }
        let events: u64 = sources.iter().map(|source| source.cost(!self.is_metered)).sum();
        self.ledger.update(limit, now, self.programs + events, spending);
        // A short pause is not worth its begin and its end.
        let pause = Some(self.ledger.pause()).filter(|pause| *pause >= SHORTEST as u64).unwrap_or(0);
        self.is_on = !was_on || pause == 0;
        if was_on && !self.is_on {
            // Requests first: of each that was seen, all samples were.
            for source in sources.iter_mut().rev() {
                source.set_recording(false)?;
            }
        } else if !was_on {
            self.paused += now.saturating_sub(self.began);
            for source in sources.iter_mut() {
                source.set_recording(true)?;
            }
        }
        let varied = (pause as f64 * (0.5 + self.fraction())) as u64;
        self.end = now
            + match (was_on, self.is_on) {
                // As long as all of the time is recorded, it may become too dear at any time.
                (true, true) => SHORTEST as u64,
                (false, true) => self.length(),
                (_, false) => varied,
            };
        self.began = now;
        if self.is_on {
            let has_changed = (self.ledger.cpus - self.measured).abs() > CHANGED;
            self.measured = if has_changed { self.ledger.cpus } else { self.measured };
            self.meter.begin(&programs(sources), has_changed);
        }
        Ok(match (was_on, self.is_on) {
            (true, false) => Some(WindowChange::Ended),
            (false, true) => Some(WindowChange::Began),
            _ => None,
        })
    }

    /// Returns the length of a window: as often twice as long as half as long.
    fn length(&mut self) -> u64 {
        (SHORTEST * (LONGEST / SHORTEST).powf(self.fraction())) as u64
    }

    /// Returns a number from 0 to 1 (xorshift).
    fn fraction(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl Ledger {
    fn update(&mut self, limit: CostLimit, now: u64, imposed: u64, spending: Spending) {
        let elapsed = now.saturating_sub(self.time) as f64;
        let looked = now.saturating_sub(self.used.0);
        if looked >= USE || self.time == self.begin {
            let cpus = spending.used.saturating_sub(self.used.1) as f64 / looked.max(1) as f64;
            let weight = if self.time == self.begin { 1.0 } else { (looked as f64 / AVERAGED).min(1.0) };
            self.cpus += weight * (cpus - self.cpus);
            self.used = (now, spending.used);
            self.allowed = AIM * limit.allowed(self.cpus);
        }
        let allowed = self.allowed;
        let new = imposed.saturating_sub(self.imposed) as f64;
        let own = spending.own.saturating_sub(self.own) as f64;
        let own = if now < self.begin + START { own.min(new + allowed * elapsed) } else { own };
        self.debt = (self.debt + new + own - allowed * elapsed).clamp(-allowed * CREDIT, allowed * DEBT);
        (self.time, self.imposed, self.own) = (now, imposed.max(self.imposed), spending.own);
    }

    /// Returns the nanoseconds that make up for what was spent.
    fn pause(&self) -> u64 {
        (self.debt.max(0.0) / self.allowed.max(1e-6)) as u64
    }
}

fn programs<'a>(sources: &'a [&mut dyn RecordSource]) -> Vec<RunningProgram<'a>> {
    sources.iter().flat_map(|source| source.programs()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::Record;

    /// Costs so much of a CPU while it records.
    struct Costly {
        share: f64,
        cost: f64,
        is_on: bool,
    }

    impl RecordSource for Costly {
        fn poll(&mut self, _: &mut dyn FnMut(Record)) -> Result<(), SourceError> {
            Ok(())
        }

        fn set_recording(&mut self, is_on: bool) -> Result<(), SourceError> {
            assert_ne!(is_on, self.is_on);
            self.is_on = is_on;
            Ok(())
        }

        fn programs(&self) -> Vec<RunningProgram<'_>> {
            Vec::new()
        }

        fn cost(&self, _: bool) -> u64 {
            self.cost as u64
        }
    }

    /// Records so many seconds of a program that uses so many CPUs; returns the shares of time that
    /// were recorded and that recording cost.
    fn play(limit: CostLimit, share: f64, cpus: f64, seconds: u64) -> (f64, f64) {
        const STEP: u64 = 10_000_000;
        let mut source = Costly { share, cost: 0.0, is_on: true };
        let mut windows = Windows::new(Some(limit), 0, Spending::default(), &[]);
        let mut now = 0;
        while now < seconds * 1_000_000_000 {
            now += STEP;
            source.cost += if source.is_on { source.share * STEP as f64 } else { 0.0 };
            let spending = Spending { own: 0, used: (now as f64 * cpus) as u64 };
            windows.step(now, spending, &mut [&mut source]).unwrap();
        }
        (1.0 - windows.paused(now) as f64 / now as f64, source.cost / now as f64)
    }

    #[test]
    fn what_costs_little_is_recorded_whole() {
        assert_eq!(play(CostLimit::share(0.03), 0.02, 0.1, 20).0, 1.0);
        // A program of four CPUs may lose four times as much.
        assert_eq!(play(CostLimit::share(0.03), 0.08, 4.0, 20).0, 1.0);
    }

    #[test]
    fn a_process_that_leaves_some_of_a_cpu_may_lose_more() {
        let default = CostLimit::DEFAULT;
        assert_eq!(play(default, 0.06, 0.2, 20).0, 1.0);
        let (recorded, cost) = play(default, 0.06, 1.0, 100);
        assert!(recorded < 0.6 && cost < 0.03, "{recorded} {cost}");
        assert!((default.allowed(0.5) - 0.09).abs() < 1e-9);
        assert!((CostLimit::share(0.1).allowed(0.5) - 0.1).abs() < 1e-9);
    }

    #[test]
    fn without_a_limit_nothing_pauses() {
        let mut source = Costly { share: 1.0, cost: 1e12, is_on: true };
        let mut windows = Windows::new(None, 0, Spending::default(), &[]);
        assert_eq!(windows.step(1 << 40, Spending::default(), &mut [&mut source]).unwrap(), None);
    }

    #[test]
    fn a_burst_of_the_recorder_does_not_stop_it_for_long() {
        let mut source = Costly { share: 0.01, cost: 0.0, is_on: true };
        let mut windows = Windows::new(Some(CostLimit::share(0.03)), 0, Spending::default(), &[]);
        windows.step(400_000_000, Spending { own: 300_000_000, used: 0 }, &mut [&mut source]).unwrap();
        assert!(windows.next() < 2_000_000_000);
    }

    proptest! {
        /// Whatever recording costs while it is on, over time it costs about the limit at most,
        /// and the share that is recorded follows.
        #[test]
        fn the_cost_is_bounded(share in 0.001f64..0.5, cpus in 0.1f64..1.0) {
            let (recorded, cost) = play(CostLimit::share(0.03), share, cpus, 200);
            prop_assert!(cost < 0.03, "{cost}");
            prop_assert!(recorded > 0.7 * (0.0255 / share).min(1.0), "{recorded}");
        }
    }
}
