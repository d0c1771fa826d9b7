//! Which processes are recorded, and in which trace.
//!
//! Children that execute no other program share the trace of their parent. Contains no traces.

use std::collections::{BTreeMap, BTreeSet};

use crate::process::Process;

/// Number of a trace in a recording.
pub(super) type TraceNumber = u64;

/// Limit of processes at a time, with those that have ended a moment ago.
pub(super) const PROCESSES: usize = 1 << 12;

/// A process that is recorded.
#[derive(Debug)]
struct Member {
    trace: TraceNumber,
    /// `None` if it ended before it could be opened: then its end is in the records.
    process: Option<Process>,
    /// When it was seen to have ended.
    ended: Option<u64>,
    /// Requests that it had answered at the last count.
    answered: u64,
}

/// The recorded processes.
#[derive(Debug, Default)]
pub(super) struct Members(BTreeMap<u32, Member>);

impl Members {
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= PROCESSES
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.0.keys().copied()
    }

    /// Returns the trace of a process.
    pub(super) fn trace(&self, pid: u32) -> Option<TraceNumber> {
        self.0.get(&pid).map(|member| member.trace)
    }

    /// Returns whether other processes have, or lately had, the trace of this one.
    pub(super) fn shares(&self, pid: u32) -> bool {
        let trace = self.trace(pid);
        self.0.iter().any(|(other, member)| *other != pid && Some(member.trace) == trace)
    }

    pub(super) fn process(&self, pid: u32) -> Option<&Process> {
        self.0.get(&pid)?.process.as_ref()
    }

    /// Adds a process. One without a handle counts as ended at this time.
    pub(super) fn add(&mut self, pid: u32, trace: TraceNumber, process: Option<Process>, now: u64) {
        let ended = process.is_none().then_some(now);
        self.0.insert(pid, Member { trace, process, ended, answered: 0 });
    }

    /// Forgets a process.
    pub(super) fn remove(&mut self, pid: u32) {
        self.0.remove(&pid);
    }

    /// From now on the process has another trace.
    pub(super) fn set_trace(&mut self, pid: u32, trace: TraceNumber) {
        if let Some(member) = self.0.get_mut(&pid) {
            member.trace = trace;
        }
    }

    /// Returns whether the process is recorded and has not ended: numbers are used again.
    pub(super) fn is_running(&self, pid: u32) -> bool {
        let is_running =
            |member: &Member| member.ended.is_none() && member.process.as_ref().is_some_and(Process::is_running);
        self.0.get(&pid).is_some_and(is_running)
    }

    /// Notes which processes have ended until this time: of all, or of this one.
    pub(super) fn note_ended(&mut self, of: Option<u32>, now: u64) {
        let range = of.map_or(0..=u32::MAX, |pid| pid..=pid);
        for (_, member) in self.0.range_mut(range) {
            if member.ended.is_none() && member.process.as_ref().is_some_and(|process| !process.is_running()) {
                member.ended = Some(now);
            }
        }
    }

    /// Returns whether all processes have ended.
    pub(super) fn have_ended(&self) -> bool {
        self.0.values().all(|member| member.ended.is_some())
    }

    /// Returns whether all processes of a trace have ended, and when the last one did.
    pub(super) fn end_of(&self, trace: TraceNumber) -> Option<u64> {
        let ends: Option<Vec<u64>> =
            self.0.values().filter(|member| member.trace == trace).map(|member| member.ended).collect();
        ends?.into_iter().max()
    }

    /// Forgets processes that ended before this time; returns when the last one of each trace did.
    pub(super) fn forget_ended(&mut self, before: u64) -> BTreeMap<TraceNumber, u64> {
        let mut ends = BTreeMap::new();
        self.0.retain(|_, member| {
            let Some(ended) = member.ended.filter(|ended| *ended < before) else { return true };
            let end = ends.entry(member.trace).or_insert(ended);
            *end = ended.max(*end);
            false
        });
        ends
    }

    /// Returns the traces of the processes.
    pub(super) fn traces(&self) -> BTreeSet<TraceNumber> {
        self.0.values().map(|member| member.trace).collect()
    }

    /// Returns how many requests the processes of each trace have answered since the last count.
    pub(super) fn count(&mut self, answered: &BTreeMap<u32, u64>) -> BTreeMap<TraceNumber, u64> {
        let mut counts = BTreeMap::new();
        for (pid, member) in &mut self.0 {
            let now = answered.get(pid).copied().unwrap_or(member.answered);
            *counts.entry(member.trace).or_default() += now.saturating_sub(member.answered);
            member.answered = now;
        }
        counts
    }

    /// Returns the CPU time of the processes, and of children that they have waited for.
    pub(super) fn cpu_time(&self) -> u64 {
        let times = self.0.values().filter_map(|member| member.process.as_ref()?.cpu_time());
        times.fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes 1 to 4 in traces 7, 7, 8 and 8. None is open, so that all end when they come.
    fn members() -> Members {
        let mut members = Members::default();
        for (pid, trace, time) in [(1, 7, 10), (2, 7, 20), (3, 8, 30), (4, 8, 40)] {
            members.add(pid, trace, None, time);
        }
        members
    }

    #[test]
    fn a_trace_ends_with_its_last_process() {
        let mut members = members();
        assert_eq!((members.end_of(7), members.end_of(9)), (Some(20), None));
        assert_eq!(members.forget_ended(20), BTreeMap::from([(7, 10)]));
        assert_eq!(members.traces(), BTreeSet::from([7, 8]), "process 2 still has it");
        assert!(!members.shares(2) && members.shares(3));
        assert_eq!(members.forget_ended(40), BTreeMap::from([(7, 20), (8, 30)]));
        assert_eq!(members.traces(), BTreeSet::from([8]));
    }

    #[test]
    fn requests_count_for_the_trace_that_the_process_has_now() {
        let mut members = members();
        let mut answered = BTreeMap::from([(1, 5), (2, 6), (3, 1)]);
        assert_eq!(members.count(&answered), BTreeMap::from([(7, 11), (8, 1)]));
        members.set_trace(2, 9);
        answered.insert(2, 16);
        // The source has forgotten process 1.
        answered.remove(&1);
        assert_eq!(members.count(&answered), BTreeMap::from([(7, 0), (8, 0), (9, 10)]));
    }

    #[test]
    fn a_process_that_runs_has_not_ended() {
        let mut members = Members::default();
        let own = std::process::id();
        members.add(own, 1, Some(Process::open(own).unwrap()), 5);
        members.note_ended(Some(own), 6);
        members.note_ended(None, 7);
        assert!(members.is_running(own) && !members.have_ended());
        assert_eq!(members.end_of(1), None);
    }
}
