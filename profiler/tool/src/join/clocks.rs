//! Converts the times of all processes to the clock of the front process.
//!
//! Processes with the same boot id share a clock, unless their calls contradict that. Other clocks
//! are aligned by calls, over several processes if necessary.

use serde::Serialize;

use super::align::{Alignment, ClockOffset, ClockPair, align, contradict_same_clock};

/// Greatest share of the calls that may contradict the others, in per cent.
const CONTRADICTING_MAX: usize = 5;

/// Origin of the relation between a clock and the front's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockSource {
    /// The front process itself.
    Front,
    /// Both processes ran on the same host.
    SameHost,
    /// Calls between the processes.
    Calls,
    /// No calls connect the process with the front, or they contradict each other.
    Unknown,
}

/// Relation of a process's clock to the front's.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessClock {
    /// Origin of the relation.
    pub source: ClockSource,
    /// Converted times may differ by so many nanoseconds.
    pub uncertainty: u64,
    /// Number of calls that were compared on the way.
    pub calls: usize,
    /// Number of calls that contradict the alignment by calls.
    pub contradicting: usize,
    /// Steps to the front's clock. `true`: the step leads from a called process to its caller.
    #[serde(skip)]
    steps: Vec<(ClockOffset, bool)>,
}

impl ProcessClock {
    fn unknown() -> ProcessClock {
        ProcessClock { source: ClockSource::Unknown, uncertainty: 0, calls: 0, contradicting: 0, steps: Vec::new() }
    }

    /// Converts a time of the process's clock to the front's; `None` if the relation is unknown.
    pub fn to_front(&self, time: u64) -> Option<u64> {
        let step = |time, (offset, to_caller): &(ClockOffset, bool)| {
            if *to_caller { offset.to_caller(time) } else { offset.to_called(time) }
        };
        (self.source != ClockSource::Unknown).then(|| self.steps.iter().fold(time, step))
    }
}

/// Relates the clocks of all processes to the front's.
///
/// `boots` are the boot ids; `pairs` returns the answered calls from one process to another.
pub(super) fn relate(
    boots: &[&str],
    front: usize,
    pairs: impl Fn(usize, usize) -> Vec<ClockPair>,
) -> Vec<ProcessClock> {
    let mut clocks: Vec<ProcessClock> = boots.iter().map(|_| ProcessClock::unknown()).collect();
    clocks[front].source = ClockSource::Front;
    // Breadth first: the shortest chain has the smallest uncertainty. Processes without calls come
    // last, since no call can contradict that they share a clock.
    let mut reached = vec![front];
    for by_calls in [true, false] {
        let mut next = 0;
        while let Some(near) = reached.get(next).copied() {
            next += 1;
            for far in 0..boots.len() {
                if clocks[far].source != ClockSource::Unknown {
                    continue;
                }
                if let Some(clock) = connect(boots, near, far, by_calls, &clocks[near], &pairs) {
                    clocks[far] = clock;
                    reached.push(far);
                }
            }
        }
    }
    clocks
}

/// Relates the clock of `far` to the front's by that of `near`, by calls or by the boot ids alone.
fn connect(
    boots: &[&str],
    near: usize,
    far: usize,
    by_calls: bool,
    near_clock: &ProcessClock,
    pairs: &impl Fn(usize, usize) -> Vec<ClockPair>,
) -> Option<ProcessClock> {
    let (to, back) = (pairs(near, far), pairs(far, near));
    let calls = to.len() + back.len();
    if (calls > 0) != by_calls {
        return None;
    }
    let is_same_host = !boots[near].is_empty() && boots[near] == boots[far];
    let contradicting = contradict_same_clock(&to) + contradict_same_clock(&back);
    // The direction with more calls: both together would only narrow the bounds.
    let (used, to_caller) = if to.len() >= back.len() { (to, true) } else { (back, false) };
    let is_certain = is_same_host && contradicting * 100 <= calls * CONTRADICTING_MAX;
    let aligned = if is_certain { None } else { align(&used) };
    // A call that was given up before its request began contradicts any clock. Only a clock that
    // most calls confirm replaces the host's: that of a time namespace.
    let is_better = |aligned: &Alignment| aligned.contradicting * 2 < contradict_same_clock(&used);
    if is_same_host && !aligned.as_ref().is_some_and(is_better) {
        let source = if near_clock.source == ClockSource::Front { ClockSource::SameHost } else { near_clock.source };
        return Some(ProcessClock { source, calls: near_clock.calls + calls, ..near_clock.clone() });
    }
    let Alignment { offset, calls, contradicting } = aligned?;
    if contradicting * 2 > calls {
        return None;
    }
    let mut steps = vec![(offset, to_caller)];
    steps.extend(&near_clock.steps);
    Some(ProcessClock {
        source: ClockSource::Calls,
        uncertainty: near_clock.uncertainty.saturating_add(offset.uncertainty),
        calls: near_clock.calls + calls,
        contradicting: near_clock.contradicting + contradicting,
        steps,
    })
}

impl ProcessClock {
    /// Returns whether more calls contradict the clock than errors in some spans explain.
    pub fn is_doubtful(&self) -> bool {
        self.source != ClockSource::Unknown && self.contradicting * 100 > self.calls * CONTRADICTING_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(at: u64, ahead: u64) -> ClockPair {
        ClockPair { sent: at, answered: at + 10_000, start: at + 1_000 + ahead, end: at + 9_000 + ahead }
    }

    /// Process 0 calls 1, which calls 2; the clock of 2 is 7 ms ahead of the others.
    fn chain(from: usize, to: usize) -> Vec<ClockPair> {
        match (from, to) {
            (0, 1) => (1..50).map(|call| pair(call * 1_000_000, 0)).collect(),
            (1, 2) => (1..50).map(|call| pair(call * 1_000_000, 7_000_000)).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn a_chain_of_calls_relates_all_clocks() {
        for front in 0..3 {
            let clocks = relate(&["", "", ""], front, chain);
            assert!(clocks.iter().all(|clock| clock.source != ClockSource::Unknown), "{clocks:?}");
            let ahead = if front == 2 { 0 } else { 7_000_000 };
            let at = clocks[2].to_front(50_000_000).unwrap();
            assert!(at.abs_diff(50_000_000 - ahead) <= 2_000, "{front}: {at}");
            let at = clocks[0].to_front(50_000_000).unwrap();
            assert!(at.abs_diff(50_000_000 + 7_000_000 - ahead) <= 2_000, "{front}: {at}");
        }
    }

    #[test]
    fn the_same_boot_id_means_the_same_clock_unless_calls_contradict_it() {
        let same = |from, to| if (from, to) == (0, 1) { chain(0, 1) } else { Vec::new() };
        let clocks = relate(&["a", "a", "a"], 0, same);
        assert_eq!(clocks.iter().map(|one| one.uncertainty).max(), Some(0));
        assert_eq!((clocks[1].source, clocks[2].source), (ClockSource::SameHost, ClockSource::SameHost));
        // A time namespace has a clock of its own.
        let clocks = relate(&["a", "a", "a"], 0, chain);
        assert_eq!((clocks[1].source, clocks[2].source), (ClockSource::SameHost, ClockSource::Calls));
        assert_eq!(clocks[2].to_front(50_000_000).map(|at| at / 1_000_000), Some(43));
    }

    #[test]
    fn a_process_without_calls_has_an_unknown_clock() {
        let clocks = relate(&["a", "b"], 0, |_, _| Vec::new());
        assert_eq!((clocks[1].source, clocks[1].to_front(5)), (ClockSource::Unknown, None));
    }
}
